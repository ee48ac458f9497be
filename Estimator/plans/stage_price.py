"""The formulas of a pipeline stage, compiled: seconds of its passes, data-parallel communication,
bytes.

Everything that prices a stage calls these: one plan, many plans at once, and the searches over
stages there can be.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import borrowing_inner, borrowing_outer, inlined
from Estimator.plans.host_traffic import HostRates, HostSeconds, PassTraffic, host_seconds
from Estimator.plans.stage_totals import PassTotals, StageSizes, StageTimes

FloatArray = NDArray[np.float64]
Value = TypeVar("Value", float, NDArray[np.float64])

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = 0, 1, 2
HELD, SENT, STEPPED, OFFLOADED = 0, 1, 2, 3  # of ``PlanRates.wide``
# Parameters with as many copies as can be, and those that some of these devices divide among them.
DENSE, EXPERTS = 0, 1
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


class ExpertRates(NamedTuple):
    """What becomes of exchanges with experts beside the passes of another micro-batch.

    They hide where they are ``beside`` them: each of their seconds makes these ``shown_part`` of
    one longer, and a second of passes hides ``hidden_part`` of one of theirs. ``delays``: products
    of weight gradients run beside the exchanges of backward passes.
    """

    beside: bool
    delays: bool
    shown_part: float
    hidden_part: float


class GatherRates(NamedTuple):
    """How ZeRO-3 gathers and scatters a layer: by so many ``collectives`` in a pass, each of which
    keeps the host ``part_s`` for every device while the device waits; with more than ``live``
    parameters in one layer once more where it is recomputed."""

    collectives: float
    part_s: float
    live: float


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
    # (2,): what a device orthogonalises of the matrices of its stage, 0 where the optimizer is not
    # Muon
    matrices: FloatArray
    start_s: FloatArray  # (2,): of a forward and of a backward pass, before which its stage waited
    reserved_bytes: float
    reduces_all: bool  # whether ZeRO-1 reduces whole gradients
    gathers_beside: bool  # whether updated weights are gathered beside the first forward pass
    gather_copy_s: FloatArray  # (2,) of copies within a device, per parameter that ZeRO-3 gathers
    gathers: GatherRates
    # how much longer arithmetic takes on the slowest of the plan's devices, part of what it takes
    # on a usual one
    straggler_excess: float
    between_s: float  # what the host does once per iteration, while its device waits
    exchange: ExpertRates
    paired: float  # part of the passes beside which another micro-batch's may run
    # whether experts, or what a 2D layout divides twice, have fewer copies than other parameters
    expert_split: bool
    tied_split: bool  # whether tied parameters are among these
    groups: GroupRates
    host: HostRates


class PassRates(NamedTuple):
    """Of ``PlanRates`` what passes need, without arrays."""

    tp: float
    overlap_tensor: bool
    tensor_hides: float
    straggler_excess: float
    overlap_data: bool
    shown_part: float
    hidden_part: float
    accumulated: float
    start_forward_s: float
    start_backward_s: float
    exchange: ExpertRates
    paired: float


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


class StageParameters(NamedTuple):
    """Parameters of a stage on one device, in so many ``layers``; tied ones count once where all
    layers are on one stage.

    ``dense`` ones are held by all replicas, those of ``wide`` weights among them stay as they are
    where others are held in fp8; ``experts``, or what a 2D layout divides twice, are divided among
    some of the replicas.
    """

    layers: float
    dense: float
    experts: float
    wide: float
    most: float  # of one layer
    rows: SparseRows


class StagePrice(NamedTuple, Generic[Value]):
    """Seconds and bytes of a stage: of one as numbers, of several as arrays of shape (stages,).

    Passes and their parts are of one micro-batch on all chunks of the stage; parts are what their
    layers' costs do not say. ``after_s`` are the exposed seconds of data-parallel communication
    after the last backward pass.
    """

    forward_s: Value
    backward_s: Value  # with what is recomputed
    after_s: Value
    step_s: Value
    state_bytes: Value  # of parameters
    workspace_bytes: Value
    # All but activations; infinite where the host has no room for what a stage of one chunk keeps.
    fixed_bytes: Value
    host_state_bytes: Value  # of parameters, in host memory
    launch_s: Value
    forward_launch_s: Value  # of ``launch_s``, the forward pass's
    hidden_tensor_s: Value
    hidden_expert_s: Value
    forward_hidden_expert_s: Value  # of ``hidden_expert_s``, the forward pass's
    exposed_data_s: Value
    forward_data_s: Value  # of ``exposed_data_s``, the forward pass's
    hidden_data_s: Value
    hidden_once_s: Value  # of the communication after the last micro-batch
    exposed_host_s: Value  # waiting for host memory
    forward_host_s: Value  # of ``exposed_host_s``, the forward pass's
    hidden_host_s: Value
    step_waiting_s: Value  # of ``step_s``, waiting for host memory
    hidden_step_host_s: Value  # of the host traffic of the step


PRICE_FIELDS = len(StagePrice._fields)


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


class ChunkPrice(NamedTuple):
    """Seconds of a chunk's passes, and parts of them as in ``StagePrice``."""

    forward_s: float
    backward_s: float  # with what is recomputed
    forward_launch_s: float
    backward_launch_s: float
    hidden_tensor_s: float
    forward_hidden_expert_s: float
    backward_hidden_expert_s: float
    forward_data_s: float  # exposed
    backward_data_s: float
    data_s: float  # exposed or not


class SyncPrice(NamedTuple):
    """Seconds of a stage's data-parallel communication.

    ``gather_s`` of the weights precedes each forward and each backward pass (ZeRO-3), and ``again``
    times each recomputation, ``reduce_s`` of the gradients follows each backward pass (ZeRO-2 and
    3). Once per iteration come
    ``last_reduce_s`` of the gradients and ``update_s``, which gathers the updated weights (ZeRO-1
    and 2).
    """

    gather_s: float
    reduce_s: float
    last_reduce_s: float
    update_s: float
    again: float


@borrowing_inner
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
                per_byte_s = rates.per_byte_s[kind, which, level, start, algorithm]
                seconds = (
                    rates.fixed_s[kind, which, level, start, algorithm] + per_byte_s * left_bytes
                )
                fastest_s = min(fastest_s, seconds)
            slowest_s = max(slowest_s, fastest_s)
        total_s += slowest_s
        left_bytes /= rates.sizes[which, level]
    return total_s


@borrowing_inner
def parameters_s(
    rates: PlanRates,
    kind: int,
    dense: float,
    experts: float,
    bytes_each: float,
    pieces: float,
    more_bytes: float,
) -> float:
    """A collective over a stage's parameters and ``more_bytes``, in ``pieces`` by turns."""
    seconds = collective_s(rates.groups, kind, DENSE, (dense * bytes_each + more_bytes) / pieces)
    if experts > 0.0:
        seconds += collective_s(rates.groups, kind, EXPERTS, experts * bytes_each / pieces)
    return pieces * seconds


@inlined
def sparse_rows(rates: PlanRates, sizes: StageSizes, first: int, step: int) -> SparseRows:
    """Those of the chunks from ``first`` on, ``step`` apart; each row of a table counts once,
    however often it is read.

    From ZeRO-1 on gradients are scattered over the replicas, which torch does with dense ones only:
    then there are none.
    """
    table_parameters, read_parameters, index_bytes, sent_bytes = 0.0, 0.0, 0.0, 0.0
    for kind in range(sizes.tables.shape[1] if rates.zero_stage == 0 else 0):
        rows = sizes.table_sizes[kind, 0]
        read = sizes.table_sizes[kind, 1]
        width = sizes.table_sizes[kind, 2]
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


@inlined
def stage_parameters(
    rates: PlanRates, sizes: StageSizes, first: int, step: int, shared: float
) -> StageParameters:
    """Those of the stage of the chunks from ``first`` on, ``step`` apart, of which ``shared`` count
    once more among its layers."""
    layers, parameters, experts, wide, most = 0.0, -shared, 0.0, -shared, 0.0
    for chunk in range(first, len(sizes.layers), step):
        layers += sizes.layers[chunk]
        parameters += sizes.parameters[chunk]
        experts += sizes.expert_parameters[chunk] if rates.expert_split else 0.0
        wide += sizes.wide_parameters[chunk]
        most = max(most, sizes.largest[chunk, 0])
    experts -= shared if rates.tied_split else 0.0
    rows = sparse_rows(rates, sizes, first, step)
    return StageParameters(layers, parameters - experts, experts, wide, most, rows)


@borrowing_inner
def synchronisation(rates: PlanRates, held: StageParameters) -> SyncPrice:
    """Communication of a stage that holds these parameters.

    ZeRO-3 gathers layer by layer (Rajbhandari et al. 2020). Sparse gradients are gathered by all
    replicas, values and indices, and added up there, as torch's DistributedDataParallel does.
    """
    dense, experts, layers = held.dense, held.experts, held.layers
    gradient, weight, more = rates.gradient_bytes, rates.weight_bytes, rates.wide[SENT] * held.wide
    if rates.zero_stage == 0:
        dense -= held.rows.table_parameters
        reduce_s = parameters_s(rates, ALL_REDUCE, dense, experts, gradient, 1.0, 0.0)
        rows_s = collective_s(rates.groups, ALL_GATHER, DENSE, held.rows.sent_bytes)
        return SyncPrice(0.0, 0.0, reduce_s + rows_s, 0.0, 0.0)
    if rates.zero_stage == 3:
        copies_s = rates.gather_copy_s[DENSE] * dense + rates.gather_copy_s[EXPERTS] * experts
        pieces, each_s = layers * rates.gathers.collectives, rates.copies * rates.gathers.part_s
        gather_s = parameters_s(rates, ALL_GATHER, dense, experts, weight, pieces, more) + copies_s
        scatter_s = parameters_s(rates, REDUCE_SCATTER, dense, experts, gradient, pieces, 0.0)
        # by the largest layer, so that one more never makes a stage faster
        again = 1.0 if held.most > rates.gathers.live else 0.0
        issue_s = pieces * each_s
        return SyncPrice(gather_s + issue_s, scatter_s + issue_s, 0.0, 0.0, again)
    gather_s = parameters_s(rates, ALL_GATHER, dense, experts, weight, 1.0, more)
    kind = ALL_REDUCE if rates.zero_stage == 1 and rates.reduces_all else REDUCE_SCATTER
    reduce_s = parameters_s(rates, kind, dense, experts, gradient, 1.0, 0.0)
    if rates.zero_stage == 2:
        return SyncPrice(0.0, reduce_s, 0.0, gather_s, 0.0)
    return SyncPrice(0.0, 0.0, reduce_s, gather_s, 0.0)


@inlined
def exposed_s(
    communication_s: float, computation_s: float, layers: float, shown_part: float, hidden: float
) -> float:
    """What ``communication_s`` adds to ``computation_s`` when it runs beside it, both layer by
    layer: with the ``shown_part`` and ``hidden_part`` of ``PlanRates``.

    The communication of a layer can only hide behind the computation of another one, so one layer's
    share always shows; the rest slows it down (``Estimator.network.contention``).
    """
    one, rest = 1.0 / layers, (layers - 1.0) / layers
    least_s = communication_s - computation_s * rest * hidden
    return max(least_s, communication_s * (one + rest * shown_part))


@borrowing_inner
def pass_price(
    rates: PassRates,
    device_s: float,
    host_s: float,
    tensor_s: float,
    products_s: float,
    arithmetic_s: float,
    data_s: float,
    layers: float,
) -> PassPrice:
    """A pass through so many ``layers`` from the fields of ``PassTotals``, ``data_s`` of
    data-parallel communication beside it.

    The host runs ahead of the device, so the slower of the two decides over all of them.
    """
    hidden_s = 0.0
    if rates.overlap_tensor:
        concurrent_s = min(tensor_s, products_s)
        hidden_s = concurrent_s * (1.0 - 1.0 / rates.tp) * rates.tensor_hides
    occupied_s = device_s + arithmetic_s * rates.straggler_excess + tensor_s - hidden_s
    busy_s = max(occupied_s, host_s)
    shown_s = data_s
    if rates.overlap_data and data_s > 0.0:
        shown_s = exposed_s(data_s, busy_s, layers, rates.shown_part, rates.hidden_part)
    return PassPrice(busy_s + shown_s, busy_s - occupied_s, hidden_s, shown_s)


@inlined
def pass_of(
    rates: PassRates, totals: PassTotals, at: int, more_s: float, data_s: float, layers: float
) -> PassPrice:
    """A pass through the ``layers`` layers of chunk ``at``, with ``more_s`` of the device besides.

    Compiled once for all passes, and called without arrays.
    """
    return pass_price(
        rates,
        totals.device_s[at] + more_s,
        totals.host_s[at],
        totals.tensor_s[at],
        totals.products_s[at],
        totals.arithmetic_s[at],
        data_s,
        layers,
    )


@inlined
def _hidden_part_s(exchange: ExpertRates, exchange_s: float, passes_s: float) -> float:
    """Seconds gained of an exchange beside ``passes_s`` of another micro-batch."""
    least_s = exchange_s - max(passes_s, 0.0) * exchange.hidden_part
    return exchange_s - max(least_s, exchange_s * exchange.shown_part)


@inlined
def hidden_exchanges(rates: PassRates, times: StageTimes, at: int) -> tuple[float, float]:
    """Seconds of the exchanges of chunk ``at`` in forward and in backward passes that those of
    another micro-batch hide: forward ones beside backward passes and the other way round.

    Where products of weight gradients are delayed, those of backward passes hide beside them too:
    they take as long as the products of a forward pass. Exchanges that are run again hide nowhere,
    nor do those of passes without another micro-batch beside them, nor beside what accumulates
    gradients.
    """
    exchange = rates.exchange
    if not exchange.beside:
        return 0.0, 0.0
    forward, again, back = times.forward, times.recompute, times.backward
    ahead_s, back_s = forward.expert_s[at], back.expert_s[at]
    forward_s = forward.device_s[at] - ahead_s
    backward_s = again.device_s[at] - again.expert_s[at] + back.device_s[at] - back_s
    delayed_s = forward.products_s[at] if exchange.delays else 0.0
    hidden_ahead_s = _hidden_part_s(exchange, ahead_s, backward_s - delayed_s)
    hidden_back_s = _hidden_part_s(exchange, back_s, forward_s + delayed_s)
    return rates.paired * hidden_ahead_s, rates.paired * hidden_back_s


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
    shown, hidden = rates.shown_part, rates.hidden_part
    reduce_s = exposed_s(sync.last_reduce_s, backward_s, layers, shown, hidden)
    if not rates.gathers_beside:
        return reduce_s + sync.update_s
    return reduce_s + exposed_s(sync.update_s, forward_s, layers, shown, hidden)


@borrowing_inner
def host_traffic(
    rates: PlanRates, sizes: StageSizes, first: int, step: int, held: StageParameters
) -> HostTraffic:
    """That of the stage of the chunks from ``first`` on, ``step`` apart; of sparse tables only rows
    with a gradient are on their way."""
    host, dense, experts = rates.host, held.dense, held.experts
    unread = held.rows.table_parameters - held.rows.read_parameters
    touched = dense - unread
    wider = rates.wide[OFFLOADED] * held.wide
    weights = host.weights[DENSE] * dense + host.weights[EXPERTS] * experts + wider
    gradients = host.gradients[DENSE] * touched + host.gradients[EXPERTS] * experts
    largest, largest_experts = 0.0, 0.0
    for chunk in range(first, len(sizes.layers), step):
        largest = max(largest, sizes.largest[chunk, 1 if rates.expert_split else 0])
        if rates.expert_split:
            largest_experts = max(largest_experts, sizes.largest[chunk, 2])
    state = host.state[DENSE] * dense + host.state[EXPERTS] * experts
    buffer = (host.weights[DENSE] + host.gradients[DENSE]) * largest
    buffer += (host.weights[EXPERTS] + host.gradients[EXPERTS]) * largest_experts
    step_buffer = host.state[DENSE] * largest + host.state[EXPERTS] * largest_experts
    step_in = host.step_in[DENSE] * touched + host.step_in[EXPERTS] * experts
    step_out = host.step_out[DENSE] * touched + host.step_out[EXPERTS] * experts + wider
    kept = host.kept[DENSE] * dense + host.kept[EXPERTS] * experts + wider
    return HostTraffic(
        weights,
        gradients,
        PassTraffic(step_in, step_out),
        min(2.0 * buffer, weights + gradients),
        min(2.0 * step_buffer, state),
        kept - host.kept_gradient * unread,
    )


@inlined
def pass_rates(rates: PlanRates) -> PassRates:
    """What passes need: compiled calls copy and count every array that they get."""
    return PassRates(
        rates.tp,
        rates.overlap_tensor,
        rates.tensor_hides,
        rates.straggler_excess,
        rates.overlap_data,
        rates.shown_part,
        rates.hidden_part,
        rates.accumulated,
        rates.start_s[0],
        rates.start_s[1],
        rates.exchange,
        rates.paired,
    )


@inlined
def chunk_price(
    rates: PassRates, times: StageTimes, sync: SyncPrice, chunk: int, layers: float, share: float
) -> ChunkPrice:
    """The passes of a chunk with a ``share`` of its stage's layers, host memory apart."""
    gather_s, reduce_s = sync.gather_s * share, sync.reduce_s * share
    added_s = times.accumulation_s[chunk] * rates.accumulated
    ahead_s, back_s = hidden_exchanges(rates, times, chunk)
    forward = pass_of(rates, times.forward, chunk, -ahead_s, gather_s, layers)
    again_s = gather_s * sync.again if times.recompute.device_s[chunk] > 0.0 else 0.0
    recompute = pass_of(rates, times.recompute, chunk, 0.0, again_s, layers)
    backward = pass_of(rates, times.backward, chunk, added_s - back_s, gather_s + reduce_s, layers)
    return ChunkPrice(
        forward.total_s + rates.start_forward_s,
        recompute.total_s + backward.total_s + rates.start_backward_s,
        forward.launch_s + rates.start_forward_s,
        recompute.launch_s + backward.launch_s + rates.start_backward_s,
        forward.hidden_tensor_s + recompute.hidden_tensor_s + backward.hidden_tensor_s,
        ahead_s,
        back_s,
        forward.exposed_data_s,
        recompute.exposed_data_s + backward.exposed_data_s,
        2.0 * gather_s + again_s + reduce_s,
    )


@borrowing_inner
def stage_price(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    first: int,
    step: int,
    shared: float,
    chunks_s: FloatArray,
) -> StagePrice[float]:
    """The stage of the chunks from ``first`` on, ``step`` apart: of one, where ``step`` is the
    number of all.

    ``shared`` of its parameters count once more among its layers (tied, where all are here). Fills
    ``chunks_s`` (2, chunks) with seconds of forward and whole backward passes as far as it reaches.
    """
    held = stage_parameters(rates, sizes, first, step, shared)
    sync, of_passes = synchronisation(rates, held), pass_rates(rates)
    traffic = HostTraffic(0.0, 0.0, PassTraffic(0.0, 0.0), 0.0, 0.0, 0.0)
    if rates.host.used:
        traffic = host_traffic(rates, sizes, first, step, held)
    forward_s, backward_s, workspace_bytes, offloaded_bytes = 0.0, 0.0, 0.0, 0.0
    launch_s, forward_launch_s, hidden_tensor_s = 0.0, 0.0, 0.0
    hidden_expert_s, forward_hidden_expert_s = 0.0, 0.0
    exposed_data_s, forward_data_s, data_s = 0.0, 0.0, 0.0
    forward_host_s, backward_host_s, hidden_host_s = 0.0, 0.0, 0.0
    for chunk in range(first, len(sizes.layers), step):
        layers = sizes.layers[chunk]
        share = layers / held.layers
        price = chunk_price(of_passes, times, sync, chunk, layers, share)
        chunk_forward_s, chunk_backward_s = price.forward_s, price.backward_s
        forward_s += chunk_forward_s
        backward_s += chunk_backward_s
        forward_launch_s += price.forward_launch_s
        launch_s += price.forward_launch_s + price.backward_launch_s
        hidden_tensor_s += price.hidden_tensor_s
        forward_hidden_expert_s += price.forward_hidden_expert_s
        hidden_expert_s += price.forward_hidden_expert_s + price.backward_hidden_expert_s
        forward_data_s += price.forward_data_s
        exposed_data_s += price.forward_data_s + price.backward_data_s
        data_s += price.data_s
        workspace_bytes = max(workspace_bytes, sizes.workspace_bytes[chunk, rates.working])
        offloaded_bytes += sizes.offloaded_bytes[chunk]
        if rates.host.used:
            gradients, offloaded = traffic.gradients * share, sizes.offloaded_bytes[chunk]
            weights = traffic.weights * share
            forward_traffic = PassTraffic(weights, offloaded)
            to_device = weights + offloaded + gradients * rates.accumulated
            backward_traffic = PassTraffic(to_device, gradients)
            forward_host = host_seconds(rates.host, forward_traffic, chunk_forward_s, layers)
            backward_host = host_seconds(rates.host, backward_traffic, chunk_backward_s, layers)
            chunk_forward_s += forward_host.exposed_s
            chunk_backward_s += backward_host.exposed_s
            forward_host_s += forward_host.exposed_s
            backward_host_s += backward_host.exposed_s
            hidden_host_s += forward_host.hidden_s + backward_host.hidden_s
        if chunk < chunks_s.shape[1]:
            chunks_s[0, chunk], chunks_s[1, chunk] = chunk_forward_s, chunk_backward_s
    after_s = once_s(rates, sync, forward_s, backward_s, held.layers)
    update_s = step_s(rates, held)
    if rates.matrices[DENSE] > 0.0:
        update_s += orthogonal_s(rates, sizes, first, step)
    of_step, room_bytes = HostSeconds(0.0, 0.0), 0.0
    if rates.host.used:
        of_step = host_seconds(rates.host, traffic.step, update_s, held.layers)
        workspace_bytes = max(workspace_bytes, traffic.step_buffer) + traffic.buffer
        kept_bytes = traffic.kept_bytes + rates.host.in_flight * offloaded_bytes
        room_bytes = np.inf if kept_bytes > rates.host.room_bytes * (1.0 + 1e-12) else 0.0
    whole_state = state_bytes(rates, held)
    exposed_host_s = forward_host_s + backward_host_s
    return StagePrice(
        forward_s + forward_host_s,
        backward_s + backward_host_s,
        after_s,
        update_s + of_step.exposed_s,
        whole_state,
        workspace_bytes,
        whole_state + workspace_bytes + rates.reserved_bytes + room_bytes,
        traffic.kept_bytes,
        launch_s,
        forward_launch_s,
        hidden_tensor_s,
        hidden_expert_s,
        forward_hidden_expert_s,
        exposed_data_s,
        forward_data_s,
        data_s - exposed_data_s,
        sync.last_reduce_s + sync.update_s - after_s,
        exposed_host_s,
        forward_host_s,
        hidden_host_s,
        of_step.exposed_s,
        of_step.hidden_s,
    )


@borrowing_outer
def price_stages(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    pp: int,
    tied: float,
    chunks_s: FloatArray,
    prices: FloatArray,
) -> None:
    """Price a pipeline whose chunk c, in model order, runs on stage c % pp; ``tied`` parameters
    count once on a single stage.

    Fills ``chunks_s`` (2, chunks) with seconds of forward and whole backward passes, and ``prices``
    (PRICE_FIELDS, pp) with the fields of each stage's ``StagePrice``.
    """
    for stage in range(pp):
        shared = tied if pp == 1 else 0.0
        price = stage_price(rates, times, sizes, stage, pp, shared, chunks_s)
        for field in range(PRICE_FIELDS):
            prices[field, stage] = price[field]


@borrowing_outer
def parameters_of(
    rates: PlanRates, sizes: StageSizes, stage: int, pp: int, tied: float
) -> StageParameters:
    """``stage_parameters`` of such a stage."""
    return stage_parameters(rates, sizes, stage, pp, tied if pp == 1 else 0.0)


@inlined
def step_s(rates: PlanRates, held: StageParameters) -> float:
    """The optimizer's update of a stage's parameters, and what the host does once per iteration.

    Of sparse tables it touches the rows with a gradient (SparseAdam).
    """
    touched = held.dense - (held.rows.table_parameters - held.rows.read_parameters)
    updated_s = rates.step_s[DENSE] * touched + rates.step_s[EXPERTS] * held.experts
    return updated_s + rates.wide[STEPPED] * held.wide + rates.between_s


@inlined
def orthogonal_s(rates: PlanRates, sizes: StageSizes, first: int, step: int) -> float:
    """Muon's step on the matrices of a stage: replicas that share them each take whole ones."""
    total_s = 0.0
    for kind in (DENSE, EXPERTS):
        seconds, largest_s = 0.0, 0.0
        for chunk in range(first, len(sizes.layers), step):
            seconds += sizes.matrices_s[chunk, kind]
            largest_s = max(largest_s, sizes.largest[chunk, 4 + kind])
        total_s += max(seconds * rates.matrices[kind], largest_s)
    return total_s


@inlined
def state_bytes(rates: PlanRates, held: StageParameters) -> float:
    """Weights, gradients and optimizer state of a stage on one device.

    A sparse gradient holds the rows of all replicas once they are gathered, which the step needs.
    """
    resident = rates.resident_bytes
    whole = resident[DENSE] * held.dense + resident[EXPERTS] * held.experts
    unread = held.rows.table_parameters - held.rows.read_parameters
    kept_gradients = (rates.gradient_bytes - rates.host.kept_gradient) * unread
    return whole + rates.wide[HELD] * held.wide - kept_gradients + held.rows.index_bytes
