"""Declares the command line and parses it. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from Common.errors import InputError
from Solver.settings import MODEL, SETTINGS, Kind, Setting, nearest

STUDY_MODES = {
    "run_solver": "search the best accelerator and placement (default)",
    "extract_graph": "extract the training graphs of the models and stop",
    "prepopulate_estimates": "price all operators on all core configurations and stop",
}
OTHER_MODES = {
    "accelerators": "write the accelerators of a design space with their areas (the original's cores.json)",
    "doctor": "check that everything needed is installed and working",
}
MODES = STUDY_MODES | OTHER_MODES
DEFAULT_MODE = "run_solver"

_EPILOG = """examples:
  phaze run_solver --model bertlarge --micro-batch-size 1 2 4 --hbm-size 32 64 80
  python3 phaze.py --phaze_model bertlarge --phaze_exec_type run_solver --phaze_hbm_size 32    # the same command, original flags
  phaze run_solver --config study.yaml --set hbm_size=80
"phaze MODE --help" lists the flags of a mode."""

_STUDY_EPILOG = """Settings come from, weakest first: defaults, the --config file (the same names as the flags), the command line,
where a later flag or --set replaces an earlier one.
Exit status: 0 done, 2 wrong input, 3 nothing feasible, 1 failure, 130 interrupted."""


@dataclass(frozen=True)
class Command:
    """A parsed command line. ``given`` holds the settings of the study as typed, under their keys or as ``--set`` names them."""

    mode: str
    given: dict[str, object] = field(default_factory=dict)
    config: Path | None = None
    output: str | None = None
    output_format: str = "table"
    dry_run: bool = False
    verbose: bool = False
    quiet: bool = False


def parse(words: Sequence[str]) -> Command:
    """Parse a command line (without the program's name).

    Raises:
        InputError: anything that is not allowed there.
        SystemExit: after ``--help`` or ``--version``.
    """
    parser, modes = _parsers()
    options, unknown = parser.parse_known_args(_mode_first(list(words)))
    if unknown:
        raise InputError(_unknown(unknown[0], options.mode, modes[options.mode].flags))
    read = vars(options)
    return Command(
        mode=options.mode,
        given=read.get("given", {}),
        config=read.get("config"),
        output=read.get("output"),
        output_format=options.format,
        dry_run=read.get("dry_run", False),
        verbose=options.verbose,
        quiet=options.quiet,
    )


class _Parser(argparse.ArgumentParser):
    @property
    def flags(self) -> list[str]:
        return [flag for flag in self._option_string_actions if flag.startswith("--")]

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; '{self.prog} --help' lists what is allowed")


class _Give(argparse.Action):
    """Put the value of a setting among those given, replacing an earlier one: ``dest`` is the setting's key."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        _give(options, {self.dest: values})


class _Set(argparse.Action):
    """Put ``key=value`` among the settings given, the value read as YAML."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        from Common.records import parse_yaml
        from Solver.settings import canonical

        key, equals, text = values.partition("=")
        if not equals:
            raise InputError(f"--set {values!r} has no '='; write --set key=value, for instance --set hbm_size=80")
        _give(options, canonical({key.strip(): parse_yaml(text, f"the value in --set {values!r}")}, "--set"))


def _give(options: argparse.Namespace, given: dict[str, object]) -> None:
    from Solver.settings import override

    options.given = override(vars(options).get("given", {}), given)


def _mode_first(words: list[str]) -> list[str]:
    """The same command with its mode as first word, whether it came first, as ``--phaze_exec_type`` or not at all."""
    finder = _Parser(prog="phaze", add_help=False, allow_abbrev=False)
    finder.add_argument("--phaze_exec_type", "--exec-type", dest="mode")
    found, rest = finder.parse_known_args(words)
    typed = rest[0] if rest and not rest[0].startswith("-") else None
    mode = found.mode or typed
    if mode is None:
        return rest if rest and rest[0] in {"-h", "--help", "--version"} else [DEFAULT_MODE, *rest]
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}; {nearest(mode, MODES, 'the modes are ' + ', '.join(MODES))}")
    if typed is not None and typed != mode:
        raise InputError(f"two modes were given, {typed!r} and {mode!r}; give one")
    return rest if typed else [mode, *rest]


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """The whole command line, and the part of it that belongs to each mode."""
    parser = _Parser(
        prog="phaze",
        description="Which accelerator should I build for this model, and how should I train on a cluster of it?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"phaze {_version()}")
    subparsers = parser.add_subparsers(dest="mode", metavar="MODE", required=True)
    modes = {}
    for mode, purpose in MODES.items():
        epilog = _STUDY_EPILOG if mode in STUDY_MODES else None
        sub = modes[mode] = subparsers.add_parser(mode, help=purpose, description=purpose, epilog=epilog, allow_abbrev=False)
        if mode in STUDY_MODES:
            _add_study(sub)
        elif mode == "accelerators":
            _add_setting(sub, next(setting for setting in SETTINGS if setting.key == "design_space"))
            sub.add_argument(
                "--output", metavar="FILE", help="file to write (default Estimator/arch_configs/cores.json; - for stdout)"
            )
        else:
            sub.add_argument("--output", metavar="DIR", help="folder a run would write to")
        _add_common(sub)
    return parser, modes


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--phaze_exec_type", dest="mode", metavar="MODE", default=argparse.SUPPRESS, help="the mode, in the original's way"
    )
    group = parser.add_argument_group("study")
    for setting in SETTINGS:
        _add_setting(group, setting)
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings; keys are the flags with underscores")
    parser.add_argument("--set", action=_Set, metavar="KEY=VALUE", help="a setting by its key, value in YAML; may be repeated")
    parser.add_argument("--dry-run", action="store_true", help="print the size of the space and stop")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="form of the result on stdout (default table)"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="log more, and show where an unexpected error came from")
    parser.add_argument("--quiet", "-q", action="store_true", help="log warnings only, no progress")


def _add_setting(group: argparse._ActionsContainer, setting: Setting) -> None:
    metavar = "{" + ",".join(setting.choices) + "}" if setting.choices else _METAVARS[setting.kind]
    arity: dict[str, Any] = {"metavar": metavar}
    if setting.many:
        arity["nargs"] = "+"
    elif setting.kind is Kind.SWITCH:
        arity = {"nargs": "?", "const": True, "metavar": "true|false"}
    if setting is MODEL:
        arity["metavar"] = "NAME"
    group.add_argument(*setting.flags, dest=setting.key, action=_Give, default=argparse.SUPPRESS, help=setting.help, **arity)


_METAVARS = {Kind.INTEGER: "N", Kind.NUMBER: "X", Kind.TEXT: "TEXT", Kind.SWITCH: ""}


def _unknown(word: str, mode: str, flags: list[str]) -> str:
    listed = f"'phaze {mode} --help' lists what is allowed"
    if word.startswith("-"):
        flag = word.partition("=")[0]
        return f"unknown flag {flag!r} of {mode}; {nearest(flag, flags, listed)}"
    return f"unexpected argument {word!r}; " + (f"name models with --model {word}" if mode in STUDY_MODES else listed)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("phaze")
    except PackageNotFoundError:
        return "(not installed)"
