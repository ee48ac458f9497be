"""One block that runs six times, as in ALBERT."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 100)

    def forward(self, ids):
        x = self.embedding(ids)
        for _ in range(6):
            x = self.block(x)
        return {"loss": nn.functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())}


def build():
    return Model()


def example_inputs(micro_batch_size, sequence_length=16):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
