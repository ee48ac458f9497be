"""What limits the best design: what more of each resource would bring on the same chip, its plan
chosen anew."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from Estimator.chips.accelerator import Accelerator
from phaze.report.sentences.designs import EQUAL
from phaze.report.sentences.gains import binds, gain_of, steps
from phaze.runs.kept_answers import kept_answer
from phaze.studies.limits.area_limit import AreaGain, area_gain, area_limit
from phaze.studies.limits.device_limits import value_with_memory
from phaze.studies.limits.limits_of_chips import LimitGain, limit_gains, limit_of_chip
from phaze.studies.limits.resources import MEMORY, MUCH_MEMORY, Circumstances, Resource, resources
from phaze_common.numbers import number, size_text
from phaze_common.units import GIB
from Solver.designs.points import PointGroup
from Solver.designs.re_solve import PricedHardware, priced, with_spaces
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.problem import SearchProblem
from Solver.results import DesignPoint, Limit

MOST_REPLICAS = (
    2**16
    # of batches for more micro-batches what more devices bring is not asked: their plans fill
    # memories
)
# as many devices are asked about where they lie in several tiers, in ever more ways the more there
# are
MANY_TIMES = 2
# no proof is asked for, and with as many devices as can be used there are many cuts alike
FEW_STEPS = 200_000
# relative: by how much the best plans of a chip may be worse when they are searched again with
# fewer steps
SLACK = 1e-6


@dataclass(frozen=True)
class _Gain:
    """What one unit more of a resource and any amount of it bring, as fractions."""

    resource: str
    one: float
    plenty: float


@dataclass(frozen=True)
class _Gains:
    """What is kept of a finished answer: values, whose words are made anew."""

    gains: tuple[_Gain, ...]
    area: AreaGain | None
    of_chips: tuple[LimitGain, ...] = ()


def limits_of(
    run: SearchContext, best: DesignPoint, groups: Sequence[PointGroup]
) -> tuple[Limit, ...]:
    """The limits of ``best``, the optimum of ``run``, as an earlier run of the same question found
    them, if one did.

    ``groups`` are the points of the search. On devices that exist only memory is told
    (``device_limits`` says why).
    """
    hardware, accelerator = run.hardware, best.accelerator
    if not isinstance(hardware, DesignedChips) or accelerator is None:
        kept = kept_answer(
            run,
            "limits",
            _Gains,
            best,
            lambda: _of_device(run, groups, best),
            *_kept_points(groups),
        )
        (memory,) = kept.gains
        words = _memory_text(best, memory.one, memory.plenty)
        return (Limit(MEMORY, "GiB", best.hbm_bytes / GIB, memory.one, memory.plenty, words),)
    usd = None if hardware.figures.purchase is None else hardware.figures.purchase.usd
    platform, cluster = hardware.platform.at(accelerator.variant), hardware.cluster_of(accelerator)
    given = Circumstances(platform, cluster, best.hbm_bytes, usd)
    replicas = _most_replicas(run.problem)
    most_devices = (
        _most_devices(run.problem, best)
        if replicas <= MOST_REPLICAS
        else hardware.cluster.num_devices
    )
    asked = most_devices
    if len(hardware.cluster.tiers) > 1:
        asked = min(most_devices, MANY_TIMES * hardware.cluster.num_devices)
    more = resources(
        given, asked, _next_device_usd(hardware.only([accelerator])), usable=asked == most_devices
    )
    more = [each for each in more if each.unit != "devices" or replicas <= MOST_REPLICAS]
    kept = kept_answer(
        run, "limits", _Gains, best, lambda: _of_chip(run, hardware, best, accelerator, more)
    )
    limits = []
    for resource, gain in zip(more, kept.gains, strict=True):
        words = (
            _memory_text(best, gain.one, gain.plenty)
            if resource.unit == "GiB"
            else _text(resource, gain.one, gain.plenty)
        )
        limits.append(
            Limit(resource.name, resource.unit, resource.amount, gain.one, gain.plenty, words)
        )
    if kept.area is not None and hardware.space is not None:
        limits.append(area_limit(hardware.space, accelerator, kept.area))
    if hardware.space is not None:
        limits += [limit_of_chip(hardware.space, accelerator, gain) for gain in kept.of_chips]
    return tuple(limits)


def _next_device_usd(chip: DesignedChips) -> float:
    """What is lacking for one more device of ``chip`` than the money buys; 0 where their number is
    given."""
    purchase, caps = chip.figures.purchase, chip.figures.caps
    if purchase is None or caps is None:
        return 0.0
    more = min(int(caps[0]) + 1, purchase.most_devices)
    return max(purchase.cluster_usd(float(chip.figures.owning_usd[0]), more) - purchase.usd, 0.0)


def _of_device(run: SearchContext, groups: Sequence[PointGroup], best: DesignPoint) -> _Gains:
    with run.progress.phase("limits of the best plan", 2) as advance:
        gains = []
        for memory_bytes in (best.hbm_bytes + GIB, best.hbm_bytes + MUCH_MEMORY):
            gains.append(gain_of(value_with_memory(groups, best, memory_bytes), best.value))
            advance(1)
    return _Gains((_Gain(MEMORY, *gains),), None)


def _kept_points(groups: Sequence[PointGroup]) -> list[str]:
    return [group.stored_as for group in groups]


def _of_chip(
    run: SearchContext,
    hardware: DesignedChips,
    best: DesignPoint,
    accelerator: Accelerator,
    more: Sequence[Resource],
) -> _Gains:
    with run.progress.phase("limits of the best design", len(more) + 1) as advance:
        chip = _Chip(run, hardware, accelerator, best)
        money = hardware.figures.purchase
        usd = None if money is None else money.usd
        base = chip.value(Circumstances(chip.platform, chip.cluster, best.hbm_bytes, usd))
        gains = []
        for resource in more:
            plenty = chip.gain(resource.plenty, base)
            one = min(chip.gain(resource.one, base), plenty) if plenty else 0.0
            gains.append(_Gain(resource.name, one, plenty))
            advance(1)
        area, of_chips = area_gain(run, hardware, best, base), limit_gains(run, hardware, base)
        advance(1)
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
        self._usd = None if hardware.figures.purchase is None else hardware.figures.purchase.usd
        self._given = priced(
            self._run, self._hardware, least=self._least
        )  # also what other clusters need not price again

    def value(self, circumstances: Circumstances) -> float:
        """The objective of the best plans, 0 where nothing fits."""
        optimum = replace(self._priced(circumstances), most_steps=FEW_STEPS).optimum(
            circumstances.hbm_bytes
        )
        return 0.0 if optimum is None else optimum.value

    def gain(self, circumstances: Circumstances, base: float) -> float:
        """What the circumstances bring over ``base``, as a fraction; what does not help need not be
        used."""
        return gain_of(self.value(circumstances), base)

    def _priced(self, circumstances: Circumstances) -> PricedHardware:
        platform, cluster, usd = circumstances.platform, circumstances.cluster, circumstances.usd
        run = replace(
            self._run, problem=replace(self._run.problem, memory_bytes=(circumstances.hbm_bytes,))
        )
        if usd is not None and usd != self._usd:
            return priced(run, self._hardware.with_money(usd), least=self._least)
        if platform != self._hardware.platform:
            return priced(run, self._hardware.on_platform(platform), least=self._least)
        if cluster == self._hardware.cluster:
            known = (
                self._given.context.remaining is None
                or run.problem.memory_bytes == self._run.problem.memory_bytes
            )
            return self._given if known else priced(run, self._hardware, least=self._least)
        more = cluster.num_devices - self._hardware.cluster.num_devices
        spaces = [
            replace(model.space, devices=model.space.devices + more) for model in run.problem.models
        ]
        return priced(
            with_spaces(run, spaces), self._hardware.in_cluster(cluster), least=self._least
        )


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


def _text(resource: Resource, one: float, plenty: float) -> str:
    name = resource.name[0].upper() + resource.name[1:]
    amount = f"{number(resource.amount)} {resource.unit}"
    latency = resource.unit == "microseconds"
    if plenty <= EQUAL:
        without = (
            f"having none instead of {amount}"
            if latency
            else f"more than {amount} of it, however much,"
        )
        if resource.unit == "devices":
            most = resource.plenty.cluster.num_devices
            without = (
                f"more than {number(resource.amount)}, {resource.most or f'up to {number(most)}'},"
            )
        return f"{name} does not bind: {without} brings nothing."
    step = f"{resource.step} ({number(resource.amount)} to {number(resource.after_one)})"
    rest = "none at all" if latency else "any amount of it"
    if resource.unit == "devices":
        rest = (
            "as many as can be used"
            if resource.most
            else f"{number(resource.plenty.cluster.num_devices)} of them"
        )
    return f"{name} {binds(plenty)}: {steps(one, step, plenty, rest)}."


def _memory_text(best: DesignPoint, one: float, plenty: float) -> str:
    fullest = max(stage.memory_bytes for plan in best.models.values() for stage in plan.stages)
    given = best.hbm_bytes / GIB
    used = f"the fullest stage uses {size_text(fullest)} of {size_text(best.hbm_bytes)}"
    if plenty <= EQUAL:
        return f"HBM capacity does not bind: {used}, and no plan that needs more is better."
    step = f"one more GiB ({number(given)} to {number(given + 1)})"
    return f"HBM capacity {binds(plenty)}: {used}; {steps(one, step, plenty, 'any amount of it')}."
