"""Modules for images: a residual network, and a vision transformer for dense prediction.

The residual network is one of bottlenecks whose 3x3 convolutions may be wider than the 1x1 before
them; Hugging Face's ResNet has them of one width. Batch norms keep no running statistics: updating
them costs nothing worth counting.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from GraphExtractor.graph import GraphKey, TensorLayout


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


class PatchAttention(nn.Module):  # type: ignore[misc]
    """Attention of every patch to all patches; queries, keys and values from one ``projection``."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.projection, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.projection(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out: torch.Tensor = self.output(mixed)
        return out


class PatchMlp(nn.Module):  # type: ignore[misc]
    """Two linears around a GELU."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        out: torch.Tensor = self.down(self.act(self.up(x)))
        return out


class PatchBlock(nn.Module):  # type: ignore[misc]
    """Attention and MLP, each behind a norm, beside a residual (Dosovitskiy et al. 2020)."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(hidden), PatchAttention(hidden, heads)
        self.norm2, self.mlp = nn.LayerNorm(hidden), PatchMlp(hidden, ffn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class DensePredictor(nn.Module):  # type: ignore[misc]
    """Patches (batch, patches, pixels) to predictions of that shape.

    ``summands`` devices have parts of a prediction each: under a 2D layout of the pixels, under
    sequence parallelism of the patches, whose loss is the mean over all of them.
    """

    def __init__(
        self, patches: int, pixels: int, hidden: int, layers: int, heads: int, ffn: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Linear(pixels, hidden)
        self.positions = nn.Embedding(patches, hidden)
        self.blocks = nn.ModuleList(PatchBlock(hidden, heads, ffn) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, pixels)
        self.summands = 1

    def shard(self, key: GraphKey) -> None:
        """Know how many devices have parts of a prediction; the family's plan divides the rest."""
        self.summands = key.tp if key.layout is TensorLayout.TWO_D or key.sequence_parallel else 1

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Predict."""
        x = self.embedding(patches)
        x = x + self.positions(torch.arange(patches.shape[1], device=patches.device))
        for block in self.blocks:
            x = block(x)
        prediction: torch.Tensor = self.head(self.norm(x))
        return prediction

    def loss(self, patches: torch.Tensor, fields: torch.Tensor) -> torch.Tensor:
        """A device's summand of the mean squared error, in fp32."""
        error: torch.Tensor = functional.mse_loss(self(patches).float(), fields)
        return error if self.summands == 1 else error / self.summands
