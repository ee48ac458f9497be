"""Blocks that are told apart by their number: the fifth is also read by the head."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(8)
        )
        self.head = nn.Linear(32, 100)

    def forward(self, ids):
        x = self.embedding(ids)
        taps = 0
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 4:
                taps = taps + x
        return self.head(x + taps).float().square().mean()


def build():
    return Model()


def example_inputs(micro_batch_size, sequence_length=16):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
