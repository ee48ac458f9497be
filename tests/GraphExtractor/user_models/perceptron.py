"""A plain stack of linears."""

import torch
from torch import nn


def build():
    return nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 32)


def loss(output):
    return nn.functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.long))
