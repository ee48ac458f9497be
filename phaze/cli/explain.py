"""``phaze explain``: why the best design of a run is the best."""

from __future__ import annotations

import json
from dataclasses import dataclass

from phaze.cli import mode
from phaze.cli.exit_status import DONE, NOTHING_FEASIBLE
from phaze.cli.printing import print_shown
from phaze_common.files import user_path


@dataclass(frozen=True, kw_only=True)
class Explain(mode.Command):
    """Tell why the best design of a run is the best: what limits it, and what an alternative would
    cost."""

    run_folder: str = mode.run_word()
    instead: tuple[str, ...] = mode.flag(
        (),
        "an alternative to compare with, such as num_tc=4,width=256 or pp=8: the best design that "
        "has these values; may be repeated",
        "KEY=VALUE,...",
    )
    what_if: tuple[str, ...] = mode.flag(
        (),
        "other circumstances, such as hbm_bandwidth=2x, network_latency=0, prices.electricity=3x "
        "or devices=256: what the design would reach then, and the best there would be; may be "
        "repeated",
        "KEY=VALUE,...",
    )
    limits: bool = mode.flag(
        False,
        "first search what limits the best chip and what other values of every axis allow, where "
        "the run does not state it, and keep it with the run",
    )
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: Explain) -> int:
    """Explain the answer of a run, and what alternatives would cost."""
    from phaze import library
    from phaze.report.tables.explain_tables import print_explanation
    from phaze_common.records import to_json

    run = library.open_run(user_path(command.run_folder), command.run_code)
    progress = command.progress
    explanation = library.explain(
        run, command.instead, progress, command.what_if, limits=command.limits
    )
    as_json = json.dumps(json.loads(to_json(explanation)), indent=2)
    print_shown(as_json, print_explanation, explanation, command)
    others = explanation.alternatives
    impossible = others and all(each.slower is None for each in others)
    return NOTHING_FEASIBLE if impossible else DONE


REMOVED = {
    "--moldable": "schedules on groups of cores gained less than 0.2 % of an iteration for every "
    "model measured (docs/explanation/schedule.md); leave it out"
}
MODE = mode.Mode("explain", mode.FINISHED_RUNS, Explain, run, removed=REMOVED)
