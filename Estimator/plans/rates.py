"""What a plan's degrees cost: collectives over replicas, bytes and seconds per parameter, messages
between stages."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from Estimator.devices.device import HostLink
from Estimator.devices.operator_cost import DeviceModel, PassStarts
from Estimator.devices.software import Software
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of, rectangle_costs_of
from Estimator.network.contention import ACTIVITIES, UNDISTURBED, Activity, Hiding
from Estimator.network.dispatchers import dispatcher_rates
from Estimator.network.links import outermost_tiers, transfer_costs
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import GroupNetwork, layer_groups
from Estimator.plans.host_traffic import HostRates
from Estimator.plans.offload import Offload
from Estimator.plans.policy import TrainingPolicy, optimizer_state, policy_under
from Estimator.plans.stage_price import ExpertRates, GatherRates
from Estimator.plans.uniform_plans import ZERO_STAGES, UniformPlans
from GraphExtractor.graph import CollectiveKind
from phaze_common.choices import Dispatcher, ExpertOverlap, TensorLayout
from phaze_common.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
# as ``stage_price`` counts them
KINDS = CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER


@dataclass(frozen=True, eq=False)
class Machine:
    """What runs a plan besides its operators: device memory, network, framework.

    ``peak_flops`` are those of one device in the plan's number format, ``stream_bytes_per_s`` is
    the bandwidth that a step of the optimizer reaches.
    """

    title: str
    memory_bytes: float
    peak_flops: float
    stream_bytes_per_s: float
    cluster: Cluster
    software: Software
    host: HostLink | None = None  # None: not known
    pass_starts: PassStarts = field(default=PassStarts())
    # standard deviation of the time of arithmetic among devices, part of the mean
    variation: float = 0.0
    processors: float = np.inf  # of a device, which share its products
    orthogonalises: bool = False  # whether seconds of Muon's products are known

    @property
    def host_seconds_per_byte(self) -> float:
        """Seconds that a byte takes to the host or from it while all devices that share a link to
        it use it alike.

        Raises:
            InputError: the link of this hardware to its host is not known.
        """
        if self.host is None:
            raise InputError(
                f"the bandwidth between {self.title} and its host is not known, so nothing can be "
                "kept in host memory; leave offload out, or give a device whose file has 'host'"
            )
        hosts = self.cluster.hosts
        return (1 if hosts is None else hosts.sharing) / self.host.bytes_per_s

    @property
    def host_bytes(self) -> float:
        """Memory of its host that a device has for itself; infinite where it is not known."""
        known = None if self.cluster.hosts is None else self.cluster.hosts.bytes_per_device
        return np.inf if known is None else known

    def host_slowdown(self) -> FloatArray:
        """Slow-downs of busy devices, traffic to them and from them by each other, shape (3, 3)."""
        contention = self.software.contention
        if contention is None:
            return np.zeros((3, 3))
        activities = Activity.PRODUCTS, Activity.TO_DEVICE, Activity.FROM_DEVICE
        rows = [ACTIVITIES.index(each) for each in activities]
        return np.ascontiguousarray(contention.matrix()[np.ix_(rows, rows)])

    def hiding(self, *, near: bool) -> Hiding:
        """What becomes of traffic beside computation, within the first tier or beyond."""
        contention, first = self.software.contention, self.cluster.tiers[:1]
        if contention is None or not first:
            return UNDISTURBED
        return contention.hiding(
            near=near, link_share=first[0].bandwidth_bytes_per_s / self.stream_bytes_per_s
        )


def device_machine(
    model: DeviceModel, cluster: Cluster, memory_bytes: float | None = None
) -> Machine:
    """The device of ``model`` on ``cluster``, with its own memory unless told otherwise."""
    device = model.device
    memory = device.memory.capacity.value if memory_bytes is None else memory_bytes
    peak = device.peak_flops(model.number_format)
    link, starts, variation = device.host, model.pass_starts, device.matrix.variation
    alike = 0.0 if variation is None else variation.value
    return Machine(
        device.title,
        memory,
        peak,
        model.stream_bytes_per_s,
        cluster,
        model.software,
        link,
        starts,
        alike,
        device.matrix.processors.value,
        orthogonalises=True,
    )


def hides_tensor_collectives(plan: UniformPlan, software: Software) -> bool:
    """Whether sequence parallelism's collectives run beside products, piece by piece."""
    overlaps = software.overlap_tensor if plan.overlap_tensor is None else plan.overlap_tensor
    return overlaps and plan.sequence_parallel


def expert_overlap(plan: UniformPlan, software: Software) -> ExpertOverlap:
    """What runs beside the exchange of tokens with experts."""
    stated = plan.overlap_experts
    return software.overlap_experts if stated is None else stated


def exchange_hiding(dispatcher: Dispatcher, ep: int, machine: Machine) -> Hiding:
    """What becomes of the exchange of tokens over ``ep`` devices beside computation.

    Dispatchers that run on processors of the device take these from what is computed meanwhile.
    """
    if dispatcher.per_node:
        taken = dispatcher_rates(dispatcher).processors.value
        return Hiding(min(taken / machine.processors, 1.0), 1.0)
    return machine.hiding(
        near=not machine.cluster.tiers or ep <= machine.cluster.tiers[0].group_size
    )


def exchange_rates(plan: UniformPlan, machine: Machine) -> ExpertRates:
    """What becomes of the exchange with experts beside another micro-batch."""
    software = machine.software
    overlap = expert_overlap(plan, software)
    if plan.ep == 1 or not overlap.of_batches:
        return ExpertRates(False, False, 1.0, 0.0)
    hiding = exchange_hiding(plan.dispatcher or software.dispatcher, plan.ep, machine)
    delays = overlap is ExpertOverlap.DELAYED
    return ExpertRates(True, delays, hiding.shown_part, hiding.hidden_part)


def paired_part(plans: UniformPlans, software: Software) -> FloatArray:
    """Part of the passes of each of ``plans`` beside which another micro-batch's runs, shape (N,).

    While a pipeline fills and drains, pp forward and pp backward passes have none beside them, of m
    + (pp - 1) / v that follow one another with v chunks per stage (Megatron-LM's schedule, whose
    last stage runs the forward pass of all chunks before the first backward one).
    """
    if plans.shape.ep == 1 or not expert_overlap(plans.shape, software).of_batches:
        return np.zeros(len(plans))
    every = plans.micro_batches + (plans.pp - 1) / plans.interleave
    paired: FloatArray = np.maximum(1.0 - plans.pp / every, 0.0)
    # all forward passes come first
    return paired * ~(plans.shape.gpipe & (plans.pp > 1))


def tensor_hides(tp: int, machine: Machine) -> float:
    """Part of the communication beside products that is gained; the rest slows them down."""
    near = not machine.cluster.tiers or tp <= machine.cluster.tiers[0].group_size
    return 1.0 - machine.hiding(near=near).shown_part


def hidden_gathers(software: Software) -> float:
    """Part of ZeRO-3's gathers and reductions that is hidden if there is time for all."""
    return 1.0 if software.sharding is None else software.sharding.hidden.value


def gather_rates(software: Software) -> GatherRates:
    """How its ZeRO stage 3 gathers layers."""
    known = software.sharding
    if known is None:
        return GatherRates(1.0, 0.0, np.inf)
    return GatherRates(
        1.0 if known.collectives is None else known.collectives.value,
        0.0 if known.part is None else known.part.value,
        np.inf if known.live is None else known.live.value,
    )


def gather_copy_s(machine: Machine, copies: IntArray) -> FloatArray:
    """Seconds a parameter that ZeRO stage 3 gathers is copied within the device, from and to the
    buffers of the collective.

    Nothing is gathered of what has one copy; as ``copies``, of any shape.
    """
    sharding = machine.software.sharding
    each_s = 0.0 if sharding is None else sharding.copies.value / machine.stream_bytes_per_s
    return np.where(copies > 1, each_s, 0.0)


def straggler_excess(machine: Machine, devices: IntArray | int) -> FloatArray:
    """How much longer arithmetic takes on the slowest of so many devices, which the others wait
    for: part of their usual time.

    Of n normally distributed times the largest is expected at the quantile (n - 3/8) / (n + 1/4)
    (Blom 1958). Without devices nothing is waited for.
    """
    several, place = np.unique(np.maximum(devices, 1), return_inverse=True)
    quantile = NormalDist().inv_cdf
    largest = np.array([quantile((n - 0.375) / (n + 0.25)) for n in several.tolist()])
    longer: FloatArray = machine.variation * largest[place].reshape(np.shape(devices))
    return longer


def shards_s(software: Software, zero_stage: IntArray, shards: IntArray) -> FloatArray:
    """Seconds that the host works once an iteration where it treats each of the ``shards``
    separately."""
    each_s = 0.0 if software.shard_issue is None else software.shard_issue.value
    separate = (zero_stage == 1) | (zero_stage == 2)
    found: FloatArray = each_s * np.where(separate, shards, 0)
    return found


def between_s(software: Software) -> float:
    """Seconds that the host works between two iterations at least, while its device waits."""
    return 0.0 if software.between_iterations is None else software.between_iterations.value


def start_s(machine: Machine, waits: bool | BoolArray) -> FloatArray:
    """What passes take longer where a stage ``waits`` before them, shape (..., 2)."""
    starts = np.array([machine.pass_starts.forward_s, machine.pass_starts.backward_s])
    found: FloatArray = np.asarray(waits)[..., None] * starts
    return found


def host_rates(
    offload: Offload, policy: TrainingPolicy, copies: IntArray, machine: Machine
) -> HostRates:
    """What ``offload`` puts on the link to the host, with ``copies`` of a parameter, and of one
    that some of them divide.

    ``copies`` of several plans have shape (plans, 2), and so has what is per parameter.

    Raises:
        InputError: the link of this hardware to its host is not known.
    """
    if not offload:
        none = np.zeros(copies.shape)
        return HostRates(
            False, 0.0, np.zeros((3, 3)), none, none, none, none, none, none, 0.0, 0.0, np.inf
        )
    weight, gradient, state = policy.parts_bytes(copies)
    weights = weight * offload.weights
    gradients = gradient * offload.gradients
    states = state * offload.optimizer
    read = policy.state.weight * offload.weights + policy.state.gradient * offload.gradients
    updated = read * policy.updated_part(copies)
    return HostRates(
        used=True,
        seconds_per_byte=machine.host_seconds_per_byte,
        slowdown=machine.host_slowdown(),
        weights=weights,
        gradients=gradients,
        state=states,
        step_in=states + updated,
        step_out=states + weights,
        kept=weights + gradients + states,
        kept_gradient=policy.state.gradient * offload.gradients,
        in_flight=0.0,
        room_bytes=machine.host_bytes,
    )


def orthogonalised_part(
    plan: UniformPlan, zero_stage: IntArray, copies: IntArray, machine: Machine
) -> FloatArray:
    """Part of the matrices of a stage that each of ``copies`` orthogonalises, of their shape; 0
    where the optimizer of ``plan`` does not.

    Raises:
        InputError: what that takes on this hardware is not known.
    """
    if optimizer_state(plan.optimizer).orthogonal is None:
        return np.zeros(copies.shape)
    if not machine.orthogonalises:
        raise InputError(
            f"what the products of {plan.optimizer} take is known of devices that exist, not of "
            f"{machine.title}; give a device, or another optimizer"
        )
    return policy_under(machine.software, plan, zero_stage).updated_part(copies)


def whole_bytes(plan: UniformPlan, machine: Machine) -> FloatArray:
    """Bytes per parameter of a layer at work beyond a device's part of it, and of the layer beside
    it that is gathered ahead.

    Shape (4, 3, 2): a row for each ZeRO stage of dense parameters, of experts, and of those whose
    weights are wider than others (``TrainingPolicy.whole_bytes``). (8, 3, 2) where some devices
    divide experts among them, which then may have one copy each, so that nothing more of these is
    gathered (the last four rows).
    """
    whole = np.stack(
        [policy_under(machine.software, plan, stage).whole_bytes for stage in range(ZERO_STAGES)]
    )
    both = whole[:, [0, 0, 1]]
    if not plan.divides_more:
        return both
    return np.concatenate([both, both * np.array([1.0, 0.0, 1.0])[:, None]])


def many_tied_s(
    plans: UniformPlans, tied_parameters: float, gradient_bytes: float, cluster: Cluster
) -> FloatArray:
    """All-reduce of the gradients that the first and the last stage share (tied embeddings), shape
    (N,); 0 on one stage.

    It begins when both ends have synchronised theirs.
    """
    seconds = np.zeros(len(plans))
    several = np.flatnonzero(plans.pp > 1)
    if not len(several) or not tied_parameters:
        return seconds
    kind, payload_bytes = CollectiveKind.ALL_REDUCE, tied_parameters * gradient_bytes
    if isinstance(plans.shape.group_order, Assignment):
        tiers = np.arange(len(cluster.tiers))
        costs = rectangle_costs_of(kind, np.where(tiers[:, None] == tiers, 2, 1), cluster)
        place = outermost_tiers(plans.assigned[:, 1].T)[several]
    else:
        strides = ((plans.pp - 1) * plans.layouts.stage_strides)[several]
        distinct, place = np.unique(strides, return_inverse=True)
        costs = collective_costs_of(kind, np.full(len(distinct), 2), distinct, cluster)
    seconds[several] = costs.seconds(np.full(costs.fixed_s.shape[1], payload_bytes))[place]
    return seconds


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages between stages of a pipeline, and tied gradients between its ends."""

    plan: UniformPlan
    cluster: Cluster

    @cached_property
    def _plans(self) -> UniformPlans:
        plan, order = self.plan, self.plan.group_order
        if isinstance(order, Assignment):
            plan = replace(plan, group_order=order.over(len(self.cluster.tiers)))
        return UniformPlans.of(plan, overlap_gradients=False)

    def boundary_tiers(self) -> NDArray[np.int8]:
        """Tier of the messages over every boundary between chunks, shape (chunks - 1,); from the
        last stage to the first, too."""
        between: NDArray[np.int8] = self._plans.boundary_tiers(self.cluster)[0]
        if self.plan.interleave == 1:
            return between
        around = np.concatenate([between, self._plans.end_tiers(self.cluster)])
        tiers: NDArray[np.int8] = np.tile(around, self.plan.interleave)[:-1]
        return tiers

    def seconds(self, payload_bytes: FloatArray, tiers: NDArray[np.int8]) -> FloatArray:
        """Seconds of messages of ``payload_bytes`` over ``tiers``, which broadcast.

        A message goes as a whole, or scattered over the tensor-parallel group and gathered behind
        the link, whichever is faster (the scatter-gather optimisation of Narayanan et al. 2021,
        section 4.1); with sequence parallelism, or in a 2D layout, it is scattered already.
        """
        plan, costs = self.plan, transfer_costs(self.cluster)
        whole = costs.seconds(payload_bytes, tiers)
        if plan.tp == 1 or plan.sequence_parallel or plan.layout is TensorLayout.TWO_D:
            return whole
        tensor = GroupNetwork(layer_groups(plan, self.cluster).tensor, self.cluster)
        gather_s = tensor.many_seconds(CollectiveKind.ALL_GATHER, payload_bytes)
        scattered: FloatArray = np.minimum(
            whole, costs.seconds(payload_bytes / plan.tp, tiers) + gather_s
        )
        return scattered

    def tied_s(self, tied_parameters: float, gradient_bytes: float) -> float:
        """``many_tied_s`` of the plan."""
        return float(many_tied_s(self._plans, tied_parameters, gradient_bytes, self.cluster)[0])
