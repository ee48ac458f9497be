"""Recommendation: dense features through an MLP, categories through tables, products of all pairs,
another MLP."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


def mlp(*widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self, width=16, rows=(1000, 500, 200, 50)):
        super().__init__()
        self.bottom = mlp(13, 64, width)
        self.tables = nn.ModuleList(nn.Embedding(count, width) for count in rows)
        vectors = len(rows) + 1
        self.register_buffer("pairs", torch.triu_indices(vectors, vectors, 1), persistent=False)
        self.top = mlp(width + vectors * (vectors - 1) // 2, 64, 32, 1)

    def forward(self, dense, categories):
        x = self.bottom(dense)
        vectors = torch.stack(
            [x, *(table(categories[:, index]) for index, table in enumerate(self.tables))], dim=1
        )
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


def build():
    return DLRM()


def example_inputs(micro_batch_size):
    return {
        "dense": torch.randn(micro_batch_size, 13),
        "categories": torch.zeros(micro_batch_size, 4, dtype=torch.long),
    }


def loss(scores):
    return functional.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
