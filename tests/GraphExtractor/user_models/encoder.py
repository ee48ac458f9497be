"""torch's own transformer encoder."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 6
        )
        self.head = nn.Linear(64, 500)

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids)))


def build():
    return Model()


def example_inputs(micro_batch_size, sequence_length=32):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)


def loss(output):
    return nn.functional.cross_entropy(
        output.flatten(0, 1), torch.zeros(output.shape[:2].numel(), dtype=torch.long)
    )
