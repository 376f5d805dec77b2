"""Whole networks with pools, in plain torch.nn: the layers and sizes of their papers.

`parameters` is the published number of weights; a test compares. The 3-D U-Net pads its convolutions, so that
it takes images of any size. Inception-v3 and the PSPNet have no auxiliary head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Network:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one image: channels and sides
    batch: dict[str, int]  # by device
    least: int  # the shortest side that the network takes
    parameters: int | None  # None if no number was published for these layers

    def input(self, device: str, scale: float) -> tuple[int, ...]:
        """Returns the shape of a batch, with the sides of images scaled."""
        channels, *sides = self.shape
        scaled = (min(side, max(self.least, int(side * scale))) for side in sides)
        return self.batch[device], channels, *scaled


class Join(nn.Module):
    """Runs its branches on the same input, and joins their results as channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Sum(Join):
    """Adds the results of its branches."""

    def forward(self, x: Tensor) -> Tensor:
        first, *others = (branch(x) for branch in self.branches)
        return sum(others, first)  # type: ignore[no-any-return]


class Collect(Join):
    """Runs its branches one after another, and joins the input and all results, as YOLO's SPPF does."""

    def forward(self, x: Tensor) -> Tensor:
        results = [x]
        for branch in self.branches:
            results.append(branch(results[-1]))
        return torch.cat(results, 1)


def _sides(given: Any, axes: int) -> tuple[int, ...]:
    return tuple(given) if isinstance(given, Sequence) else (given,) * axes


def _conv(
    inner: int, outer: int, kernel: Any = 3, stride: Any = 1, padding: Any = None, *, axes: int = 2,
    dilation: int = 1, active: Callable[..., nn.Module] | None = nn.ReLU, eps: float = 1e-5,
) -> nn.Sequential:  # fmt: skip
    """A convolution, by default with the padding that keeps the size; batch norm; the activation, or none."""
    convolution, norm = (nn.Conv2d, nn.BatchNorm2d) if axes == 2 else (nn.Conv3d, nn.BatchNorm3d)
    if padding is None:
        padding = tuple(k // 2 * dilation for k in _sides(kernel, axes))
    layers = [convolution(inner, outer, kernel, stride, padding, dilation, bias=False), norm(outer, eps=eps)]
    return nn.Sequential(*layers, *([active(inplace=True)] if active else []))


def _chain(inner: int, *layers: tuple[Any, ...], conv: Callable[..., nn.Module] = _conv) -> nn.Sequential:
    """Convolutions; each layer has its width, then what `conv` takes after it."""
    made = []
    for outer, *more in layers:
        made.append(conv(inner, outer, *more))
        inner = outer
    return nn.Sequential(*made)


def _head(inner: int, classes: int, *before: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), *before, nn.Flatten(), nn.Linear(inner, classes))


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    inner = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inner, width, 3, padding=1), nn.ReLU(inplace=True)]
            inner = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inner, width in ((25088, 4096), (4096, 4096)):
        layers += [nn.Linear(inner, width), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


def _bottleneck(inner: int, width: int, stride: int, dilation: int) -> nn.Module:
    body = [_conv(inner, width, 1), _conv(width, width, 3, stride, dilation=dilation)]
    body.append(_conv(width, 4 * width, 1, active=None))
    same = stride == 1 and inner == 4 * width
    short = nn.Identity() if same else _conv(inner, 4 * width, 1, stride, active=None)
    return nn.Sequential(Sum(nn.Sequential(*body), short), nn.ReLU(inplace=True))


def _resnet50(dilated: bool) -> nn.Sequential:
    """The layers before the head. With `dilated`, the last two groups keep the size, as a PSPNet needs."""
    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for blocks, width, stride, dilation in ((3, 64, 1, 1), (4, 128, 2, 1), (6, 256, 2, 2), (3, 512, 2, 4)):
        for block in range(blocks):
            step = stride if block == 0 and not (dilated and dilation > 1) else 1
            layers.append(_bottleneck(inner, width, step, dilation if dilated else 1))
            inner = 4 * width
    return nn.Sequential(*layers)


def resnet50() -> nn.Module:
    return nn.Sequential(_resnet50(False), _head(2048, 1000))


class Pyramid(nn.Module):
    """Averages the plane to a few cells, and enlarges them to the plane."""

    def __init__(self, inner: int, outer: int, cells: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(cells), _conv(inner, outer, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.body(x), x.shape[-2:], mode="bilinear")


def pspnet() -> nn.Module:
    pyramid = Join(nn.Identity(), *(Pyramid(2048, 512, cells) for cells in (1, 2, 3, 6)))
    head = nn.Sequential(_conv(4096, 512), nn.Dropout(0.1), nn.Conv2d(512, 150, 1))
    return nn.Sequential(_resnet50(True), pyramid, head)


def densenet121() -> nn.Module:
    def active(inner: int) -> list[nn.Module]:
        return [nn.BatchNorm2d(inner), nn.ReLU(inplace=True)]

    def layer(inner: int) -> nn.Module:
        body = [*active(inner), nn.Conv2d(inner, 128, 1, bias=False), *active(128)]
        return Join(nn.Identity(), nn.Sequential(*body, nn.Conv2d(128, 32, 3, padding=1, bias=False)))

    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for count in (6, 12, 24, 16):
        if len(layers) > 2:
            inner //= 2
            layers += [*active(2 * inner), nn.Conv2d(2 * inner, inner, 1, bias=False), nn.AvgPool2d(2)]
        layers += [layer(inner + 32 * i) for i in range(count)]
        inner += 32 * count
    return nn.Sequential(*layers, *active(inner), _head(inner, 1000))


def inception_v3() -> nn.Module:
    """Without the auxiliary head."""
    conv = partial(_conv, eps=0.001)
    chain = partial(_chain, conv=conv)
    row, column = (1, 7), (7, 1)

    def average(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(inner, outer, 1))

    def block_a(inner: int, pooled: int) -> nn.Module:
        deep = chain(inner, (64, 1), (96, 3), (96, 3))
        return Join(conv(inner, 64, 1), chain(inner, (48, 1), (64, 5)), deep, average(inner, pooled))

    def block_b(c: int) -> nn.Module:
        once = chain(768, (c, 1), (c, row), (192, column))
        twice = chain(768, (c, 1), (c, column), (c, row), (c, column), (192, row))
        return Join(conv(768, 192, 1), once, twice, average(768, 192))

    def split() -> nn.Module:
        return Join(conv(384, 384, (1, 3)), conv(384, 384, (3, 1)))

    def block_c(inner: int) -> nn.Module:
        once = nn.Sequential(conv(inner, 384, 1), split())
        twice = nn.Sequential(*chain(inner, (448, 1), (384, 3)), split())
        return Join(conv(inner, 320, 1), once, twice, average(inner, 192))

    stem = chain(3, (32, 3, 2, 0), (32, 3, 1, 0), (64, 3))
    deep = chain(288, (64, 1), (96, 3), (96, 3, 2, 0))
    wide = chain(768, (192, 1), (192, row), (192, column), (192, 3, 2, 0))
    return nn.Sequential(
        stem, nn.MaxPool2d(3, 2), chain(64, (80, 1), (192, 3, 1, 0)), nn.MaxPool2d(3, 2),
        block_a(192, 32), block_a(256, 64), block_a(288, 64),
        Join(conv(288, 384, 3, 2, 0), deep, nn.MaxPool2d(3, 2)),
        *map(block_b, (128, 160, 160, 192)),
        Join(chain(768, (192, 1), (320, 3, 2, 0)), wide, nn.MaxPool2d(3, 2)),
        block_c(1280), block_c(2048), _head(2048, 1000, nn.Dropout()),
    )  # fmt: skip


class MeanOfPlanes(nn.Module):
    """Averages two frames and 7 × 7 cells, or the whole plane if it is smaller."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(x, [min(k, side) for k, side in zip((2, 7, 7), x.shape[-3:], strict=True)], 1)


def s3d() -> nn.Module:
    conv = partial(_conv, axes=3, eps=0.001)

    def split(inner: int, outer: int, k: int, stride: int = 1) -> nn.Module:
        plane = conv(inner, outer, (1, k, k), (1, stride, stride))
        return nn.Sequential(plane, conv(outer, outer, (k, 1, 1), (stride, 1, 1)))

    def block(inner: int, one: int, *widths: int) -> nn.Module:
        a, three, b, five, pooled = widths
        first = nn.Sequential(conv(inner, a, 1), split(a, three, 3))
        second = nn.Sequential(conv(inner, b, 1), split(b, five, 3))
        third = nn.Sequential(nn.MaxPool3d(3, 1, 1), conv(inner, pooled, 1))
        return Join(conv(inner, one, 1), first, second, third)

    def halved(k: int, depth: int = 1) -> nn.Module:
        padding = 1 if k == 3 else 0
        stride = 1 + (depth > 1)
        return nn.MaxPool3d((depth, k, k), (stride, 2, 2), (padding * (depth > 1), padding, padding))

    return nn.Sequential(
        split(3, 64, 7, 2), halved(3), conv(64, 64, 1), split(64, 192, 3), halved(3),
        block(192, 64, 96, 128, 16, 32, 32), block(256, 128, 128, 192, 32, 96, 64), halved(3, 3),
        block(480, 192, 96, 208, 16, 48, 64), block(512, 160, 112, 224, 24, 64, 64),
        block(512, 128, 128, 256, 24, 64, 64), block(512, 112, 144, 288, 32, 64, 64),
        block(528, 256, 160, 320, 32, 128, 128), halved(2, 2),
        block(832, 256, 160, 320, 32, 128, 128), block(832, 384, 192, 384, 48, 128, 128),
        MeanOfPlanes(), nn.Dropout(0.2), nn.Conv3d(1024, 400, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
    )  # fmt: skip


class Level(nn.Module):
    """A level of a U-Net: down by a pool to the next level, up by a transposed convolution, joined."""

    def __init__(self, before: nn.Module, inner: nn.Module, wide: int, after: nn.Module) -> None:
        super().__init__()
        self.before, self.inner, self.after = before, inner, after
        self.down, self.up = nn.MaxPool3d(2), nn.ConvTranspose3d(wide, wide, 2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        up = self.up(self.inner(self.down(x)))
        x = x[..., : up.shape[-3], : up.shape[-2], : up.shape[-1]]  # a side may have been odd
        result: Tensor = self.after(torch.cat([up, x], 1))
        return result


def unet3d() -> nn.Module:
    def conv(inner: int, outer: int) -> nn.Module:
        norm = nn.BatchNorm3d(outer, affine=False)
        return nn.Sequential(nn.Conv3d(inner, outer, 3, padding=1), norm, nn.ReLU(inplace=True))

    chain = partial(_chain, conv=conv)
    net: nn.Module = chain(256, (256,), (512,))
    for inner, outer in ((128, 256), (64, 128), (3, 64)):
        after = chain(3 * outer, (outer,), (outer,))
        net = Level(chain(inner, (max(inner, 32),), (outer,)), net, 2 * outer, after)
    return nn.Sequential(net, nn.Conv3d(64, 3, 1))


class Detector(nn.Module):
    """YOLOv5s: a backbone, its features joined with enlarged deeper ones and back, and three outputs."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        conv = partial(_conv, active=nn.SiLU)

        def block(inner: int, outer: int, count: int, short: bool = True) -> nn.Module:
            half = outer // 2
            bodies = [nn.Sequential(conv(half, half, 1), conv(half, half, 3)) for _ in range(count)]
            steps = [Sum(nn.Identity(), body) if short else body for body in bodies]
            both = Join(nn.Sequential(conv(inner, half, 1), *steps), conv(inner, half, 1))
            return nn.Sequential(both, conv(outer, outer, 1))

        pools = Collect(*(nn.MaxPool2d(5, 1, 2) for _ in range(3)))
        first = [
            conv(3, 32, 6, 2, 2),
            conv(32, 64, 3, 2),
            block(64, 64, 1),
            conv(64, 128, 3, 2),
            block(128, 128, 2),
        ]
        last = [conv(256, 512, 3, 2), block(512, 512, 1), conv(512, 256, 1), pools, conv(1024, 512, 1)]
        parts = first, [conv(128, 256, 3, 2), block(256, 256, 3)], last
        self.backbone = nn.ModuleList([nn.Sequential(*part) for part in parts])
        self.narrow = nn.ModuleList([conv(512, 256, 1), conv(256, 128, 1)])
        self.up = nn.ModuleList([block(512, 256, 1, False), block(256, 128, 1, False)])
        self.down = nn.ModuleList([conv(128, 128, 3, 2), conv(256, 256, 3, 2)])
        self.joined = nn.ModuleList([block(256, 256, 1, False), block(512, 512, 1, False)])
        self.outputs = nn.ModuleList([nn.Conv2d(width, 3 * (classes + 5), 1) for width in (128, 256, 512)])

    def forward(self, x: Tensor) -> Tensor:
        features = []
        for part in self.backbone:
            x = part(x)
            features.append(x)
        kept = []
        for narrow, up, skip in zip(self.narrow, self.up, features[1::-1], strict=True):
            kept.append(narrow(x))
            x = up(torch.cat([F.interpolate(kept[-1], skip.shape[-2:]), skip], 1))
        results = [x]
        for down, joined, skip in zip(self.down, self.joined, kept[::-1], strict=True):
            results.append(joined(torch.cat([down(results[-1]), skip], 1)))
        outputs = (output(one).flatten(2) for output, one in zip(self.outputs, results, strict=True))
        return torch.cat(list(outputs), 2)


NETWORKS = {
    "ResNet-50": Network(resnet50, (3, 224, 224), {"cpu": 4, "cuda": 128}, 32, 25_557_032),
    "VGG-16": Network(vgg16, (3, 224, 224), {"cpu": 2, "cuda": 64}, 32, 138_357_544),
    "Inception-v3": Network(inception_v3, (3, 299, 299), {"cpu": 2, "cuda": 64}, 75, 23_834_568),
    "DenseNet-121": Network(densenet121, (3, 224, 224), {"cpu": 4, "cuda": 64}, 32, 7_978_856),
    "S3D": Network(s3d, (3, 16, 224, 224), {"cpu": 2, "cuda": 16}, 32, 8_320_048),
    "U-Net-3D": Network(unet3d, (3, 132, 132, 116), {"cpu": 1, "cuda": 2}, 16, 19_069_955),
    "YOLOv5s": Network(Detector, (3, 640, 640), {"cpu": 2, "cuda": 32}, 32, 7_235_389),
    "PSPNet": Network(pspnet, (3, 473, 473), {"cpu": 2, "cuda": 8}, 41, None),
}
