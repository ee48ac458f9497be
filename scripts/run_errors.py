"""Print how far predictions are off measured runs, by file and family of sources.

    .venv/bin/python scripts/run_errors.py RUNS.csv ... [--reasons] [--page PAGE.md]

Releases of one table are relatives, so a family is a source without the numbers of its release.
A file may also be what ``phaze validate RUNS.csv --format json`` printed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

NOMINAL = 0.8
_FIGURES = re.compile(r"\d[\d,.]*")

PAGE_HEAD = """# Errors of every run

Predicted over measured, less 1 (minus: too fast), of every run of the tables of 2024 to 2026 that
is predicted; memory is what its source prints (allocated, reserved, or of the last stage). What
is behind them: [predictions](predictions.md). Written by `scripts/run_errors.py --page`.
"""
Run = dict[str, Any]


def main() -> None:
    """Validate the files and print their tables."""
    from phaze.report.table import Table
    from phaze.report.terminal import print_tables
    from phaze.validation.intervals import family_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument(
        "--reasons", action="store_true", help="also count why runs are not predicted"
    )
    parser.add_argument("--page", type=Path, help="also write every run's error into this page")
    asked = parser.parse_args()
    rows, reasons = list[dict[str, str]](), list[dict[str, str]]()
    every = [PAGE_HEAD]
    for file in asked.files:
        runs: list[Run] = document_of(file)["runs"]
        every += page_lines(file.stem, runs)
        families = dict.fromkeys(family_of(run["source"]) for run in runs)
        for family in families if len(families) > 1 else ():
            of_family = [run for run in runs if family_of(run["source"]) == family]
            rows.append({"file": file.stem, "family": family, **figures(of_family)})
        rows.append({"file": file.stem, "family": "all", **figures(runs)})
        counted = Counter(_FIGURES.sub("#", run["reason"]) for run in runs if run["reason"])
        reasons += [
            {"file": file.stem, "runs": str(count), "reason": reason}
            for reason, count in counted.most_common()
        ]
    tables = [Table.of("errors by family of sources", rows, words={"file", "family"})]
    if asked.reasons and reasons:
        tables.append(Table.of("not predicted", reasons, words={"file", "reason"}))
    print_tables(tables, sys.stdout)
    if asked.page is not None:
        asked.page.write_text("\n".join(every) + "\n", encoding="utf-8")


def page_lines(name: str, runs: Sequence[Run]) -> list[str]:
    """A table in Markdown: families, and the error of each of their runs by its line."""
    from phaze.validation.intervals import family_of

    lines = [f"## {name}", "", "| runs of | errors of time, by line of the file | of memory |"]
    lines.append("| --- | --- | --- |")
    for family in dict.fromkeys(family_of(run["source"]) for run in runs):
        priced = [run for run in runs if family_of(run["source"]) == family and not run["skipped"]]
        lists = [_by_line(priced, key) for key in ("error", "memory_error")]
        if priced:
            lines.append(f"| {family} | {' | '.join(lists)} |")
    return [*lines, ""]


def _by_line(runs: Sequence[Run], key: str) -> str:
    return ", ".join(f"{run['line']}: {run[key]:+.0%}" for run in runs if run[key] is not None)


def document_of(file: Path) -> dict[str, Any]:
    """What ``phaze validate --format json`` prints of a table, or printed into ``file``."""
    if file.suffix == ".json":
        content = file.read_bytes()
    else:
        from phaze.report.tables.validation_tables import report_json
        from phaze.settings.folders import folders_of
        from phaze.validation.run import validate
        from phaze_common.progress import SilentProgress

        def unpriced(plan: Path, database: Path) -> Any:
            raise AssertionError("tables of published runs have no plan files")

        graphs = folders_of(None).graphs
        content = report_json(validate(file, None, None, None, graphs, SilentProgress(), unpriced))
    document: dict[str, Any] = json.loads(content)
    return document


def figures(runs: Sequence[Run]) -> dict[str, str]:
    """How far predictions of ``runs`` are off, in words of a table."""
    priced = [run for run in runs if not run["skipped"]]
    errors = [run["error"] for run in priced if run["error"] is not None]
    memory = [run["memory_error"] for run in priced if run["memory_error"] is not None]
    intervals = [
        (run["measured_s"], each)
        for run in priced
        for each in run["time_intervals"]
        if each["nominal"] == NOMINAL and run["measured_s"]
    ]
    inside = [each["low_s"] <= measured_s <= each["high_s"] for measured_s, each in intervals]
    widths = [math.log(each["high_s"] / each["low_s"]) for _, each in intervals]
    over = [run["fits"] is False for run in priced]
    return {
        "runs": str(len(runs)),
        "priced": str(len(priced)),
        "error": _percent([abs(each) for each in errors]),
        "bias": _percent(errors, "+"),
        "inside 80 %": _percent(inside),
        "width": f"x{math.exp(sum(widths) / len(widths)):.1f}" if widths else "-",
        "too large": f"{sum(over)} ({_percent(over)})",
        "memory runs": str(len(memory)),
        "memory error": _percent([abs(each) for each in memory]),
        "memory bias": _percent(memory, "+"),
    }


def _percent(values: Sequence[float], sign: str = "") -> str:
    """Their mean."""
    return f"{sum(values) / len(values):{sign}.1%}" if values else "-"


if __name__ == "__main__":
    main()
