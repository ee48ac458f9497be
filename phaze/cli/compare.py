"""``phaze compare``: traces of a run, one per rank, beside what was predicted of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze_common.errors import InputError
from phaze_common.files import user_path


@dataclass(frozen=True, kw_only=True)
class Compare(mode.Command):
    """Tell where traces of a run and the prediction of its plan part, and what to calibrate."""

    settings: Mapping[str, object] = mode.setting_flags(mode.plan_settings)
    plan: Path | None = mode.plan_flag()
    traces: tuple[str, ...] = mode.word(
        mode.REQUIRED,
        "traces of one rank each: torch.profiler's (.json, .json.gz) or Chakra execution traces "
        "(.et)",
        "TRACE",
    )
    iterations: int | None = mode.flag(
        None, "iterations in a trace (default: those it marks, else 1)"
    )
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: Compare) -> int:
    """Print where an iteration goes, measured and predicted, and what to calibrate."""
    from phaze.report.tables.comparison_tables import comparison_tables
    from phaze.runs.plan_files import evaluate_request
    from phaze.studies.trace_comparison import compare_traces
    from phaze_common.records import to_json

    if command.iterations is not None and command.iterations < 1:
        raise InputError(f"--iterations is {command.iterations}; give a whole number from 1 on")
    request = evaluate_request(command.plan, command.settings, files_to_run(command.run_code))
    found = compare_traces(
        [user_path(each) for each in command.traces], request, command.iterations
    )
    print_answer(to_json(found, indent=2).decode(), lambda: comparison_tables(found), command)
    return DONE


MODE = mode.Mode(
    "compare",
    mode.CHECK_AND_FIT,
    Compare,
    run,
    ("TRACE ... --plan FILE [FLAG ...]", "TRACE ... --model NAME --device NAME [FLAG ...]"),
)
