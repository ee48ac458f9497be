"""The command line: plans and questions of Aceso, answers as JSON to standard output."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phaze_common.echo import say
from phaze_common.errors import InputError
from phaze_common.files import user_path
from third_party.cases import count_up_to, run_bridge

from .database import Database, read_database
from .evaluation import DEVICES_PER_NODE, evaluate
from .models import find_model
from .plans import Plan, read_plan
from .questions import MOST_STAGES, TIME_LIMIT_S, Question

PROGRAM = "python -m third_party.aceso"
ABOUT = "Training plans whose stages differ, under Aceso's cost model and its profiled operators."
MOST = 2**31


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_bridge(_parser(), _lines, arguments)


def _lines(given: argparse.Namespace) -> list[str]:
    return _compared(given) if given.command == "compare" else [json.dumps(_answer(given))]


def _answer(given: argparse.Namespace) -> dict[str, Any]:
    if given.command == "evaluate":
        plan = read_plan(given.plan)
        database = read_database(given.database, plan.model)
        priced = evaluate(plan, database, given.gpus_per_node).document()
        if given.corrected:
            return priced | _corrections(plan, database, given.gpus_per_node)
        return priced
    question = _question(given)
    if given.command == "search":
        from .search import search

        return search(question).document()
    from .baselines import baselines

    return {name: each.document() for name, each in baselines(question).items()}


def _compared(given: argparse.Namespace) -> list[str]:
    from .compared_cases import read_cases
    from .comparison import Limits, compare, markdown, rankings

    plans = given.plans or given.database.parent / "plans"  # where Aceso's data lie so
    if given.plans is not None and not given.plans.is_dir():
        raise InputError(
            f"--plans {given.plans} is no folder; give one of Aceso's plan files, or leave it out"
        )
    limits = Limits(given.time_limit, given.gap)
    cases = read_cases(given.cases)
    answers = compare(
        cases, given.database, user_path(given.output), limits, plans if plans.is_dir() else None
    )
    return [*markdown(answers), "", *rankings(answers)]


def _corrections(plan: Plan, database: Database, devices_per_node: int) -> dict[str, Any]:
    from .corrected import changes, corrected

    return {
        "corrected": corrected(plan, database, devices_per_node).document(),
        "changes": [asdict(each) for each in changes(plan, database, devices_per_node)],
    }


def _question(given: argparse.Namespace) -> Question:
    model = find_model(given.model, given.size, given.layers)
    database = read_database(given.database, model)
    if database.unmeasured:
        nothing = f"nothing measured with {'; '.join(database.unmeasured)}: no plan here uses that"
        say(sys.stderr, [f"warning: {given.database} has {nothing}"])
    return Question(
        database,
        given.gpus,
        given.global_batch_size,
        given.memory_limit_mb,
        devices_per_node=given.gpus_per_node,
        most_stages=given.max_stages,
        time_limit_s=given.time_limit,
        gap=given.gap,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    price = commands.add_parser("evaluate", help="price a plan as Aceso's cost model does")
    price.add_argument("plan", type=Path, metavar="PLAN.json")
    more = "also with what the cost model leaves out, and what each correction adds"
    price.add_argument("--corrected", action="store_true", help=more)
    find = commands.add_parser("search", help="find the fastest plan, with a bound on all plans")
    simpler = "find the plans of Megatron-LM's grid, uniform ones, and of stages cut at layers"
    simple = commands.add_parser("baselines", help=simpler)
    methods = "all methods on the cases of a file: seconds, bounds and what the search cost"
    side = commands.add_parser("compare", help=methods)
    studies = "such as those of scripts/studies/aceso"
    side.add_argument("cases", type=Path, metavar="CASES.yaml", help=studies)
    kept = "of the tables; answers that are there are kept"
    side.add_argument("--output", required=True, metavar="FOLDER", help=kept)
    stored = "of stored plans, default plans beside the database"
    side.add_argument("--plans", type=Path, metavar="FOLDER", help=stored)
    count = count_up_to(MOST)
    for command in (find, simple):
        add = command.add_argument
        add("--model", required=True, metavar="NAME", help="gpt, t5 or resnet")
        names = "as in the names of the files: 1_3B, scale-layer"
        add("--size", required=True, metavar="SIZE", help=names)
        layers = "of a size that has any number, or another than its own"
        add("--layers", type=count, metavar="N", help=layers)
        add("--gpus", type=count, required=True, metavar="N")
        add("--global-batch-size", type=count, required=True, metavar="N")
        add("--memory-limit-mb", type=_positive, required=True, metavar="MB", help="of one GPU")
        most = f"default {MOST_STAGES}"
        add("--max-stages", type=count, default=MOST_STAGES, metavar="N", help=most)
    for command in (find, simple, side):
        add = command.add_argument
        seconds = f"seconds to search, default {TIME_LIMIT_S:g}"
        add("--time-limit", type=_positive, default=TIME_LIMIT_S, metavar="S", help=seconds)
        gap = "relative, that is good enough; default 0"
        add("--gap", type=_fraction, default=0.0, metavar="X", help=gap)
    profiled = "of profiled operators"
    for command in (price, find, simple, side):
        command.add_argument(
            "--database", type=Path, required=True, metavar="FOLDER", help=profiled
        )
    for command in (price, find, simple):
        add, node = command.add_argument, f"default {DEVICES_PER_NODE}"
        add("--gpus-per-node", type=count, default=DEVICES_PER_NODE, metavar="N", help=node)
    return parser


def _positive(text: str) -> float:
    return _number(text, lambda value: 0.0 < value <= MOST, f"above 0 and up to {MOST}")


def _fraction(text: str) -> float:
    return _number(text, lambda value: 0.0 <= value < 1.0, "from 0 to below 1")


def _number(text: str, is_allowed: Callable[[float], bool], allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not is_allowed(value):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number {allowed}")
    return value
