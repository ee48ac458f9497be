"""What the layers of a stage add up to, for many stages at once: the arrays that the compiled
formulas take.

A stage is a set of layers: sums over the layers of E of them are one product of a (E, layers) table
of members with the columns of the layers. The chunks of one plan follow one another in some order
of the layers.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import inlined
from Estimator.plans.layer_costs import LayerCosts, LayerSizes, Members, PassCosts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Order = IntArray | slice  # of the layers as chunks hold them; all of a slice is execution order

PASS_FIELDS = tuple(field.name for field in fields(PassCosts))
TIME_COLUMNS = 19  # of ``StageTimes``: three passes of six, and accumulation


class PassTotals(NamedTuple):
    """Seconds of one pass of one micro-batch; arrays of shape (stages,). See ``PassCosts``."""

    device_s: FloatArray
    host_s: FloatArray
    tensor_s: FloatArray
    products_s: FloatArray
    arithmetic_s: FloatArray
    expert_s: FloatArray


class StageTimes(NamedTuple):
    """Seconds of stages on one configuration of hardware; arrays of shape (stages,)."""

    forward: PassTotals
    recompute: PassTotals
    backward: PassTotals
    accumulation_s: FloatArray


class StageSizes(NamedTuple):
    """Sizes of stages that no hardware changes; arrays of shape (stages,).

    ``saved_bytes`` are those of a micro-batch in flight, see ``LayerSizes.saved_by``.
    ``workspace_bytes`` has shape (stages, K): the largest of the layers' with what is unsharded of
    it (a column for each row of ``rates.whole_bytes``). ``tables`` (stages, kinds) is how many
    tables with sparse gradients a stage has of each of ``table_sizes`` (kinds, 3). ``largest``
    (stages, 6) are the most parameters, those that are no experts', those of experts, and saved
    bytes of a layer, and seconds of the largest dense matrix and expert's. ``matrices_s`` (stages,
    2) are those of all (``LayerSizes.matrices_s``). ``offloaded_bytes`` of a micro-batch's
    activations are in host memory, besides those saved on the device, where no allocator holds
    ``spare`` of them more.
    """

    layers: FloatArray
    parameters: FloatArray
    expert_parameters: FloatArray
    wide_parameters: FloatArray
    matrices_s: FloatArray
    saved_bytes: FloatArray
    workspace_bytes: FloatArray
    tables: FloatArray
    table_sizes: FloatArray
    largest: FloatArray
    offloaded_bytes: FloatArray
    spare: float

    def offloading(self, part: float) -> StageSizes:
        """The same where so great a ``part`` of the activations is in host memory, but for two
        layers of it at a time.

        The two are never more than all layers' together.
        """
        if part == 0.0:
            return self
        buffer = part * np.minimum(2.0 * self.largest[:, 3], self.saved_bytes)
        return self._replace(
            saved_bytes=(1.0 - part) * self.saved_bytes,
            workspace_bytes=self.workspace_bytes + buffer[:, None],
            offloaded_bytes=part * self.saved_bytes / (1.0 + self.spare),
        )

    @property
    def counts(self) -> FloatArray:
        """What prices parameters: layers, parameters, of experts, wide ones, tables, matrices."""
        parameters = self.parameters, self.expert_parameters, self.wide_parameters
        matrices_s = self.matrices_s, self.largest[:, 4:]
        return np.column_stack([self.layers, *parameters, self.tables, *matrices_s])


def pass_totals(costs: PassCosts) -> PassTotals:
    """Passes as the compiled formulas take them."""
    tensor_s = costs.tensor_s + costs.sequence_s
    return PassTotals(
        costs.device_s,
        costs.host_s,
        tensor_s,
        costs.products_s,
        costs.arithmetic_s,
        costs.expert_s,
    )


def time_columns(costs: LayerCosts, configurations: int | IntArray) -> FloatArray:
    """Columns of ``StageTimes`` of every layer on a configuration, shape (layers, 19); on several,
    (configurations, layers, 19)."""
    columns: list[FloatArray] = []
    for each in (costs.forward, costs.recompute, costs.backward):
        one = PassCosts(*(getattr(each, name)[configurations] for name in PASS_FIELDS))
        columns += pass_totals(one)
    distinct = np.stack([*columns, costs.accumulation_s[configurations]], axis=-1)
    return np.take(distinct, costs.sizes.distinct, axis=-2)


def times_of(columns: FloatArray) -> StageTimes:
    """Summed columns of shape (stages, 19) as the compiled formulas take them."""
    each = [np.ascontiguousarray(column) for column in columns.T]
    return StageTimes(
        PassTotals(*each[0:6]), PassTotals(*each[6:12]), PassTotals(*each[12:18]), each[18]
    )


@inlined
def _pass_at(columns: FloatArray, row: int, first: int) -> PassTotals:
    return PassTotals(
        columns[row, first],
        columns[row, first + 1],
        columns[row, first + 2],
        columns[row, first + 3],
        columns[row, first + 4],
        columns[row, first + 5],
    )


@inlined
def times_at(columns: FloatArray, row: int) -> StageTimes:
    """Those of one configuration of ``columns`` (configurations, 19, stages)."""
    return StageTimes(
        _pass_at(columns, row, 0),
        _pass_at(columns, row, 6),
        _pass_at(columns, row, 12),
        columns[row, 18],
    )


def chunk_times(
    costs: LayerCosts, configuration: int, order: Order, firsts: IntArray
) -> StageTimes:
    """Times of chunks of the layers in ``order``, each from its place in ``firsts`` on."""
    return times_of(np.add.reduceat(time_columns(costs, configuration)[order], firsts, axis=0))


def chunk_sizes(
    sizes: LayerSizes, order: Order, firsts: IntArray, whole_bytes: FloatArray
) -> StageSizes:
    """Sizes of such chunks; ``whole_bytes`` (K, 3, 2) as in ``stage_sizes``."""
    summed, (alone, prefetched) = sizes.summed[order], sizes.working_bytes(whole_bytes)
    following = np.ones(len(summed) - 1, np.bool_)
    following[firsts[1:] - 1] = False
    working = with_neighbours(alone[order], prefetched[order], following)
    chunk = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(summed)))
    members = np.zeros((len(firsts), len(summed)), np.bool_)
    members[chunk, np.arange(len(summed))[order]] = True
    return _stage_sizes(
        sizes,
        members,
        np.add.reduceat(summed, firsts, axis=0),
        np.add.reduceat(sizes.tables_of_layers[order], firsts, axis=0),
        np.maximum.reduceat(working, firsts, axis=0),
        np.maximum.reduceat(sizes.of_layers[order], firsts, axis=0),
    )


def stage_sizes(sizes: LayerSizes, members: Members, whole_bytes: FloatArray) -> StageSizes:
    """Sizes of the stages whose layers are ``members``, shape (stages, layers).

    ``whole_bytes`` (K, 3, 2) is what a device holds per parameter of a layer at work beyond its
    part (``Estimator.plans.rates.whole_bytes``).
    """
    alone, prefetched = sizes.working_bytes(whole_bytes)
    workspace = np.stack([_largest(members, column) for column in alone.T], axis=1)
    pairs = members[:, :-1] & members[:, 1:]
    for column in np.flatnonzero(prefetched.any(axis=0)):
        forward, backward = alone[:-1] + prefetched[1:], alone[1:] + prefetched[:-1]
        both = np.maximum(forward, backward)[:, column]
        workspace[:, column] = np.maximum(workspace[:, column], _largest(pairs, both))
    weights = members.astype(np.float64)
    largest = np.stack([_largest(members, column) for column in sizes.of_layers.T], axis=1)
    summed, tables = weights @ sizes.summed, weights @ sizes.tables_of_layers
    return _stage_sizes(sizes, members, summed, tables, workspace, largest)


def _stage_sizes(
    sizes: LayerSizes,
    members: Members,
    summed: FloatArray,
    tables: FloatArray,
    workspace_bytes: FloatArray,
    largest: FloatArray,
) -> StageSizes:
    parameters, experts, wide = (np.ascontiguousarray(column) for column in summed.T[:3])
    return StageSizes(
        layers=members.sum(axis=1).astype(np.float64),
        parameters=parameters,
        expert_parameters=experts,
        wide_parameters=wide,
        matrices_s=np.ascontiguousarray(summed[:, 3:]),
        saved_bytes=sizes.saved_by(members),
        workspace_bytes=workspace_bytes,
        tables=tables,
        table_sizes=sizes.table_sizes,
        largest=largest,
        offloaded_bytes=np.zeros(len(members)),
        spare=sizes.spare,
    )


def with_neighbours(alone: FloatArray, prefetched: FloatArray, following: Members) -> FloatArray:
    """Workspace (layers, K) of layers in their order with what is gathered ahead of a neighbour.

    That is the next layer in a forward pass, the one before in a backward pass, where it is on the
    same stage: ``following`` (layers - 1,) says which layers are followed by the next one.
    """
    neighbour = np.zeros_like(prefetched)
    neighbour[:-1] = np.where(following[:, None], prefetched[1:], 0.0)
    neighbour[1:] = np.maximum(neighbour[1:], np.where(following[:, None], prefetched[:-1], 0.0))
    return alone + neighbour


def _largest(members: Members, values: FloatArray) -> FloatArray:
    """The largest of ``values`` (layers,) in each set; 0 where it is empty."""
    largest = np.zeros(len(members))
    for value in np.unique(values):  # layers repeat, so there are few
        largest[members[:, values == value].any(axis=1)] = value
    return largest
