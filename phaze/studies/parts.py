"""Searches a design space in parts and joins them to one run with one certificate.

No chip of a part exceeds its bound, which is that of what was pruned there and of the best that was
evaluated. The best chips of all parts, searched together once more, are certified against the
largest of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.space_part import MOST_PARTS, SpacePart, no_count
from Estimator.plans.results import Status
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.runs.run_directory import PartRecord, PartsRecord
from phaze.settings.checks import check_part
from phaze.settings.designed_chips import designed_accelerators, part_sizes
from phaze.settings.problem import chips_of, hardware_report, search_problem, space_size
from phaze.settings.request import Request
from phaze.studies.sweep.executors import Executor
from phaze.studies.sweep.points import SweepPoint, point_of
from phaze.studies.sweep.run import outcomes_of
from phaze.studies.sweep.store import Store
from phaze.studies.sweep.work import Ending, Outcome
from phaze_common.errors import InputError, PhazeError
from phaze_common.numbers import number
from phaze_common.progress import Progress
from Solver.designs.search_context import SearchContext, Stores
from Solver.results import AxisValue, Counts, SearchResult, SpaceSize

if TYPE_CHECKING:
    from Solver.designs.search import Searched

FOLDER = "parts"  # of a run's folder: a run per part
OnPart = Callable[[PartRecord, bool], None]  # with whether an earlier run had computed it


@dataclass(frozen=True)
class JoinedRun:
    """The answer of all parts together, and what became of each."""

    result: SearchResult
    parts: PartsRecord


def parts_of(request: Request, count: int) -> tuple[Request, ...]:
    """``request`` asked of each of ``count`` parts of its space.

    Raises:
        InputError: there cannot be so many, or what is asked takes the whole space at once.
    """
    check_parts(request, count)
    return tuple(
        request.with_settings(space_part=str(part), csv=False) for part in SpacePart.all_of(count)
    )


def check_parts(request: Request, count: int) -> None:
    """Refuse parts that there cannot be.

    Raises:
        InputError: as ``parts_of``.
    """
    if not 1 <= count <= MOST_PARTS:
        raise InputError(no_count(count))
    if request.on_devices:
        raise InputError(
            f"the device {request.hardware.device} is given, and no space of chips to divide; "
            "leave --device out, or --parts"
        )
    if request.hardware.space_part is not None:
        raise InputError(
            f"space_part is {request.hardware.space_part}, one part alone, and --parts searches "
            "all; leave one of them out"
        )
    if request.output.force_reextract_model:
        raise InputError(
            "force_reextract_model would extract every graph once for each part; leave it out, or "
            "the parts"
        )
    check_part(request.with_settings(space_part=str(SpacePart(1, count))))


def parted_size(request: Request, count: int) -> SpaceSize:
    """What a search in ``count`` parts would look at, and how much of it the largest part has.

    Raises:
        InputError: as ``parts_of``, or the space has no chips.
    """
    check_parts(request, count)
    sizes = part_sizes(request, count)
    # the latter refuses a space without any
    every = int(sizes.sum()) or len(designed_accelerators(request))
    first = space_size(request.with_settings(space_part=str(SpacePart(1, MOST_PARTS)), csv=False))
    points, largest = every * first.memory_sizes * first.shapes, int(sizes.max())
    return replace(first, configurations=every, points=points, parts=count, largest_part=largest)


def run_parts(
    request: Request,
    count: int,
    executor: Executor,
    named: str,
    progress: Progress,
    on_part: OnPart,
    *,
    limits: bool = False,
) -> JoinedRun:
    """Answer ``request`` in ``count`` parts, which ``executor`` (``named``) runs; write its run,
    with what limits its best chip where ``limits`` are asked for.

    Parts that were finished before are not searched again. Where one fails the answer is that of
    the others, not proven.

    Raises: InputError: as ``parts_of``, or the request names something that does not exist or does
        not fit together. PhazeError: an artefact cannot be written, or no part that ended found a
        design and one failed.
    """
    # compiles inner loops, which a refusal does not wait for
    from phaze.studies.search_run import prepared

    asked = parts_of(request, count)
    contents, store = prepared(request), Store(request.folders.run / FOLDER)
    points = [point_of(part) for part in asked]
    by_key, records = {point.key: point for point in points}, dict[str, PartRecord]()
    phase = f"parts of {request.output.name}"
    for outcome in outcomes_of(points, store, executor, progress, phase):
        if outcome.ending is Ending.IMPOSSIBLE:
            raise InputError(outcome.problem)
        records[outcome.key] = _record(by_key[outcome.key], outcome)
        on_part(records[outcome.key], outcome.ending is Ending.THERE)
    found = tuple(records[point.key] for point in points)
    keys = [key for key, each in records.items() if each.status is not Status.FAILED]
    ended = [open_run(store.folder(point.key)) for point in points if point.key in keys]
    _check_ended(PartsRecord(count, named, found), ended)
    reports = [run.result.part for run in ended if run.result.part is not None]
    bounds = {each.part: each.bound for each in reports}
    found = tuple(replace(each, bound=bounds.get(each.part)) for each in found)
    parts = PartsRecord(count, named, found)
    from phaze.studies.written_answer import write_answer

    searched = _joined(request, ended, parts, progress)
    designs = [each.designs for each in ended if len(each.designs)]
    result = write_answer(request, searched, contents, parts, designs, limits=limits)
    return JoinedRun(result, parts)


def joined_again(request: Request, parts: PartsRecord, progress: Progress) -> Searched:
    """The search of ``request`` in ``parts`` as they were found, joined as in its run.

    Raises:
        InputError: the run of a part is gone.
    """
    store = Store(request.folders.run / FOLDER)
    keys = [point_of(part).key for part in parts_of(request, parts.count)]
    of_parts = zip(parts.parts, keys, strict=True)
    found = [key for part, key in of_parts if part.status is not Status.FAILED]
    ended = [open_run(store.folder(key)) for key in found]
    return _joined(request, ended, parts, progress)


def failures(parts: PartsRecord) -> str:
    """Which parts have no answer, and what helps, in a sentence."""
    named = ", ".join(f"part {each.part} ({each.problem})" for each in parts.failed)
    return (
        f"{number(len(parts.failed))} of {number(parts.count)} parts failed: {named}; the same "
        "command goes on with them"
    )


def _record(point: SweepPoint, outcome: Outcome) -> PartRecord:
    part = point.request.hardware.space_part or ""
    if outcome.point is None:
        return PartRecord(part, Status.FAILED, None, None, "", 0.0, outcome.problem)
    found, result = outcome.point, outcome.point.result
    return PartRecord(part, result.status, result.value, None, found.machine, found.seconds)


def _check_ended(parts: PartsRecord, ended: Sequence[FinishedRun]) -> None:
    if any(run.result.best is not None for run in ended):
        return
    if parts.failed:
        raise PhazeError(f"no design was found: {failures(parts)}")
    if any(run.result.status is Status.CLOSED for run in ended):
        folder = ended[0].folder.parent
        raise PhazeError(
            f"the parts in {folder} are closed by a design that none of them has; remove that "
            "folder, and run again"
        )


def _joined(
    request: Request, ended: Sequence[FinishedRun], parts: PartsRecord, progress: Progress
) -> Searched:
    """The best chips of all parts searched against what is known of all others."""
    from Solver.designs.parted_spaces import rejoined
    from Solver.designs.search import search

    folders, counts = request.folders, _added([run.result.counts for run in ended])
    chips = list(_best_chips([run.result for run in ended])) or [_any_chip(request, parts.count)]
    stores = Stores(folders.graphs, folders.estimates, folders.run / "points")
    run = SearchContext(search_problem(request), chips_of(request, chips), stores, progress)
    reports = [run.result.part for run in ended if run.result.part is not None]
    with run.phase("bounds of the space"):
        run = rejoined(run, reports, counts.space, whole=not parts.failed)
    searched = search(run, hardware_report(request), str(folders.run))
    return replace(searched, result=replace(searched.result, counts=counts))


def _added(parts: Sequence[Counts]) -> Counts:
    """The points of all parts, and the plans of the part that compared most per configuration."""
    points = {each.name: sum(getattr(part, each.name) for part in parts) for each in fields(Counts)}
    return Counts(**points | {"plans": max(part.plans for part in parts)})


def _best_chips(results: Sequence[SearchResult]) -> Iterator[Accelerator]:
    """Chips of the best designs of each part by size, and of all by value of each axis."""
    found = list[Accelerator | None]()
    of_values = dict[tuple[str, str], AxisValue]()
    for result in results:
        found += [point.accelerator for point in result.per_hbm]
        found += [row.accelerator for row in result.rows]
        for axis in () if result.best is None else result.best.axes:
            for value in axis.values:
                known = of_values.setdefault((axis.axis, value.value), value)
                if value.reached > known.reached:
                    of_values[axis.axis, value.value] = value
    found += [value.accelerator for value in of_values.values()]
    yield from (chip for chip in dict.fromkeys(found) if chip is not None)


def _any_chip(request: Request, count: int) -> Accelerator:
    """A chip of a space on none of whose chips anything fits, which does not depend on the chip.

    Raises:
        InputError: the space has no chips.
    """
    for part in parts_of(request, count):
        chips = designed_accelerators(part)
        if len(chips):
            return chips.accelerator(0)
    return designed_accelerators(request).accelerator(0)
