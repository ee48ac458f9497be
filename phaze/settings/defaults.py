"""What holds where nothing was given: the plans that a search compares, and the one plan that is
priced."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from Estimator.devices.architectures import architecture_of
from Estimator.devices.device import Device
from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import AXES
from Estimator.plans.axes import OF_FRAMEWORK, PLAN_AXES, plan_axis
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.widths import allowed_widths, panels_fit
from phaze.settings.hardware import ResolvedHardware
from phaze_common.choices import (
    Dispatcher,
    GroupOrder,
    KeyExchange,
    LayoutName,
    PipelineSchedule,
    Precision,
)
from phaze_common.errors import InputError
from phaze_common.settings import ALL

MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)  # on devices that exist
ZERO_STAGES = (0, 1, 2, 3)
PANELS = (1, 2, 4, 8, 16, 32)  # of products of a 2D layout
# where they divide the model: ``summa_nb`` of the systems of transformer-perf-estimates
USUAL_PANELS = 4
# devices that a search lets share a sequence, or the rows of a layout, unless told
MOST_SHARING = 64
MOST_SHARING_CHIPS = 8  # of chips to design: every layout is scheduled on all of them
EITHER = (False, True)
OF_EVERY_PLAN = ("tp", "pp", "cp")  # degrees that are named even where they are 1


@dataclass(frozen=True)
class Situation:
    """What defaults depend on."""

    families: tuple[ModelFamily, ...]
    hardware: ResolvedHardware

    @property
    def on_devices(self) -> bool:
        """Whether the devices exist."""
        return self.hardware.device is not None


def values_of_search(values: Mapping[str, Any], where: Situation) -> dict[str, Any]:
    """The values of plan axes that are searched: as given, else all that are worth it."""
    given = {key: value for key, value in values.items() if value != ALL}
    everything = {key for key, value in values.items() if value == ALL}
    batch = values.get("global_batch_size", plan_axis("global_batch_size").axis.usual)
    widely = everything | ({"tp", "zero_stage"} if where.on_devices else set())
    split = where.on_devices and all(family.splits_sequence for family in where.families)
    plans: dict[str, Any] = {each.key: each.axis.usual for each in PLAN_AXES}
    sizes = tuple(size for size in MICRO_BATCH_SIZES if batch % size == 0)
    plans |= {
        "micro_batch_size": sizes if where.on_devices else (1,),
        "tp": widths_inside_a_node(where.families, where.hardware.cluster)
        if "tp" in widely
        else (1,),
        "ep": expert_degrees(where),
        "sequence_parallel": EITHER if split or "sequence_parallel" in everything else (False,),
        "interleave": None if where.on_devices or "interleave" in everything else (1,),
        "zero_stage": ZERO_STAGES if "zero_stage" in widely else (0,),
        "group_order": _orders(where, everything),
        "global_batch_size": batch,
        "precision": usual_precision(where.hardware.device),
    }
    for key in OF_FRAMEWORK:
        plans[key] = _every(key, where) if key in everything else (_as_framework(where, key),)
    plans |= _of_layouts(values, where)
    if "tp" in widely and given.get("sequence_parallel") == (True,):
        plans["tp"] = tuple(
            width
            for width in plans["tp"]
            if all(tokens % width == 0 for tokens in _lengths(values, where))
        )
    if "max_tp" in given:
        plans["tp"] = widths_up_to(given["max_tp"])
    if "tp" in given:
        given["tp"] = tuple(sorted(given["tp"]))
    return {key: given.get(key, value) for key, value in plans.items()}


def _of_layouts(values: Mapping[str, Any], where: Situation) -> dict[str, Any]:
    """What is searched of the layouts that are named, as far as ``values`` leave it open."""
    layouts = values.get("layout", (LayoutName.ONE_D,))
    if layouts == (LayoutName.ONE_D,) and values.get("exchange") != ALL:
        return {}
    most = min(
        where.hardware.cluster.num_devices, MOST_SHARING if where.on_devices else MOST_SHARING_CHIPS
    )
    several = tuple(2**power for power in range(1, most.bit_length()))
    found: dict[str, Any] = {"exchange": tuple(KeyExchange)}
    if LayoutName.AUTO in layouts or LayoutName.TWO_D in layouts:
        found["tp2"] = several
        found["panels"] = (
            fitting_panels(where, PANELS) if where.on_devices else (usual_panels(where),)
        )
    if LayoutName.AUTO in layouts or LayoutName.SEQUENCE in layouts:
        found["cp"] = several
    return found


def _lengths(values: Mapping[str, Any], where: Situation) -> tuple[int, ...]:
    specified = values.get("sequence_length")
    if specified is None:
        return tuple(family.sequence_length for family in where.families)
    return (specified,) if isinstance(specified, int) else tuple(specified)


def _orders(where: Situation, everything: Collection[str]) -> tuple[GroupOrder, ...]:
    """All orders on devices or where asked for; two of designed chips, which cost time."""
    if len(where.hardware.cluster.tiers) == 1:
        return (GroupOrder.DATA_INNER,)
    every = where.on_devices or "group_order" in everything
    return tuple(GroupOrder) if every else (GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER)


def values_of_one_plan(values: Mapping[str, Any], where: Situation) -> dict[str, Any]:
    """Fields of a ``Request`` that say which plan is priced, each with one value.

    Raises:
        InputError: degrees and devices, or schedule and chunks, contradict each other.
    """
    degrees = {name: values.get(name, 1) for name in OF_EVERY_PLAN}
    degrees |= {name: values[name] for name in AXES if name in values and name != "dp"}
    dp = replicas_of(values.get("dp"), values.get("devices"), degrees)
    usual = UniformPlan()
    plan: dict[str, Any] = {
        each.key: value
        for each in PLAN_AXES
        if each.field.holds_many
        and isinstance(value := attrgetter(each.attribute)(usual), int | Enum)
    }
    plan["panels"] = usual_panels(where) if _multiplies_in_panels(values) else 1
    plan["zero_stage"] = 3 if values.get("fsdp") else 0
    plan |= {key: _as_framework(where, key) for key in OF_FRAMEWORK}
    plan = {key: values.get(key, value) for key, value in plan.items()} | {"dp": dp}
    return {key: (value,) for key, value in plan.items()} | {
        "devices": dp * math.prod(degrees.values()),
        "global_batch_size": values.get("global_batch_size", dp * plan["micro_batch_size"]),
        "schedule": schedule_of(values.get("schedule"), plan["interleave"]),
        "precision": values.get("precision", usual_precision(where.hardware.device)),
    }


def fitting_panels(where: Situation, counts: Iterable[int]) -> tuple[int, ...]:
    """Of ``counts`` of panels those that divide all models."""
    return tuple(
        count for count in counts if all(panels_fit(count, family) for family in where.families)
    )


def usual_panels(where: Situation) -> int:
    """Panels of a 2D layout where nobody says how many."""
    return max(fitting_panels(where, range(1, USUAL_PANELS + 1)))


def _multiplies_in_panels(values: Mapping[str, Any]) -> bool:
    return (
        values.get("layout") is LayoutName.TWO_D and values.get("tp", 1) * values.get("tp2", 1) > 1
    )


def widths_up_to(largest: int) -> tuple[int, ...]:
    """``largest`` and the powers of two that divide it."""
    powers = [2**exponent for exponent in range(largest.bit_length()) if largest % 2**exponent == 0]
    return tuple(sorted({*powers, largest}))


def widths_inside_a_node(families: tuple[ModelFamily, ...], cluster: Cluster) -> tuple[int, ...]:
    """Tensor parallel widths that divide all models and the innermost groups."""
    inside = min(cluster.tiers[0].group_size, cluster.num_devices)
    common = set.intersection(*(set(allowed_widths(family)) for family in families))
    return tuple(width for width in sorted(common) if inside % width == 0)


def expert_degrees(where: Situation) -> tuple[int, ...]:
    """Expert parallel degrees that divide the experts of all models and the devices."""
    experts = [family.experts for family in where.families if family.experts]
    if not experts:
        return (1,)
    common = math.gcd(*experts, where.hardware.cluster.num_devices)
    return tuple(degree for degree in range(1, common + 1) if common % degree == 0)


def usual_precision(device: Device | None) -> Precision:
    """bf16, or fp16 on devices without it, or fp32 on those that have neither."""
    usual = (Precision.BF16, Precision.FP16, Precision.FP32)
    if device is None:
        return usual[0]
    return next((each for each in usual if each.matrix_format in device.matrix.peak), usual[0])


def replicas_of(dp: int | None, devices: int | None, degrees: Mapping[str, int]) -> int:
    """Data parallel degree: as given, or what a number of devices leaves for it.

    Raises:
        InputError: the devices are no multiple of a replica's, or other than those of all replicas.
    """
    if devices is None:
        return dp or 1
    replica = math.prod(degrees.values())
    shown = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    if devices % replica:
        allowed = " or ".join(
            str(times * replica) for times in (devices // replica, devices // replica + 1) if times
        )
        raise InputError(
            f"devices is {devices}, which is no multiple of {shown} = {replica}; give --devices "
            f"{allowed}"
        )
    if dp is not None and dp * replica != devices:
        raise InputError(
            f"devices is {devices}, but {shown} x dp {dp} = {dp * replica}; "
            f"give --dp {devices // replica} or --devices {dp * replica}"
        )
    return devices // replica


def schedule_of(specified: PipelineSchedule | None, interleave: int) -> PipelineSchedule:
    """The order of the passes: as stated, else the one that the chunks per stage ask for.

    Raises:
        InputError: they contradict each other.
    """
    if specified in {PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE} and interleave > 1:
        given = f"schedule {specified} runs one chunk per stage, given interleave {interleave}"
        raise InputError(f"{given}; give --interleave 1, or --schedule interleaved")
    if specified is PipelineSchedule.INTERLEAVED and interleave == 1:
        raise InputError(
            "schedule interleaved needs several chunks per stage, given interleave 1; give "
            "--interleave 2 or more"
        )
    return specified or (
        PipelineSchedule.INTERLEAVED if interleave > 1 else PipelineSchedule.ONE_F_ONE_B
    )


def _as_framework(where: Situation, name: str) -> Any:
    return getattr(where.hardware.software, name)


def _every(key: str, where: Situation) -> tuple[Any, ...]:
    """All values of an axis that the framework decides: a switch, or names that the device runs."""
    item, family = plan_axis(key).field.item, architecture_of(where.hardware.device)
    if item is bool:
        return EITHER
    return tuple(each for each in item if item is not Dispatcher or not family or family.runs(each))
