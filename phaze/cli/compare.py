"""``phaze compare``: traces of a run, one per rank, beside what was predicted of the plan."""

from __future__ import annotations

from phaze.cli.arguments import Command
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer


def compare(command: Command) -> int:
    """Print where an iteration goes, measured and predicted, and what to calibrate where they
    part."""
    from GraphExtractor.permission import files_to_run
    from phaze.report.tables.comparison_tables import comparison_tables
    from phaze.runs.plan_files import evaluate_request
    from phaze.studies.trace_comparison import compare_traces
    from phaze_common.errors import InputError
    from phaze_common.files import user_path
    from phaze_common.records import to_json

    if command.iterations is not None and command.iterations < 1:
        raise InputError(f"--iterations is {command.iterations}; give a whole number from 1 on")
    request = evaluate_request(command.config, command.given, files_to_run(command.run_code))
    found = compare_traces([user_path(each) for each in command.runs], request, command.iterations)
    print_answer(to_json(found, indent=2).decode(), lambda: comparison_tables(found), command)
    return DONE
