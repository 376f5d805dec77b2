"""Trains an image network with CBAM's attention twice: its gates pool by average and by maximum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pooltide.examples.training import show, table

SHAPE = (7, 3, 29, 31)


class ChannelGate(nn.Module):
    """Weighs each channel by the average and the maximum of its plane."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.Linear(channels, channels // 2), nn.ReLU(), nn.Linear(channels // 2, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        mean = F.avg_pool2d(x, x.shape[-2:]).flatten(1)
        most = F.adaptive_max_pool2d(x, 1).flatten(1)
        weight: Tensor = torch.sigmoid(self.weigh(mean) + self.weigh(most))
        return x * weight[..., None, None]


class SpatialGate(nn.Module):
    """Weighs each position by the mean and the maximum over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(self.weigh(seen))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3)
        self.channels, self.places, self.head = ChannelGate(8), SpatialGate(), nn.Linear(16 * 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.places(self.channels(F.relu(self.stem(x))))
        x = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
        x = F.adaptive_max_pool2d(F.relu(self.body(x)), (2, 3))
        result: Tensor = self.head(x.flatten(1))
        return result


if __name__ == "__main__":
    show(table(Network, SHAPE))
