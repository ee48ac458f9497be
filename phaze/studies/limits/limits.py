"""What more of each resource would bring on the best chip, with its plan chosen anew."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.degrees import UniformPlan
from phaze.report.sentences.gains import gain_of, memory_limit_text
from phaze.runs.kept_answers import AnswerFile, answer_file, kept_answer
from phaze.studies.limits.area_limit import AreaGain, area_gain, area_limit
from phaze.studies.limits.device_limits import value_with_memory
from phaze.studies.limits.limits_of_chips import LimitGain, limit_gains, limit_of_chip
from phaze.studies.limits.resources import MEMORY, MUCH_MEMORY, Circumstances, Resource, resources
from phaze_common.choices import Objective
from phaze_common.units import GIB
from Solver.designs.joint import best_for_all_models
from Solver.designs.points import PointGroup
from Solver.designs.re_solve import PricedHardware, priced, with_spaces
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.problem import SearchProblem
from Solver.results import DesignPoint, Limit

# of batches for more micro-batches what more devices bring is not searched: plans fill memories
MOST_REPLICAS = 2**16
MANY_TIMES = 2  # as many devices are searched in several tiers, of which more lie in ever more ways
# no proof is asked for, and with as many devices as can be used there are many cuts alike
FEW_STEPS = 200_000
# relative: by how much the best plans of a chip may be worse when they are searched again with
# fewer steps
SLACK = 1e-6
OF_TIME = Objective.THROUGHPUT, Objective.THROUGHPUT_PER_AREA  # which times alone decide on a chip


@dataclass(frozen=True)
class _Gain:
    """What one unit more of a resource and any amount of it bring, as fractions."""

    resource: str
    one: float
    plenty: float


@dataclass(frozen=True)
class _Gains:
    """What is kept of an answer: values, whose words are made anew."""

    gains: tuple[_Gain, ...]
    area: AreaGain | None
    of_chips: tuple[LimitGain, ...] = ()
    complete: bool = True  # else of the first resources alone


def limits_of(
    run: SearchContext, best: DesignPoint, groups: Sequence[PointGroup]
) -> tuple[Limit, ...]:
    """The limits of ``best``, the optimum of ``run``; an earlier run may have found them.

    ``groups`` are the points of the search. On devices that exist only memory is searched
    (``device_limits`` says why).
    """
    hardware, accelerator = run.hardware, best.accelerator
    if not isinstance(hardware, DesignedChips) or accelerator is None:
        points = [group.stored_as for group in groups]
        found = kept_answer(
            run, "limits", _Gains, best, lambda: _of_device(run, groups, best), *points
        )
        (memory,) = found.gains
        words = memory_limit_text(best, memory.one, memory.plenty)
        return (Limit(MEMORY, "GiB", best.hbm_bytes / GIB, memory.one, memory.plenty, words),)
    usd = None if hardware.metrics.purchase is None else hardware.metrics.purchase.usd
    platform, cluster = hardware.platform.at(accelerator.variant), hardware.cluster_of(accelerator)
    given = Circumstances(platform, cluster, best.hbm_bytes, usd)
    few, there = _most_replicas(run.problem) <= MOST_REPLICAS, hardware.cluster.num_devices
    most_devices = searched = _most_devices(run.problem, best) if few else there
    if len(hardware.cluster.tiers) > 1:
        searched = min(most_devices, MANY_TIMES * there)
    next_usd = _next_device_usd(hardware.only([accelerator]))
    more = resources(given, searched, next_usd, usable=searched == most_devices)
    more = [each for each in more if each.unit != "devices" or few]
    file = answer_file(run, "limits", _Gains, best, [each.name for each in more])
    kept = file.load()
    if kept is None or not kept.complete:
        known = () if kept is None else kept.gains
        kept = _of_chip(run, hardware, best, accelerator, more, known, file)
        file.store(kept)
    limits = []
    for resource, gain in zip(more, kept.gains, strict=True):
        name, unit, one, plenty = resource.name, resource.unit, gain.one, gain.plenty
        words = resource.text(one, plenty)
        if unit == "GiB":
            words = memory_limit_text(best, one, plenty)
        limits.append(Limit(name, unit, resource.amount, one, plenty, words))
    if kept.area is not None and hardware.space is not None:
        limits.append(area_limit(hardware.space, accelerator, kept.area))
    if hardware.space is not None:
        limits += [limit_of_chip(hardware.space, accelerator, gain) for gain in kept.of_chips]
    return tuple(limits)


def _next_device_usd(chip: DesignedChips) -> float:
    """What one more device than the money buys lacks; 0 where their number is given."""
    purchase, caps = chip.metrics.purchase, chip.metrics.caps
    if purchase is None or caps is None:
        return 0.0
    more = min(int(caps[0]) + 1, purchase.most_devices)
    return max(purchase.cluster_usd(float(chip.metrics.owning_usd[0]), more) - purchase.usd, 0.0)


def _of_device(run: SearchContext, groups: Sequence[PointGroup], best: DesignPoint) -> _Gains:
    with run.progress.phase("limits of the best plan", 2) as advance:
        gains = []
        for memory_bytes in (best.hbm_bytes + GIB, best.hbm_bytes + MUCH_MEMORY):
            gains.append(gain_of(value_with_memory(groups, best, memory_bytes), best.value))
            advance(1)
    return _Gains((_Gain(MEMORY, *gains),), None)


def _of_chip(
    run: SearchContext,
    hardware: DesignedChips,
    best: DesignPoint,
    accelerator: Accelerator,
    more: Sequence[Resource],
    known: Sequence[_Gain],
    file: AnswerFile[_Gains],
) -> _Gains:
    """The gains of ``more``, of which an earlier run that was killed has ``known`` the first; what
    is found is kept in ``file`` meanwhile."""
    # the chips of a larger area take about as long as all resources of one chip
    with run.progress.phase("limits of the best design", 2 * len(more)) as advance:
        chip = _Chip(run, hardware, accelerator, best)
        money = hardware.metrics.purchase
        usd = None if money is None else money.usd
        base = chip.base(Circumstances(chip.platform, chip.cluster, best.hbm_bytes, usd))
        gains = list(known)
        advance(len(gains))
        for resource in more[len(gains) :]:
            plenty = chip.gain(resource.plenty, base)
            one = chip.gain(resource.one, base, resource.speedup) if plenty else 0.0
            one = min(one, plenty)
            gains.append(_Gain(resource.name, one, plenty))
            file.store(_Gains(tuple(gains), None, complete=False))
            advance(1)
        area, of_chips = area_gain(run, hardware, best, base), limit_gains(run, hardware, base)
        advance(len(more))
    return _Gains(tuple(gains), area, of_chips)


class _Chip:
    """One accelerator under various circumstances."""

    def __init__(
        self,
        run: SearchContext,
        hardware: DesignedChips,
        accelerator: Accelerator,
        best: DesignPoint,
    ) -> None:
        """What brings less than the ``best`` design has brings nothing."""
        self._run = replace(run, problem=replace(run.problem, memory_bytes=(best.hbm_bytes,)))
        self._hardware, self._least = hardware.standing(accelerator), best.value * (1.0 - SLACK)
        self.platform, self.cluster = self._hardware.platform, self._hardware.cluster
        self._usd = None if hardware.metrics.purchase is None else hardware.metrics.purchase.usd
        # also what other clusters need not price again
        self._given = priced(self._run, self._hardware, least=self._least)
        self._groups = list[PointGroup]()

    def base(self, given: Circumstances) -> float:
        """The objective of the best plans under what is given, 0 where nothing fits."""
        self._groups = replace(self._priced(given), most_steps=FEW_STEPS).groups(given.hbm_bytes)
        return self._value(self._groups, given)

    def gain(self, given: Circumstances, base: float, speedup: float = math.inf) -> float:
        """What other circumstances bring over ``base``, as a fraction, at least 0, where nothing
        takes less than ``1 / speedup`` of the time."""
        chips = self._priced(given, self._worth(base, speedup))
        groups = replace(chips, most_steps=FEW_STEPS).groups(given.hbm_bytes)
        return gain_of(self._value(groups, given), base)

    def _value(self, groups: Sequence[PointGroup], given: Circumstances) -> float:
        optimum = best_for_all_models(self._run.problem, groups, given.hbm_bytes)
        return 0.0 if optimum is None else optimum.value

    def _worth(self, base: float, speedup: float) -> list[UniformPlan] | None:
        """Shapes that might reach more than ``base`` where nothing takes less than ``1 / speedup``
        of the time; None where that is not known.

        What they do not exceed follows from their bounds under what is given.
        """
        objective = self._run.problem.objective
        alone = len(self._run.problem.models) == 1 and self._given.context.remaining is None
        if math.isinf(speedup) or objective not in OF_TIME or not alone:
            return None
        # the part of traffic that shows beside computation is as many times less at most
        speedup *= speedup
        return [
            shape.plan
            for group in self._groups
            for shape, most in zip(group.shapes, group.objective_bound(objective), strict=True)
            if most * speedup >= base
        ]

    def _priced(
        self, given: Circumstances, chosen: Sequence[UniformPlan] | None = None
    ) -> PricedHardware:
        hardware, problem = self._hardware, self._run.problem
        run = replace(self._run, problem=replace(problem, memory_bytes=(given.hbm_bytes,)))
        if given.usd is not None and given.usd != self._usd:
            hardware = hardware.with_money(given.usd)
        elif given.platform != hardware.platform:
            hardware = hardware.on_platform(given.platform)
        elif given.cluster != hardware.cluster:
            more = given.cluster.num_devices - hardware.cluster.num_devices
            spaces = [each.space for each in problem.models]
            run = with_spaces(run, [replace(each, devices=each.devices + more) for each in spaces])
            hardware = hardware.in_cluster(given.cluster)
        elif self._given.context.remaining is None or problem.memory_bytes == (given.hbm_bytes,):
            return self._given
        return priced(run, hardware, least=self._least, chosen=chosen)


def _most_replicas(problem: SearchProblem) -> int:
    """Replicas that any plan of the problem can keep busy."""
    shapes = [shape for model in problem.models for shape in model.space.shapes()]
    return max(
        (-(-shape.global_batch_size // shape.micro_batch_size) for shape in shapes), default=1
    )


def _most_devices(problem: SearchProblem, best: DesignPoint) -> int:
    """No plan of the problem can use more."""
    most = 0
    for model in problem.models:
        layers = sum(len(stage.layers) for stage in best.models[model.name].stages)
        for shape in model.space.shapes():
            micro_batches = -(-shape.global_batch_size // shape.micro_batch_size)
            most = max(most, micro_batches * layers * shape.inner_devices)
    return most
