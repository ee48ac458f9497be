"""``phaze robust``: whether the best design of a run survives what is not known exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze.cli import mode
from phaze.cli.exit_status import DONE, Stopped
from phaze.cli.printing import print_shown
from phaze_common.errors import InputError
from phaze_common.files import user_path

if TYPE_CHECKING:
    from phaze.runs.finished_run import FinishedRun
    from phaze.runs.robustness import Robustness

MOST_SAMPLES, MOST_CONTENDERS = 100_000, 1000


@dataclass(frozen=True, kw_only=True)
class Robust(mode.Command):
    """Tell whether the best design of a run survives what is not known exactly, and which constant
    decides."""

    run_folder: str = mode.run_word()
    samples: int = mode.flag(500, "samples of the constants (default 500)")
    contenders: int = mode.flag(
        24,
        "other designs evaluated under every sample from the start, those nearest to the best in "
        "the run (default 24)",
    )
    seed: int = mode.flag(0, "of the samples, which repeat by it (default 0)")
    workers: int | None = mode.flag(None, "processes (default: one per core)")
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: Robust) -> int:
    """Sample the constants of a search, price its candidates anew and print the regret."""
    for flag, count, most in (
        ("samples", command.samples, MOST_SAMPLES),
        ("contenders", command.contenders, MOST_CONTENDERS),
    ):
        if not 1 <= count <= most:
            raise InputError(f"--{flag} is {count}; it must be a whole number from 1 to {most:,}")
    if command.workers is not None and command.workers < 1:
        raise InputError(
            f"--workers {command.workers} is not possible; give a positive whole number"
        )
    from phaze import library
    from phaze.report.tables.robust_tables import print_robustness
    from phaze.runs.robustness import keep_robustness
    from phaze_common.records import to_json

    run = library.open_run(user_path(command.run_folder), command.run_code)
    try:
        answer = _answer(run, command)
    except KeyboardInterrupt as stop:
        raise Stopped(
            "the run stays as it is; the same command samples its constants from the start"
        ) from stop
    keep_robustness(run.folder, answer)
    as_json = json.dumps(json.loads(to_json(answer)), indent=2)
    print_shown(as_json, print_robustness, answer, command)
    return DONE


def _answer(run: FinishedRun, command: Robust) -> Robustness:
    import joblib

    from phaze.studies.robust.robustness import robustness

    return robustness(
        run,
        samples=command.samples,
        contenders=command.contenders,
        seed=command.seed,
        workers=command.workers or int(joblib.cpu_count()),
        progress=command.progress,
    )


MODE = mode.Mode("robust", mode.FINISHED_RUNS, Robust, run)
