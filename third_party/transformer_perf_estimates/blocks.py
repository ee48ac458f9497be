"""The operators of one layer in their order: feed-forward block, then attention block, under each
strategy."""

import numpy as np

from .configurations import Strategy
from .corrections import Correction
from .operators import (
    Axis,
    Collective,
    Message,
    Operator,
    Shards,
    bias,
    dropout,
    fused_attention,
    gelu,
    linear,
    linear_summa,
    norm,
    norm_2d,
)

PIPELINE_INPUT = "ln1"  # the operator whose kept input is what a stage receives


def layer(strategy: Strategy, shards: Shards, matrix_over_vector: float) -> tuple[Operator, ...]:
    """All operators of a layer."""
    if strategy is Strategy.TWO_D:
        return _layer_2d(shards, matrix_over_vector)
    return _layer_1d(strategy, shards, matrix_over_vector)


def _layer_1d(
    strategy: Strategy, shards: Shards, matrix_over_vector: float
) -> tuple[Operator, ...]:
    """Weights over tp1, column then row; tokens over tp2, and between the products over both."""
    model, tp1 = shards.model, shards.tp1
    both, rows = tp1 * shards.tp2, shards.rows(shards.tp2)
    hidden, ffn = shards.split(model.hidden, tp1), shards.split(model.ffn, tp1)
    attention = shards.split(3 * model.hidden, tp1)
    width = np.full_like(tp1, model.hidden)
    scattered = Message(Collective.GATHER, Axis.TP1, rows * width)
    after, tokens = shards.rows(both), shards.rows(both) * width
    feed_forward_bias = bias("fc2-bias", after, width)
    attention_bias = bias("vproj-bias", after, width)
    if Correction.BIAS_SHARDS not in shards.corrections:
        if strategy is Strategy.ONE_D:
            feed_forward_bias = bias("fc2-bias", rows, width)
            attention_bias = bias("vproj-bias", rows, width)
        else:
            attention_bias = bias("vproj-bias", rows, hidden)
    return (
        linear("fc1", rows, width, ffn, (None, scattered)),
        bias("fc1-bias", rows, ffn),
        gelu("act1", rows * ffn),
        dropout("dpr1", rows * ffn),
        linear("fc2", rows, ffn, width, (scattered, None)),
        feed_forward_bias,
        dropout("dpr2", tokens),
        norm("ln1", shards, both),
        linear("qkv", rows, width, attention, (None, scattered)),
        fused_attention("fusedla", shards, matrix_over_vector),
        linear("vproj", rows, hidden, width, (scattered, None)),
        attention_bias,
        dropout("dpr_v", tokens),
        norm("ln2", shards, both),
    )


def _layer_2d(shards: Shards, matrix_over_vector: float) -> tuple[Operator, ...]:
    """SUMMA products on tp1 x tp2 devices, attention with tokens over tp2."""
    model, rows = shards.model, shards.rows(shards.tp2)
    hidden, ffn = shards.split(model.hidden, shards.tp1), shards.split(model.ffn, shards.tp1)
    return (
        linear_summa("fc1", shards, model.hidden, model.ffn),
        bias("fc1-bias", rows, ffn),
        gelu("act1", rows * ffn),
        dropout("dpr1", rows * ffn),
        linear_summa("fc2", shards, model.ffn, model.hidden),
        bias("fc2-bias", rows, hidden),
        dropout("dpr2", rows * hidden),
        norm_2d("ln1", shards),
        linear_summa("qkv", shards, model.hidden, 3 * model.hidden),
        fused_attention("fusedla", shards, matrix_over_vector),
        linear_summa("vproj", shards, model.hidden, model.hidden),
        bias("vproj-bias", rows, hidden),
        dropout("dpr_v", rows * hidden),
        norm_2d("ln2", shards),
    )
