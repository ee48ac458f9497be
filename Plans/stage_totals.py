"""What the layers of a stage add up to, for many stages at once: the arrays that the compiled formulas take.

A stage, or one of its chunks, is a set of layers. Sums over the layers of E such sets are one product of a (E, layers) table of
members with the columns of the layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Plans.layer_costs import LayerCosts, LayerSizes, PassCosts

FloatArray = NDArray[np.float64]
Members = NDArray[np.bool_]


class PassTotals(NamedTuple):
    """Seconds of one pass of one micro-batch; arrays of shape (stages,). See ``PassCosts``."""

    device_s: FloatArray
    host_s: FloatArray
    tensor_s: FloatArray
    products_s: FloatArray


class StageTimes(NamedTuple):
    """Seconds of stages on one configuration of hardware; arrays of shape (stages,)."""

    forward: PassTotals
    recompute: PassTotals
    backward: PassTotals
    accumulation_s: FloatArray


class StageSizes(NamedTuple):
    """Sizes of stages that no hardware changes; arrays of shape (stages,).

    ``saved_bytes`` are those of a micro-batch in flight, with copies of what other stages read as well. ``workspace_bytes`` has
    shape (stages, 4): the largest of the layers' with what ZeRO 0 to 3 holds unsharded of it (``TrainingPolicy.whole_bytes``).
    """

    layers: FloatArray
    parameters: FloatArray
    expert_parameters: FloatArray
    saved_bytes: FloatArray
    workspace_bytes: FloatArray


def pass_columns(costs: PassCosts, configuration: int) -> FloatArray:
    """The four columns of ``PassTotals`` of the distinct layers on one configuration, shape (distinct layers, 4)."""
    one = costs.rows(np.array([configuration]))
    parts = (one.device_s, one.host_s, one.tensor_s + one.sequence_s, one.products_s)
    return np.stack([part[0] for part in parts], axis=1)


def time_columns(costs: LayerCosts, configuration: int) -> FloatArray:
    """Columns of ``StageTimes`` of every layer in execution order on one configuration, shape (layers, 13)."""
    passes = [pass_columns(each, configuration) for each in (costs.forward, costs.recompute, costs.backward)]
    distinct = np.concatenate([*passes, costs.accumulation_s[configuration][:, None]], axis=1)
    return distinct[list(costs.sizes.sequence)]


def times_of(columns: FloatArray) -> StageTimes:
    """Summed columns of shape (stages, 13) as the compiled formulas take them."""
    each = [np.ascontiguousarray(column) for column in columns.T]
    return StageTimes(PassTotals(*each[0:4]), PassTotals(*each[4:8]), PassTotals(*each[8:12]), each[12])


def stage_times(costs: LayerCosts, configuration: int, members: Members) -> StageTimes:
    """Times of the stages whose layers are ``members``, shape (stages, layers)."""
    return times_of(members.astype(np.float64) @ time_columns(costs, configuration))


def stage_sizes(sizes: LayerSizes, members: Members, copied_bytes: FloatArray, whole_bytes: FloatArray) -> StageSizes:
    """Sizes of the stages whose layers are ``members``, shape (stages, layers).

    ``copied_bytes`` (stages,) is what a stage saves besides of tensors that several layers read; ``whole_bytes`` (4,) what a
    device holds per parameter of a layer at work beyond its part, by ZeRO stage.
    """
    sequence = list(sizes.sequence)
    summed = np.stack([sizes.parameters, sizes.expert_parameters, sizes.saved_bytes], axis=1)[sequence]
    parameters, experts, saved = (np.ascontiguousarray(column) for column in (members.astype(np.float64) @ summed).T)
    working = sizes.workspace_bytes[:, None] + sizes.parameters[:, None] * whole_bytes[None, :]
    workspace = np.stack([_largest(members, column) for column in working[sequence].T], axis=1)
    return StageSizes(members.sum(axis=1).astype(np.float64), parameters, experts, saved + copied_bytes, workspace)


def _largest(members: Members, values: FloatArray) -> FloatArray:
    """The largest of ``values`` (layers,) in each set; 0 where it is empty."""
    largest = np.zeros(len(members))
    for value in np.unique(values):  # layers repeat, so there are few
        largest[members[:, values == value].any(axis=1)] = value
    return largest
