"""Records of a trace's events, and their JSON in Chrome's trace format.

Times are whole nanoseconds, as Perfetto keeps them: rounded once, so that slices which touch still
touch and a slice within another stays within it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Shown = str | int | float | Mapping[str, "Shown"]
"""What a viewer shows beside a selected slice."""

_write = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Process:
    """A named group of threads; processes are shown in the order of ``pid``, from 1."""

    pid: int
    name: str

    def as_json(self) -> Iterator[str]:
        """Its name and its place."""
        return _named("process", {"pid": self.pid}, self.name, self.pid)


@dataclass(frozen=True, slots=True)
class Thread:
    """A named thread of a process; they are shown in the order of ``row``, which counts from 0."""

    pid: int
    row: int
    name: str

    def as_json(self) -> Iterator[str]:
        """Its name and its place."""
        ids = {"pid": self.pid, "tid": _tid(self.pid, self.row)}
        return _named("thread", ids, self.name, self.row)


@dataclass(frozen=True, slots=True)
class Flow:
    """Joins slices of one ``number`` by arrows; the first has none in, the last none out."""

    number: int
    comes_in: bool
    goes_out: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """What takes a thread's time: disjoint, or one within the other, the outer one first."""

    pid: int
    row: int
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: Mapping[str, Shown]
    flow: Flow | None = None

    def as_json(self) -> Iterator[str]:
        """One complete event."""
        event: dict[str, object] = {
            "ph": "X",
            "pid": self.pid,
            "tid": _tid(self.pid, self.row),
            "ts": self.start_ns / 1000,
            "dur": (self.end_ns - self.start_ns) / 1000,
            "cat": self.category,
            "name": self.name,
            "args": self.args,
        }
        if self.flow is not None:
            event["bind_id"] = hex(self.flow.number)
            if self.flow.comes_in:
                event["flow_in"] = True
            if self.flow.goes_out:
                event["flow_out"] = True
        yield _write(event)


@dataclass(frozen=True, slots=True)
class Counter:
    """Values of a process from ``at_ns`` on, each drawn as a curve of its own."""

    pid: int
    name: str
    at_ns: int
    values: Mapping[str, float]

    def as_json(self) -> Iterator[str]:
        """One counter event."""
        head = {"ph": "C", "pid": self.pid, "ts": self.at_ns / 1000}
        yield _write({**head, "name": self.name, "args": self.values})


Event = Process | Thread | Slice | Counter


def _named(kind: str, ids: Mapping[str, int], name: str, place: int) -> Iterator[str]:
    head = {"ph": "M", **ids}
    yield _write({**head, "name": f"{kind}_name", "args": {"name": name}})
    yield _write({**head, "name": f"{kind}_sort_index", "args": {"sort_index": place}})


def _tid(pid: int, row: int) -> int:
    """Perfetto shows the thread with its process' number first, and then sorts by number."""
    return pid + row


def nanoseconds(seconds: float) -> int:
    """Seconds to the nearest nanosecond."""
    return round(seconds * 1e9)


def file_content(events: Iterable[Event], about: Mapping[str, Shown]) -> bytes:
    """The trace file: one event per line, and what it is ``about``."""
    lines = ",\n".join(line for event in events for line in event.as_json())
    head = f'{{"generator":"phaze","otherData":{_write(about)},'
    return f'{head}\n"traceEvents":[\n{lines}\n]}}\n'.encode()
