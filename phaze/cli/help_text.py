"""How help is laid out: flags by their names with what they take once, settings in groups, modes in
groups, 80 columns."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence

COLUMNS = 80
NAME_COLUMNS = 24

MODE_GROUPS: Mapping[str, Sequence[str]] = {
    "search and price": (
        "run_solver",
        "evaluate",
        "training-time",
        "sweep",
        "extract_graph",
        "prepopulate_estimates",
    ),
    "look at a finished run": ("report", "serve", "explain", "robust", "trace"),
    "check and fit": ("profile", "validate", "compare", "calibrate", "accelerators"),
    "run for real": ("export", "train"),
    "find your way": ("list", "models", "doctor", "completion"),
}
TRAINING_GROUPS: Mapping[str, Sequence[str]] = {
    "the whole training": ("tokens", "samples", "best", "batch_size_warmup"),
    "energy and money": ("price_per_device_hour", "device_power", "pue", "grid_intensity"),
    "failures and checkpoints": (
        "device_mtbf_hours",
        "checkpoint_bandwidth",
        "checkpoint_interval",
        "restart_time",
    ),
}

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

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(
            " ".join(text.split()), width, break_on_hyphens=False
        )  # names can be searched for

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        name = action.metavar if isinstance(action.metavar, str) else default_metavar
        if action.nargs != "+":
            return super()._format_args(action, default_metavar)
        return (
            name if getattr(action, "single", False) else f"{name} ..."
        )  # a number and its unit are two words


def all_modes(purposes: Mapping[str, str]) -> str:
    """The modes in their groups, and examples."""
    lines = []
    for title, modes in MODE_GROUPS.items():
        lines.append(f"{title}:")
        for mode in modes:
            begin = f"  {mode}".ljust(NAME_COLUMNS)
            indent = " " * NAME_COLUMNS
            lines += textwrap.wrap(
                purposes[mode], COLUMNS - 1, initial_indent=begin, subsequent_indent=indent
            )
        lines.append("")
    return "\n".join([*lines, _EXAMPLES])


def usage_of(mode: str) -> str | None:
    """A short usage of modes with dozens of flags."""
    if mode == "evaluate":
        files = (
            "phaze evaluate --plan FILE [FLAG ...]\n       phaze evaluate --from FILE [FLAG ...]"
        )
        return f"phaze evaluate --model NAME --device NAME [FLAG ...]\n       {files}"
    if mode == "export":
        return "phaze export RUN|PLAN --to NAME [--output FOLDER] [FLAG ...]"
    if mode == "compare":
        return (
            "phaze compare TRACE ... --plan FILE [FLAG ...]\n       phaze compare TRACE ... "
            "--model NAME --device NAME [FLAG ...]"
        )
    if mode == "training-time":
        given = "--model NAME --device NAME --tokens N"
        return (
            f"phaze {mode} {given} [FLAG ...]\n       phaze {mode} --plan FILE --tokens N "
            "[FLAG ...]"
        )
    studies = ("run_solver", "extract_graph", "prepopulate_estimates")
    return (
        f"phaze {mode} --model NAME ... [FLAG ...]\n       phaze {mode} --config FILE [FLAG ...]"
        if mode in studies
        else None
    )
