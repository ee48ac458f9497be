"""Names of layers in a few words."""

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"(.*?)(\d+)")


def layer_range(layers: Sequence[str]) -> str:
    """Names of layers, runs of numbered ones shortened: ``embedding, block.0 to block.2``."""
    runs: list[list[str]] = []
    for name in layers:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _follows(before: str, after: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    return bool(first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1)
