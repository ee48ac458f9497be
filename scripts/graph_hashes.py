#!/usr/bin/env python3
"""Extract graphs of listed models and of configurations of transformers, and print a hash of each,
to compare environments.

Usage: python scripts/graph_hashes.py [--every N] [--against FILE] > FILE A line per graph: its
name, and the hash of its JSON or what kept it from being made. Of every N graphs one is made. With
--against the file of another environment, lines that differ go to standard error, and exit status 1
says that one of a listed model does: transformers may change the code of others from release to
release.
"""

import argparse
import hashlib
import logging
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:  # started as a program, its own folder is what Python looks in
    sys.path.insert(0, str(REPOSITORY))

from scripts.gauntlet_cases import MICRO_BATCH, all_cases  # noqa: E402

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey

CASE = "case "  # begins the names of what is not listed
# a line of its code, which moves from release to release
_LIBRARY = re.compile(r"\S*/transformers/\S*")


def main(words: Sequence[str] | None = None) -> int:
    """Print a line per graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="what this program printed elsewhere"
    )
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="make one of so many graphs (default 1: all)",
    )
    arguments = parser.parse_args(words)
    logging.disable(logging.WARNING)  # what is left out of a model is in its graph
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for name, key in islice(
            chain(_listed(), _configured(Path(folder))), 0, None, arguments.every
        ):
            made.append(f"{name}: {_hash(key)}")
            print(made[-1], flush=True)
    wanted = (
        arguments.against.read_text(encoding="utf-8").splitlines() if arguments.against else made
    )
    differing = sorted(set(wanted) ^ set(made))
    for line in differing:
        print(f"differs: {line}", file=sys.stderr)
    return 1 if any(not line.startswith(CASE) for line in differing) else 0


def _listed() -> Iterator[tuple[str, "GraphKey"]]:
    """The first listed model of every family: whole, with attention written out, and on two devices
    in both ways."""
    from GraphExtractor.graph import Attention, GraphKey
    from GraphExtractor.models.registry import listed_models
    from GraphExtractor.widths import allowed_widths

    for _, models in groupby(listed_models().items(), key=lambda each: type(each[1])):
        name, family = next(models)
        whole = GraphKey(name, MICRO_BATCH, family.sequence_length or 64, 1)
        yield f"{name}", whole
        yield f"{name} eager", replace(whole, attention=Attention.EAGER)
        if 2 in allowed_widths(family):
            yield f"{name} tp 2", replace(whole, tp=2)
            yield f"{name} tp 2, sequence parallel", replace(whole, tp=2, sequence_parallel=True)


def _configured(folder: Path) -> Iterator[tuple[str, "GraphKey"]]:
    """The cases of the gauntlet."""
    from GraphExtractor.graph import GraphKey

    for case in all_cases():
        path = str(case.path_in(folder))
        yield f"{CASE}{case.name}", GraphKey(path, MICRO_BATCH, case.tokens or 0, 1)


def _hash(key: "GraphKey") -> str:
    """Of the graph without the place of its model's file; where there is none, the kind of error
    and what is said."""
    from GraphExtractor.extract import extract_graph
    from GraphExtractor.models.registry import find_model
    from phaze_common.errors import PhazeError
    from phaze_common.records import to_json

    numpy.random.seed(0)  # models that mask at random draw how much
    try:
        key = replace(
            key, sequence_length=key.sequence_length or find_model(key.model).sequence_length or 64
        )
        graph = extract_graph(key)
        text = to_json(graph).replace(key.model.encode(), b"")
    except PhazeError as error:
        return _LIBRARY.sub("transformers", str(error).replace(key.model, "")).partition("\n")[0]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return hashlib.sha256(text).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
