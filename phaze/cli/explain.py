"""``phaze explain``: why the best design of a run is the best."""

from __future__ import annotations

import json
import sys

from phaze.cli.arguments import Command
from phaze.cli.exit_status import DONE, NOTHING_FEASIBLE
from phaze_common.echo import say


def explain(command: Command) -> int:
    """Explain the answer of a run, and what alternatives would cost."""
    from phaze import library
    from phaze.report.tables.explain_tables import print_explanation
    from phaze_common.files import user_path
    from phaze_common.progress import progress_for
    from phaze_common.records import to_json

    run = library.open_run(user_path(command.runs[0]), command.run_code)
    progress = progress_for(sys.stderr, quiet=command.quiet)
    explanation = library.explain(run, command.instead, progress, command.what_if)
    if command.output_format == "json":
        say(sys.stdout, json.dumps(json.loads(to_json(explanation)), indent=2).splitlines())
    else:
        print_explanation(explanation, sys.stdout, wide=command.wide)
    asked = explanation.alternatives
    return NOTHING_FEASIBLE if asked and all(each.slower is None for each in asked) else DONE
