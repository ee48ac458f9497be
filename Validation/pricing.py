"""Iterations of measured runs: traces, prices of layers and devices are shared among them."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from Common.errors import InputError
from Estimator.devices.device import Device
from Estimator.devices.files import load_attention, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Software
from Estimator.network.cluster import Cluster
from Estimator.profiled.cost_model import operator_model
from GraphExtractor.depth import with_layers
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.dimensions import Dimensions
from GraphExtractor.storage import load_or_extract
from Plans.device_costs import DeviceCosts
from Plans.groups import layer_groups
from Plans.iteration import price_iteration
from Plans.placement import used_part
from Plans.plan import check_plan
from Plans.rates import Machine, device_machine
from Plans.results import Iteration, Status
from Validation.run_plan import PossiblePlan


@dataclass(frozen=True)
class PricedPlan:
    """A candidate plan and its prediction; ``within`` the memory that its choice goes by."""

    candidate: PossiblePlan
    iteration: Iteration
    within: bool

    @property
    def fits(self) -> bool:
        """Every stage fits in the device's memory."""
        return self.iteration.status is Status.FEASIBLE

    @property
    def rank(self) -> tuple[bool, float]:
        """Lower is better: what is within the memory by time, then what is not by memory."""
        return (False, self.iteration.iteration_s) if self.within else (True, self.iteration.memory_bytes)


@dataclass(frozen=True)
class SaidOfSoftware:
    """What a run says of software that is otherwise as described: bytes of gradients, fused attention, launches that block."""

    gradient_bytes: int | None = None
    attention_kernel: str | None = None
    blocking_launches: bool = False

    def of(self, software: Software) -> Software:
        """``software`` with it.

        Raises:
            InputError: there is no such kernel.
        """
        if self.gradient_bytes is not None:
            kept = replace(software.gradient_bytes, value=float(self.gradient_bytes))
            software = replace(software, gradient_bytes=kept, gradient_bytes_of={})
        if self.attention_kernel is not None:
            software = replace(software, attention=load_attention(self.attention_kernel))
        return replace(software, blocks=True) if self.blocking_launches else software


AS_DESCRIBED = SaidOfSoftware()


class RunPricer:
    """Prices plans of measured runs; stores the traces of their models under ``graphs``.

    ``memory_margin`` is how many times the device's memory a plan may be predicted to need whose recomputation is chosen.
    """

    def __init__(self, graphs: Path, memory_margin: float) -> None:
        self._margin = memory_margin
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
        dimensions: Dimensions,
        candidates: tuple[PossiblePlan, ...],
        device: Device,
        software: str,
        cluster: Cluster,
        said: SaidOfSoftware = AS_DESCRIBED,
    ) -> PricedPlan:
        """The plan that the run is taken to have had: of each micro-batch size the least recomputation that is within the memory.

        Sizes are tried upwards, as far as a larger one is faster and within it. Candidates that cannot be are left out.

        Raises:
            InputError: all contradict themselves, the model or the cluster; as the first of them.
        """
        self._devices[device.name] = device
        best: PricedPlan | None = None
        refused: InputError | None = None
        for _, same_size in groupby(candidates, key=lambda each: each.plan.micro_batch_size):
            alike = tuple(same_size)
            limit = device.memory.capacity.value * self._margin if len(alike) > 1 else None
            found = None
            for candidate in alike:
                try:
                    iteration = self._priced(dimensions, candidate, device.name, software, cluster, said)
                except InputError as error:
                    refused = refused or error
                    continue
                within = iteration.status is Status.FEASIBLE if limit is None else iteration.memory_bytes <= limit
                found = PricedPlan(candidate, iteration, within)
                if within:
                    break
            if found is None:
                continue
            if best is not None and best.rank <= found.rank:
                break
            best = found
        if best is None:
            raise refused or ValueError("a run has at least one candidate plan")
        return best

    def _priced(
        self,
        dimensions: Dimensions,
        candidate: PossiblePlan,
        device: str,
        software: str,
        cluster: Cluster,
        said: SaidOfSoftware,
    ) -> Iteration:
        plan = candidate.plan
        check_plan(plan)  # before anything is traced for it
        cluster = used_part(plan, cluster)
        key = plan.graph_key(dimensions.shared_trace.name, dimensions.sequence_length)
        graph = self._graph(key, dimensions.layers)
        costs, machine = self._costs(device, software, plan.precision.matrix_format, cluster, said)
        return price_iteration(plan, costs.layer_costs(graph, plan.recompute, layer_groups(plan, cluster)), machine)

    def _deep(self, key: GraphKey, layers: int) -> ModelGraph:
        return with_layers(self._trace(key), layers)

    def _device_costs(
        self, device: str, software: str, number_format: str, cluster: Cluster, said: SaidOfSoftware
    ) -> tuple[DeviceCosts, Machine]:
        """Costs that remember the layers of graphs, one per device, software, number format and cluster."""
        model = self._model(device, software, number_format, said)
        return DeviceCosts(model, cluster), device_machine(model, cluster)

    def _operator_model(self, device: str, software: str, number_format: str, said: SaidOfSoftware) -> DeviceModel:
        """One model per device, software and number format: it remembers the prices of operators."""
        return operator_model(self._devices[device], said.of(self.software(software)), number_format)
