// Gradient of an average: windows of 2 × 3, one beside the other. The vectors are longer than the tensors.
#include "session.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

int main() {
  Session s;
  if (s.Open()) return 1;
  std::vector<int64_t> selfShape = {1, 1, 2, 6}, kernelDims = {2, 3}, paddingDims = {0, 0};
  bool ceilMode = false, countIncludePad = true;
  int64_t divisorOverride = 0;
  int8_t cubeMathType = 1;
  aclTensor *gradOutput = nullptr, *self = nullptr, *gradInput = nullptr;
  std::vector<float> gradOutputHost = {6, 12, 99, 99}, selfHost(24, 1), gradInputHost(24, 1);
  if (s.Tensor(gradOutputHost, {1, 1, 1, 2}, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_NCHW, &gradOutput)) return 1;
  if (s.Tensor(selfHost, selfShape, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_NCHW, &self)) return 1;
  if (s.Tensor(gradInputHost, selfShape, aclDataType::ACL_FLOAT, aclFormat::ACL_FORMAT_NCHW, &gradInput)) return 1;
  aclIntArray *kernelSize = aclCreateIntArray(kernelDims.data(), 2);
  aclIntArray *stride = aclCreateIntArray(kernelDims.data(), 2);
  aclIntArray *padding = aclCreateIntArray(paddingDims.data(), 2);
  uint64_t workspaceSize = 0;
  aclOpExecutor* executor;
  EXPECT_OK("phase one",
            aclnnAvgPool2dBackwardGetWorkspaceSize(gradOutput, self, kernelSize, stride, padding, ceilMode,
                                                   countIncludePad, divisorOverride, cubeMathType, gradInput,
                                                   &workspaceSize, &executor));
  void* workspace = nullptr;
  if (workspaceSize > 0 && s.Malloc(workspaceSize, &workspace)) return 1;
  EXPECT_OK("phase two", aclnnAvgPool2dBackward(workspace, workspaceSize, executor, s.stream));
  if (s.Print(2, 12)) return 1;
  aclDestroyIntArray(kernelSize);
  aclDestroyIntArray(stride);
  aclDestroyIntArray(padding);
  return s.Close();
}
