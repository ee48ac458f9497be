"""``phaze compare``: traces of a run, one per rank, beside what was predicted of the plan."""

from __future__ import annotations

from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE
from FrontDoor.printing import print_answer


def compare(command: Command) -> int:
    """Print where an iteration goes, measured and predicted, and what to calibrate where they
    part."""
    from Common.errors import InputError
    from Common.files import user_path
    from Common.records import to_json
    from GraphExtractor.permission import files_to_run
    from Reporter.comparison_tables import comparison_tables
    from Studies.plan_files import evaluate_request
    from Studies.trace_comparison import compare_traces

    if command.iterations is not None and command.iterations < 1:
        raise InputError(f"--iterations is {command.iterations}; give a whole number from 1 on")
    request = evaluate_request(command.config, command.given, files_to_run(command.run_code))
    found = compare_traces([user_path(each) for each in command.runs], request, command.iterations)
    print_answer(to_json(found, indent=2).decode(), lambda: comparison_tables(found), command)
    return DONE
