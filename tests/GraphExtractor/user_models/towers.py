"""Two towers, which know nothing of each other up to the head."""

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(width, 32)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


class Towers(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.left, self.right = left, right

    def forward(self, a, b):
        return self.left(a) @ self.right(b).T


def build():
    return Towers(Tower(64, 6), Tower(32, 5))


def example_inputs(micro_batch_size, sequence_length=16):
    ids = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return {"a": ids, "b": ids}


def loss(output):
    return nn.functional.cross_entropy(output, torch.arange(len(output)))
