"""Printed by `pooltide ops --stub` from the operator pages; changes here are lost."""

from collections.abc import Callable
from typing import Any

from .acl import aclIntArray, aclOpExecutor, aclTensor

PhaseOne = tuple[int, aclOpExecutor | None, int]
FUNCTIONS: dict[str, Callable[..., Any]]

def aclnnAdaptiveAvgPool2dGetWorkspaceSize(
    self: aclTensor | None,
    outputSize: aclIntArray | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveAvgPool2d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveAvgPool2dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveAvgPool3dGetWorkspaceSize(
    self: aclTensor | None,
    outputSize: aclIntArray | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveAvgPool3d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveAvgPool3dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveMaxPool2dGetWorkspaceSize(
    self: aclTensor | None,
    outputSize: aclIntArray | None,
    outputOut: aclTensor | None,
    indicesOut: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveMaxPool2d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveMaxPool2dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveMaxPool3dGetWorkspaceSize(
    self: aclTensor | None,
    outputSize: aclIntArray | None,
    outputOut: aclTensor | None,
    indicesOut: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveMaxPool3d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnAdaptiveMaxPool3dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAvgPool2dGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    strides: aclIntArray | None,
    paddings: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAvgPool2d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnAvgPool2dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAvgPool3dGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnAvgPool3d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnAvgPool3dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    output: aclTensor | None,
) -> PhaseOne: ...
def aclnnAvgPool3dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnGlobalAveragePoolGetWorkspaceSize(
    self: aclTensor | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnGlobalAveragePool(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnGlobalMaxPoolGetWorkspaceSize(
    self: aclTensor | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnGlobalMaxPool(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPoolGetWorkspaceSize(
    self: aclTensor | None,
    kernelShape: aclIntArray | None,
    strides: aclIntArray | None,
    autoPad: int,
    pads: aclIntArray | None,
    dilations: aclIntArray | None,
    ceilMode: int,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool2dWithIndicesGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    out: aclTensor | None,
    indices: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool2dWithIndices(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool2dWithIndicesBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool2dWithIndicesBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool2dWithMaskGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    out: aclTensor | None,
    indices: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool2dWithMask(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool2dWithMaskBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool2dWithMaskBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool3dWithArgmaxGetWorkspaceSize(
    self: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    out: aclTensor | None,
    indices: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool3dWithArgmax(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxPool3dWithArgmaxBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    kernelSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    dilation: aclIntArray | None,
    ceilMode: bool,
    gradInput: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxPool3dWithArgmaxBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxUnpool2dGetWorkspaceSize(
    self: aclTensor | None,
    indices: aclTensor | None,
    outputSize: aclIntArray | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxUnpool2d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxUnpool2dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    outputSize: aclIntArray | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxUnpool2dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxUnpool3dGetWorkspaceSize(
    self: aclTensor | None,
    indices: aclTensor | None,
    outputSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    outRef: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxUnpool3d(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
def aclnnMaxUnpool3dBackwardGetWorkspaceSize(
    gradOutput: aclTensor | None,
    self: aclTensor | None,
    indices: aclTensor | None,
    outputSize: aclIntArray | None,
    stride: aclIntArray | None,
    padding: aclIntArray | None,
    out: aclTensor | None,
) -> PhaseOne: ...
def aclnnMaxUnpool3dBackward(
    workspace: int | None,
    workspaceSize: int,
    executor: aclOpExecutor | None,
    stream: Any,
) -> int: ...
