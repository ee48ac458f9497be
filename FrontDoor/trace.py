"""``phaze trace``: the schedules of a run as a timeline."""

from __future__ import annotations

from Common.errors import PhazeError
from FrontDoor.arguments import Command


def trace(command: Command) -> int:
    """Not there yet."""
    raise PhazeError(f"{command.mode} is not there yet")
