"""Iterations of published runs: traces, layer prices and devices are shared among them."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from Estimator.devices.device import Device, Software
from Estimator.devices.files import load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from Estimator.profiled.cost_model import operator_model
from GraphExtractor.depth import with_layers
from GraphExtractor.models.dimensions import Dimensions
from GraphExtractor.storage import load_or_extract
from Plans.device_costs import DeviceCosts
from Plans.groups import layer_groups
from Plans.iteration import price_iteration
from Plans.rates import device_machine
from Plans.results import Iteration, Status
from Validation.run_plan import PossiblePlan


@dataclass(frozen=True)
class PricedPlan:
    """A candidate plan and its prediction."""

    candidate: PossiblePlan
    iteration: Iteration

    @property
    def fits(self) -> bool:
        """Every stage fits in the device's memory."""
        return self.iteration.status is Status.FEASIBLE


def _rank(priced: PricedPlan) -> tuple[bool, float]:
    """Lower is better: what fits by time, then what does not by memory."""
    return (False, priced.iteration.iteration_s) if priced.fits else (True, priced.iteration.memory_bytes)


class RunPricer:
    """Prices plans of published runs; stores the traces of their models under ``graphs``."""

    def __init__(self, graphs: Path) -> None:
        self._trace = lru_cache(maxsize=None)(lambda key: load_or_extract(key, graphs))
        self._software = lru_cache(maxsize=None)(load_software)
        self._models: dict[tuple[str, str, str], DeviceModel] = {}

    def software(self, name: str) -> Software:
        """The framework's description of this name."""
        return self._software(name)

    def best(
        self, dimensions: Dimensions, candidates: tuple[PossiblePlan, ...], device: Device, software: str, cluster: Cluster
    ) -> PricedPlan:
        """The fastest candidate that fits in memory; where none fits, the one that needs the least.

        Micro-batch sizes are tried upwards, as far as a larger one is faster and fits.

        Raises:
            InputError: a plan contradicts itself, the model or the cluster.
        """
        best: PricedPlan | None = None
        for _, same_size in groupby(candidates, key=lambda each: each.plan.micro_batch_size):
            priced = [PricedPlan(each, self._priced(dimensions, each, device, software, cluster)) for each in same_size]
            found = min(priced, key=_rank)
            if best is not None and _rank(best) <= _rank(found):
                break
            best = found
        if best is None:
            raise ValueError("a run has at least one candidate plan")
        return best

    def _priced(
        self, dimensions: Dimensions, candidate: PossiblePlan, device: Device, software: str, cluster: Cluster
    ) -> Iteration:
        plan = candidate.plan
        key = plan.graph_key(dimensions.shared_trace.name, dimensions.sequence_length)
        graph = with_layers(self._trace(key), dimensions.layers)
        model = self._model(device, software, plan.precision.matrix_format)
        costs = DeviceCosts(model, cluster).layer_costs(graph, plan.recompute, layer_groups(plan, cluster))
        return price_iteration(plan, costs, device_machine(model, cluster))

    def _model(self, device: Device, software: str, number_format: str) -> DeviceModel:
        """One model per device, software and number format: it remembers the prices of operators."""
        key = (device.name, software, number_format)
        if key not in self._models:
            self._models[key] = operator_model(device, self.software(software), number_format)
        return self._models[key]
