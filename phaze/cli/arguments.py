"""Parses the command line. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phaze.cli.flags import add_modes
from phaze.cli.help_text import HelpFormatter, all_modes
from phaze.cli.names import MODES, STUDY_MODES
from phaze.cli.parser import Parser
from phaze_common.errors import InputError
from phaze_common.refusals import Refusals
from phaze_common.suggestions import nearest

DEFAULT_MODE = "run_solver"


@dataclass(frozen=True)
class Command:
    """A parsed command line. ``given`` holds settings as typed, under their keys or as ``--set``
    names them.

    ``config`` is a file of such settings, ``run_code`` are the Python files that may be run though
    only a file names them. ``ignore`` are keys of a launch file that is priced without them.
    ``runs`` are files of measured runs (validate) or folders of runs (report, serve, explain,
    trace). ``figures`` to ``beside``, ``host`` and ``port``, ``instead``, ``study`` to ``parts``,
    ``plot`` to ``explain``, ``tables`` to ``runs_file`` and ``names`` are of report, serve,
    explain, sweep, validate, calibrate and models, ``dtype`` to ``cap`` of profile, ``steps`` to
    ``resume`` and ``dtype`` of train; with ``force`` a mode may replace files that phaze did not
    write.
    """

    mode: str
    given: dict[str, object] = field(default_factory=dict)
    config: Path | None = None
    output: str | None = None
    output_format: str = "table"
    dry_run: bool = False
    runs: tuple[str, ...] = ()
    plot: str | None = None
    typed: str | None = None
    explain: bool = False
    figures: str | None = None
    points: str | None = None
    beside: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    instead: tuple[str, ...] = ()
    study: str | None = None
    executor: str = "joblib"
    address: str | None = None
    workers: int | None = None
    parts: int | None = None
    csv: bool = False
    tables: tuple[str, ...] = ()
    runs_file: str | None = None
    names: tuple[str, ...] = ()
    run_code: tuple[str, ...] = ()
    force: bool = False
    dtype: str | None = None
    device_kind: str = "cpu"
    threads: int = 1
    processes: tuple[int, ...] = ()
    no_passes: bool = False
    noise: float = 0.2
    cap: float = 1.0
    steps: int = 20
    data: str = "synthetic"
    seed: int = 0
    what_if: tuple[str, ...] = ()
    to: str | None = None
    launcher: str | None = None
    ignore: tuple[str, ...] = ()
    job: str | None = None
    iterations: int | None = None
    nearest: bool = False
    samples: int = 500
    contenders: int = 24
    most_processes: int = 16
    check: bool = False
    checkpoint_every: int = 0
    resume: Path | None = None
    wide: bool = False
    verbose: bool = False
    quiet: bool = False


def parse(words: Sequence[str]) -> Command:
    """Parse a command line (without the program's name).

    Raises:
        InputError: anything that is not allowed there.
        SystemExit: after ``--help`` or ``--version``.
    """
    parser, modes = _parsers()
    if not words:
        parser.print_help()
        parser.exit()
    options, unknown = parser.parse_known_args(_mode_first(list(words)))
    _refuse_unknown(unknown, options.mode, modes)
    if options.verbose and options.quiet:
        raise InputError("--verbose and --quiet contradict each other; give one of them")
    read: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in vars(options).items()
    }
    return Command(**{name: each for name, each in read.items() if each is not None})


def _mode_first(words: list[str]) -> list[str]:
    """The same command with its mode as first word, whether it came first, as ``--phaze_exec_type``
    or not at all."""
    finder = Parser(prog="phaze", add_help=False, allow_abbrev=False)
    finder.add_argument("--phaze_exec_type", "--exec-type", dest="mode")
    found, rest = finder.parse_known_args(words)
    word = rest[0] if rest and not rest[0].startswith("-") else None
    typed = (
        word if found.mode is None or word in MODES else None
    )  # beside the flag, another word is an argument of the mode
    mode = found.mode or typed
    if mode is None:
        return rest if rest and rest[0] in {"-h", "--help", "--version"} else [DEFAULT_MODE, *rest]
    if mode not in MODES:
        raise InputError(
            f"unknown mode {mode!r}; {nearest(mode, MODES, 'the modes are ' + ', '.join(MODES))}"
        )
    if typed is not None and typed != mode:
        raise InputError(f"two modes were given, {typed!r} and {mode!r}; give one")
    return rest if typed else [mode, *rest]


def mode_parsers() -> dict[str, Parser]:
    """The part of the command line that belongs to each mode, by mode."""
    return _parsers()[1]


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    """The whole command line, and the part of it that belongs to each mode."""
    parser = Parser(
        prog="phaze",
        usage="phaze MODE [FLAG ...]",
        description="Which accelerator should I build for this model,\nand how should I train on "
        "a cluster of it?",
        epilog=all_modes(MODES),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"phaze {_version()}")
    return parser, add_modes(parser)


def _refuse_unknown(words: Sequence[str], mode: str, modes: dict[str, Parser]) -> None:
    """Refuse what the parser did not know: all unknown flags, or the first of the other words."""
    refusals = Refusals()
    for word in [word for word in words if word.startswith("-")] or words[:1]:
        refusals.add(InputError(_unknown(word, mode, modes)))
    refusals.raise_any()


def _unknown(word: str, mode: str, modes: dict[str, Parser]) -> str:
    listed = f"'phaze {mode} --help' lists what is allowed"
    if word.startswith("-"):
        flag = word.partition("=")[0]
        others = [each for each in modes if flag in modes[each].flags]
        remedy = (
            f"it is one of {', '.join(others)}, and {listed}"
            if others
            else nearest(flag, modes[mode].flags, listed)
        )
        return f"unknown flag {flag!r} of {mode}; {remedy}"
    if word in MODES:
        return f"the mode {word!r} comes after other words; put it first: phaze {word} ..."
    return f"unexpected argument {word!r}; " + (
        f"name models with --model {word}" if mode in STUDY_MODES else listed
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("phaze")
    except PackageNotFoundError:
        return "(not installed)"
