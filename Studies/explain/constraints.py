"""What ``--instead`` asks for: values that an alternative design must have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from Common.errors import InputError
from Common.settings import Kind, Setting, SettingTable
from Common.units import GIB, MIB
from Studies.annotations import Mode
from Studies.request import settings_for

SEPARATOR = ","
OF_A_PLAN = ("tp", "pp", "dp", "micro_batch_size", "recompute")  # which every plan has
OF_ANY_PLAN = (*OF_A_PLAN, "ep", "sequence_parallel", "interleave", "zero_stage", "group_order")


def design_keys() -> SettingTable:
    """What can be asked of a design: its accelerator, and the settings of a request, one value each."""
    accelerator = (
        Setting("num_tc", Kind.INTEGER, "number of tensor cores"),
        Setting("num_vc", Kind.INTEGER, "number of vector cores"),
        Setting("width", Kind.INTEGER, "columns of a tensor core"),
        Setting("depth", Kind.INTEGER, "rows of a tensor core"),
        Setting("width_vc", Kind.INTEGER, "lanes of a vector core"),
        Setting("glb_mib", Kind.INTEGER, "on-chip buffer, MiB"),
        Setting("glb_bytes", Kind.INTEGER, "on-chip buffer, bytes", most=2**40),
    )
    return SettingTable((*accelerator, *_settings("chip", "hbm_size", *OF_A_PLAN)), rivals=(frozenset({"glb_mib", "glb_bytes"}),))


def plan_keys() -> SettingTable:
    """What can be asked of a plan on devices that exist."""
    return SettingTable(_settings(*OF_ANY_PLAN))


def _settings(*keys: str) -> tuple[Setting, ...]:
    """Settings of a request under their keys alone."""
    settings = {setting.key: setting for setting in settings_for(Mode.EVALUATE).settings}
    return tuple(replace(settings[key], aliases=()) for key in keys)


@dataclass(frozen=True)
class DesignConstraint:
    """Values an accelerator and its plan must have; None leaves the choice open. ``asked`` is what was typed."""

    asked: str
    num_tc: int | None = None
    num_vc: int | None = None
    width: int | None = None
    depth: int | None = None
    width_vc: int | None = None
    glb_bytes: int | None = None
    chip: str | None = None
    hbm_bytes: int | None = None
    micro_batch_size: int | None = None
    recompute: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None

    @property
    def axes(self) -> dict[str, int]:
        """Fields of an accelerator that are asked for."""
        names = ("num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def of_the_plan(self) -> dict[str, int | str]:
        """Fields of a ``ModelPlan`` that are asked for."""
        names = ("micro_batch_size", "recompute", "tp", "pp", "dp")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True)
class PlanConstraint:
    """Values a plan on given devices must have, as ``DesignConstraint``; fields as those of ``FoundPlan``."""

    asked: str
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    micro_batch_size: int | None = None
    recompute: str | None = None
    ep: int | None = None
    sequence_parallel: bool | None = None
    interleave: int | None = None
    zero_stage: int | None = None
    group_order: str | None = None

    @property
    def values(self) -> dict[str, int | str | bool]:
        """What is asked for, by field."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) is not None and each.name != "asked"
        }


def read_design_constraint(text: str) -> DesignConstraint:
    """Values that a design must have, as typed: ``num_tc=4,width=256`` or ``pp=8``.

    Raises:
        InputError: an unknown key, or a value that it does not take.
    """
    values = _values(text, design_keys())
    if "glb_mib" in values:
        values["glb_bytes"] = values.pop("glb_mib") * MIB
    if "hbm_size" in values:
        values["hbm_bytes"] = round(values.pop("hbm_size") * GIB)
    constraint = DesignConstraint(text, **values)
    if constraint.chip is not None and constraint.axes:
        raise InputError(f"--instead {text}: chip and {', '.join(constraint.axes)} contradict each other; give one of them")
    return constraint


def read_plan_constraint(text: str) -> PlanConstraint:
    """Values that a plan on given devices must have, as typed: ``pp=8,zero_stage=1``.

    Raises:
        InputError: as ``read_design_constraint``.
    """
    return PlanConstraint(text, **_values(text, plan_keys()))


def _values(text: str, table: SettingTable) -> dict[str, Any]:
    given: dict[str, object] = {}
    source = f"--instead {text}"
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            keys = ", ".join(table.keys)
            raise InputError(f"{source}: {part!r} is not KEY=VALUE; write for instance pp=8, the keys are {keys}")
        if key.strip().replace("-", "_") in given:
            raise InputError(f"{source}: {key.strip()} is given twice; give every key once")
        given[key.strip().replace("-", "_")] = value.strip()
    return table.read(given, source)


def _parts(text: str) -> Iterable[str]:
    return [part.strip() for part in text.split(SEPARATOR)]
