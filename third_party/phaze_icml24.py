"""Solves the inputs of Phaze (msr-fiddle/phaze, ICML 2024) under the original's semantics.

    python -m third_party.phaze_icml24 place IN.json       # an input of its device placement,
    prints its output fields python -m third_party.phaze_icml24 schedule IN.json    # an operator
    graph with latencies, prints the least makespan

A file may hold one case or a list of cases; the answer goes to stdout as JSON, likewise one or a
list. Wrong input is refused with one sentence on stderr and exit status 2.
"""

import sys
from collections.abc import Sequence

from third_party.cases import answer_cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from third_party.phaze_icml24_placement import place_case
    from third_party.phaze_icml24_schedule import schedule_case

    commands = {"place": place_case, "schedule": schedule_case}
    return answer_cases(
        "third_party.phaze_icml24", (__doc__ or "").split("\n")[0], commands, arguments
    )


if __name__ == "__main__":
    sys.exit(main())
