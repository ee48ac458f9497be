"""Arguments -> one call per mode."""

import gc
import sys
from collections.abc import Sequence

from phaze.cli.arguments import parse
from phaze.cli.exit_status import INTERRUPTED, guarded
from phaze.cli.modes import MODES
from phaze_common.errors import PhazeError
from phaze_common.logs import configure_logs

# objects made before unreachable ones are looked for: imports make many that stay
OBJECTS = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status."""
    if arguments is None:
        gc.set_threshold(OBJECTS)
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        return guarded(
            lambda: _run(words),
            verbose=not {"--verbose", "-v"}.isdisjoint(words),
            whole_process=arguments is None,
        )
    except KeyboardInterrupt:  # before or after the handler of interruptions
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    command = parse(words)
    configure_logs(verbose=command.verbose, quiet=command.quiet)
    try:
        return MODES[command.mode].run(command)
    except SystemExit as stop:  # of code that was run: no mode ends like this
        raise PhazeError(
            f"code that was run ended the process with {stop.code!r}; it must not call exit"
        ) from stop
