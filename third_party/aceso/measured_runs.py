"""Measured runs of Aceso: its plans on its profiled databases, priced with every correction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phaze.validation.plan_results import check_stated, result_of
from phaze.validation.plan_rows import MemoryKind, PlanRow
from phaze.validation.records import Assumption, RunResult, UsedRule
from phaze_common.errors import InputError
from phaze_common.files import read_json
from phaze_common.units import MIB

from .corrected import corrected
from .corrections import load_corrections
from .database import read_database
from .evaluation import evaluate
from .plans import read_plan

SEQUENCE_LENGTHS = ("seq_length", "encoder_seq_length", "decoder_seq_length")


def rules(runs: int) -> tuple[UsedRule, ...]:
    """The corrections, as rules that priced so many ``runs``."""
    mechanisms = load_corrections().mechanisms
    return tuple(UsedRule(each.name, each.says, each.reason, runs) for each in mechanisms)


class AcesoRun:
    """One row with its plan and database, which are of one model."""

    def __init__(self, row: PlanRow) -> None:
        self._row = row
        self._plan = read_plan(row.plan)
        self._check()
        try:
            self._database = read_database(row.database, self._plan.model)
            evaluate(self._plan, self._database, row.devices_per_node)
        except InputError as error:
            raise InputError(f"{row.where}: {error}") from error

    def _check(self) -> None:
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
                    f"{family} {size} in {load_corrections().families[family].format}; give the "
                    "plan and database of one model and number format"
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
        """The prediction and what was measured."""
        row, plan = self._row, self._plan
        priced = corrected(plan, self._database, row.devices_per_node)
        memory = None
        if row.memory_kind is MemoryKind.RESERVED:
            memory = priced.reserved_mib()
        elif row.memory_kind is not None:
            first = row.memory_kind is MemoryKind.ALLOCATED_FIRST_NODE
            memory = priced.allocated_mib(row.devices_per_node if first else None)
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
