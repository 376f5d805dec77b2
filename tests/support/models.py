"""Networks as users have them, in plain torch.nn, so narrow that a test can train them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(inner: int, outer: int, k: int, **more: int) -> nn.Sequential:
    more.setdefault("padding", k // 2)
    return nn.Sequential(nn.Conv2d(inner, outer, k, bias=False, **more), nn.BatchNorm2d(outer), nn.ReLU())


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    inner = 3
    for width, count in ((13, 1), (29, 1), (47, 2), (61, 2)):
        for _ in range(count):
            layers.append(conv(inner, width, 3))
            inner = width
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(inner * 49, 11))


class Inception(nn.Module):
    """The block with an average branch, and the one that halves the plane beside a max branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 23, 3)
        self.one, self.five = conv(23, 7, 1), nn.Sequential(conv(23, 5, 1), conv(5, 7, 5))
        self.three = nn.Sequential(conv(23, 5, 1), conv(5, 7, 3), conv(7, 11, 3))
        self.pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), conv(23, 5, 1))
        self.halved = conv(30, 13, 3, stride=2, padding=0)
        self.most = nn.MaxPool2d(3, 2)
        self.head = nn.Linear(43, 11)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([self.one(x), self.five(x), self.three(x), self.pooled(x)], 1)
        x = torch.cat([self.halved(x), self.most(x)], 1)
        result: Tensor = self.head(F.adaptive_avg_pool2d(x, (2, 3)).flatten(2).sum(2))
        return result


class CBAM(nn.Module):
    """Attention over channels, from average and maximum of the plane; then over the plane."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 29, 3), nn.MaxPool2d(3, 2, 1, ceil_mode=True))
        self.mlp = nn.Sequential(nn.Conv2d(29, 7, 1), nn.ReLU(), nn.Conv2d(7, 29, 1))
        self.where = nn.Conv2d(2, 1, 7, padding=3)
        self.head = nn.Linear(29, 11)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x * (self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1))).sigmoid()
        x = x * self.where(torch.cat([x.mean(1, True), x.amax(1, True)], 1)).sigmoid()
        result: Tensor = self.head(F.adaptive_max_pool2d(x, (3, 2)).sum((2, 3)))
        return result


def _double(inner: int, outer: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first in (inner, outer):
        layers += [nn.Conv3d(first, outer, 3, padding=1, bias=False), nn.BatchNorm3d(outer), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double(1, 5), _double(5, 11), _double(11, 17)])
        self.up = nn.ModuleList([nn.ConvTranspose3d(17, 11, 2, 2), nn.ConvTranspose3d(11, 5, 2, 2)])
        self.joined = nn.ModuleList([_double(22, 11), _double(10, 5)])
        self.head = nn.Conv3d(5, 11, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if level else x)
            kept.append(x)
        for up, joined, skip in zip(self.up, self.joined, reversed(kept[:-1]), strict=True):
            x = joined(torch.cat([up(x), skip], 1))
        result: Tensor = F.avg_pool3d(self.head(x), (3, 5, 5), 2, (1, 2, 2)).mean((2, 3, 4))
        return result
