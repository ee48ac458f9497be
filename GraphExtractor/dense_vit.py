"""A vision transformer from patches of fields to as many patches of fields; no class token."""

import torch
from torch import nn
from torch.nn import functional

from GraphExtractor.graph import GraphKey, TensorLayout


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
