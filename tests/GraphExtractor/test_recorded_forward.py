"""Whether a shortened model tells what the whole one does."""

import pytest
import torch
from torch import nn

from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.layer_modules import LayerModules, each_layer_module
from GraphExtractor.replication import reduced_to, representatives
from GraphExtractor.sources.recorded_forward import recorded_forward, stands_for

BLOCKS = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, beside=None):
        x = x + self.outer(self.inner(x).relu())
        return x if beside is None else x * beside


class Model(nn.Module):
    def __init__(self, through):
        super().__init__()
        self.embedding, self.blocks, self.head = (
            nn.Linear(8, 8),
            nn.ModuleList(Block() for _ in range(BLOCKS)),
            nn.Linear(8, 8),
        )
        self.scales = nn.Parameter(torch.ones(BLOCKS))
        self.through = through

    def forward(self, x):
        return self.head(self.through(self, self.embedding(x))).sum()


def chain(model, x):
    for block in model.blocks:
        x = block(x)
    return x


def shared(model, first):
    x = first
    for block in model.blocks:
        x = block(x, first)
    return x


def scaled(model, x):
    for number, block in enumerate(model.blocks):
        x = block(x) * model.scales[number]
    return x


def skipping(model, x):
    first = x
    return chain(model, x) + first


def last_two(model, x):
    outputs = [x := block(x) for block in model.blocks]
    return outputs[-1] + outputs[-2]


def tapped(model, x):
    outputs = [x := block(x) for block in model.blocks]
    return outputs[-1] + outputs[min(4, len(outputs) - 1)]


def every_output(model, x):
    return torch.stack([x := block(x) for block in model.blocks]).sum(0)


def one_of_its_kind(model, x):
    for number, block in enumerate(model.blocks):
        x = block(x).tanh() if number == 4 else block(x)
    return x


def late(model, x):
    for number, block in enumerate(model.blocks):
        x = block(x)
        if number == BLOCKS - 1:
            x = x.tanh()
    return x


def backwards(model, x):
    for block in reversed(model.blocks):
        x = block(x)
    return x


def twice(model, x):
    return chain(model, chain(model, x))


def mirrored(model, x):
    """The second half reads the first, as in a U."""
    kept = []
    for number, block in enumerate(model.blocks):
        x = block(x + kept.pop()) if number >= BLOCKS // 2 else block(x)
        if number < BLOCKS // 2:
            kept.append(x)
    return x


def traced(model):
    fake = FakeMode()
    with fake:
        model = Model(model)
        return model, fake


@pytest.mark.parametrize(
    ("through", "alike"),
    [
        (chain, True),
        (shared, True),
        (scaled, True),
        (skipping, True),
        (twice, True),
        (last_two, True),  # nothing but its neighbour reads a block that another stands for
        (tapped, False),
        (every_output, False),
        (one_of_its_kind, False),
        (late, False),
        (backwards, False),
        (mirrored, False),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_code_that_treats_blocks_by_their_number_is_found_out(through, alike):
    model, fake = traced(through)
    modules = LayerModules(("blocks",))
    chosen = {"blocks": representatives(model.blocks)}

    def outlined():
        with fake:
            x = torch.zeros(2, 8)
            return recorded_forward(model, each_layer_module(model, modules), lambda: model(x))

    whole = outlined()
    assert len(whole.runs) == BLOCKS * (2 if through is twice else 1)
    model.blocks = reduced_to(model.blocks, chosen["blocks"])
    assert stands_for(outlined(), whole, chosen) is alike
