"""The quantities of one configuration, and which of its mappings make sense."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from phaze_common.array_types import BoolArray
from phaze_common.errors import InputError

from .catalogue import DEGREE_NAMES
from .configuration import Configuration
from .corrections import Correction
from .mapping import INTRA
from .times import TOTAL_S, TimeQuantities
from .units import written

MEMORY_BYTES = "total_required_memory_per_accelerator"
RESULTS = (
    *(TOTAL_S, "total_MACs", "minibatch_size", "microbatch_size", MEMORY_BYTES),
    *("min_required_memory_per_accelerator", "peak_compute_8bit_OPS", "number_of_nodes_required"),
)
_MAPPED = (*DEGREE_NAMES, "batch_size")


@dataclass(frozen=True)
class Rule:
    """That one quantity of a mapping divides another, or is at most as large; ``sentence`` is how a
    refusal says it, its two ``{}`` are their values."""

    one: str
    other: str
    sentence: str
    divides: bool = True

    @property
    def name(self) -> str:
        """What must hold, as certificates have it."""
        return f"{self.one} {'divides' if self.divides else 'is at most'} {self.other}"

    def holds(self, table: TimeQuantities) -> BoolArray:
        """Whether it does, elementwise."""
        one, other = table.value(self.one), table.value(self.other)
        return np.asarray(np.mod(other, one) == 0 if self.divides else one <= other)


DIVISIBILITY = (
    Rule(
        "data_parallel_degree",
        "batch_size",
        "the data parallel degree {} does not divide the batch_size {}; change the degrees or the "
        "batch",
    ),
    Rule(
        "number_of_microbatches_per_minibatch",
        "minibatch_size",
        "number_of_microbatches_per_minibatch {} does not divide the minibatch of {} sequences; "
        "give a divisor",
    ),
    Rule(
        "tensor_parallel_degree",
        "attention_heads",
        "the tensor parallel degree {} does not divide the {} attention_heads; change the degrees",
    ),
    Rule(
        "pipeline_parallel_degree",
        "layers",
        "the pipeline parallel degree {} does not divide the {} layers; change the degrees",
    ),
)
MEMORY = Rule(MEMORY_BYTES, "memory", "{} bytes are needed of {} on each accelerator", False)


def has_memory(configuration: Configuration) -> bool:
    """Whether the configuration says how much memory an accelerator has."""
    return bool(configuration.values("memory"))


def build_table(
    configuration: Configuration,
    corrections: Collection[Correction],
    instead: Mapping[str, ArrayLike] | None = None,
) -> TimeQuantities:
    """All parameters and times of a configuration under these corrections; ``instead`` replaces
    values of it, also by arrays. Raises InputError: several batch sizes are given, a value is
    missing, parameters form a cycle or leave the range of numbers."""
    given: dict[str, ArrayLike] = {}
    for setting in configuration.settings:
        name = setting.parameter.name
        if len(setting.values) > 1 and name not in (instead or {}):
            raise InputError(
                f"{configuration.source}: {name} lists {len(setting.values):,} values; give one, "
                "or ask for optimize, which compares them"
            )
        if setting.values:
            given[name] = setting.values[0]
    given.update(instead or {})
    calculated = [name for name in configuration.calculated if name not in (instead or {})]
    for name in calculated:
        given.pop(name, None)
    try:
        return TimeQuantities(given, corrections, (*RESULTS, *_MAPPED, *calculated))
    except InputError as error:
        raise InputError(f"{configuration.source}: {error}") from error


def check_counts(table: TimeQuantities, source: str) -> None:
    """The degrees inside a node must use all its accelerators, and all together those that the
    configuration names. Raises InputError: they multiply to another number."""
    inside = table.number("accelerators_per_node_required")
    between = table.number("number_of_nodes_required")
    per_node = table.number("number_of_accelerators_per_node")
    if inside != per_node:
        raise InputError(
            f"{source}: the degrees inside a node ({_degrees(table, INTRA)}) multiply to "
            f"{written(inside)}, but "
            f"number_of_accelerators_per_node is {written(per_node)}; make them equal"
        )
    for name, product in (
        ("number_of_nodes", between),
        ("total_number_of_accelerators", inside * between),
    ):
        if name in table.given and table.number(name) != product:
            raise InputError(
                f"{source}: the degrees make for a {name} of {written(product)}, but it is given "
                f"as {written(table.number(name))}; make them equal"
            )


def check_mapping(table: TimeQuantities, source: str) -> None:
    """Refuse a mapping that its model or batch cannot be divided by. Raises InputError: names the
    first rule of ``DIVISIBILITY`` that it breaks, or as ``check_counts``."""
    check_counts(table, source)
    for rule in DIVISIBILITY:
        if not rule.holds(table):
            one, other = written(table.number(rule.one)), written(table.number(rule.other))
            raise InputError(f"{source}: {rule.sentence.format(one, other)}")


def _degrees(table: TimeQuantities, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {written(table.number(name))}" for name in names)
