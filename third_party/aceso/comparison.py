"""Methods beside each other on the same cases: seconds of an iteration, a bound on them, and what
the search cost.

Every answer is kept as it comes, in ``answers.jsonl`` of the output folder; one of the same case,
limits, database and code is not asked for again, so a comparison that was interrupted goes on where
it was.
"""

import csv
import io
import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from phaze_common.compile_time import CompileTime
from phaze_common.errors import ArtefactError, InfeasibleError, InputError
from phaze_common.files import (
    append_line,
    artefact_bytes,
    check_writable,
    code_version,
    content_key,
    parse_json,
)
from phaze_common.written_files import check_replaceable, write_outputs

from .baselines import Baseline, layer_stages, megatron_grid, uniform_plan
from .compared_cases import Case
from .corrected import corrected
from .database import Database, read_database
from .evaluation import evaluate
from .models import find_model
from .plans import Plan, read_plan
from .questions import Question
from .search import search

logger = logging.getLogger(__name__)

ANSWERS, TABLE, MARKDOWN = "answers.jsonl", "comparison.csv", "comparison.md"
SEARCH, PUBLISHED = "certified search", "Aceso, stored plan"
BASELINES: Mapping[str, Callable[[Question], Baseline]] = {
    "Megatron-LM grid": megatron_grid,
    "uniform": uniform_plan,
    "layer stages": layer_stages,
}
METHODS = (*BASELINES, PUBLISHED, SEARCH)
COMPILED_S = 0.05  # of compilation, from which the time of a method is taken a second time


@dataclass(frozen=True)
class Limits:
    """Of the certified search: seconds, and the relative gap that is good enough."""

    time_limit_s: float
    gap: float


@dataclass(frozen=True)
class Answer:
    """What a method says of a case; seconds None where it has no plan, ``bound_s`` that no plan is
    faster than.

    ``candidates`` are plans of the grid, or stages priced; None where the method does not count
    them. ``corrected_s``: the same plan with what the cost model leaves out, None where that cannot
    be said.
    """

    model: str
    size: str
    layers: int | None
    gpus: int
    global_batch_size: int
    method: str
    iteration_s: float | None
    bound_s: float | None
    status: str
    cpu_s: float | None
    wall_s: float | None
    candidates: int | None
    corrected_s: float | None
    key: str

    @property
    def model_text(self) -> str:
        """The model, as tables have it."""
        return f"{self.model} {self.size}{f', {self.layers} layers' if self.layers else ''}"

    @property
    def gap(self) -> float | None:
        """Relative, between the plan and the bound."""
        if self.iteration_s is None or self.bound_s is None:
            return None
        return 1.0 - self.bound_s / self.iteration_s


def compare(
    cases: Sequence[Case], folder: Path, output: Path, limits: Limits, plans: Path | None
) -> list[Answer]:
    """Answers of all methods on all cases, with the tables in ``output``; ``plans`` is a folder of
    Aceso's stored plans. Raises InputError: the folder has no database of a case, or nothing can be
    written."""
    databases = [
        read_database(folder, find_model(case.model, case.size, case.layers)) for case in cases
    ]
    check_writable(output)
    check_replaceable(output, {TABLE: None, MARKDOWN: None}, force=False)
    stored = _stored(plans)
    known = {each.key: each for each in earlier_answers(output)}
    data, code = _digest(folder), code_version(Path(__file__).parent)
    answers: list[Answer] = []
    try:
        for case, database in zip(cases, databases, strict=True):
            for method in METHODS:
                published = _best_stored(case, database, stored) if method == PUBLISHED else None
                if method == PUBLISHED and published is None:
                    continue
                limited = asdict(limits) if method == SEARCH else {}
                name, plan = published or ("", None)
                key = content_key(asdict(case), method, limited, data, code, name)
                if key not in known:
                    found = known[key] = _answer(case, database, method, limits, plan, key)
                    append_line(output / ANSWERS, json.dumps(asdict(found)).encode() + b"\n", b"")
                    logged = found.model_text, found.gpus, method, found.iteration_s
                    logger.info("%s, %d GPUs, %s: %s s", *logged)
                answers.append(known[key])
    finally:
        write_tables(answers, output)  # of what there is, where it was interrupted
    return answers


def earlier_answers(output: Path) -> list[Answer]:
    """Those of earlier runs; lines that are no answers are left out."""
    try:
        lines = artefact_bytes(output / ANSWERS).decode("utf-8", "replace").splitlines()
    except (OSError, ArtefactError):
        return []
    found = []
    for line in lines:
        try:
            found.append(Answer(**parse_json(line, ANSWERS)))
        except (InputError, TypeError):  # cut off, or of other code
            continue
    return found


def write_tables(answers: Iterable[Answer], output: Path) -> None:
    """The answers as CSV and as Markdown."""
    text = io.StringIO()
    columns = [each.name for each in fields(Answer) if each.name != "key"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, "gap"])
    answers = list(answers)
    writer.writerows([*(getattr(each, name) for name in columns), each.gap] for each in answers)
    page = "\n".join([*markdown(answers), "", *rankings(answers), ""])
    write_outputs(output, {TABLE: text.getvalue().encode(), MARKDOWN: page.encode()})


def markdown(answers: Sequence[Answer]) -> list[str]:
    """A row for every answer."""
    lines = [
        "| model | GPUs | method | s | samples/s | bound, s | gap | search, CPU s | wall s | "
        "candidates | s, corrected |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in answers:
        seconds, rate = each.status, ""
        if each.iteration_s is not None:
            seconds = _number(each.iteration_s)
            rate = _number(each.global_batch_size / each.iteration_s)
        cells = (
            *(each.model_text, str(each.gpus), each.method, seconds, rate, _number(each.bound_s)),
            "" if each.gap is None else f"{each.gap:.3%}",
            *(_number(each.cpu_s, 3), _number(each.wall_s, 3)),
            "" if each.candidates is None else f"{each.candidates:,}",
            _number(each.corrected_s),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def rankings(answers: Sequence[Answer]) -> list[str]:
    """A row for every case: its methods from fastest to slowest, under Aceso's cost model and with
    the corrections.

    Plans that the corrections cannot price are left out of both; plans of one time stand beside
    each other with ``=``.
    """
    lines = [
        "| model | GPUs | under Aceso's model | with the corrections | order |",
        "|---|---|---|---|---|",
    ]
    cases: dict[tuple[str, int], list[Answer]] = {}
    for each in answers:
        if each.iteration_s is not None and each.corrected_s is not None:
            cases.setdefault((each.model_text, each.gpus), []).append(each)
    for (model, gpus), plans in cases.items():
        before = _order([(each.iteration_s or 0.0, each.method) for each in plans])
        after = _order([(each.corrected_s or 0.0, each.method) for each in plans])
        order = "same" if before == after else "changed"
        lines.append(f"| {model} | {gpus} | {before} | {after} | {order} |")
    return lines


def _order(times: list[tuple[float, str]]) -> str:
    times = sorted(times, key=lambda each: (float(f"{each[0]:.9g}"), METHODS.index(each[1])))
    text = times[0][1]
    for (before_s, _), (after_s, method) in itertools.pairwise(times):
        text += f" {'=' if f'{before_s:.9g}' == f'{after_s:.9g}' else '<'} {method}"
    return text


def _number(value: float | None, digits: int = 5) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _answer(
    case: Case, database: Database, method: str, limits: Limits, published: Plan | None, key: str
) -> Answer:
    question = Question(
        database,
        case.devices,
        case.global_batch,
        case.memory_limit_mib,
        devices_per_node=case.devices_per_node,
        time_limit_s=limits.time_limit_s,
        gap=limits.gap,
    )
    found = _Found(published, None, "stored", None)
    cpu_s = wall_s = iteration_s = corrected_s = None
    for _ in range(2 if published is None else 0):
        with CompileTime.counted() as compiling:
            started, cpu_started = time.monotonic(), time.process_time()
            found = _find(question, method)
            cpu_s, wall_s = time.process_time() - cpu_started, time.monotonic() - started
        if compiling.seconds <= COMPILED_S:
            break
    if found.plan is not None:
        iteration_s = evaluate(found.plan, database, case.devices_per_node).iteration_s
        corrected_s = _corrected_s(found.plan, database, case.devices_per_node)
    return Answer(
        case.model,
        case.size,
        case.layers,
        case.devices,
        case.global_batch,
        method,
        iteration_s,
        found.bound_s,
        found.status,
        cpu_s,
        wall_s,
        found.candidates,
        corrected_s,
        key,
    )


class _Found(NamedTuple):
    plan: Plan | None
    bound_s: float | None
    status: str
    candidates: int | None


def _find(question: Question, method: str) -> _Found:
    if method != SEARCH:
        simple = BASELINES[method](question)
        status = "nothing fits" if simple.plan is None else "found"
        return _Found(simple.plan, None, status, simple.plans)
    try:
        best = search(question)
    except InfeasibleError as error:
        return _Found(None, None, " ".join(str(error).split()), None)
    return _Found(best.plan, best.bound_s, best.status, best.stages)


def _corrected_s(plan: Plan, database: Database, devices_per_node: int) -> float | None:
    try:
        return corrected(plan, database, devices_per_node).iteration_s
    except InputError as error:
        logger.warning("not corrected: %s", error)
        return None


def _stored(folder: Path | None) -> list[tuple[str, Plan]]:
    """The plans in a folder with their files' names; files that hold no plan are passed over."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder else ():
        try:
            found.append((path.name, read_plan(path)))
        except InputError as error:
            logger.info("%s is passed over: %s", path, error)
    return found


def _best_stored(
    case: Case, database: Database, stored: Sequence[tuple[str, Plan]]
) -> tuple[str, Plan] | None:
    best, best_s = None, float("inf")
    for name, plan in stored:
        of_plan = (plan.model, plan.devices, plan.global_batch)
        if of_plan != (database.model, case.devices, case.global_batch):
            continue
        priced = evaluate(plan, database, case.devices_per_node)
        if priced.memory_mib <= case.memory_limit_mib and priced.iteration_s < best_s:
            best, best_s = (name, plan), priced.iteration_s
    return best


def _digest(folder: Path) -> str:
    """Of what the database says, by names, sizes and times of its files."""
    stats = ((path.name, path.stat()) for path in sorted(folder.glob("*.csv")))
    return content_key([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
