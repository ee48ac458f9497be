"""What layers keep, alone and together on a stage, against autograd: the storages that forward
passes of the layers save."""

import itertools
from collections import defaultdict
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, relu, tanh
from whole_traces import step_over

from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.check import check_structure
from GraphExtractor.graph import GraphKey, ModelGraph, Recompute
from GraphExtractor.layer_modules import LayerModules, each_layer_module
from GraphExtractor.layers import layers_of
from GraphExtractor.replication import expand, summed_shared

WIDTH = 8
# how an operator treats its backward pass: what it reads, what it makes, both, statistics too, or
# nothing
KEEPING = {
    "linear": lambda block, x: block.linear(x),
    "relu": lambda _, x: relu(x),
    "tanh": lambda _, x: tanh(x),
    "gelu": lambda _, x: gelu(x),
    "square": lambda _, x: x * x,
    "norm": lambda _, x: layer_norm(x, (WIDTH,)),
    "twice": lambda _, x: x + x,
    "residual": lambda block, x: x + block.linear(x),
}
JOINS = {
    "add": torch.add,
    "multiply": torch.mul,
    "beside": lambda x, y: torch.cat([x, y], -1)[..., :WIDTH],
}


class Block(nn.Module):
    def __init__(self, operators, joins):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.operators, self.joins = operators, joins

    def forward(self, x, *others):
        for join, other in zip(self.joins, others, strict=True):
            x = JOINS[join](x, other)
        for name in self.operators:
            x = KEEPING[name](self, x)
        return x


def chosen(random, names, count):
    return [sorted(names)[kind] for kind in random.integers(0, len(names), count)]


class Blocks(nn.Module):
    """Blocks in a row, some of which read what others before the last one, or the inputs, made."""

    def __init__(self, random, count):
        super().__init__()
        self.reads, self.blocks = [], nn.ModuleList()
        for at in range(count):
            self.reads.append(
                sorted({*random.integers(-2, at - 1, random.integers(0, 3)).tolist()})
                if at > 1
                else []
            )
            operators = ["linear", *chosen(random, KEEPING, random.integers(0, 4))]
            operators = operators if random.random() < 0.5 else operators[::-1]
            self.blocks.append(Block(operators, chosen(random, JOINS, len(self.reads[at]))))

    def forward(self, x, table):
        made = {-2: x, -1: table}
        for at, block in enumerate(self.blocks):
            made[at] = block(made[at - 1] if at else x, *(made[each] for each in self.reads[at]))
        return made[len(self.blocks) - 1]


def inputs():
    return {"x": torch.randn(4, WIDTH), "table": torch.randn(4, WIDTH)}


def traced(model):
    """Layers, and the graph in which each stands for itself."""
    found = layers_of(
        step_over(model, each_layer_module(model, LayerModules(("blocks",))), inputs())
    )
    key, sequence = GraphKey("blocks", 4, 1, 1, dtype="float32"), tuple(range(len(found.layers)))
    together = summed_shared(each.tensor for each in found.shared)
    return found, ModelGraph(key, found.layers, sequence, found.tensors, 1, shared=together)


def storages(model):
    """What autograd saves in, and what enters, each block: sizes of storages by block."""
    owned = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    saved, entering = defaultdict(dict), defaultdict(dict)
    alive, running = [], [0]

    def keep(into, tensor):
        storage = tensor.untyped_storage()
        alive.append(storage)
        if storage._cdata not in owned and tensor.numel() > 1:
            into[running[0]][storage._cdata] = storage.nbytes()
        return tensor

    def enter(at):
        def hook(_, arguments):
            running[0] = at
            for argument in arguments:
                keep(entering, argument)

        return hook

    for at, block in enumerate(model.blocks):
        block.register_forward_pre_hook(enter(at))
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: keep(saved, tensor), lambda tensor: tensor
    ):
        alive.append(model(*inputs().values()))
    return saved, entering


SEEDS = range(24)


@lru_cache
def case(seed):
    """Random blocks and their graph."""
    random = np.random.default_rng(seed)
    model = Blocks(random, int(random.integers(2, 7)))
    return model, traced(model)[1]


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_stage_of_random_blocks_keeps_what_autograd_keeps(seed):
    model, graph = case(seed)
    saved, entering = storages(model)
    count = len(model.blocks)
    assert len(graph.sequence) == count and check_structure(graph) == []
    for at in range(count):
        made_again = sum(size for storage, size in saved[at].items() if storage not in entering[at])
        assert graph.layers[at].saved.restored(Recompute.FULL) == made_again
    for mode, last in itertools.product(
        (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL), range(1, count + 1)
    ):
        for first in range(last):
            members = np.zeros((1, count), np.bool_)
            members[0, first:last] = True
            held = {}
            for at in range(first, last):
                full = mode is Recompute.FULL and at not in (
                    0,
                    count - 1,
                )  # the ends keep everything
                held |= (entering if full else saved)[at]
            assert layer_sizes(graph, mode).saved_by(members).tolist() == [sum(held.values())], (
                mode,
                first,
                last,
            )


@pytest.mark.thorough
def test_random_blocks_share_what_cuts_part():
    """Else the comparison would say nothing of tensors that makers and readers both keep, or that
    lead over blocks."""
    kept = [each.none for seed in SEEDS for each in case(seed)[1].shared if len(each.none) > 1]
    assert sum(layers == (layers[0], layers[0] + 1) for layers in kept) > 5
    assert sum(layers[-1] > layers[0] + 1 for layers in kept) > 5


class Weighted(nn.Module):
    """Keeps what it reads, what it makes, and a table."""

    def __init__(self):
        super().__init__()
        self.linear, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, table):
        return relu(self.other(self.linear(x)) * table)


class Chain(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Weighted() for _ in range(depth))

    def forward(self, x, table):
        for block in self.blocks:
            x = block(x, table)
        return x


def test_blocks_that_stand_for_others_keep_together_what_those_keep():
    few, every = traced(Chain(4))[0], traced(Chain(9))[1]
    expanded = expand(few, {"blocks.2": 6})
    assert expanded.shared == every.shared
    assert {each.none for each in expanded.shared} == {
        tuple(range(9)),
        *((at, at + 1) for at in range(8)),
    }
