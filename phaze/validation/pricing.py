"""Iterations of measured runs: traces, prices of layers and devices are shared among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from Estimator.devices.device import Device
from Estimator.devices.files import load_attention, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Software
from Estimator.network.cluster import Cluster
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.placement import used_part
from Estimator.plans.plan import check_plan
from Estimator.plans.rates import Machine, device_machine
from Estimator.plans.results import Iteration, Status
from Estimator.profiled.cost_model import operator_model
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.replication import with_layers
from GraphExtractor.storage import load_or_extract
from phaze.validation.records import Unstated
from phaze.validation.run_model import RunModel
from phaze.validation.run_plan import PossiblePlan
from phaze.validation.typed_run import TypedRun
from phaze_common.errors import InputError

CHOSEN = ("micro_batch", "recompute")  # rules by which one of several plans is taken


@dataclass(frozen=True)
class CountedFlops:
    """Floating-point operations of an iteration: of the model, of these the scores that a mask
    leaves out, and those repeated."""

    model: float
    masked: float
    repeated: float


@dataclass(frozen=True)
class PredictedRun:
    """A candidate plan and its prediction; ``unstated`` is what it was chosen of."""

    candidate: PossiblePlan
    iteration: Iteration
    flops: CountedFlops
    unstated: Unstated | None = None

    @property
    def fits(self) -> bool:
        """Every stage fits in the device's memory."""
        return self.iteration.status is Status.FEASIBLE


@dataclass(frozen=True)
class SoftwareOverrides:
    """What a run says of software that is otherwise as described: bytes of gradients, fused
    attention, launches that block, gradients that products do not add up."""

    gradient_bytes: int | None = None
    attention_kernel: str | None = None
    blocking_launches: bool = False
    fused_gradients: bool | None = None

    @staticmethod
    def of_run(run: TypedRun) -> SoftwareOverrides:
        """Those of a run."""
        blocking = bool(run.blocking_launches)
        return SoftwareOverrides(
            run.gradient_bytes, run.attention_kernel, blocking, run.fused_gradients
        )

    def of(self, software: Software) -> Software:
        """``software`` with it.

        Raises:
            InputError: there is no such kernel.
        """
        if self.gradient_bytes is not None:
            kept = replace(software.gradient_bytes, value=float(self.gradient_bytes))
            software = replace(software, gradient_bytes=kept, gradient_bytes_of={})
        if self.attention_kernel is not None:
            software = software.calling(load_attention(self.attention_kernel))
        if self.fused_gradients is False:
            software = software.with_gradients_apart
        return replace(software, blocks=True) if self.blocking_launches else software


AS_DESCRIBED = SoftwareOverrides()


class RunPricer:
    """Prices plans of measured runs; stores the traces of their models under ``graphs``.

    Of plans that a run may have had those fit that are predicted to need no more than the device's
    memory and the part ``memory_error`` of it; where none does, those within ``memory_margin``
    times it.
    """

    def __init__(self, graphs: Path, memory_error: float, memory_margin: float) -> None:
        self._limits = (1.0 + memory_error, memory_margin)
        self._trace = lru_cache(maxsize=None)(lambda key: load_or_extract(key, graphs))
        self._graph = lru_cache(maxsize=None)(self._deep)
        self._software = lru_cache(maxsize=None)(load_software)
        self._costs = lru_cache(maxsize=None)(self._device_costs)
        self._model = lru_cache(maxsize=None)(self._operator_model)
        self._devices: dict[str, Device] = {}

    def software(self, name: str) -> Software:
        """The framework's description of this name."""
        return self._software(name)

    def best(
        self,
        model: RunModel,
        candidates: tuple[PossiblePlan, ...],
        device: Device,
        software: str,
        cluster: Cluster,
        overrides: SoftwareOverrides = AS_DESCRIBED,
    ) -> PredictedRun:
        """The plan that the run is taken to have had: the fastest that fits in memory.

        Where none does, the fastest of those within the margin by which predictions of memory are
        off, and else the one that needs the least. Candidates that cannot be are left out.

        Raises:
            InputError: all contradict themselves, the model or the cluster; as the first of them.
        """
        self._devices[device.name] = device
        priced, refused = list[PredictedRun](), list[InputError]()
        for candidate in candidates:
            try:
                priced.append(
                    self._priced(model, candidate, device.name, software, cluster, overrides)
                )
            except InputError as error:
                refused.append(error)
        if not priced:
            raise refused[0] if refused else ValueError("a run has at least one candidate plan")
        within = list[PredictedRun]()
        for limit in self._limits:
            most = device.memory.capacity.value * limit
            within = within or [each for each in priced if each.iteration.memory_bytes <= most]
        taken = min(priced, key=lambda each: each.iteration.memory_bytes)
        if within:
            taken = min(within, key=lambda each: each.iteration.iteration_s)
        return replace(taken, unstated=_unstated(taken, within or priced))

    def _priced(
        self,
        model: RunModel,
        candidate: PossiblePlan,
        device: str,
        software: str,
        cluster: Cluster,
        overrides: SoftwareOverrides,
    ) -> PredictedRun:
        plan = candidate.plan
        check_plan(plan)  # before anything is traced for it
        cluster = used_part(plan, cluster)
        key = plan.graph_key(model.traced, model.sequence_length)
        graph = self._trace(key) if model.dimensions is None else self._graph(key, model.layers)
        costs, machine = self._costs(
            device, software, plan.precision.matrix_format, cluster, overrides
        )
        layers = costs.layer_costs(graph, plan.recompute, layer_groups(plan, cluster))
        iteration = price_iteration(plan, layers, machine)
        sizes, runs = layers.sizes, plan.global_batch_size / plan.micro_batch_size
        runs *= plan.inner_devices
        forward, masked, repeated = (
            float(each[list(sizes.sequence)].sum()) * runs
            for each in (sizes.forward_flops, sizes.masked_flops, sizes.repeated_flops)
        )
        return PredictedRun(
            candidate, iteration, CountedFlops(3.0 * forward, 3.0 * masked, repeated)
        )

    def _deep(self, key: GraphKey, layers: int) -> ModelGraph:
        return with_layers(self._trace(key), layers)

    def _device_costs(
        self,
        device: str,
        software: str,
        number_format: str,
        cluster: Cluster,
        overrides: SoftwareOverrides,
    ) -> tuple[DeviceCosts, Machine]:
        """Costs that remember the layers of graphs, one per device, software, number format and
        cluster."""
        model = self._model(device, software, number_format, overrides)
        return DeviceCosts(model, cluster), device_machine(model, cluster)

    def _operator_model(
        self, device: str, software: str, number_format: str, overrides: SoftwareOverrides
    ) -> DeviceModel:
        """One model per device, software and number format remembers the prices of operators."""
        described = overrides.of(self.software(software))
        return operator_model(self._devices[device], described, number_format)


def _unstated(taken: PredictedRun, among: Sequence[PredictedRun]) -> Unstated | None:
    """What a run does not say, and how much longer the plans took that it may have had as well."""
    settings = tuple(each.rule for each in taken.candidate.choices if each.rule in CHOSEN)
    if not settings:
        return None
    seconds = [each.iteration.iteration_s / taken.iteration.iteration_s for each in among]
    return Unstated(settings, len(among), min(seconds), max(seconds))
