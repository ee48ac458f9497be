"""``phaze report``: draws a finished run, or the difference of two, as one page."""

from __future__ import annotations

from Common.errors import PhazeError
from FrontDoor.arguments import Command


def report(command: Command) -> int:
    """Not there yet."""
    raise PhazeError(f"{command.mode} is not there yet")
