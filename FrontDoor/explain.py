"""``phaze explain``: why the best design of a run is the best."""

from __future__ import annotations

import json
import sys

from Common.echo import say
from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, NOTHING_FEASIBLE


def explain(command: Command) -> int:
    """Explain the answer of a run, and what alternatives would cost."""
    from Common.files import user_path
    from Common.progress import progress_for
    from Common.records import to_json
    from Reporter.explain_tables import print_explanation
    from Studies import library

    run = library.open_run(user_path(command.runs[0]), command.run_code)
    progress = progress_for(sys.stderr, quiet=command.quiet)
    explanation = library.explain(
        run, command.instead, progress, command.what_if, moldable=command.moldable
    )
    if command.output_format == "json":
        say(sys.stdout, json.dumps(json.loads(to_json(explanation)), indent=2).splitlines())
    else:
        print_explanation(explanation, sys.stdout, wide=command.wide)
    asked = explanation.alternatives
    return NOTHING_FEASIBLE if asked and all(each.slower is None for each in asked) else DONE
