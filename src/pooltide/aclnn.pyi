"""Printed by `pooltide ops --stub` from the operator pages; changes here are lost."""

from collections.abc import Callable
from typing import Any, Protocol

from .acl import aclIntArray, aclOpExecutor, aclTensor

# fmt: off
Executor = aclOpExecutor | None
PhaseOne = tuple[int, Executor, int]  # status, executor, size of the workspace
FUNCTIONS: dict[str, Callable[..., Any]]

class PhaseTwo(Protocol):
    def __call__(self, workspace: int | None, workspaceSize: int, executor: Executor, stream: Any) -> int: ...

def aclnnAdaptiveAvgPool2dGetWorkspaceSize(self: aclTensor | None, outputSize: aclIntArray | None,
    out: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    out: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveAvgPool3dGetWorkspaceSize(self: aclTensor | None, outputSize: aclIntArray | None,
    out: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    out: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveMaxPool2dGetWorkspaceSize(self: aclTensor | None, outputSize: aclIntArray | None,
    outputOut: aclTensor | None, indicesOut: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveMaxPool3dGetWorkspaceSize(self: aclTensor | None, outputSize: aclIntArray | None,
    outputOut: aclTensor | None, indicesOut: aclTensor | None) -> PhaseOne: ...
def aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnAvgPool2dGetWorkspaceSize(self: aclTensor | None, kernelSize: aclIntArray | None,
    strides: aclIntArray | None, paddings: aclIntArray | None, ceilMode: bool, countIncludePad: bool,
    divisorOverride: int, cubeMathType: int, out: aclTensor | None) -> PhaseOne: ...
def aclnnAvgPool2dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    kernelSize: aclIntArray | None, stride: aclIntArray | None, padding: aclIntArray | None, ceilMode: bool,
    countIncludePad: bool, divisorOverride: int, cubeMathType: int,
    gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnAvgPool3dGetWorkspaceSize(self: aclTensor | None, kernelSize: aclIntArray | None,
    stride: aclIntArray | None, padding: aclIntArray | None, ceilMode: bool, countIncludePad: bool,
    divisorOverride: int, out: aclTensor | None) -> PhaseOne: ...
def aclnnAvgPool3dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    kernelSize: aclIntArray | None, stride: aclIntArray | None, padding: aclIntArray | None, ceilMode: bool,
    countIncludePad: bool, divisorOverride: int, output: aclTensor | None) -> PhaseOne: ...
def aclnnGlobalAveragePoolGetWorkspaceSize(self: aclTensor | None, out: aclTensor | None) -> PhaseOne: ...
def aclnnGlobalMaxPoolGetWorkspaceSize(self: aclTensor | None, out: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPoolGetWorkspaceSize(self: aclTensor | None, kernelShape: aclIntArray | None,
    strides: aclIntArray | None, autoPad: int, pads: aclIntArray | None, dilations: aclIntArray | None,
    ceilMode: int, out: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool2dWithIndicesGetWorkspaceSize(self: aclTensor | None, kernelSize: aclIntArray | None,
    stride: aclIntArray | None, padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    out: aclTensor | None, indices: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool2dWithIndicesBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, kernelSize: aclIntArray | None, stride: aclIntArray | None,
    padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool2dWithMaskGetWorkspaceSize(self: aclTensor | None, kernelSize: aclIntArray | None,
    stride: aclIntArray | None, padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    out: aclTensor | None, indices: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool2dWithMaskBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, kernelSize: aclIntArray | None, stride: aclIntArray | None,
    padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool3dWithArgmaxGetWorkspaceSize(self: aclTensor | None, kernelSize: aclIntArray | None,
    stride: aclIntArray | None, padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    out: aclTensor | None, indices: aclTensor | None) -> PhaseOne: ...
def aclnnMaxPool3dWithArgmaxBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, kernelSize: aclIntArray | None, stride: aclIntArray | None,
    padding: aclIntArray | None, dilation: aclIntArray | None, ceilMode: bool,
    gradInput: aclTensor | None) -> PhaseOne: ...
def aclnnMaxUnpool2dGetWorkspaceSize(self: aclTensor | None, indices: aclTensor | None,
    outputSize: aclIntArray | None, out: aclTensor | None) -> PhaseOne: ...
def aclnnMaxUnpool2dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, outputSize: aclIntArray | None, out: aclTensor | None) -> PhaseOne: ...
def aclnnMaxUnpool3dGetWorkspaceSize(self: aclTensor | None, indices: aclTensor | None,
    outputSize: aclIntArray | None, stride: aclIntArray | None, padding: aclIntArray | None,
    outRef: aclTensor | None) -> PhaseOne: ...
def aclnnMaxUnpool3dBackwardGetWorkspaceSize(gradOutput: aclTensor | None, self: aclTensor | None,
    indices: aclTensor | None, outputSize: aclIntArray | None, stride: aclIntArray | None,
    padding: aclIntArray | None, out: aclTensor | None) -> PhaseOne: ...
def aclnnRoiAlignGetWorkspaceSize(self: aclTensor | None, rois: aclTensor | None,
    batchIndices: aclTensor | None, mode: str | None, outputHeight: int, outputWidth: int, samplingRatio: int,
    spatialScale: float, out: aclTensor | None) -> PhaseOne: ...
def aclnnRoiAlignV2GetWorkspaceSize(self: aclTensor | None, boxes: aclTensor | None, pooledHeight: int,
    pooledWidth: int, spatialScale: float, samplingRatio: int, aligned: bool,
    out: aclTensor | None) -> PhaseOne: ...
def aclnnRoiAlignV2BackwardGetWorkspaceSize(gradOutput: aclTensor | None, boxes: aclTensor | None,
    inputShape: aclIntArray | None, pooledHeight: int, pooledWidth: int, spatialScale: float,
    samplingRatio: int, aligned: bool, gradInput: aclTensor | None) -> PhaseOne: ...

aclnnAdaptiveAvgPool2d: PhaseTwo
aclnnAdaptiveAvgPool2dBackward: PhaseTwo
aclnnAdaptiveAvgPool3d: PhaseTwo
aclnnAdaptiveAvgPool3dBackward: PhaseTwo
aclnnAdaptiveMaxPool2d: PhaseTwo
aclnnAdaptiveMaxPool2dBackward: PhaseTwo
aclnnAdaptiveMaxPool3d: PhaseTwo
aclnnAdaptiveMaxPool3dBackward: PhaseTwo
aclnnAvgPool2d: PhaseTwo
aclnnAvgPool2dBackward: PhaseTwo
aclnnAvgPool3d: PhaseTwo
aclnnAvgPool3dBackward: PhaseTwo
aclnnGlobalAveragePool: PhaseTwo
aclnnGlobalMaxPool: PhaseTwo
aclnnMaxPool: PhaseTwo
aclnnMaxPool2dWithIndices: PhaseTwo
aclnnMaxPool2dWithIndicesBackward: PhaseTwo
aclnnMaxPool2dWithMask: PhaseTwo
aclnnMaxPool2dWithMaskBackward: PhaseTwo
aclnnMaxPool3dWithArgmax: PhaseTwo
aclnnMaxPool3dWithArgmaxBackward: PhaseTwo
aclnnMaxUnpool2d: PhaseTwo
aclnnMaxUnpool2dBackward: PhaseTwo
aclnnMaxUnpool3d: PhaseTwo
aclnnMaxUnpool3dBackward: PhaseTwo
aclnnRoiAlign: PhaseTwo
aclnnRoiAlignV2: PhaseTwo
aclnnRoiAlignV2Backward: PhaseTwo
