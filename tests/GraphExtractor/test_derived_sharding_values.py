"""The proof of the rules: all devices of a group, run in lockstep on real numbers, get the
gradients of the whole step."""

from functools import partial

import pytest
import torch
from derived_sharding_cases import (
    BATCH,
    HEADS,
    LENGTH,
    WIDTH,
    FusedAttention,
    GatedMlp,
    GroupedAttention,
    InterleavedAttention,
    Mlp,
    StackedAttention,
    decoder,
    ids,
    largest_difference,
    square_loss,
    traced,
)
from torch import nn
from torch.nn import functional

from GraphExtractor.derived_sharding import rules

CLOSE = 1e-13  # fp64 sums of some hundred numbers of order 1


def numbers():
    generator = torch.Generator().manual_seed(1)
    return {"x": torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, generator=generator)}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("attention", "mlp", "order", "tp"),
    [
        (FusedAttention, Mlp, "pre", 2),
        (FusedAttention, partial(GatedMlp, fused=True), "parallel", 4),
        (StackedAttention, Mlp, "post", 4),
        (InterleavedAttention, GatedMlp, "parallel", 4),
        (GroupedAttention, Mlp, "pre", 2),
        (partial(GroupedAttention, kv_heads=1), GatedMlp, "pre", 4),
    ],
)
def test_language_models(attention, mlp, order, tp):
    assert (
        largest_difference(traced(partial(decoder, attention, mlp, order), ids()), ids(), tp)
        < CLOSE
    )


def encoder(norm_first):
    layer = partial(
        nn.TransformerEncoderLayer, WIDTH, HEADS, 32, 0.0, batch_first=True, norm_first=norm_first
    )
    return nn.Sequential(layer(), layer()) if norm_first else layer()


class Crossing(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True) for _ in range(2)
        )

    def forward(self, x):
        memory = self.memory(x).flip(1)
        for layer in self.layers:
            x = layer(x, memory)
        return x


class Adapted(nn.Module):
    """A low-rank adapter, a scale per column, and a block without biases before and behind it."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, 24, bias=False)
        self.mlp, self.scale = Mlp(), nn.Parameter(torch.empty(24))

    def forward(self, x):
        h = self.mlp.up(x) + self.b(self.a(x))
        return self.mlp.down(
            functional.gelu(h) * self.scale * h.detach().mean(1, keepdim=True).sigmoid()
        )


class DenseExperts(nn.Module):
    """Every expert sees every token."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 3)
        self.up, self.down = (
            nn.Parameter(torch.empty(3, WIDTH, 24)),
            nn.Parameter(torch.empty(3, 24, WIDTH)),
        )

    def forward(self, x):
        inner = torch.einsum("btc,ecf->betf", x, self.up).relu()
        return torch.einsum("betf,efc,bte->btc", inner, self.down, self.gate(x).softmax(-1))


class TokenMixer(nn.Module):
    """Products along the sequence, which transpose what is split."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(WIDTH),
            nn.Linear(LENGTH, 12),
            nn.Linear(12, LENGTH),
        )

    def forward(self, x):
        return x + self.down(self.up(self.norm(x).transpose(1, 2)).relu()).transpose(1, 2)


class Tied(nn.Module):
    """The same weight by columns and, transposed, by rows."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x):
        return functional.linear(self.up(x).relu_(), self.up.weight.t())


class Shuffled(nn.Module):
    """Cuts, joins and paddings of what is split, along the split dimension and others."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        a, b = self.up(x).chunk(2, -1)
        h = torch.cat([b[..., :8] * 2, a, b[..., 8:].flip(1)], -1)
        h = torch.stack([h[:, 1:], h[:, :-1]], 2).amax(2) + functional.pad(h[:, 2:], (0, 0, 1, 0))
        return self.down(h.cumsum(1) + torch.arange(32, dtype=h.dtype))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("build", "tp"),
    [
        (partial(encoder, False), 4),
        (partial(encoder, True), 2),
        (Crossing, 2),
        (Adapted, 4),
        (DenseExperts, 4),
        (TokenMixer, 3),
        (Tied, 8),
        (Shuffled, 4),
    ],
)
def test_other_modules(build, tp):
    assert largest_difference(traced(build, numbers(), square_loss), numbers(), tp) < CLOSE


def test_a_wrong_rule_would_be_noticed(monkeypatch):
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

        def forward(self, x):
            return self.down(self.up(x).softmax(-1))

    monkeypatch.setattr(rules, "_along", rules._pointwise)
    assert largest_difference(traced(Normalised, numbers(), square_loss), numbers(), 2) > 1e-3
