"""Constants of a design space and a cluster that are not known exactly, and their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from Estimator.chips.design_space import DesignSpace
from Estimator.chips.technology import CapacityTable
from Estimator.hardware_files import HARDWARE
from Estimator.network.cluster import Cluster
from Estimator.quantity import Quantity, UncertainQuantity
from phaze_common.records import read_yaml, to_record

EVERY = "*"
EFFICIENCY = "cluster.tiers.*.efficiency"  # of which more than 1 cannot be
OF_DIES = ("prices", "platform.technology.die")


@dataclass(frozen=True)
class Range:
    """How far a constant may be off, as factors of its value."""

    low: float
    high: float
    source: str


@dataclass(frozen=True)
class Physics:
    """What the designs of a search are priced with."""

    space: DesignSpace
    cluster: Cluster


@dataclass(frozen=True)
class UncertainConstant:
    """A constant, the places where a ``Physics`` has it, and the factors that it may be off by."""

    name: str
    paths: tuple[str, ...]
    low: float
    high: float
    source: str


def uncertain_constants(physics: Physics) -> list[UncertainConstant]:
    """All that decide anything in ``physics``: with ranges of their own or of ``ranges.yaml``."""
    whole = physics.space.axes.memory is not None
    found: list[UncertainConstant] = []
    if whole:
        for prefix in OF_DIES:
            found += _with_ranges(
                _at(physics.space, prefix), [f"space.{prefix}"], prefix.removeprefix("platform.")
            )
        for name, prefixes in _memories(physics.space).items():
            found += _with_ranges(_at(physics, prefixes[0]), prefixes, f"memory.{name}")
    for name, given in _ranges(HARDWARE / "ranges.yaml").items():
        kind, _, rest = name.partition(".")
        if whole and name.startswith("platform.hbm_bandwidth"):
            kind, rest = "memory", "stack_bandwidth_bytes_per_s"
            name = f"{kind}.{rest}"
        paths = tuple(_paths(physics, kind, rest))
        if whole and name == "technology.hbm_energy":
            continue  # memories have their own
        if paths:
            most = given.high
            if name == EFFICIENCY:
                most = min(most, *(1 / tier.efficiency for tier in physics.cluster.tiers))
            found.append(UncertainConstant(name, paths, given.low, most, given.source))
    return found


def with_factors(
    physics: Physics, constants: Sequence[UncertainConstant], factors: Sequence[float]
) -> Physics:
    """``physics`` with each of ``constants`` times its factor."""
    changed: Any = physics
    for constant, factor in zip(constants, factors, strict=True):
        for path in constant.paths:
            changed = _replaced(changed, path.split("."), factor)
    result: Physics = changed
    return result


def _ranges(path: Path) -> Mapping[str, Range]:
    return {
        str(name): to_record(Range, value, f"{path}: {name}")
        for name, value in read_yaml(path).items()
    }


def _memories(space: DesignSpace) -> dict[str, list[str]]:
    """Where ``space`` has each of its memories: once for every number of stacks."""
    found: dict[str, list[str]] = {}
    for number, system in enumerate(space.platform.memories):
        if system.label in (space.axes.memory or ()):  # others are of chips compared with it
            path = f"space.platform.memories.{number}.memory"
            found.setdefault(system.memory.name, []).append(path)
    return found


def _with_ranges(record: Any, prefixes: Sequence[str], named: str) -> Iterator[UncertainConstant]:
    """The constants with ranges of a ``record`` that lies at all of ``prefixes``."""
    for entry in fields(record):
        value = getattr(record, entry.name)
        if isinstance(value, UncertainQuantity) and value.value > 0 and value.high > value.low:
            paths = tuple(f"{prefix}.{entry.name}" for prefix in prefixes)
            low, high = value.low / value.value, value.high / value.value
            yield UncertainConstant(f"{named}.{entry.name}", paths, low, high, value.source)


def _paths(physics: Physics, kind: str, rest: str) -> Iterator[str]:
    """Where the records have a constant that a file of ranges names; nowhere if they have none."""
    if kind == "cluster":
        _, _, key = rest.partition(f"{EVERY}.")
        for number, tier in enumerate(physics.cluster.tiers):
            if getattr(tier, key) > 0:
                yield f"cluster.tiers.{number}.{key}"
            if tier.short is not None and getattr(tier.short, key) > 0:
                yield f"cluster.tiers.{number}.short.{key}"
    elif kind == "memory":
        for number in range(len(physics.space.platform.memories)):
            yield f"space.platform.memories.{number}.memory.{rest}"
    else:
        yield f"space.platform.{'' if kind == 'platform' else 'technology.'}{rest}"


def _at(record: Any, path: str) -> Any:
    for key in path.split("."):
        record = record[int(key)] if isinstance(record, tuple) else getattr(record, key)
    return record


def _replaced(record: Any, path: Sequence[str], factor: float) -> Any:
    """``record`` with what is at ``path`` times ``factor``."""
    if not path:
        return _times(record, factor)
    key, rest = path[0], path[1:]
    if isinstance(record, tuple):
        at = int(key)
        return (*record[:at], _replaced(record[at], rest, factor), *record[at + 1 :])
    return replace(record, **{key: _replaced(getattr(record, key), rest, factor)})


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, CapacityTable):
        return replace(value, value=tuple(factor * each for each in value.value))
    if isinstance(value, Quantity | UncertainQuantity):
        return replace(value, value=factor * value.value)
    assert not is_dataclass(value)
    return factor * value
