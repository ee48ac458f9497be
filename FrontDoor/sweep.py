"""``phaze sweep``: a study for every combination of the values it lists."""

from __future__ import annotations

from Common.errors import PhazeError
from FrontDoor.arguments import Command


def sweep(command: Command) -> int:
    """Not there yet."""
    raise PhazeError(f"{command.mode} is not there yet")
