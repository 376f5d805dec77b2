// Gradient of an adaptive maximum: two windows of 2 × 2, with their maxima in the cells 4 and 3.
// The maxima of a volume, with the indices of int32.
#include "session.h"
#include "aclnnop/aclnn_adaptive_max_pool3d_backward.h"

int main() {
  Session s;
  if (s.Open()) return 1;
  std::vector<int64_t> outShape = {1, 1, 1, 1, 2}, selfShape = {1, 1, 1, 2, 4};
  aclTensor *gradOut = nullptr, *self = nullptr, *indices = nullptr, *gradIn = nullptr;
  std::vector<int32_t> indicesHost = {4, 3};
  if (s.Tensor(std::vector<float>{0.25, -2}, outShape, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &gradOut)) return 1;
  if (s.Tensor(std::vector<float>(8, 1), selfShape, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &self)) return 1;
  if (s.Tensor(indicesHost, outShape, aclDataType::ACL_INT32, aclFormat::ACL_FORMAT_ND, &indices)) return 1;
  if (s.Tensor(std::vector<float>(8, 0), selfShape, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_ND, &gradIn)) return 1;
  uint64_t workspaceSize = 0;
  aclOpExecutor* executor;
  EXPECT_OK("phase one",
            aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(gradOut, self, indices, gradIn, &workspaceSize, &executor));
  void* workspace = nullptr;
  if (workspaceSize > 0 && s.Malloc(workspaceSize, &workspace)) return 1;
  EXPECT_OK("phase two", aclnnAdaptiveMaxPool3dBackward(workspace, workspaceSize, executor, s.stream));
  return s.Print(3, 8) || s.Close();
}
