"""Designs and numbers in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from Estimator.chips.own_links import own_links
from Estimator.plans.axes import OF_FRAMEWORK, PLAN_AXES, plan_axis
from GraphExtractor.names import label
from phaze_common.choices import (
    Combine,
    GroupOrder,
    KeyExchange,
    Objective,
    Precision,
    TensorLayout,
)
from phaze_common.numbers import number, percent
from phaze_common.units import MIB

if TYPE_CHECKING:
    from Estimator.chips.accelerator import Accelerator
    from Estimator.devices.software import Software
    from Estimator.plans.degrees import Degrees, UniformPlan
    from Estimator.plans.results import Breakdown
    from Solver.chip_records import BoughtCluster
    from Solver.results import AxisValue, DesignPoint, HardwareReport, TightMemory

GIGA = 1e9
EQUAL = 1e-9  # relative: values closer than this are equal
UNITS = {
    Objective.THROUGHPUT: "samples/s",
    Objective.THROUGHPUT_PER_AREA: "samples/s/mm²",
    Objective.THROUGHPUT_PER_JOULE: "samples/J",
    Objective.THROUGHPUT_PER_DOLLAR: "samples/$",
    Objective.COST_PER_TOKEN: "tokens/$",
    Objective.CARBON_PER_TOKEN: "tokens/kg CO2e",
}
OF_SEVERAL = {  # what the value of a design for several models is
    Combine.RELATIVE: "of own bests (geometric mean)",
    Combine.WORST: "of own best (the worst)",
    Combine.TIME_SHARED: "of own bests (mean)",
}
PARTS = {
    "arithmetic": "arithmetic",
    "memory_bound": "memory-bound work",
    "launch": "launches",
    "recompute": "recomputation",
    "tensor_communication": "tensor-parallel communication",
    "sequence_communication": "sequence-parallel communication",
    "context_communication": "context-parallel communication",
    "expert_communication": "expert-parallel communication",
    "pipeline_communication": "pipeline communication",
    "data_communication": "data-parallel communication",
    "host_communication": "host communication",
    "site_communication": "outer steps of the sites",
    "bubble": "bubble",
    "optimizer": "optimizer",
}
SHARING = ("tp2", "cp")  # degrees of devices that share the tokens
NEGLIGIBLE = 1e-7  # of an iteration: rounding, and what nobody need read
ALONG_THE_CRITICAL_PATH = (
    "Cores run operators side by side: the time of a layer is attributed "
    "along the critical path of its schedule."
)


def unit_text(objective: Objective, combine: Combine | None) -> str:
    """The unit of what was maximised; ``combine`` is None for one model."""
    if combine is None:
        return UNITS[objective]
    mean = ", weighted mean" if combine is Combine.MEAN else ""
    return OF_SEVERAL.get(combine, f"{UNITS[objective]}{mean}")


def unit_of(point: DesignPoint) -> str:
    """The unit of the value of a design."""
    return unit_text(point.objective, point.combine)


def accelerator_text(accelerator: Accelerator) -> str:
    """An accelerator, tensor cores as depth x width: ``8 TC 128x128, 2 VC 128, GLB 128 MiB``."""
    chip = accelerator
    text = f"{chip.num_tc} TC {chip.depth}x{chip.width}, {chip.num_vc} VC {chip.width_vc}"
    text += f", GLB {number(chip.glb_bytes / MIB)} MiB"
    if chip.memory_system is not None:
        kind, _, stacks = chip.memory_system.partition(":")
        text += f", {stacks} x {kind}"
    if chip.links is not None:
        text += f", {own_links(chip.links).words}"
    if chip.frequency_hz is not None:
        text += f", {number(chip.frequency_hz / GIGA)} GHz"
    return text


def hardware_text(accelerator: Accelerator | None, hardware: HardwareReport) -> str:
    """What runs a plan: the accelerator that was designed, else the device that was given."""
    return hardware.title if accelerator is None else accelerator_text(accelerator)


def exposed_s(breakdown: Breakdown) -> dict[str, float]:
    """Seconds by part (a key of ``PARTS``) that add up to the iteration, the largest first."""
    return _largest_first({name: getattr(breakdown, f"{name}_s") for name in PARTS})


def hidden_s(breakdown: Breakdown) -> dict[str, float]:
    """Seconds of communication that is hidden, by part, the largest first; none is left out."""
    parts = {name: getattr(breakdown, f"hidden_{name}_s", 0.0) for name in PARTS}
    return _largest_first({name: seconds for name, seconds in parts.items() if seconds > 0.0})


def _largest_first(parts: dict[str, float]) -> dict[str, float]:
    return dict(sorted(parts.items(), key=lambda item: -item[1]))


def plan_extras(plan: UniformPlan) -> tuple[str, ...]:
    """As ``plan_choices``, with number formats of state and what runs beside computation."""
    return (*plan_choices(plan), *_overlaps(plan))


def _overlaps(plan: UniformPlan) -> tuple[str, ...]:
    return _phrases(plan, str(plan.state_formats), of_framework=True)


def unusual_of(plan: UniformPlan, software: Software) -> tuple[str, ...]:
    """What runs beside computation, and how tokens are sent, where ``software`` does it otherwise
    by itself."""
    axes = (plan_axis(key) for key in OF_FRAMEWORK)
    stated = (each for each in axes if each.of(plan) != getattr(software, each.key))
    return tuple(filter(None, (each.phrase_of(plan) for each in stated)))


def plan_choices(plan: UniformPlan) -> tuple[str, ...]:
    """What a plan does besides its degrees, micro-batches and recomputation, if anything."""
    return _phrases(plan, of_framework=False)


def _phrases(plan: UniformPlan, first: str = "", *, of_framework: bool) -> tuple[str, ...]:
    axes = (each for each in PLAN_AXES if each.axis.of_framework is of_framework)
    return tuple(filter(None, [first, *(axis.phrase_of(plan) for axis in axes)]))


def axis_value_text(value: AxisValue) -> str:
    """A value of an axis; assignments to tiers with that of the best of their plans."""
    if value.value != GroupOrder.TIERS.value:
        return value.value
    orders = {plan.group_order for plan in value.plans.values()} - {*GroupOrder}
    # of one plan; where an order of groups is as good, none is named
    return " ".join([value.value, *map(str, orders)])


def plan_text(plan: UniformPlan) -> str:
    """``tp 1 x pp 2 x dp 4 x cp 8 (ring), ep 2``: degrees but tp, pp and dp where above 1."""
    return _with_others(f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}", plan)


def degrees_text(plan: UniformPlan) -> str:
    """As ``plan_text`` under the heading "tp x pp x dp": ``1 x 2 x 4 x cp 8 (ring), ep 2``."""
    return _with_others(f"{plan.tp} x {plan.pp} x {plan.dp}", plan)


def other_degrees(plan: Degrees) -> str:
    """Degrees besides tp, pp and dp that are above 1, and how keys and values meet where they are
    not gathered: ``cp 8 (ring), ep 2``. ep is part of dp and cp."""
    exchange = "" if plan.exchange is KeyExchange.GATHER else f" ({plan.exchange})"
    factors = " x ".join(f"{key} {getattr(plan, key)}" for key in SHARING if getattr(plan, key) > 1)
    parts = (
        factors + exchange,
        "2d layout" if plan.layout is TensorLayout.TWO_D else "",
        f"ep {plan.ep}" if plan.ep > 1 else "",
    )
    return ", ".join(filter(None, parts))


def _with_others(degrees: str, plan: Degrees) -> str:
    others = other_degrees(plan)
    factor = any(getattr(plan, key) > 1 for key in SHARING)
    return f"{degrees} x {others}" if factor else ", ".join(filter(None, [degrees, others]))


def whole_plan_text(plan: UniformPlan) -> str:
    """A plan in one line, what is switched off left out."""
    return ", ".join([summary_text(plan), *_overlaps(plan)])


def summary_text(plan: UniformPlan, degrees: str = "") -> str:
    """A plan in one line, but for what runs beside computation; ``degrees`` may be in words."""
    return ", ".join([degrees or plan_text(plan), *_of_passes(plan), *plan_choices(plan)])


def pass_text(plan: UniformPlan) -> str:
    """What each pass of a stage is of: ``bf16, micro-batch 1, recomputation none``."""
    return ", ".join([formats_text(plan), *_of_passes(plan)])


def formats_text(plan: UniformPlan) -> str:
    """The format of matrix products."""
    return ", ".join(each.of(plan) for each in PLAN_AXES if each.field.item is Precision)


def _of_passes(plan: UniformPlan) -> tuple[str, str]:
    return f"micro-batch {plan.micro_batch_size}", f"recomputation {plan.recompute}"


def tight_memory_text(tight: TightMemory, best: DesignPoint) -> str:
    """That the optimum leaves little memory, and what leaving room costs; no last full stop."""
    what = "plan on the same chip" if best.accelerator is not None else "plan"
    most, other = percent(tight.most_share), tight.runner_up
    filled = (
        f"the optimum fills {percent(tight.used_share)} of the memory, more than {most}: "
        "fragmentation or a larger framework could overflow it"
    )
    if other is None:
        return f"{filled}. No {what} uses at most {most}"
    texts = {label(name): whole_plan_text(plan) for name, plan in other.models.items()}
    plans = "; ".join(f"{name} with {text}" for name, text in texts.items())
    used = max(plan.memory_bytes for plan in other.models.values()) / other.hbm_bytes
    less = 1.0 - other.value / best.value
    cost = f"{percent(less)} less" if less > EQUAL else "just as good"
    reached = f"{number(other.value)} {unit_of(other)}, {cost}, in {percent(used)} of the memory"
    return f"{filled}. The best {what} that uses at most {most} reaches {reached}: {plans}"


def times_what(ratio: float) -> str:
    """``1.35 times what``, ``8.7% more than`` or ``46% less than``."""
    if ratio >= 1.1:
        return f"{number(ratio, 3)} times what"
    if abs(ratio - 1.0) <= EQUAL:
        return "just what"
    return f"{percent(ratio - 1)} {'more' if ratio > 1 else 'less'} than"


def capitalised(sentence: str) -> str:
    """With a capital first letter, the others as they are."""
    return sentence[:1].upper() + sentence[1:]


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def part_text(name: str) -> str:
    """What a part of the breakdown is called in a sentence."""
    return PARTS.get(name.removesuffix("_s"), name.removesuffix("_s").replace("_", " "))


def bought_text(bought: BoughtCluster) -> str:
    """What was bought for a plan, what it cost, and what the money would have bought."""
    devices = "1 device" if bought.devices == 1 else f"{bought.devices:,} devices"
    paid = f"bought for {number(bought.cluster_usd)} $ with servers and network"
    rest = f"would buy more than the {bought.most_devices:,} devices that there may be"
    if bought.money_binds:
        rest = f"buys at most {bought.affordable_devices:,} of this chip"
    return f"{devices} {paid}, {number(bought.left_usd)} $ left; the money {rest}"
