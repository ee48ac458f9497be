"""A residual network of bottlenecks whose 3x3 convolutions may be wider than the 1x1 before them.

Hugging Face's ResNet has them of one width. Batch norms keep no running statistics: updating them
costs nothing worth counting.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


class WideResNet(nn.Module):  # type: ignore[misc]
    """Stem, stages, classifier: images (batch, 3, height, width) to scores (batch, classes)."""

    def __init__(self, depths: Sequence[int], base: int, widening: int, classes: int) -> None:
        super().__init__()
        self.stem = _Convolution(3, base, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], base
        for stage, depth in enumerate(depths):
            blocks = []
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(Bottleneck(channels, base * 2**stage, widening, stride))
                channels = 4 * base * 2**stage
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Class scores of every image."""
        x = self.pool(functional.relu(self.stem(images)))
        for stage in self.stages:
            x = stage(x)
        scores: torch.Tensor = self.classifier(x.mean((2, 3)))
        return scores


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Convolutions 1x1 to ``width``, 3x3 to ``widening`` times it, 1x1 to 4 times, a residual."""

    def __init__(self, channels: int, width: int, widening: int, stride: int) -> None:
        super().__init__()
        self.reduce = _Convolution(channels, width, 1)
        self.spatial = _Convolution(width, width * widening, 3, stride)
        self.expand = _Convolution(width * widening, 4 * width, 1)
        self.shortcut: nn.Module = nn.Identity()
        if channels != 4 * width or stride != 1:
            self.shortcut = _Convolution(channels, 4 * width, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output, of shape (batch, 4 · width, height / stride, width / stride)."""
        inner = functional.relu(self.reduce(x))
        inner = functional.relu(self.spatial(inner))
        return functional.relu(self.expand(inner) + self.shortcut(x))


class _Convolution(nn.Sequential):  # type: ignore[misc]
    def __init__(self, channels: int, made: int, size: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, made, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(made, track_running_stats=False),
        )
