"""A language model with an LSTM written out: one product of all gates per step, and states handed
on."""

import torch
from torch import nn
from torch.nn import functional


class Lstm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inputs, self.states = (
            nn.Linear(width, 4 * width),
            nn.Linear(width, 4 * width, bias=False),
        )

    def forward(self, x):
        h = c = torch.zeros_like(x[:, 0])
        outputs = []
        for gates in self.inputs(x).unbind(1):
            i, f, g, o = (gates + self.states(h)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class Model(nn.Module):
    def __init__(self, vocabulary=200, width=32, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Lstm(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


def build():
    return Model()


def example_inputs(micro_batch_size, sequence_length=24):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
