#!/usr/bin/env python3
"""Give phaze thousands of damaged files and wrong flags, and see that each is refused in a sentence
or answered in range.

Usage: python scripts/fuzz.py [--inputs N] [--seed N] [--first N] [--only K] [--jobs N] [--match
  TEXT] [--folder DIR] [--keep DIR] default       1,000 inputs of seed 0 on two cores; ends with a
  table of how they ended and every finding, by family --only K      input K alone, with everything
  it printed: how a finding is repeated --match TEXT  only inputs of the modes or files whose names
  contain TEXT
Exit status: 0 nothing found, 1 findings.
"""

import argparse
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
for setting in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
):
    os.environ[setting] = "1"  # a fork does not take threads along
sys.path.insert(0, str(REPOSITORY))

from scripts.fuzzing import session  # noqa: E402


def main() -> int:
    """Fuzz as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of what is mutated and how (default 0)"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input (default 0)"
    )
    parser.add_argument("--only", type=int, metavar="K", help="input K alone, with what it printed")
    parser.add_argument("--jobs", type=int, default=2, help="inputs at a time (default 2)")
    parser.add_argument(
        "--match",
        default="",
        metavar="TEXT",
        help="only inputs whose mode or mutated file contains TEXT",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to work (default: a temporary folder); base files that are there are used",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the mutated file of the first input of every family here",
    )
    given = parser.parse_args()
    place = (
        tempfile.TemporaryDirectory(prefix="phaze-fuzz-")
        if given.folder is None
        else nullcontext(str(given.folder))
    )
    with place as folder:
        numbers = (
            range(given.first, given.first + given.inputs) if given.only is None else (given.only,)
        )
        plan = session.Plan(
            given.seed,
            tuple(numbers),
            given.jobs if given.only is None else 1,
            given.match,
            given.keep,
        )
        found = session.fuzz(plan, Path(folder).resolve(), loud=given.only is not None)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
