"""What limits the best design: what more of each resource would bring on the same chip, its plan chosen anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Common.units import GIB
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from GraphExtractor.graph import ModelGraph
from Solver.results import DesignPoint, Limit
from Solver.search.limits.area_limit import area_limit
from Solver.search.limits.gains import binds, gain_of, gained
from Solver.search.limits.resources import Circumstances, Resource, resources
from Solver.search.run import Run
from Solver.search.what_if import PricedAccelerators, priced, under
from Studies.words import EQUAL, number, size_words


def limits_of(run: Run, graphs: Sequence[tuple[ModelGraph, ...]], best: DesignPoint) -> tuple[Limit, ...]:
    """The limits of ``best``, the optimum of ``run``; ``graphs`` are those of every model and micro-batch size."""
    given = Circumstances(run.hardware.platform, run.hardware.cluster, best.hbm_bytes)
    more = resources(given, _most_devices(run, graphs))
    with run.progress.phase("limits of the best design", len(more) + 1) as advance:
        chip = _Chip(run, graphs, best.accelerator, given)
        base = chip.value(given)
        limits = []
        for resource in more:
            plenty = chip.gain(resource.plenty, base)
            one = min(chip.gain(resource.one, base), plenty)
            words = _memory_words(best, one, plenty) if resource.unit == "GiB" else _words(resource, one, plenty)
            limits.append(Limit(resource.name, resource.unit, resource.amount, one, plenty, words))
            advance(1)
        area = area_limit(run, graphs, best, base)
        advance(1)
    return (*limits, *([] if area is None else [area]))


class _Chip:
    """One accelerator, priced anew only where circumstances change what its layers take."""

    def __init__(
        self, run: Run, graphs: Sequence[tuple[ModelGraph, ...]], accelerator: Accelerator, given: Circumstances
    ) -> None:
        self._run, self._graphs, self._given = run, graphs, given
        self._accelerators = AcceleratorSet.of([accelerator])
        self._priced = priced(run, graphs, self._accelerators)
        self._communicates = any(
            operator.collective is not None
            for widths in graphs
            for graph in widths
            for layer in graph.layers
            for operator in (*layer.forward.operators, *layer.backward.operators)
        )

    def value(self, circumstances: Circumstances) -> float:
        """The objective of the best plans, 0 where nothing fits."""
        there = under(self._run, platform=circumstances.platform, cluster=circumstances.cluster)
        if self._same_layer_times(circumstances):
            alone = self._priced
            chip = PricedAccelerators(under(alone.run, cluster=circumstances.cluster), alone.inputs)
        else:
            chip = priced(there, self._graphs, self._accelerators)
        return float(chip.values(circumstances.hbm_bytes)[0])

    def gain(self, circumstances: Circumstances, base: float) -> float:
        """What the circumstances bring over ``base``, as a fraction; what does not help need not be used."""
        return gain_of(np.array([self.value(circumstances)]), base)

    def _same_layer_times(self, circumstances: Circumstances) -> bool:
        same_network = circumstances.cluster == self._given.cluster or not self._communicates
        return circumstances.platform == self._given.platform and same_network


def _most_devices(run: Run, graphs: Sequence[tuple[ModelGraph, ...]]) -> int:
    """No plan of the study can use more."""
    most = 0
    for widths in graphs:
        for graph in widths:
            micro_batches = -(-run.study.global_batch_size // graph.key.micro_batch_size)
            most = max(most, micro_batches * len(graph.sequence) * graph.key.tp)
    return most


def _words(resource: Resource, one: float, plenty: float) -> str:
    name = resource.name[0].upper() + resource.name[1:]
    amount = f"{number(resource.amount)} {resource.unit}"
    latency = resource.unit == "microseconds"
    if plenty <= EQUAL:
        without = f"having none instead of {amount}" if latency else f"more than {amount} of it, however much,"
        without = f"more than {number(resource.amount)}, however many," if resource.unit == "devices" else without
        return f"{name} does not bind: {without} brings nothing."
    step = f"{resource.step} ({number(resource.amount)} to {number(resource.after_one)})"
    rest = "none at all" if latency else "as many as can be used" if resource.unit == "devices" else "any amount of it"
    return f"{name} {binds(plenty)}: {step} brings {gained(one)}, {rest} {gained(plenty)}."


def _memory_words(best: DesignPoint, one: float, plenty: float) -> str:
    fullest = max(stage.memory_bytes for plan in best.models.values() for stage in plan.stages)
    given = best.hbm_bytes / GIB
    used = f"the fullest stage uses {size_words(fullest)} of {size_words(best.hbm_bytes)}"
    if plenty <= EQUAL:
        return f"HBM capacity does not bind: {used}, and no plan that needs more is better."
    step = f"one more GiB ({given:g} to {given + 1:g}) brings {gained(one)}, any amount of it {gained(plenty)}"
    return f"HBM capacity {binds(plenty)}: {used}; {step}."
