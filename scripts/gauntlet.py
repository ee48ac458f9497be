#!/usr/bin/env python3
"""Run the models that people bring through the tool, and compare what it counts with what torch
counts.

Usage: python scripts/gauntlet.py [NAME ...] [--output FILE.json] [--markdown FILE.md] [--seconds N]
A row per model: priced or refused, forward and backward FLOPs against torch.utils.flop_counter,
trainable parameters against the module's own, layers, seconds. Forward FLOPs may differ by 0.1 %,
parameters not at all. Exit status: 0 where every model is priced so, or refused as the list of
cases expects.
"""

import argparse
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:  # started as a program, its own folder is what Python looks in
    sys.path.insert(0, str(REPOSITORY))

from scripts.gauntlet_cases import MICRO_BATCH, Case, all_cases  # noqa: E402

TOLERANCE = 1e-3
INTRODUCTION = """# Models that people bring

Every row is a model as somebody might bring it: a configuration of transformers, small but with the traps of real ones,
or a module of one's own (`tests/GraphExtractor/gauntlet_models/`). FLOPs are compared with `torch.utils.flop_counter` on the
unchanged model with real tensors, attention and experts written out; parameters with the module's own, exactly.
Written by `scripts/gauntlet.py --markdown docs/models.md`.
"""
LIMIT_S = 120


@dataclass(frozen=True)
class Outcome:
    """What became of a case; differences are fractions of the reference. ``said`` is a refusal, or
    all warnings."""

    name: str
    status: str  # priced, wrong, refused or failed
    forward_gflops: float = 0.0
    forward_difference: float = 0.0
    backward_difference: float = 0.0
    parameters: int = 0
    parameter_difference: int = 0
    layers: int = 0
    seconds: float = 0.0
    said: str = ""
    expected: bool = True


class _TooLongError(Exception):
    pass


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.sentences.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What rooms of the tool warn of."""
    handler, logger = _Said(), logging.getLogger("GraphExtractor")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield handler.sentences
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_case(case: Case, folder: Path, limit_s: int = LIMIT_S) -> Outcome:
    """Extract the graph of a case as ``phaze.py`` does, and compare."""
    place = str(REPOSITORY / "tests" / "GraphExtractor")  # what knows torch is no script
    if place not in sys.path:
        sys.path.append(place)
    count = import_module("gauntlet_reference").count

    from GraphExtractor.check import product_flops
    from GraphExtractor.extract import extract_graph
    from GraphExtractor.graph import GraphKey
    from GraphExtractor.models.registry import find_model
    from phaze_common.errors import InputError

    path = str(case.path_in(folder))
    start = time.perf_counter()
    said: list[str] = []
    try:
        with _heard() as said, _at_most(limit_s):
            length = case.tokens or find_model(path).sequence_length or 64
            graph = extract_graph(GraphKey(path, MICRO_BATCH, length, 1))
    except InputError as error:
        message = _without_folders(str(error), folder)
        expected = bool(case.refused) and case.refused in message
        return Outcome(
            case.name,
            "refused",
            seconds=time.perf_counter() - start,
            said=message,
            expected=expected,
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        message = f"{type(error).__name__}: {error}"
        return Outcome(
            case.name, "failed", seconds=time.perf_counter() - start, said=message, expected=False
        )
    seconds = time.perf_counter() - start
    layers = [graph.layers[index] for index in graph.sequence]
    flops = [product_flops(layer) for layer in layers]
    forward = sum(each.forward + each.score_forward for each in flops)
    backward = sum(each.backward + each.score_backward for each in flops)
    parameters = sum(layer.parameter_count - layer.tied_count for layer in layers)
    try:
        reference = count(case)
    except Exception as error:  # noqa: BLE001 - a case that torch itself cannot run compares nothing
        message = f"the reference fails: {type(error).__name__}: {error}".splitlines()[0]
        return Outcome(case.name, "failed", seconds=seconds, said=message, expected=False)
    outcome = Outcome(
        case.name,
        "priced",
        forward / 1e9,
        forward / max(reference.forward_flops, 1) - 1,
        backward / max(reference.backward_flops, 1) - 1,
        parameters,
        parameters - reference.reached or graph.total_parameter_count - reference.parameters,
        len(layers),
        seconds,
        "; ".join(dict.fromkeys(_without_folders(sentence, folder) for sentence in said)),
        not case.refused,
    )
    if outcome.parameter_difference or abs(outcome.forward_difference) > TOLERANCE:
        return Outcome(**(asdict(outcome) | {"status": "wrong", "expected": False}))
    return outcome


def _without_folders(text: str, folder: Path) -> str:
    """What is said, the same on every machine."""
    return re.sub(r"\S*/site-packages/", "", text.replace(f"{folder}/", "")).replace(
        f"{REPOSITORY}/", ""
    )


def table(outcomes: Sequence[Outcome], said: bool = True) -> str:
    """A table in Markdown, which reads as text too."""
    head = (
        "model",
        "status",
        "forward GFLOP",
        "difference",
        "backward",
        "parameters",
        "difference",
        "layers",
        "s",
        "said",
    )
    rows = [
        (
            each.name,
            each.status + ("" if each.expected else " (!)"),
            *(
                (
                    f"{each.forward_gflops:.6f}",
                    f"{each.forward_difference:+.2%}",
                    f"{each.backward_difference:+.2%}",
                    f"{each.parameters:,}",
                    f"{each.parameter_difference:+,}" if each.parameter_difference else "0",
                    f"{each.layers}",
                )
                if each.status in ("priced", "wrong")
                else ("",) * 6
            ),
            f"{each.seconds:.1f}",
            each.said if said else "",
        )
        for each in outcomes
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    lines = [
        " | ".join(
            (*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1])
        )
        for row in (head, *rows)
    ]
    rule = "|".join((*("-" * (width + 2) for width in widths), "---"))
    return "\n".join((f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])))


def main(words: Sequence[str] | None = None) -> int:
    """Run the named cases, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases (default: all)")
    parser.add_argument("--output", type=Path, help="write the outcomes as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    parser.add_argument(
        "--seconds",
        type=int,
        default=LIMIT_S,
        help=f"give up on a model after so long (default {LIMIT_S})",
    )
    arguments = parser.parse_args(words)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    cases = {case.name: case for case in all_cases()}
    unknown = [name for name in arguments.names if name not in cases]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(cases)}")
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names or cases:
            outcomes.append(run_case(cases[name], Path(folder), arguments.seconds))
            sys.stderr.write(f"{name}: {outcomes[-1].status}, {outcomes[-1].seconds:.1f} s\n")
    if arguments.output:
        arguments.output.write_text(
            json.dumps([asdict(each) for each in outcomes], indent=2) + "\n", encoding="utf-8"
        )
    if arguments.markdown:
        arguments.markdown.write_text(f"{INTRODUCTION}\n{table(outcomes)}\n", encoding="utf-8")
    counts = {
        status: sum(each.status == status for each in outcomes)
        for status in ("priced", "refused", "wrong", "failed")
    }
    sys.stdout.write(
        table(outcomes)
        + "\n\n"
        + ", ".join(f"{number} {status}" for status, number in counts.items())
        + "\n"
    )
    return 0 if all(each.expected for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
