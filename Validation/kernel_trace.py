"""A trace of PyTorch's profiler (Chrome's JSON): where the time of a device goes in an iteration."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.records import read_yaml, to_record

KERNELS = Path(__file__).with_name("kernels.yaml")
COMMUNICATION, ELEMENTWISE = "communication", "element-wise"
ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
STEP = "ProfilerStep#"
MICRO = 1e-6
Interval = tuple[float, float]


@dataclass(frozen=True)
class KernelRule:
    """Kernels in whose name ``pattern`` is found belong to ``part``."""

    part: str
    pattern: str


@dataclass(frozen=True)
class _File:
    kernels: tuple[KernelRule, ...]


@dataclass(frozen=True)
class TracedIteration:
    """Seconds of a device in one iteration, the mean of ``steps``.

    ``parts_s`` are sums of kernels by part, ``exposed_s`` is communication beside which nothing else runs, ``idle_s`` what no
    kernel fills of ``iteration_s``. ``longest`` are the kernels that take most, with their seconds.
    """

    steps: int
    iteration_s: float
    parts_s: Mapping[str, float]
    exposed_s: float
    idle_s: float
    longest: tuple[KernelTime, ...]


@dataclass(frozen=True)
class KernelTime:
    """Seconds that kernels of one ``name`` take in an iteration."""

    name: str
    part: str
    seconds: float


def read_trace(path: Path, steps: int | None = None) -> TracedIteration:
    """The iteration in a trace; of so many ``steps`` where the trace does not mark them.

    Raises:
        InputError: the file cannot be read, is no trace, or has no kernels of a device.
    """
    events = _events(path)
    kernels = [each for each in events if each.get("cat") in ON_DEVICE and _is_number(each.get("dur"))]
    if not kernels:
        raise InputError(
            f"{path} has no kernels of a device; give a trace of torch.profiler with ProfilerActivity.CUDA, of one rank"
        )
    marked = {str(each["name"]) for each in events if str(each.get("name", "")).startswith(STEP) and _is_number(each.get("dur"))}
    count = steps or len(marked) or 1
    spans = [(float(each["ts"]), float(each["ts"]) + float(each["dur"])) for each in kernels]
    begin, end = min(each[0] for each in spans), max(each[1] for each in spans)
    parts, names = defaultdict[str, float](float), defaultdict[str, float](float)
    sent, others = list[Interval](), list[Interval]()
    for each, span in zip(kernels, spans, strict=True):
        name = str(each.get("name", ""))
        part, seconds = part_of(name), float(each["dur"]) * MICRO / count
        parts[part] += seconds
        names[name] += seconds
        (sent if part == COMMUNICATION else others).append(span)
    busy, computing = _union([*sent, *others]), _union(others)
    exposed = _length(busy) - _length(computing)
    longest = sorted(names.items(), key=lambda item: -item[1])[:10]
    return TracedIteration(
        count,
        (end - begin) * MICRO / count,
        dict(parts),
        exposed * MICRO / count,
        (end - begin - _length(busy)) * MICRO / count,
        tuple(KernelTime(name, part_of(name), seconds) for name, seconds in longest),
    )


@cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """The rules of ``kernels.yaml``."""
    return to_record(_File, read_yaml(KERNELS), str(KERNELS)).kernels


@cache
def part_of(kernel: str) -> str:
    """The part that a kernel of this name belongs to."""
    return next((rule.part for rule in kernel_rules() if re.search(rule.pattern, kernel, re.IGNORECASE)), ELEMENTWISE)


def _events(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a trace of torch.profiler") from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise InputError(f"{path} is no JSON; give a trace of torch.profiler (export_chrome_trace)") from error
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise InputError(f"{path} has no traceEvents; give a trace of torch.profiler (export_chrome_trace)")
    return [
        each for each in events if isinstance(each, dict) and (each.get("cat") not in ON_DEVICE or _is_number(each.get("ts")))
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18


def _union(spans: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals that do not touch, in order."""
    found: list[Interval] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _length(spans: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in spans)
