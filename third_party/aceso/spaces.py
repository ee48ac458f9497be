"""What a stage of the search may do on a number of devices, as arrays for the compiled loops: one
row per operator of the files.

The space holds everything that a plan file can say of a stage within one node: every operator its
own tensor and data parallel degrees and algorithm (the second one on operators that have two),
every flag of recomputation.
"""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from .chains import Chain
from .compiled import Flags, Floats, Integers
from .database import Database, Field
from .models import activation_factor, is_layer_start, is_tunable
from .questions import Question
from .resharding import Choice, resharding_us

NEVER = 1e30  # microseconds of what cannot be


class StageArrays(NamedTuple):
    """Operators (rows of the files, U) by choices (C) for one micro-batch and number of devices; us
    and MiB per device.

    Pairs (P) are the pairs of rows that follow each other anywhere in the model.
    """

    base_us: Floats  # (U, C) forward and backward
    recompute_us: Floats  # (U, C)
    activations: Floats  # (U, C) as often as the cost model counts them
    weights: Floats  # (U, C)
    inputs: Floats  # (U, C)
    forward_reserved: Floats  # (U, C)
    backward_reserved: Floats  # (U, C)
    receive_us: Floats  # (2: between nodes, U, C)
    send_us: Floats  # (2, U, T, C); T: width of the first operator of the stage
    least_send_us: Floats  # (2, U, C) over the widths
    least_forward: Floats  # (U) reserved by any choice that is possible; 0 where none is
    least_backward: Floats  # (U)
    width: Integers  # (C) which of the T widths
    resharding_us: Floats  # (P, C, C)
    free: Flags  # (P) no change between the two costs anything
    # (P) the first of the pair is kept as the input of a layer: recomputing both saves nothing
    before_layer: Flags
    # (U) its activations are counted once, and a run of recomputed operators may end behind it
    plain: Flags
    weight_copies: float  # MiB held per MiB of weights without what is reserved


class StageSpace(NamedTuple):
    """The arrays, and what their choices are."""

    devices: int
    choices: tuple[Choice, ...]
    arrays: StageArrays


def stage_choices(database: Database, micro_batch: int, devices: int) -> tuple[Choice, ...]:
    """The choices of one operator on a number of devices that were measured."""
    return tuple(
        Choice(width, devices // width, algorithm)
        for width in database.tensor_parallel
        if devices % width == 0
        and micro_batch % (devices // width) == 0
        and database.measured(micro_batch // (devices // width), width)
        for algorithm in database.algorithms
        if algorithm in (0, 1)
    )


def stage_space(
    database: Database, chain: Chain, micro_batch: int, devices: int
) -> StageSpace | None:
    """Everything that a stage on ``devices`` may do; absent where nothing was measured."""
    choices = stage_choices(database, micro_batch, devices)
    if not choices:
        return None
    # (fields, U, C)
    values = np.stack([_values(database, micro_batch, choice) for choice in choices], axis=2)
    values = np.where(np.isfinite(values), values, 0.0)
    family = database.model.family
    possible = np.stack([_possible(database, micro_batch, choice) for choice in choices], axis=1)
    factors = np.array([activation_factor(name) for name in database.names])
    widths = sorted({choice.tp for choice in choices})
    starts = [is_layer_start(name) for name in database.names]
    pairs = chain.pairs
    changes = [
        sum(resharding_us(database, a, left, b, right, micro_batch))
        for (a, b), left, right in product(pairs, choices, choices)
    ]
    resharding = np.array(changes).reshape(len(pairs), len(choices), len(choices))

    def least(field: int) -> Floats:
        held = np.where(possible, values[field], NEVER).min(axis=1)
        return np.where(held < NEVER, held, 0.0)

    send_us = np.array(
        [_sends(database, micro_batch, choices, widths, between) for between in (False, True)]
    )
    arrays = StageArrays(
        base_us=np.where(possible, values[Field.FORWARD] + values[Field.BACKWARD], NEVER),
        recompute_us=np.ascontiguousarray(values[Field.FORWARD]),
        activations=values[Field.ACTIVATIONS] * factors[:, None],
        weights=np.ascontiguousarray(values[Field.WEIGHTS]),
        inputs=np.ascontiguousarray(values[Field.INPUT]),
        forward_reserved=np.ascontiguousarray(values[Field.FORWARD_RESERVED]),
        backward_reserved=np.ascontiguousarray(values[Field.BACKWARD_RESERVED]),
        receive_us=np.array(
            [_transfers(database, values[Field.INPUT], between) for between in (False, True)]
        ),
        send_us=send_us,
        least_send_us=send_us.min(axis=2),
        least_forward=least(Field.FORWARD_RESERVED),
        least_backward=least(Field.BACKWARD_RESERVED),
        width=np.array([widths.index(choice.tp) for choice in choices], dtype=np.int64),
        resharding_us=np.where(np.isfinite(resharding), resharding, NEVER),
        free=np.array([not change.any() for change in resharding], dtype=bool),
        before_layer=np.array([factors[a] == 1.0 and starts[b] for a, b in pairs], dtype=bool),
        plain=factors == 1.0,
        weight_copies=1.0 + family.weight_copies + family.optimizer_copies,
    )
    return StageSpace(devices, choices, arrays)


def stage_spaces(question: Question, chain: Chain, micro_batch: int) -> list[StageSpace]:
    """The spaces of 1, 2, 4 ... devices of a node for which something was measured."""
    counts = [1 << power for power in range(question.per_node.bit_length())]
    spaces = [stage_space(question.database, chain, micro_batch, count) for count in counts]
    return [space for space in spaces if space is not None]


def _values(database: Database, micro_batch: int, choice: Choice) -> Floats:
    return database.of(micro_batch // choice.dp, choice.tp, choice.algorithm)


def _possible(database: Database, micro_batch: int, choice: Choice) -> Flags:
    """(U) which operators can run so: they were measured, and have a second algorithm where it is
    asked for."""
    measured = np.isfinite(_values(database, micro_batch, choice)).all(axis=0)
    tunable = [is_tunable(database.model.family.name, name) for name in database.names]
    return np.array(measured & (np.array(tunable) | (choice.algorithm == 0)), dtype=bool)


def _transfers(database: Database, sizes: Floats, between: bool) -> Floats:
    times = [database.transfer_us(float(size), between_nodes=between) for size in sizes.flat]
    return np.array(times).reshape(sizes.shape)


def _sends(
    database: Database,
    micro_batch: int,
    choices: tuple[Choice, ...],
    widths: list[int],
    between: bool,
) -> Floats:
    """(U, T, C): the output has the last operator's rows and algorithm, and the width of the
    first."""
    table = np.full((len(database.names), len(widths), len(choices)), NEVER)
    for t, width in enumerate(widths):
        for c, choice in enumerate(choices):
            outputs = _values(database, micro_batch, replace(choice, tp=width))[Field.OUTPUT]
            for row in np.flatnonzero(np.isfinite(outputs)):
                size = float(outputs[row])
                table[row, t, c] = database.transfer_us(size, between_nodes=between)
    return table
