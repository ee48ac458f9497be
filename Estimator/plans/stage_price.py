"""The formulas of a pipeline stage, compiled: seconds of its passes, data-parallel communication,
bytes.

Everything that prices a stage calls these: one plan, many plans at once, and the searches over
stages there can be.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.compiled import inlined, inner, outer
from Estimator.plans.host_traffic import HostRates, PassTraffic, host_exposed_s
from Estimator.plans.stage_totals import PassTotals, StageSizes, StageTimes

FloatArray = NDArray[np.float64]

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = 0, 1, 2
HELD, SENT, STEPPED, OFFLOADED = 0, 1, 2, 3  # of ``PlanRates.wide``
DENSE, EXPERTS = (
    0,
    1,
    # parameters with as many copies as can be, and those that some of these devices divide among
    # them
)
STAGE_ROWS = 7  # what ``price_chunks`` says of a stage
INDEX_BYTES = 8  # of a row's index in a sparse gradient: torch keeps them as int64


class GroupRates(NamedTuple):
    """Collectives over the devices that hold the same parameters.

    ``fixed_s`` and ``per_byte_s`` have shape (3 kinds, 2 kinds of parameters, levels, groups that
    start differently, algorithms): all groups wait for the slowest, each takes its fastest
    algorithm, and levels follow one another, each with what the one before left of the tensor:
    ``sizes`` (2, levels) devices share it.
    """

    fixed_s: FloatArray
    per_byte_s: FloatArray
    sizes: FloatArray


class PlanRates(NamedTuple):
    """What a plan's degrees make a stage's layers cost. Arrays of shape (2,) tell dense parameters
    from experts."""

    tp: float
    accumulated: float  # part of the micro-batches whose gradients are added to earlier ones
    micro_batches: float  # of a pipeline
    copies: float  # devices with the same dense parameters
    zero_stage: int  # that has an effect
    working: int  # column of ``StageSizes.workspace_bytes``
    overlap_tensor: bool
    # part of what is hidden of tensor-parallel communication that does not slow down the products
    # beside it
    tensor_hides: float
    overlap_data: bool
    # of data-parallel communication that is hidden: seconds that its second makes computation
    # longer
    shown_part: float
    hidden_part: float  # seconds of it that a second of computation hides
    weight_bytes: float
    gradient_bytes: float
    resident_bytes: FloatArray  # per parameter
    step_s: FloatArray  # per parameter
    # (4,): what a parameter of a wider weight takes more, by ``HELD``, ``SENT``, ``STEPPED``,
    # ``OFFLOADED``
    wide: FloatArray
    start_s: FloatArray  # (2,): of a forward and of a backward pass, before which its stage waited
    reserved_bytes: float
    reduces_all: bool  # whether ZeRO-1 reduces whole gradients
    gather_copy_s: FloatArray  # (2,) of copies within a device, per parameter that ZeRO-3 gathers
    # how much longer arithmetic takes on the slowest of the plan's devices, part of what it takes
    # on a usual one
    slower: float
    between_s: float  # what the host does once per iteration, while its device waits
    # whether experts, or what a 2D layout divides twice, have fewer copies than other parameters
    expert_split: bool
    tied_split: bool  # whether tied parameters are among these
    groups: GroupRates
    host: HostRates


class SparseRows(NamedTuple):
    """The tables of a stage whose gradients hold the rows that were read; nothing where ZeRO shards
    gradients, as dense ones.

    ``sent_bytes`` are the values and indices of the rows that each replica read, of all of them
    together.
    """

    table_parameters: float
    read_parameters: float  # of the rows that a batch reads on all replicas
    index_bytes: float  # of these rows
    sent_bytes: float


class StagePrice(NamedTuple):
    """Seconds per micro-batch of a stage's passes, seconds that follow its last backward pass, the
    update, and bytes.

    ``fixed_bytes`` are infinite where the host has no room for what the stage keeps there.
    """

    forward_s: float
    backward_s: float  # with what is recomputed
    after_s: float
    step_s: float
    fixed_bytes: float  # all but activations
    kept_bytes: float  # the same in host memory


class HostTraffic(NamedTuple):
    """Bytes of a stage on their way between device and host: weights and gradients of a
    micro-batch's pass, those of the step.

    ``buffer`` is what a device holds of weights and gradients on their way, ``step_buffer`` of
    optimizer state; ``kept_bytes`` of its parameters' are in host memory.
    """

    weights: float
    gradients: float
    step: PassTraffic
    buffer: float
    step_buffer: float
    kept_bytes: float


class PassPrice(NamedTuple):
    """Seconds of a pass, and where they go beyond what ``PassTotals`` says."""

    total_s: float
    launch_s: float  # what the host takes longer than the device
    hidden_tensor_s: float
    exposed_data_s: float


class SyncPrice(NamedTuple):
    """Seconds of a stage's data-parallel communication.

    ``gather_s`` of the weights precedes each forward and each backward pass (ZeRO-3), ``reduce_s``
    of the gradients follows each backward pass (ZeRO-2 and 3). Once per iteration come
    ``last_reduce_s`` of the gradients and ``update_s``, which gathers the updated weights (ZeRO-1
    and 2).
    """

    gather_s: float
    reduce_s: float
    last_reduce_s: float
    update_s: float


@inner
def collective_s(rates: GroupRates, kind: int, which: int, payload_bytes: float) -> float:
    """Seconds of a collective over ``payload_bytes`` of the whole tensor; 0 for nothing."""
    if payload_bytes <= 0.0:
        return 0.0
    total_s, left_bytes = 0.0, payload_bytes
    for level in range(rates.fixed_s.shape[2]):
        slowest_s = 0.0
        for start in range(rates.fixed_s.shape[3]):
            fastest_s = np.inf
            for algorithm in range(rates.fixed_s.shape[4]):
                seconds = (
                    rates.fixed_s[kind, which, level, start, algorithm]
                    + rates.per_byte_s[kind, which, level, start, algorithm] * left_bytes
                )
                fastest_s = min(fastest_s, seconds)
            slowest_s = max(slowest_s, fastest_s)
        total_s += slowest_s
        left_bytes /= rates.sizes[which, level]
    return total_s


@inner
def parameters_s(
    rates: PlanRates,
    kind: int,
    dense: float,
    experts: float,
    bytes_each: float,
    pieces: float,
    more_bytes: float,
) -> float:
    """Seconds of a collective over all parameters of a stage, ``more_bytes`` besides, in ``pieces``
    one after another."""
    seconds = collective_s(rates.groups, kind, DENSE, (dense * bytes_each + more_bytes) / pieces)
    if experts > 0.0:
        seconds += collective_s(rates.groups, kind, EXPERTS, experts * bytes_each / pieces)
    return pieces * seconds


@inner
def sparse_rows(rates: PlanRates, sizes: StageSizes, first: int, step: int) -> SparseRows:
    """Those of the chunks from ``first`` on, ``step`` apart; each row of a table counts once,
    however often it is read.

    From ZeRO-1 on gradients are scattered over the replicas, which torch does with dense ones only:
    then there are none.
    """
    table_parameters, read_parameters, index_bytes, sent_bytes = 0.0, 0.0, 0.0, 0.0
    for kind in range(sizes.tables.shape[1] if rates.zero_stage == 0 else 0):
        rows, read, width = (
            sizes.table_sizes[kind, 0],
            sizes.table_sizes[kind, 1],
            sizes.table_sizes[kind, 2],
        )
        own = min(rows, read * rates.micro_batches)
        every = min(rows, read * rates.micro_batches * rates.copies)
        count = 0.0
        for chunk in range(first, len(sizes.layers), step):
            count += sizes.tables[chunk, kind]
        table_parameters += count * rows * width
        read_parameters += count * every * width
        index_bytes += count * every * INDEX_BYTES
        sent_bytes += count * own * (width * rates.gradient_bytes + INDEX_BYTES) * rates.copies
    return SparseRows(table_parameters, read_parameters, index_bytes, sent_bytes)


@inner
def synchronisation(
    rates: PlanRates, dense: float, experts: float, wide: float, rows: SparseRows, layers: float
) -> SyncPrice:
    """Communication of a stage of so many parameters, those of ``wide`` weights among the dense
    ones.

    ZeRO-3 gathers layer by layer (Rajbhandari et al. 2020).

    Sparse gradients are gathered by all replicas, values and indices, and added up there, as
    torch's DistributedDataParallel does.
    """
    gradient, weight, more = rates.gradient_bytes, rates.weight_bytes, rates.wide[SENT] * wide
    if rates.zero_stage == 0:
        dense_s = parameters_s(
            rates, ALL_REDUCE, dense - rows.table_parameters, experts, gradient, 1.0, 0.0
        )
        return SyncPrice(
            0.0, 0.0, dense_s + collective_s(rates.groups, ALL_GATHER, DENSE, rows.sent_bytes), 0.0
        )
    scatter_s = parameters_s(
        rates,
        REDUCE_SCATTER,
        dense,
        experts,
        gradient,
        layers if rates.zero_stage == 3 else 1.0,
        0.0,
    )
    if rates.zero_stage == 3:
        copies_s = rates.gather_copy_s[DENSE] * dense + rates.gather_copy_s[EXPERTS] * experts
        return SyncPrice(
            parameters_s(rates, ALL_GATHER, dense, experts, weight, layers, more) + copies_s,
            scatter_s,
            0.0,
            0.0,
        )
    gather_s = parameters_s(rates, ALL_GATHER, dense, experts, weight, 1.0, more)
    if rates.zero_stage == 2:
        return SyncPrice(0.0, scatter_s, 0.0, gather_s)
    if rates.reduces_all:
        return SyncPrice(
            0.0, 0.0, parameters_s(rates, ALL_REDUCE, dense, experts, gradient, 1.0, 0.0), gather_s
        )
    return SyncPrice(0.0, 0.0, scatter_s, gather_s)


@inlined
def exposed_s(
    rates: PlanRates, communication_s: float, computation_s: float, layers: float
) -> float:
    """What ``communication_s`` adds to ``computation_s`` when it runs beside it, both layer by
    layer.

    The communication of a layer can only hide behind the computation of another one, so one layer's
    share always shows; the rest slows it down (``Estimator.network.contention``).
    """
    one, rest = 1.0 / layers, (layers - 1.0) / layers
    return max(
        communication_s - computation_s * rest * rates.hidden_part,
        communication_s * (one + rest * rates.shown_part),
    )


@inlined
def pass_price(
    rates: PlanRates,
    device_s: float,
    host_s: float,
    tensor_s: float,
    products_s: float,
    arithmetic_s: float,
    data_s: float,
    layers: float,
) -> PassPrice:
    """A pass through ``layers`` layers: the host runs ahead of the device, so the slower of the two
    decides over all of them."""
    hidden_s = (
        min(tensor_s, products_s) * (1.0 - 1.0 / rates.tp) * rates.tensor_hides
        if rates.overlap_tensor
        else 0.0
    )
    occupied_s = device_s + arithmetic_s * rates.slower + tensor_s - hidden_s
    busy_s = max(occupied_s, host_s)
    shown_s = (
        exposed_s(rates, data_s, busy_s, layers) if rates.overlap_data and data_s > 0.0 else data_s
    )
    return PassPrice(busy_s + shown_s, busy_s - occupied_s, hidden_s, shown_s)


@inlined
def pass_of(
    rates: PlanRates, totals: PassTotals, at: int, more_s: float, data_s: float, layers: float
) -> PassPrice:
    """The pass of stage ``at``, with ``more_s`` of the device besides."""
    device_s = totals.device_s[at] + more_s
    products_s, arithmetic_s = totals.products_s[at], totals.arithmetic_s[at]
    return pass_price(
        rates,
        device_s,
        totals.host_s[at],
        totals.tensor_s[at],
        products_s,
        arithmetic_s,
        data_s,
        layers,
    )


@inlined
def once_s(
    rates: PlanRates, sync: SyncPrice, forward_s: float, backward_s: float, layers: float
) -> float:
    """Exposed seconds after the last micro-batch.

    Gradients are reduced beside the last backward pass, updated weights gathered beside the first
    forward pass, where the framework overlaps them.
    """
    if not rates.overlap_data:
        return sync.last_reduce_s + sync.update_s
    return exposed_s(rates, sync.last_reduce_s, backward_s, layers) + exposed_s(
        rates, sync.update_s, forward_s, layers
    )


@inner
def host_traffic(
    rates: PlanRates,
    sizes: StageSizes,
    first: int,
    step: int,
    dense: float,
    experts: float,
    wide: float,
    rows: SparseRows,
) -> HostTraffic:
    """That of the chunks from ``first`` on, ``step`` apart; of sparse tables only rows with a
    gradient are on their way."""
    host = rates.host
    if not host.used:
        return HostTraffic(0.0, 0.0, PassTraffic(0.0, 0.0), 0.0, 0.0, 0.0)
    unread = rows.table_parameters - rows.read_parameters
    touched = dense - unread
    wider = rates.wide[OFFLOADED] * wide
    weights = host.weights[DENSE] * dense + host.weights[EXPERTS] * experts + wider
    gradients = host.gradients[DENSE] * touched + host.gradients[EXPERTS] * experts
    largest, largest_experts = 0.0, 0.0
    for chunk in range(first, len(sizes.layers), step):
        largest = max(largest, sizes.largest[chunk, 1 if rates.expert_split else 0])
        largest_experts = max(
            largest_experts, sizes.largest[chunk, 2] if rates.expert_split else 0.0
        )
    state = host.state[DENSE] * dense + host.state[EXPERTS] * experts
    both = host.weights + host.gradients
    buffer = both[DENSE] * largest + both[EXPERTS] * largest_experts
    step_buffer = host.state[DENSE] * largest + host.state[EXPERTS] * largest_experts
    return HostTraffic(
        weights,
        gradients,
        PassTraffic(
            host.step_in[DENSE] * touched + host.step_in[EXPERTS] * experts,
            host.step_out[DENSE] * touched + host.step_out[EXPERTS] * experts + wider,
        ),
        min(2.0 * buffer, weights + gradients),
        min(2.0 * step_buffer, state),
        host.kept[DENSE] * dense
        + host.kept[EXPERTS] * experts
        + wider
        - host.kept_gradient * unread,
    )


@inner
def forward_traffic(
    traffic: HostTraffic, sizes: StageSizes, chunk: int, share: float
) -> PassTraffic:
    """That of a forward pass of a ``chunk`` with such a ``share`` of its stage's layers."""
    return PassTraffic(traffic.weights * share, sizes.offloaded_bytes[chunk])


@inner
def backward_traffic(
    rates: PlanRates, traffic: HostTraffic, sizes: StageSizes, chunk: int, share: float
) -> PassTraffic:
    """That of a backward pass, with what is recomputed."""
    gradients = traffic.gradients * share
    return PassTraffic(
        traffic.weights * share + sizes.offloaded_bytes[chunk] + gradients * rates.accumulated,
        gradients,
    )


@inner
def chunk_passes_s(
    rates: PlanRates, times: StageTimes, sync: SyncPrice, at: int, layers: float, share: float
) -> tuple[float, float]:
    """Forward and whole backward pass of chunk ``at``, whose ``layers`` layers are ``share`` of
    those of its stage."""
    forward = pass_of(rates, times.forward, at, 0.0, sync.gather_s * share, layers)
    again = pass_of(rates, times.recompute, at, 0.0, 0.0, layers)
    more_s = times.accumulation_s[at] * rates.accumulated
    backward = pass_of(
        rates, times.backward, at, more_s, (sync.gather_s + sync.reduce_s) * share, layers
    )
    return forward.total_s + rates.start_s[0], again.total_s + backward.total_s + rates.start_s[1]


@inner
def stage_price(
    rates: PlanRates, times: StageTimes, sizes: StageSizes, at: int, shared: float
) -> StagePrice:
    """Stage ``at`` of one chunk; ``shared`` of its parameters count once more among its layers
    (tied, where all are here)."""
    layers, parameters = sizes.layers[at], sizes.parameters[at] - shared
    experts = sizes.expert_parameters[at] if rates.expert_split else 0.0
    experts -= shared if rates.tied_split else 0.0
    dense, wide = parameters - experts, sizes.wide_parameters[at] - shared
    rows = sparse_rows(rates, sizes, at, len(sizes.layers))
    sync = synchronisation(rates, dense, experts, wide, rows, layers)
    forward_s, backward_s = chunk_passes_s(rates, times, sync, at, layers, 1.0)
    after_s = once_s(rates, sync, forward_s, backward_s, layers)
    update_s, workspace_bytes = (
        step_s(rates, dense, experts, wide, rows),
        sizes.workspace_bytes[at, rates.working],
    )
    kept_bytes = 0.0
    if rates.host.used:
        traffic = host_traffic(rates, sizes, at, len(sizes.layers), dense, experts, wide, rows)
        forward_s += host_exposed_s(
            rates.host, forward_traffic(traffic, sizes, at, 1.0), forward_s, layers
        )
        backward_s += host_exposed_s(
            rates.host, backward_traffic(rates, traffic, sizes, at, 1.0), backward_s, layers
        )
        update_s += host_exposed_s(rates.host, traffic.step, update_s, layers)
        workspace_bytes = max(workspace_bytes, traffic.step_buffer) + traffic.buffer
        kept_bytes = traffic.kept_bytes
        if kept_bytes + rates.host.in_flight * sizes.offloaded_bytes[at] > rates.host.room_bytes * (
            1.0 + 1e-12
        ):
            workspace_bytes = np.inf
    return StagePrice(
        forward_s,
        backward_s,
        after_s,
        update_s,
        state_bytes(rates, dense, experts, wide, rows) + workspace_bytes + rates.reserved_bytes,
        kept_bytes,
    )


@outer
def price_chunks(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    pp: int,
    tied: float,
    chunks_s: FloatArray,
    stages: FloatArray,
) -> None:
    """Price a pipeline whose chunk c, in model order, runs on stage c % pp; ``tied`` parameters
    count once on a single stage.

    Fills ``chunks_s`` (2, chunks) with seconds of forward and whole backward passes, and ``stages``
    (``STAGE_ROWS``, pp) with the seconds after the last backward pass and of the step, bytes of
    parameters' state, of the workspace, and reserved, the seconds of the step in which it waits for
    the host, and bytes of parameters' state in host memory.
    """
    for stage in range(pp):
        price_stage(rates, times, sizes, pp, stage, tied, chunks_s, stages)


@inner
def price_stage(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    pp: int,
    stage: int,
    tied: float,
    chunks_s: FloatArray,
    stages: FloatArray,
) -> None:
    """``price_chunks`` of one of the stages."""
    chunks = chunks_s.shape[1]
    layers, parameters, experts, wide, workspace_bytes = 0.0, 0.0, 0.0, 0.0, 0.0
    for chunk in range(stage, chunks, pp):
        layers += sizes.layers[chunk]
        parameters += sizes.parameters[chunk]
        experts += sizes.expert_parameters[chunk] if rates.expert_split else 0.0
        wide += sizes.wide_parameters[chunk]
        workspace_bytes = max(workspace_bytes, sizes.workspace_bytes[chunk, rates.working])
    shared = tied if pp == 1 else 0.0
    experts -= shared if rates.tied_split else 0.0
    dense, wide = parameters - experts - shared, wide - shared
    rows = sparse_rows(rates, sizes, stage, pp)
    sync = synchronisation(rates, dense, experts, wide, rows, layers)
    forward_s, backward_s = 0.0, 0.0
    for chunk in range(stage, chunks, pp):
        share = sizes.layers[chunk] / layers
        chunks_s[0, chunk], chunks_s[1, chunk] = chunk_passes_s(
            rates, times, sync, chunk, sizes.layers[chunk], share
        )
        forward_s += chunks_s[0, chunk]
        backward_s += chunks_s[1, chunk]
    stages[0, stage] = once_s(rates, sync, forward_s, backward_s, layers)
    stages[1, stage] = step_s(rates, dense, experts, wide, rows)
    stages[2, stage] = state_bytes(rates, dense, experts, wide, rows)
    stages[3, stage] = workspace_bytes
    stages[4, stage] = rates.reserved_bytes
    stages[5, stage], stages[6, stage] = 0.0, 0.0
    if not rates.host.used:
        return
    traffic = host_traffic(rates, sizes, stage, pp, dense, experts, wide, rows)
    for chunk in range(stage, chunks, pp):
        count, share = sizes.layers[chunk], sizes.layers[chunk] / layers
        forward = forward_traffic(traffic, sizes, chunk, share)
        backward = backward_traffic(rates, traffic, sizes, chunk, share)
        chunks_s[0, chunk] += host_exposed_s(rates.host, forward, chunks_s[0, chunk], count)
        chunks_s[1, chunk] += host_exposed_s(rates.host, backward, chunks_s[1, chunk], count)
    stages[5, stage] = host_exposed_s(rates.host, traffic.step, stages[1, stage], layers)
    stages[1, stage] += stages[5, stage]
    stages[3, stage] = max(workspace_bytes, traffic.step_buffer) + traffic.buffer
    stages[6, stage] = traffic.kept_bytes


@inlined
def step_s(rates: PlanRates, dense: float, experts: float, wide: float, rows: SparseRows) -> float:
    """The optimizer's update of a stage's parameters, and what the host does once per iteration.

    Of sparse tables it touches the rows with a gradient (SparseAdam).
    """
    touched = dense - (rows.table_parameters - rows.read_parameters)
    wider_s = rates.wide[STEPPED] * wide
    return (
        rates.step_s[DENSE] * touched + rates.step_s[EXPERTS] * experts + wider_s + rates.between_s
    )


@inlined
def state_bytes(
    rates: PlanRates, dense: float, experts: float, wide: float, rows: SparseRows
) -> float:
    """Weights, gradients and optimizer state of a stage on one device.

    A sparse gradient holds the rows of all replicas once they are gathered, which the step needs.
    """
    whole = (
        rates.resident_bytes[DENSE] * dense
        + rates.resident_bytes[EXPERTS] * experts
        + rates.wide[HELD] * wide
    )
    unread = rows.table_parameters - rows.read_parameters
    return whole - (rates.gradient_bytes - rates.host.kept_gradient) * unread + rows.index_bytes
