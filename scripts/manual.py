"""Run the console examples of pages of the manual and write down what they print now (see
``console_blocks.py``).

    .venv/bin/python scripts/manual.py docs/tutorials/first-search.md ...

A new page gets its outputs like this: write the commands, run this, and put ``...`` in place of the
lines that nobody needs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> int:
    """Rewrite the pages that were named; status 1 if a command of theirs failed without the page
    saying so."""
    parser = argparse.ArgumentParser(
        description="run the console examples of pages and write down what they print"
    )
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE.md")
    parser.add_argument("--check", action="store_true", help="tell what differs and change nothing")
    options = parser.parse_args()
    return max(_one(page, check=options.check) for page in options.pages)


def _one(path: Path, *, check: bool) -> int:
    import phaze
    from scripts.console_blocks import (
        Command,
        Run,
        forget_modules_in,
        rewritten,
        run_page,
        steps_of,
    )

    page, runs = path.read_text(), list[Run]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        start_s = time.process_time()
        for run in run_page(steps_of(page, str(path)), folder, phaze.main):
            now_s = time.process_time()
            print(
                f"{path}: {now_s - start_s:5.1f} s of CPU, status {run.status}: {run.command.line}"
            )
            start_s = now_s
            runs.append(run)
            if check and run.apart is not None:
                print(run.apart)
        forget_modules_in(folder)
    if check:
        return int(any(run.failed or run.apart is not None for run in runs))
    new = rewritten(page, runs)
    path.write_text(new)
    again = [step for step in steps_of(new, str(path)) if isinstance(step, Command)]
    return int(
        any(
            Run(command, run.output, run.status).failed
            for command, run in zip(again, runs, strict=True)
        )
    )


if __name__ == "__main__":
    sys.exit(main())
