"""The operator schedule of a layer's pass as a process whose threads are cores."""

from collections import Counter
from collections.abc import Iterator, Sequence

from Estimator.chips.accelerator import Accelerator
from phaze.report.trace.events import Event, Process, Shown, Slice, Thread, nanoseconds
from Solver.designs.schedule_records import KeptSchedule, ScheduledOperator

_PASSES = {"forward": "forward", "backward": "backward", "backward_selective": "backward"}


def schedule_names(schedules: Sequence[KeptSchedule]) -> list[str]:
    """A short name of each pass of a distinct layer, with a model only among several.

    Layers that share a name are numbered.
    """
    several = len({each.model for each in schedules}) > 1
    often = Counter((each.model, each.layer, each.graph) for each in schedules)
    seen = Counter[tuple[str, str, str]]()
    names = []
    for each in schedules:
        key = (each.model, each.layer, each.graph)
        seen[key] += 1
        number = f" kind {seen[key]}" if often[key] > 1 else ""
        model = f"{each.model} " if several else ""
        names.append(f"{model}{each.layer}{number} {_PASSES[each.graph]} (x{each.repeats})")
    return names


def schedule_events(
    schedule: KeptSchedule, name: str, accelerator: Accelerator, pid: int
) -> Iterator[Event]:
    """Process ``pid`` with the operators of one pass, from time 0.

    A core has a thread where an operator runs on it alone. An operator on all cores of a type,
    beside which nothing runs, is drawn once, on a thread for all of them. One that takes both types
    of cores is drawn on both.
    """
    yield Process(pid, f"operators: {name}")
    taken = sorted({cores for each in schedule.operators for cores in _cores(each, accelerator)})
    rows = {cores: row for row, cores in enumerate(taken)}
    for cores, row in rows.items():
        yield Thread(pid, row, _cores_name(cores, accelerator))
    free_ns = dict.fromkeys(rows, 0)
    for each in sorted(schedule.operators, key=lambda operator: (operator.start_s, operator.end_s)):
        for cores in _cores(each, accelerator):
            # Where one ends and the next starts, sums may differ in their last digit, which
            # rounding can make a nanosecond.
            start_ns = nanoseconds(each.start_s)
            start_ns += start_ns == free_ns[cores] - 1
            end_ns = max(nanoseconds(each.end_s), start_ns)
            free_ns[cores] = max(free_ns[cores], end_ns)
            yield Slice(
                pid, rows[cores], each.name, each.kind, start_ns, end_ns, _args(each, schedule)
            )


Cores = tuple[int, int]
"""Type of cores (0 TC, 1 VC), and the core's number or -1 for all of them: the order of threads."""


def _cores(operator: ScheduledOperator, accelerator: Accelerator) -> list[Cores]:
    """Where an operator runs."""
    kinds = [kind for kind, short in enumerate(("TC", "VC")) if short in operator.cores.split("+")]
    if operator.mode == "all":
        counts = (accelerator.num_tc, accelerator.num_vc)
        return [(kind, -1 if counts[kind] > 1 else 0) for kind in kinds]
    numbers = (operator.tc, operator.vc)
    return [(kind, number) for kind in kinds if (number := numbers[kind]) is not None]


def _cores_name(cores: Cores, accelerator: Accelerator) -> str:
    kind, number = cores
    short, count = (("TC", accelerator.num_tc), ("VC", accelerator.num_vc))[kind]
    return f"all {count} {short}" if number < 0 else f"{short} {number}"


def _args(operator: ScheduledOperator, schedule: KeptSchedule) -> dict[str, Shown]:
    args: dict[str, Shown] = {
        "kind": operator.kind,
        "cores": operator.cores,
        "mode": operator.mode,
        "layer": schedule.layer,
        "pass": schedule.graph,
        "repeats": schedule.repeats,
        "seconds": operator.end_s - operator.start_s,
    }
    if operator.exposed_s:
        args["seconds waiting for other devices"] = operator.exposed_s
    return args
