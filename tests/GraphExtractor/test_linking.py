"""Gradients whose forward node is a view at the border of two layers: each has a forward operator,
in whose layer it is."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from whole_traces import step_of

from GraphExtractor.graph import OperatorKind
from GraphExtractor.layers import layers_of

WIDTH, INNER, EXPERTS, TOKENS = 8, 16, 4, 6


class Experts(nn.Module):
    """Experts written with einsum, a token's two chosen by one-hot vectors; returns their output
    alone."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))
        self.down = nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mix = (functional.one_hot(chosen, EXPERTS).to(x.dtype) * weights[..., None]).sum(-2)
        inner = torch.einsum("bte,btd,edf->ebtf", (mix > 0).to(x.dtype), x, self.up)
        return torch.einsum(
            "ebtd,bte->btd", torch.einsum("ebtf,efd->ebtd", functional.gelu(inner), self.down), mix
        )


class Viewing(nn.Module):
    """A layer that begins and ends with views."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(TOKENS), nn.Linear(TOKENS, TOKENS)

    def forward(self, x):
        x = x.transpose(1, 2)
        return (x * 2 + self.linear(x)).transpose(1, 2)


class Model(nn.Module):
    def __init__(self, block, through):
        super().__init__()
        self.first, self.blocks = nn.Linear(WIDTH, WIDTH), nn.ModuleList(block() for _ in range(3))
        self.last, self.mix, self.through = (
            nn.Linear(WIDTH, WIDTH),
            nn.Parameter(torch.empty(3, 1, 1, WIDTH)),
            through,
        )

    def forward(self, x):
        return self.last(self.through(self, self.first(x)))


def chain(model, x):
    for block in model.blocks:
        x = block(x)
    return x * model.mix[0]


def residual_stream(model, x):
    for number, block in enumerate(model.blocks):
        x = x + block(x) * model.mix[number]
    return x


def outputs_stacked(model, x):
    found = []
    for block in model.blocks:
        x = block(x)
        found.append(x)
    return (torch.stack(found) * model.mix).mean(0) + torch.cat(found, -1).unflatten(
        -1, (3, WIDTH)
    ).sum(-2)


def blocks_used_twice(model, x):
    first = x
    for block in (*model.blocks, *model.blocks):
        x = block(x)
    return x + first * model.mix.sum(0)


def two_streams(model, x):
    left, right = torch.cat([x, x * model.mix[0]], -1).chunk(2, -1)
    for block in model.blocks:
        left, right = right, left + block(left)
    return left + right


def always_transposed(model, x):
    x = x.transpose(0, 1)
    for block in model.blocks:
        x = block(x.transpose(0, 1)).transpose(0, 1)
    return (x * model.mix[0]).transpose(0, 1)


@pytest.mark.some(4)
@pytest.mark.parametrize("block", [Experts, Viewing])
@pytest.mark.parametrize(
    "through",
    [chain, residual_stream, outputs_stacked, blocks_used_twice, two_streams, always_transposed],
)
def test_every_gradient_is_beside_the_operator_it_differentiates(block, through):
    model, x = Model(block, through), torch.zeros(2, TOKENS, WIDTH)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if block is Viewing:
        parameters -= 3 * 2 * TOKENS  # the norms that nobody runs
    for part in model.blocks if block is Viewing else ():
        part.norm = nn.Identity()
    with FlopCounterMode(display=False) as counted:
        model(x).sum().backward()
    traced = layers_of(step_of(model, {"x": x}))
    for layer in traced.layers:
        forward = {each.id for each in layer.forward.operators}
        assert forward and {each.forward_id for each in layer.backward.operators} <= forward
    assert sum(layer.parameter_count - layer.tied_count for layer in traced.layers) == parameters
    products = (OperatorKind.GEMM, OperatorKind.CONV)
    operators = [
        each
        for layer in traced.layers
        for each in (*layer.forward.operators, *layer.backward.operators)
    ]
    assert (
        sum(each.flops for each in operators if each.kind in products) == counted.get_total_flops()
    )
