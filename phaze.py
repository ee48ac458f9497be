"""Front door: arguments -> one call per execution mode."""

try:
    import importlib.util
    import os
    import sys
    from collections.abc import Sequence
    from pathlib import Path

    from Common.compiled_code import find_place
    from Common.errors import PhazeError
    from Common.logs import configure_logs
    from FrontDoor import modes
    from FrontDoor.arguments import parse
    from FrontDoor.exit_status import INTERRUPTED, guarded
except ImportError as error:  # all of these are ours and need nothing of others
    raise SystemExit(
        f"phaze: another package of the same name hides one of phaze's ({error}); start phaze in "
        "another folder, or install it "
        "in an environment of its own"
    ) from error
except KeyboardInterrupt as stop:
    raise SystemExit(
        130
    ) from stop  # as for every other interruption; what says so is not imported yet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status."""
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        return guarded(
            lambda: _run(words),
            verbose=not {"--verbose", "-v"}.isdisjoint(words),
            whole_process=arguments is None,
        )
    except KeyboardInterrupt:  # before or behind what tells of one
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    command = parse(words)
    configure_logs(verbose=command.verbose, quiet=command.quiet)
    find_place()  # before any mode loads what is compiled
    try:
        return modes.RUNNERS[command.mode](command)
    except SystemExit as stop:  # of code that was run: no mode ends like this
        raise PhazeError(
            f"code that was run ended the process with {stop.code!r}; it must not call exit"
        ) from stop


def _in_own_environment() -> None:
    """Go on in the environment ``setup.sh`` made, where this Python lacks the packages: ``python3
    phaze.py`` just works."""
    python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    lacking = importlib.util.find_spec("torch") is None
    if lacking and python.exists() and Path(sys.prefix).resolve() != python.parent.parent.resolve():
        os.execv(python, [str(python), *sys.argv])


if __name__ == "__main__":
    try:
        _in_own_environment()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(main())
