"""Trains a volume network with dense blocks twice: its transitions pool in three dimensions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pooltide.examples.training import show, table

SHAPE = (5, 1, 11, 13, 17)


class DenseBlock(nn.Module):
    """Every layer reads the outputs of all layers before it."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        widths = range(channels, channels + growth * layers, growth)
        self.layers = nn.ModuleList(nn.Conv3d(width, growth, 3, padding=1) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return x


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.early, self.late = nn.Conv3d(1, 4, 3), DenseBlock(4, 3, 2), DenseBlock(10, 3, 2)
        self.head = nn.Linear(16 * 12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool3d(self.early(F.relu(self.stem(x))), (5, 7, 8))
        x = F.adaptive_max_pool3d(self.late(x), (3, 2, 2))
        result: Tensor = self.head(x.flatten(1))
        return result


if __name__ == "__main__":
    show(table(Network, SHAPE))
