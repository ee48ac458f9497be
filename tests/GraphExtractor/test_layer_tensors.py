"""Gradients of tensors between layers, however they are put together."""

import pytest
import torch
from torch import nn
from whole_traces import step_of

from GraphExtractor.layers import layers_of


class Mixing(nn.Module):
    """Two linears make a block; what enters the last block is joined to, or a part of, what others
    made."""

    def __init__(self, join):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)) for _ in range(3)
        )
        self.join = join
        self.last = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8))

    def forward(self, x):
        first = self.blocks[0](x)
        second = self.blocks[1](first)
        third = self.blocks[2](second)
        return self.last(self.join(first, second, third))


@pytest.mark.parametrize(
    "join",
    [
        lambda first, _, third: torch.cat([first, third], -1),
        lambda first, second, third: torch.cat(
            [third[..., :4], (first + second), third[..., 4:]], -1
        ),
        lambda first, _, third: torch.cat([third, torch.roll(first, 1)], -1),
    ],
    ids=["joined", "cut and joined", "handed on"],
)
def test_what_training_shaped_has_a_gradient_of_its_size(join):
    tensors = layers_of(step_of(Mixing(join), {"x": torch.zeros(4, 8)})).tensors
    assert len(tensors) >= 3
    assert all(tensor.gradient_bytes == tensor.bytes > 0 for tensor in tensors)


def test_constants_have_none():
    class Tables(Mixing):
        def forward(self, x):
            table = torch.sin(x)
            x = self.blocks[0](x) + table
            return self.last(torch.cat([self.blocks[2](self.blocks[1](x)), table], -1))

    tensors = layers_of(step_of(Tables(None), {"x": torch.zeros(4, 8)})).tensors
    assert {tensor.gradient_bytes > 0 for tensor in tensors} == {True, False}
