"""Solves the inputs of Phaze (msr-fiddle/phaze, ICML 2024) under the original's semantics.

    # an input of its device placement, prints its output fields
    python -m third_party.phaze_icml24 place IN.json
    # an operator graph with latencies, prints the least makespan
    python -m third_party.phaze_icml24 schedule IN.json

A file may hold one case or a list of cases; the answer goes to stdout as JSON, likewise one or a
list. Wrong input is refused with one sentence on stderr and exit status 2.
"""

from collections.abc import Sequence

from third_party.cases import answer_cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from .placement import place_case
    from .schedule import schedule_case

    about = (__doc__ or "").split("\n")[0]
    commands = {"place": place_case, "schedule": schedule_case}
    return answer_cases("third_party.phaze_icml24", about, commands, arguments)
