"""A diffusion transformer: patches, adaptive norms from time and class, pixels back."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c)[:, None].chunk(6, dim=-1)
        h = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(h, h, h, need_weights=False)[0]
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, width=64, depth=5, heads=4, patch=4, size=32, classes=10):
        super().__init__()
        self.patch, self.side = patch, size // patch
        self.patches = nn.Conv2d(4, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.zeros(1, self.side**2, width), requires_grad=False)
        self.time, self.label = nn.Linear(1, width), nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 8 * patch**2)

    def forward(self, x, t, y):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        c = self.time(t[:, None]) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        x = self.out(self.norm(x)).view(len(x), self.side, self.side, self.patch, self.patch, 8)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(len(x), 8, self.side * self.patch, -1)


def build():
    return DiT()


def example_inputs(micro_batch_size):
    return {
        "x": torch.randn(micro_batch_size, 4, 32, 32),
        "t": torch.rand(micro_batch_size),
        "y": torch.zeros(micro_batch_size, dtype=torch.long),
    }


def loss(output):
    return functional.mse_loss(output[:, :4], torch.zeros_like(output[:, :4]))
