"""What ``--instead`` asks for: values that an alternative design must have."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from Estimator.chips.axes import CHIP_AXES, SIZES
from Estimator.plans.axes import COMPARED, OF_FRAMEWORK, plan_axis
from phaze.settings.layouts import axes_within
from phaze.settings.request import settings_for
from phaze_common.choices import LayoutName
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode
from phaze_common.settings import Kind, Setting, SettingTable
from phaze_common.units import GIB, MIB
from Solver.plan_report import PlanReport

SEPARATOR = ","
OF_A_CHIP = (*SIZES, "glb_mib", "chip", "hbm_size")
OF_A_PLAN = tuple(each.key for each in COMPARED)
LEFT_OPEN = frozenset({"dp", *OF_FRAMEWORK})  # by what keeps a plan as it is


def constraint_keys() -> SettingTable:
    """What can be asked for: sizes of the accelerator, and one value of settings of a request."""
    sizes = (each for each in CHIP_AXES if each.is_size and not each.unit)
    accelerator = [Setting(each.key, Kind.INTEGER, each.help) for each in sizes]
    buffer = (
        Setting("glb_mib", Kind.INTEGER, "on-chip buffer, MiB", unit="MiB"),
        Setting("glb_bytes", Kind.INTEGER, "on-chip buffer, bytes", most=2**40, unit="bytes"),
    )
    settings = {setting.key: setting for setting in settings_for(Mode.EVALUATE).settings}
    of_a_request = (replace(settings[key], aliases=()) for key in ("chip", "hbm_size", *OF_A_PLAN))
    rivals = frozenset(each.key for each in buffer)
    return SettingTable((*accelerator, *buffer, *of_a_request), rivals=(rivals,))


@dataclass(frozen=True)
class Constraint:
    """Values that hardware and its plans must have, written as ``asked``; all else is open."""

    asked: str
    chip: str | None = None
    hbm_size: float | None = None  # GiB
    sizes: Mapping[str, int] = field(default_factory=dict)  # of an accelerator
    of_the_plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hbm_bytes(self) -> int | None:
        """Memory of a device."""
        return None if self.hbm_size is None else round(self.hbm_size * GIB)

    @property
    def settings(self) -> dict[str, object]:
        """Settings of a request that searches plans with these values only.

        Layouts are left as they are: ``within`` says which of them can have what is asked for.
        """
        memory: dict[str, object] = {} if self.hbm_size is None else {"hbm_size": [self.hbm_size]}
        plan: dict[str, object] = {name: [value] for name, value in self.of_the_plan.items()}
        return memory | plan

    def within(self, searched: Collection[LayoutName]) -> dict[str, object]:
        """``settings`` for a study that searched these layouts, of which some can have the values.

        An axis that is left open keeps the study's values where its layouts have them, and else has
        all that are usual (None).
        """
        return axes_within(self.of_the_plan, searched, self.settings)


def constraint_of(plan: PlanReport) -> Constraint:
    """What keeps ``plan`` but its cut and its data parallel degree, which follows from devices."""
    given = {name: plan_axis(name).of(plan) for name in OF_A_PLAN if name not in LEFT_OPEN}
    return Constraint("", of_the_plan=given)


def read_constraint(text: str, *, on_device: bool) -> Constraint:
    """Values that a design must have, as typed: ``num_tc=4,width=256`` or ``pp=8``.

    Raises: InputError: an unknown key, a value that it does not take, or one about a chip where the
        device is given.
    """
    values = _values(text, constraint_keys())
    about_chips = [key for key in OF_A_CHIP if key in values]
    if on_device and about_chips:
        raise InputError(
            f"--instead {text}: {', '.join(about_chips)} is about accelerators to design, but the "
            f"run was given its device; ask for another plan: {', '.join(OF_A_PLAN)}"
        )
    if "glb_mib" in values:
        values["glb_bytes"] = values.pop("glb_mib") * MIB
    of_the_plan = {name: values.pop(name) for name in OF_A_PLAN if name in values}
    sizes = {name: values.pop(name) for name in SIZES if name in values}
    constraint = Constraint(text, sizes=sizes, of_the_plan=of_the_plan, **values)
    if constraint.chip is not None and constraint.sizes:
        raise InputError(
            f"--instead {text}: chip and {', '.join(constraint.sizes)} contradict each other; give "
            "one of them"
        )
    return constraint


def _values(text: str, table: SettingTable) -> dict[str, Any]:
    given: dict[str, object] = {}
    source = f"--instead {text}"
    for part in (part.strip() for part in text.split(SEPARATOR)):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            keys = ", ".join(table.keys)
            raise InputError(
                f"{source}: {part!r} is not KEY=VALUE; write for instance pp=8, the keys are {keys}"
            )
        name = key.replace("-", "_")
        if name in given:
            raise InputError(f"{source}: {key} is given twice; give every key once")
        given[name] = value
    read = table.read(given, source)
    return {key: each if isinstance(each, int | float) else str(each) for key, each in read.items()}
