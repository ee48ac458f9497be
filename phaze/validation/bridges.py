"""The readers of other tools' runs: the one place that names a bridge of ``third_party``."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from phaze.validation.plan_rows import PlanRow
from phaze.validation.records import RunResult, UsedRule
from phaze_common.errors import InputError


class MeasuredPlan(Protocol):
    """A row of a table of plans whose files were read."""

    def result(self) -> RunResult:
        """The prediction and what was measured."""


class AcesoReader(Protocol):
    """What ``third_party.aceso.measured_runs`` has."""

    def AcesoRun(self, row: PlanRow) -> MeasuredPlan:  # noqa: N802 - a class there
        """The run of a row."""

    def rules(self, runs: int) -> tuple[UsedRule, ...]:
        """The rules that priced so many runs."""


def reader_of_aceso() -> AcesoReader:
    """The reader of Aceso's plans and databases.

    Raises:
        InputError: phaze was installed without its bridges.
    """
    try:
        reader: AcesoReader = import_module("third_party.aceso.measured_runs")
    except ModuleNotFoundError as error:
        raise InputError(
            "Aceso's plans and databases are read by third_party/aceso, which is not installed "
            "with phaze; run phaze.py from a checkout of its repository"
        ) from error
    return reader
