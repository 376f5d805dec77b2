// Gradient of an adaptive average: three cells of a volume back to six, so each window has two.
#include "session.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

int main() {
  Session s;
  if (s.Open()) return 1;
  aclTensor *yGrad = nullptr, *x = nullptr, *xGrad = nullptr;
  std::vector<float> yGradHost = {3, 5, 7, 11, 13, 17};
  if (s.Tensor(yGradHost, {1, 2, 1, 1, 3}, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &yGrad)) return 1;
  if (s.Tensor(std::vector<float>(12, 1), {1, 2, 1, 1, 6}, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &x)) return 1;
  if (s.Tensor(std::vector<float>(12, 0), {1, 2, 1, 1, 6}, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &xGrad)) return 1;
  uint64_t workspaceSize = 0;
  aclOpExecutor* executor;
  EXPECT_OK("phase one", aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(yGrad, x, xGrad, &workspaceSize, &executor));
  void* workspace = nullptr;
  if (workspaceSize > 0 && s.Malloc(workspaceSize, &workspace)) return 1;
  EXPECT_OK("phase two", aclnnAdaptiveAvgPool3dBackward(workspace, workspaceSize, executor, s.stream));
  return s.Print(2, 12) || s.Close();
}
