"""docs/reference/cli.md: every mode with its flags, as the parser of the command line has them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from scripts.reference.markdown import plain, table

HEAD = """# Command line

    phaze MODE [FLAG ...]
    python3 phaze.py --phaze_exec_type MODE [FLAG ...]      # the same, in the original's way

Without a mode, `run_solver` runs. Flags are written in full; one that is given again replaces the earlier one, unless it
says that it may be repeated. Results go to standard output, everything else to standard error. `phaze MODE --help` prints
what this page has, which `scripts/reference_pages.py cli` writes from the same parser; the keys of the settings in YAML
files are on [their page](yaml.md).

In the tables, `...` takes one value or more, `[UNIT]` a unit behind the number (`--hbm-size 80 GB`).

## Exit statuses

{statuses}
## Modes

{modes}"""
STATUSES = {
    "DONE": "done; also where the reader of standard output stopped reading",
    "FAILED": "failure: a full disk, too little memory, a point of a sweep or a check that "
    "failed, an error of ours",
    "INPUT": "wrong input: one sentence on standard error says what was given, what is allowed "
    "and what to do",
    "NOTHING_FEASIBLE": "nothing feasible: no plan that was searched fits in memory (`evaluate`: "
    "this plan does not)",
    "INTERRUPTED": "interrupted (Ctrl-C); the same command goes on where it was",
    "TERMINATED": "terminated; the same command goes on where it was",
}


def page() -> str:
    """The page."""
    from phaze.cli.arguments import mode_parsers
    from phaze.cli.modes import MODES

    parsers = mode_parsers()
    groups = [(mode.group, f"[`{name}`](#{name})", mode.purpose) for name, mode in MODES.items()]
    parts = [HEAD.format(statuses=_statuses(), modes=table(("to", "mode", "purpose"), groups))]
    earlier: dict[str, str] = {}
    parts += [_mode(name, mode.purpose, parsers[name], earlier) for name, mode in MODES.items()]
    return "".join(parts)


def exit_statuses() -> Mapping[str, int]:
    """Every status that a command may end with, by its name in the code."""
    from phaze.cli import exit_status
    from phaze_common.errors import InputError

    statuses = {
        name: value
        for name, value in vars(exit_status).items()
        if name.isupper() and isinstance(value, int)
    }
    return {**statuses, "INPUT": InputError.exit_status}


def _statuses() -> str:
    found = sorted(exit_statuses().items(), key=lambda each: each[1])
    return table(("status", "meaning"), ((f"{status}", STATUSES[name]) for name, status in found))


def _mode(mode: str, purpose: str, parser: argparse.ArgumentParser, earlier: dict[str, str]) -> str:
    """The section of a mode; ``earlier`` has the tables of modes before it and their modes, to which
    equal ones lead."""
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    parts = [
        f"\n## {mode}\n\n{purpose[0].upper()}{purpose[1:]}.\n\n",
        "".join(f"    {each.strip()}\n" for each in usage.split("\n")),
    ]
    repeated: dict[str, list[str]] = {}
    for group in sorted(parser._action_groups, key=lambda each: each.title == "options"):
        actions = [
            each
            for each in group._group_actions
            if each.help != argparse.SUPPRESS and each.dest != "help"
        ]
        if actions:
            title = {"options": "other flags", "positional arguments": "arguments"}.get(
                str(group.title), str(group.title)
            )
            rows = table(("flag", "takes", "default", "meaning"), map(_flag, actions))
            first = earlier.setdefault(rows, mode)
            if first == mode:
                parts.append(f"\n**{title}**\n\n{rows}")
            else:
                repeated.setdefault(first, []).append(title)
    parts += [
        f"\n**{', '.join(titles)}**: as of [{first}](#{first})\n"
        for first, titles in repeated.items()
    ]
    return "".join(parts)


def _flag(action: argparse.Action) -> tuple[str, str, str, str]:
    names = (
        ", ".join(f"`{each}`" for each in action.option_strings)
        or f"`{action.metavar or action.dest}`"
    )
    meaning, default = default_of(plain(action.help or ""))
    return names, _taken(action), default or _plain_default(action), meaning


def default_of(text: str) -> tuple[str, str]:
    """A help text without its default, and that default as the text words it; empty where it names
    none."""
    begin, mark, rest = text.partition(" (default")
    if not mark:
        return text, ""
    depth = 1
    for place, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return begin + rest[place + 1 :], rest[:place].lstrip(" :")
    raise ValueError(f"no end of the default in {text!r}")


def _taken(action: argparse.Action) -> str:
    if action.option_strings and action.nargs == 0:
        return ""
    if action.choices:
        values = "|".join(map(str, action.choices))
    else:
        values = str(action.metavar or action.dest.upper())
    several = action.nargs in ("+", "*") and not getattr(action, "single", False)
    return f"`{values}`" + (" ..." if several else "")


def _plain_default(action: argparse.Action) -> str:
    value = action.default
    if action.required:
        return "required"
    if not action.option_strings:
        return "none" if action.nargs in ("?", "*") else "required"
    if action.nargs == 0:
        return "off"
    return "" if value in (None, argparse.SUPPRESS) or value == [] else f"{_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return " ".join(map(str, value))
    return str(value)
