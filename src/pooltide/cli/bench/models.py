"""Small models with the pools of well-known networks, in plain torch.nn, and the inputs that they take.

Convolutions are few and narrow, so that a step shows what its pools cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Model:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input, without the batch
    batch: dict[str, int]  # by device


class Branches(nn.Module):
    """Runs its branches on the same input, and joins their results as channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Chain(nn.Module):
    """Repeats one pool, as YOLO's SPPF does, and joins the input and all results as channels."""

    def __init__(self, pool: nn.Module, times: int) -> None:
        super().__init__()
        self.pool, self.times = pool, times

    def forward(self, x: Tensor) -> Tensor:
        outputs = [x]
        for _ in range(self.times):
            outputs.append(self.pool(outputs[-1]))
        return torch.cat(outputs, 1)


class Pyramid(nn.Module):
    """Averages the plane to a few cells, and repeats them over the plane."""

    def __init__(self, inner: int, outer: int, cells: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(cells), nn.Conv2d(inner, outer, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.body(x), x.shape[-2:], mode="nearest")


class Level(nn.Module):
    """One level of a 3-D U-Net: down by a max pool, up by a transposed convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.outer, self.inner = _conv3d(1, width), _conv3d(width, 2 * width)
        self.down, self.up = nn.MaxPool3d(2), nn.ConvTranspose3d(2 * width, width, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.outer(x)
        return torch.cat([x, self.up(self.inner(self.down(x)))], 1)


def _conv(inner: int, outer: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer), nn.ReLU())


def _conv3d(inner: int, outer: int, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(inner, outer, kernel, padding=kernel // 2), nn.ReLU())


def _conv1d(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inner, outer, 9, 2, 4), nn.ReLU())


def _lenet() -> nn.Module:
    features = [_conv(1, 16, 5), nn.AvgPool2d(2), _conv(16, 32, 5), nn.AvgPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(32 * 49, 10))


def _vgg() -> nn.Module:
    features = [_conv(3, 16, 3), nn.MaxPool2d(2), _conv(16, 32, 3), nn.MaxPool2d(2), _conv(32, 64, 3)]
    head = [nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(64 * 49, 10)]
    return nn.Sequential(*features, *head)


def _resnet_stem() -> nn.Module:
    return nn.Sequential(_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), _conv(64, 32, 1))


def _inception() -> nn.Module:
    average = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), _conv(64, 16, 1))
    halved = Branches(_conv(48, 16, 3, 2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(_conv(3, 64, 3), Branches(_conv(64, 32, 1), average), halved)


def _densenet() -> nn.Module:
    return nn.Sequential(_conv(3, 128, 3), _conv(128, 64, 1), nn.AvgPool2d(2), _conv(64, 64, 1))


def _sppf() -> nn.Module:
    return nn.Sequential(_conv(3, 64, 3), Chain(nn.MaxPool2d(5, 1, 2), 3), _conv(256, 64, 1))


def _spp() -> nn.Module:
    pools = [nn.MaxPool2d(k, 1, k // 2) for k in (13, 9, 5)]
    return nn.Sequential(_conv(3, 64, 3), Branches(*pools, nn.Identity()), _conv(256, 64, 1))


def _pspnet() -> nn.Module:
    levels = [Pyramid(64, 16, cells) for cells in (1, 2, 3, 6)]
    return nn.Sequential(_conv(3, 64, 3), Branches(nn.Identity(), *levels), _conv(128, 16, 1))


def _video() -> nn.Module:
    pooled = nn.Sequential(nn.MaxPool3d(3, 1, 1), _conv3d(32, 16, 1))
    stem = [_conv3d(3, 32, 1), nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))]
    head = [nn.AvgPool3d((2, 7, 7), 1), nn.AdaptiveMaxPool3d((3, 4, 4))]
    return nn.Sequential(*stem, Branches(_conv3d(32, 16, 1), pooled), *head)


def _audio() -> nn.Module:
    features = [_conv1d(1, 32), nn.MaxPool1d(4), _conv1d(32, 64), nn.AvgPool1d(3, 2, 1)]
    return nn.Sequential(*features, nn.AdaptiveAvgPool1d(61), nn.Flatten(), nn.Linear(64 * 61, 10))


MODELS = {
    "LeNet": Model(_lenet, (1, 28, 28), {"cpu": 128, "cuda": 4096}),
    "VGG": Model(_vgg, (3, 112, 112), {"cpu": 8, "cuda": 256}),
    "ResNet stem": Model(_resnet_stem, (3, 224, 224), {"cpu": 4, "cuda": 256}),
    "Inception block": Model(_inception, (3, 35, 35), {"cpu": 16, "cuda": 1024}),
    "DenseNet transition": Model(_densenet, (3, 56, 56), {"cpu": 4, "cuda": 256}),
    "YOLO SPPF": Model(_sppf, (3, 40, 40), {"cpu": 4, "cuda": 512}),
    "YOLO SPP": Model(_spp, (3, 40, 40), {"cpu": 4, "cuda": 512}),
    "PSPNet head": Model(_pspnet, (3, 60, 60), {"cpu": 8, "cuda": 256}),
    "U-Net 3-D level": Model(lambda: Level(16), (1, 32, 32, 32), {"cpu": 2, "cuda": 64}),
    "I3D block": Model(_video, (3, 16, 56, 56), {"cpu": 2, "cuda": 64}),
    "1-D audio": Model(_audio, (1, 16000), {"cpu": 8, "cuda": 512}),
}
