"""The axes of plans: every setting that says how a model is trained, as ``Estimator.plans.degrees``
annotates it.

Flags, keys of files, columns of tables, figures, the glossary and what can be asked of a finished
run follow from this list. Imports nothing heavy, since ``--help`` reads it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from Estimator.plans.degrees import Degrees, Layout, PlanHeader, UniformPlan
from Estimator.plans.state_formats import StateFormats
from phaze_common.setting_fields import Axis, Decides, SettingField, setting_field

BY_ITSELF = UniformPlan()  # a plan of which nothing is specified
SHORTEST_WORD = 4  # letters: a shorter key is a symbol, which a title ends with


@dataclass(frozen=True)
class PlanAxis:
    """An axis: the setting that it is, and where a ``UniformPlan`` has it."""

    key: str
    axis: Axis
    field: SettingField
    attribute: str

    @property
    def is_symbol(self) -> bool:
        """Whether its key is a symbol, as in tp 8 x pp 4, rather than a word."""
        return len(self.key) < SHORTEST_WORD

    @property
    def label(self) -> str:
        """Its title, with its symbol if it has one."""
        return f"{self.axis.title} {self.key}" if self.is_symbol else self.axis.title

    @property
    def decides_layer_costs(self) -> bool:
        """Whether layers of plans with another value cost something else."""
        return self.axis.decides_first is not Decides.PLAN

    @property
    def decides_graph(self) -> bool:
        """Whether layers of plans with another value have other operators."""
        return self.axis.decides_first is Decides.GRAPH

    def of(self, plan: UniformPlan) -> Any:
        """Its value in a plan, as files and tables have it: a number, a switch, a name, a list."""
        return plain_value(attrgetter(self.attribute)(plan))

    def read(self, cell: Any) -> Any:
        """What ``of`` gave, as a plan has it."""
        names, other = self.field.item, self.field.other
        if other is None or cell in [each.value for each in names]:
            return names(cell)
        return other.parsed(cell)

    def phrase_of(self, plan: UniformPlan) -> str:
        """What a sentence says of its value in a plan; empty where it is as a plan has it by
        itself."""
        if not self.axis.phrase:
            return ""
        value = attrgetter(self.attribute)(plan)
        nothing = attrgetter(self.attribute)(BY_ITSELF), False, "none"
        used = self.applies_to(plan) and value not in nothing
        return self.axis.phrase.format(value) if used else ""

    def applies_to(self, plan: UniformPlan) -> bool:
        """Whether the plan has the degree that it is about; 2D layouts share sequences without
        cp."""
        degree = self.axis.of_degree
        alone = bool(degree) and getattr(plan, degree) == 1
        return not alone or (degree == "cp" and plan.sequence_devices > 1)


def plain_value(value: Any) -> Any:
    """A value as files and tables have it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _axes_of(record: type[Any], home: str = "") -> Iterator[PlanAxis]:
    hints = get_type_hints(record, include_extras=True)
    for each in fields(record):
        hint = hints[each.name]
        if get_origin(hint) is not Annotated or each.name not in record.__annotations__:
            continue
        value_type, axis = get_args(hint)
        values: Any = axis.values or types.GenericAlias(tuple, (value_type, ...))
        key = axis.key or each.name
        stated = setting_field(key, values, axis)
        yield PlanAxis(key, axis, stated, home + (axis.attribute or each.name))


PLAN_AXES: tuple[PlanAxis, ...] = (
    *_axes_of(Layout),
    *_axes_of(UniformPlan),
    *_axes_of(Degrees),
    *_axes_of(PlanHeader),
    *_axes_of(StateFormats, "state_formats."),
)
COMPARED = tuple(each for each in PLAN_AXES if each.axis.compared)
# of these, axes of which all plans of a design point have one value, and the others
OF_SHAPES = tuple(each for each in COMPARED if each.decides_layer_costs)
OF_PLANS = tuple(each for each in COMPARED if not each.decides_layer_costs)
# keys of axes that are as the framework does them where nothing is stated
OF_FRAMEWORK = tuple(each.key for each in PLAN_AXES if each.axis.of_framework)


def plan_axis(key: str) -> PlanAxis:
    """The axis with that key."""
    return next(each for each in PLAN_AXES if each.key == key)
