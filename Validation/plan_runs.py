"""Predictions of measured runs whose stages differ: plans from files, devices from databases of
profiled operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.files import read_json
from Common.progress import Progress
from Common.units import MIB
from Estimator.profiled.machine import profile_folder
from Validation.measured_runs import refuse_where_none_is_read
from Validation.own_plan_runs import OwnRun, PriceFile
from Validation.plan_results import check_stated, result_of, skipped
from Validation.plan_rows import MemoryKind, PlanRow, read_plan_rows
from Validation.published_row import RefusedRow
from Validation.records import Assumption, RunResult, UsedRule, ValidationReport
from Validation.statistics import statistics_of

SEQUENCE_LENGTHS = ("seq_length", "encoder_seq_length", "decoder_seq_length")


def validate_plans(rows_file: Path, progress: Progress, price: PriceFile) -> ValidationReport:
    """Predict every run of a file of plans, by one set of rules; a row whose files are not its own
    is skipped with its reason.

    Plans on databases of ``phaze profile`` are our own, which ``price`` prices.

    Raises: InputError: the table cannot be read, or no row of it: a file is missing, damaged, or of
        another model, size or format.
    """
    from third_party.aceso.corrections import load_corrections

    rows = read_plan_rows(rows_file)
    results, of_aceso = [], 0
    with progress.phase("measured runs", len(rows)) as advance:
        for row in rows:
            read = row if isinstance(row, RefusedRow) else _run_of(row, price)
            results.append(skipped(read) if isinstance(read, RefusedRow) else read.result())
            of_aceso += isinstance(read, _Run)
            advance(1)
    refuse_where_none_is_read(
        [RefusedRow(each.line, "", "", each.reason) if each.skipped else each for each in results]
    )
    overall, sources = statistics_of(results)
    rules = tuple(
        UsedRule(each.name, each.says, each.reason, of_aceso)
        for each in load_corrections().mechanisms
        if of_aceso
    )
    return ValidationReport(str(rows_file), overall, sources, tuple(results), rules)


def _run_of(row: PlanRow, price: PriceFile) -> OwnRun | _Run | RefusedRow:
    """The run of a row with the files that it names, or why these are not its own."""
    try:
        return OwnRun(row, price) if profile_folder(row.database) else _Run(row)
    except InputError as error:
        return RefusedRow(row.line, row.source, row.model, str(error))


class _Run:
    """One row with its plan and database, which are of one model."""

    def __init__(self, row: PlanRow) -> None:
        from third_party.aceso.database import read_database
        from third_party.aceso.evaluation import evaluate
        from third_party.aceso.plans import read_plan

        self._row = row
        self._plan = read_plan(row.plan)
        self._check()
        try:
            self._database = read_database(row.database, self._plan.model)
            evaluate(self._plan, self._database, row.devices_per_node)
        except InputError as error:
            raise InputError(f"{row.where}: {error}") from error

    def _check(self) -> None:
        from third_party.aceso.corrections import load_corrections

        row, plan = self._row, self._plan
        family, size = plan.model.family.name, plan.model.size
        for name, given, actual in (
            ("model", row.model, (family, size, f"{family}_{size}")),
            ("size", row.size, (size,)),
            ("dtype", row.dtype, (load_corrections().families[family].format,)),
        ):
            if given and _plain(given) not in [_plain(each) for each in actual]:
                raise InputError(
                    f"{row.where}, column {name} is {given!r:.60}, but {row.plan.name} is of "
                    f"{family} {size} in "
                    f"{load_corrections().families[family].format}; give the plan and database of "
                    "one model and number format"
                )
        check_stated(
            row,
            {
                "gpus": {plan.devices},
                "global_batch": {plan.global_batch},
                "micro_batch": {plan.micro_batch},
                "stages": {len(plan.stages)},
                "seq": _sequence_lengths(row, plan.model.facts),
            },
        )

    def result(self) -> RunResult:
        """The prediction beside what was measured."""
        from third_party.aceso.corrected import corrected
        from third_party.aceso.corrections import load_corrections

        row, plan = self._row, self._plan
        priced = corrected(plan, self._database, row.devices_per_node)
        memory = None
        if row.memory_kind is not None:
            first = (
                row.devices_per_node if row.memory_kind is MemoryKind.ALLOCATED_FIRST_NODE else None
            )
            memory = (
                priced.reserved_mib()
                if row.memory_kind is MemoryKind.RESERVED
                else priced.allocated_mib(first)
            )
        return result_of(
            row,
            model=f"{plan.model.family.name} {plan.model.size}",
            devices=plan.devices,
            predicted_s=priced.iteration_s,
            predicted_memory_bytes=None if memory is None else memory * MIB,
            breakdown_s=priced.breakdown(),
            assumptions=tuple(Assumption(each.name, "") for each in load_corrections().mechanisms),
        )


def _sequence_lengths(row: PlanRow, usual: Mapping[str, Any]) -> set[int]:
    """Tokens of a sequence as the plan's own file says; where it does not, as models of its size
    usually have."""
    document = read_json(row.plan, "a plan that Aceso wrote")
    for stated in (document, usual):
        found = {stated[key] for key in SEQUENCE_LENGTHS if isinstance(stated.get(key), int)}
        if found:
            return found
    return set()


def _plain(text: str) -> str:
    return text.lower().replace(".", "_").replace(" ", "_").replace("-", "_")


def check_alone(given: Sequence[tuple[str, str | None]]) -> None:
    """Refuse what is given for a table of plans, which names its hardware and is typed.

    Raises:
        InputError: there is any.
    """
    for flag, value in given:
        if value is not None:
            raise InputError(
                f"--{flag} {value!r:.60} is given for runs whose devices are profiled databases; "
                "leave it out"
            )
