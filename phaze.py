"""Front door: arguments -> one call per execution mode."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from Common.logs import configure_logs
from FrontDoor import modes
from FrontDoor.arguments import parse
from FrontDoor.exits import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _run(words), verbose=not {"--verbose", "-v"}.isdisjoint(words))


def _run(words: Sequence[str]) -> int:
    command = parse(words)
    configure_logs(verbose=command.verbose, quiet=command.quiet)
    return modes.RUNNERS[command.mode](command)


if __name__ == "__main__":
    sys.exit(main())
