"""What limits the best design: what more of each resource would bring on the same chip, its plan chosen anew."""

from dataclasses import dataclass, replace
from pathlib import Path

from Common.files import code_version, content_key, load_or_set_aside, write_atomically
from Common.numbers import number, size_text
from Common.records import from_json, to_json
from Common.sealed import sealed, unsealed
from Common.units import GIB
from Estimator.chips.accelerator import Accelerator
from Solver.hardware import DesignedChips
from Solver.problem import SearchProblem
from Solver.results import DesignPoint, Limit
from Solver.search.requery import PricedHardware, priced, with_spaces
from Solver.search.run import Run
from Studies.limits.area_limit import area_limit
from Studies.limits.gains import binds, gain_of, steps
from Studies.limits.resources import Circumstances, Resource, resources
from Studies.wording import EQUAL

FEW_STEPS = 200_000  # no proof is asked for, and with as many devices as can be used there are many cuts alike
STUDIES = Path(__file__).resolve().parent.parent  # whose resources and words these are


@dataclass(frozen=True)
class _Limits:
    """What is kept of a finished answer."""

    limits: tuple[Limit, ...]


def limits_of(run: Run, best: DesignPoint) -> tuple[Limit, ...]:
    """The limits of ``best``, the optimum of ``run``, as an earlier run of the same question found them, if one did.

    None are told on devices that exist.
    """
    hardware, folder = run.hardware, run.stores.points
    if not isinstance(hardware, DesignedChips) or best.accelerator is None:
        return ()
    if folder is None:
        return _found(run, hardware, best, best.accelerator)
    point = to_json(replace(best, models={}, certificate=None)).decode()
    path = folder / f"limits-{content_key(run.pricing, code_version(STUDIES), run.problem, point)}.json"
    kept = load_or_set_aside(path, _kept)
    if kept is None:
        kept = _Limits(_found(run, hardware, best, best.accelerator))
        write_atomically(path, sealed(to_json(kept)), private=True)
    return kept.limits


def _kept(path: Path) -> _Limits:
    return from_json(_Limits, unsealed(path.read_bytes(), str(path)), str(path))


def _found(run: Run, hardware: DesignedChips, best: DesignPoint, accelerator: Accelerator) -> tuple[Limit, ...]:
    given = Circumstances(hardware.platform, hardware.cluster, best.hbm_bytes)
    more = resources(given, _most_devices(run.problem, best))
    with run.progress.phase("limits of the best design", len(more) + 1) as advance:
        chip = _Chip(run, hardware, accelerator)
        base = chip.value(given)
        limits = []
        for resource in more:
            plenty = chip.gain(resource.plenty, base)
            one = min(chip.gain(resource.one, base), plenty) if plenty else 0.0
            words = _memory_text(best, one, plenty) if resource.unit == "GiB" else _text(resource, one, plenty)
            limits.append(Limit(resource.name, resource.unit, resource.amount, one, plenty, words))
            advance(1)
        area = area_limit(run, hardware, best, base)
        advance(1)
    return (*limits, *([] if area is None else [area]))


class _Chip:
    """One accelerator under various circumstances."""

    def __init__(self, run: Run, hardware: DesignedChips, accelerator: Accelerator) -> None:
        self._run, self._hardware = run, hardware.only([accelerator])
        self._given = priced(run, self._hardware)  # also what other clusters need not price again

    def value(self, circumstances: Circumstances) -> float:
        """The objective of the best plans, 0 where nothing fits."""
        optimum = replace(self._priced(circumstances), most_steps=FEW_STEPS).optimum(circumstances.hbm_bytes)
        return 0.0 if optimum is None else optimum.value

    def gain(self, circumstances: Circumstances, base: float) -> float:
        """What the circumstances bring over ``base``, as a fraction; what does not help need not be used."""
        return gain_of(self.value(circumstances), base)

    def _priced(self, circumstances: Circumstances) -> PricedHardware:
        platform, cluster = circumstances.platform, circumstances.cluster
        if platform is not self._hardware.platform:
            return priced(self._run, self._hardware.on_platform(platform))
        if cluster is self._hardware.cluster:
            return self._given
        more = cluster.num_devices - self._hardware.cluster.num_devices
        spaces = [replace(model.space, devices=model.space.devices + more) for model in self._run.problem.models]
        return priced(with_spaces(self._run, spaces), self._hardware.in_cluster(cluster))


def _most_devices(problem: SearchProblem, best: DesignPoint) -> int:
    """No plan of the problem can use more."""
    most = 0
    for model in problem.models:
        layers = sum(len(stage.layers) for stage in best.models[model.name].stages)
        for shape in model.space.shapes():
            micro_batches = -(-shape.global_batch_size // shape.micro_batch_size)
            most = max(most, micro_batches * layers * shape.tp * shape.cp)
    return most


def _text(resource: Resource, one: float, plenty: float) -> str:
    name = resource.name[0].upper() + resource.name[1:]
    amount = f"{number(resource.amount)} {resource.unit}"
    latency = resource.unit == "microseconds"
    if plenty <= EQUAL:
        without = f"having none instead of {amount}" if latency else f"more than {amount} of it, however much,"
        without = f"more than {number(resource.amount)}, however many," if resource.unit == "devices" else without
        return f"{name} does not bind: {without} brings nothing."
    step = f"{resource.step} ({number(resource.amount)} to {number(resource.after_one)})"
    rest = "none at all" if latency else "as many as can be used" if resource.unit == "devices" else "any amount of it"
    return f"{name} {binds(plenty)}: {steps(one, step, plenty, rest)}."


def _memory_text(best: DesignPoint, one: float, plenty: float) -> str:
    fullest = max(stage.memory_bytes for plan in best.models.values() for stage in plan.stages)
    given = best.hbm_bytes / GIB
    used = f"the fullest stage uses {size_text(fullest)} of {size_text(best.hbm_bytes)}"
    if plenty <= EQUAL:
        return f"HBM capacity does not bind: {used}, and no plan that needs more is better."
    step = f"one more GiB ({number(given)} to {number(given + 1)})"
    return f"HBM capacity {binds(plenty)}: {used}; {steps(one, step, plenty, 'any amount of it')}."
