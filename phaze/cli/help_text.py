"""How help is laid out: flags by their names with what they take once, settings in groups, modes in
groups, 80 columns."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable

from phaze.cli.mode import GROUPS, Mode

COLUMNS = 80
NAME_COLUMNS = 24

_EXAMPLES = """examples:
  phaze run_solver --model bertlarge --micro-batch-size 1 2 4 --hbm-size 32 80
  phaze run_solver --model megatron-1.7b --device a100_80gb --devices 32
  phaze run_solver --config study.yaml --set hbm_size=80
  phaze evaluate --model megatrongpt3 --device a100_80gb --tp 8 --pp 8 --dp 2
  phaze training-time --model gpt3-175b --device h100 --devices 1024 \\
      --tokens 300e9 --global-batch-size 1536
  phaze list devices
  python3 phaze.py --phaze_model bertlarge --phaze_exec_type run_solver \\
      --phaze_hbm_size 32                   # the flags of the original

"phaze MODE --help" lists the flags of a mode."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Names of a flag with commas between them, and behind the last what it takes."""

    def __init__(self, prog: str, **others: object) -> None:
        super().__init__(prog, max_help_position=NAME_COLUMNS)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        taken = self._format_args(action, (action.dest or "").upper())
        return f"{', '.join(action.option_strings)} {taken}"

    def _split_lines(self, text: str, width: int) -> list[str]:  # so that names can be searched for
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        name = action.metavar if isinstance(action.metavar, str) else default_metavar
        if action.nargs != "+":
            return super()._format_args(action, default_metavar)
        single = getattr(action, "single", False)  # a number and its unit are two words
        return name if single else f"{name} ..."


def described(purpose: str) -> str:
    """The purpose of a mode above its flags."""
    return textwrap.fill(purpose, COLUMNS - 1)


def all_modes(modes: Iterable[Mode]) -> str:
    """The modes in their groups, and examples."""
    lines, every = [], tuple(modes)
    for group in GROUPS:
        lines.append(f"{group}:")
        for mode in every:
            if mode.group == group:
                begin = f"  {mode.name}".ljust(NAME_COLUMNS)
                lines += textwrap.wrap(
                    mode.purpose,
                    COLUMNS - 1,
                    initial_indent=begin,
                    subsequent_indent=" " * NAME_COLUMNS,
                )
        lines.append("")
    return "\n".join([*lines, _EXAMPLES])
