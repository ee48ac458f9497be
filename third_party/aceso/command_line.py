"""The command line: plans and questions of Aceso, answers as JSON to standard output."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from Common.echo import say
from Common.errors import PhazeError
from third_party.aceso.database import read_database
from third_party.aceso.evaluation import DEVICES_PER_NODE, evaluate
from third_party.aceso.plans import read_plan

PROGRAM = "python -m third_party.aceso"
ABOUT = "Training plans whose stages differ, under Aceso's cost model and its profiled operators."
MOST = 2**31


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        say(sys.stdout, [json.dumps(_answer(given))])
        sys.stdout.flush()
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    except BrokenPipeError:  # the reader of our output has seen enough
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0


def _answer(given: argparse.Namespace) -> dict[str, Any]:
    plan = read_plan(given.plan)
    return evaluate(plan, read_database(given.database, plan.model), given.gpus_per_node).document()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    price = commands.add_parser("evaluate", help="price a plan as Aceso's cost model does")
    price.add_argument("plan", type=Path, metavar="PLAN.json")
    for command in (price,):
        command.add_argument("--database", type=Path, required=True, metavar="FOLDER", help="of profiled operators")
        command.add_argument(
            "--gpus-per-node", type=_count, default=DEVICES_PER_NODE, metavar="N", help=f"default {DEVICES_PER_NODE}"
        )
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1 to {MOST}")
    return int(text)
