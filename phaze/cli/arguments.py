"""Parses the command line. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phaze.cli.help_text import HelpFormatter, all_modes
from phaze.cli.mode import Command
from phaze.cli.modes import DEFAULT_MODE, MODES
from phaze.cli.parser import Parser, mode_parser
from phaze.cli.study import StudyCommand
from phaze_common.errors import InputError
from phaze_common.refusals import Refusals
from phaze_common.suggestions import nearest
from phaze_common.version import VERSION


def parse(words: Sequence[str]) -> Command:
    """Parse a command line (without the program's name).

    Raises:
        InputError: anything that is not allowed there.
        SystemExit: after ``--help`` or ``--version``.
    """
    mode, *rest = _mode_first(list(words))
    parser = mode_parser(MODES[mode])
    options, unknown = parser.parse_known_args(rest)
    _refuse_unknown(unknown, mode, parser)
    if options.verbose and options.quiet:
        raise InputError("--verbose and --quiet contradict each other; give one of them")
    values: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in vars(options).items()
    }
    return MODES[mode].command(**{**values, "mode": mode})


def _mode_first(words: list[str]) -> list[str]:
    """The same command with its mode as first word, whether it came first, as ``--phaze_exec_type``
    or not at all.

    Raises:
        SystemExit: there is none, and help or the version is asked for.
    """
    finder = Parser(prog="phaze", add_help=False, allow_abbrev=False)
    finder.add_argument("--phaze_exec_type", "--exec-type", dest="mode")
    found, rest = finder.parse_known_args(words)
    word = rest[0] if rest and not rest[0].startswith("-") else None
    # beside the flag, another word is an argument of the mode
    typed = word if found.mode is None or word in MODES else None
    mode = found.mode or typed
    if mode is None:
        if not rest or rest[0] in {"-h", "--help", "--version"}:
            _all_modes_parser().parse_args(rest or ["--help"])
        return [DEFAULT_MODE, *rest]
    if mode not in MODES:
        raise InputError(
            f"unknown mode {mode!r}; {nearest(mode, MODES, 'the modes are ' + ', '.join(MODES))}"
        )
    if typed is not None and typed != mode:
        raise InputError(f"two modes were given, {typed!r} and {mode!r}; give one")
    return rest if typed else [mode, *rest]


def mode_parsers() -> dict[str, Parser]:
    """The part of the command line that belongs to each mode, by mode."""
    return {name: mode_parser(mode) for name, mode in MODES.items()}


def _all_modes_parser() -> Parser:
    parser = Parser(
        prog="phaze",
        usage="phaze MODE [FLAG ...]",
        description="Which accelerator should I build for this model,\nand how should I train on "
        "a cluster of it?",
        epilog=all_modes(MODES.values()),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"phaze {VERSION}")
    return parser


def _refuse_unknown(words: Sequence[str], mode: str, parser: Parser) -> None:
    """Refuse what the parser did not know: all unknown flags, or the first of the other words."""
    refusals = Refusals()
    for word in [word for word in words if word.startswith("-")] or words[:1]:
        refusals.add(InputError(_unknown(word, mode, parser)))
    refusals.raise_any()


def _unknown(word: str, mode: str, parser: Parser) -> str:
    listed = f"'phaze {mode} --help' lists what is allowed"
    if word.startswith("-"):
        flag = word.partition("=")[0]
        others = [name for name, other in mode_parsers().items() if flag in other.flags]
        if others:
            remedy = f"it is one of {', '.join(others)}, and {listed}"
        else:
            remedy = nearest(flag, parser.flags, listed)
        return f"unknown flag {flag!r} of {mode}; {remedy}"
    if word in MODES:
        return f"the mode {word!r} comes after other words; put it first: phaze {word} ..."
    study = issubclass(MODES[mode].command, StudyCommand)
    return f"unexpected argument {word!r}; " + (
        f"name models with --model {word}" if study else listed
    )
