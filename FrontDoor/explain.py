"""``phaze explain``: why the best design of a run is the best."""

from __future__ import annotations

from Common.errors import PhazeError
from FrontDoor.arguments import Command


def explain(command: Command) -> int:
    """Not there yet."""
    raise PhazeError(f"{command.mode} is not there yet")
