"""Microseconds of an operator's passes in training: what the database measured, with what the
profiler left out or distorted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_common.errors import InputError

from .collective_times import collective_us
from .corrections import Corrections, Mechanisms
from .database import ACTIVATIONS, BACKWARD, FORWARD, INPUT, WEIGHTS, Database
from .product_rates import DeviceFacts
from .resharding import Choice

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Passes:
    """Microseconds of one operator for one micro-batch; ``exchange_us`` of both is the all-reduce
    that they contain."""

    forward_us: float
    backward_us: float
    exchange_us: float


def cell(database: Database, row: int, samples: int, choice: Choice) -> Values:
    """The eight values of an operator; the choice was checked to be measured."""
    found: Values = database.values[
        :,
        row,
        database.micro_batch_sizes.index(samples),
        database.tensor_parallel.index(choice.tp),
        database.algorithms.index(choice.algorithm),
    ]
    return found


def passes(
    database: Database,
    row: int,
    samples: int,
    choice: Choice,
    facts: DeviceFacts,
    rules: Corrections,
    which: Mechanisms,
) -> Passes:
    """Passes of an operator for ``samples`` of a micro-batch per replica."""
    name, values = database.names[row], cell(database, row, samples, choice)
    forward, backward = float(values[FORWARD]), float(values[BACKWARD])
    operators = rules.operators
    if operators.is_head(name):
        missing = 0.0
        if which.weight_gradients and not facts.weight_gradients_measured:
            missing = _head_gradient_us(
                database, float(values[WEIGHTS]), samples, choice, facts, rules, which
            )
        return Passes(forward, backward + missing, 0.0)
    if not operators.is_product(name) or values[WEIGHTS] <= 0:
        return Passes(forward, backward, 0.0)
    in_forward = operators.reduces_forward(name, choice.algorithm)
    exchange = _exchange_us(database, values, choice, in_forward=in_forward)
    if exchange is None:  # not known, so its pass stays as it was measured
        return Passes(forward, backward, 0.0)
    exchange = min(exchange, forward if in_forward else backward)
    product = forward - exchange if in_forward else forward
    own_backward = backward if in_forward else backward - exchange
    if which.product_rates:
        if rules.families[database.model.family.name].constant_data:
            product /= (
                facts.paused_factor if in_forward and exchange > 0 else facts.continuous_factor
            )
        elif facts.weight_gradients_measured:
            own_backward *= facts.data_factor
    if which.weight_gradients and not facts.weight_gradients_measured:
        own_backward = 2.0 * product
    if in_forward:
        return Passes(product + exchange, own_backward, exchange)
    return Passes(product, own_backward + exchange, exchange)


def _exchange_us(
    database: Database, values: Values, choice: Choice, *, in_forward: bool
) -> float | None:
    """The all-reduce in the profiled pass: of the output in forward passes, of the input's gradient
    in backward ones.

    The measured input of a product that reads the hidden state has the residual stream beside it,
    of the same size.
    """
    if choice.tp == 1 or database.model.family.name == "resnet":
        return 0.0
    return collective_us(
        database,
        "all_reduce",
        choice.tp,
        float(values[ACTIVATIONS] if in_forward else values[INPUT] / 2.0),
    )


def _head_gradient_us(
    database: Database,
    weights_mib: float,
    samples: int,
    choice: Choice,
    facts: DeviceFacts,
    rules: Corrections,
    which: Mechanisms,
) -> float:
    """The weight gradient of the output layer: the time of the largest product of a layer, in
    proportion to its weights."""
    name = rules.operators.without_pause
    if name not in database.names:
        return 0.0
    values = cell(database, database.names.index(name), samples, Choice(choice.tp, choice.dp, 0))
    own = float(values[FORWARD]) / (facts.continuous_factor if which.product_rates else 1.0)
    if not own > 0 or not values[WEIGHTS] > 0:  # not a number where it failed
        raise InputError(
            f"{database.folder} has no measurement of {name} for {samples} samples and tensor "
            f"parallel width {choice.tp}, from "
            "which the gradient of the output layer is priced; profile it"
        )
    return own * weights_mib / float(values[WEIGHTS])
