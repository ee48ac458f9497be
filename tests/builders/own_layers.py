"""A model as somebody may bring it: 24 layers alike, in plain PyTorch."""

import torch
from torch import nn

WIDTH, HEADS, LAYERS, WORDS = 512, 8, 24, 32_000


class Block(nn.Module):
    """Causal attention and an MLP, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What leaves the layer, shape as ``x`` (batch, sequence, width)."""
        batch, sequence, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, sequence, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, WIDTH))
        grown: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x))))
        return grown


class Model(nn.Module):
    """Embedding, layers, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of every token."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def build() -> nn.Module:
    """The model."""
    return Model()


def example_inputs(batch: int, sequence: int) -> tuple[torch.Tensor]:
    """Tokens."""
    return (torch.zeros(batch, sequence, dtype=torch.int64),)
