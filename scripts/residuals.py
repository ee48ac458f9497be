"""Write phaze/validation/residuals.yaml: how far predictions are off the runs that ship, source by
source.

    .venv/bin/python scripts/residuals.py
    .venv/bin/python scripts/residuals.py RUNS.csv

Of a table of published runs, the second writes those of its mixtures of experts, by sources without
the numbers of their releases, to residuals_of_experts.yaml. Tests say when they are out of date.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Predict the runs and write the residuals."""
    import json

    from phaze.settings.folders import folders_of
    from phaze.validation.intervals import (
        RESIDUALS,
        RESIDUALS_OF_EXPERTS,
        family_of,
        load_residuals,
        residuals_of,
    )
    from phaze.validation.run import validate
    from phaze_common.progress import SilentProgress
    from phaze_common.records import to_json

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", help="a table with runs of mixtures")
    table = parser.parse_args().runs

    def unpriced(plan: Path, database: Path) -> None:
        raise AssertionError("tables of published runs have no plan files")

    report = validate(table, None, None, None, folders_of(None).graphs, SilentProgress(), unpriced)  # type: ignore[arg-type]
    path, runs = RESIDUALS, report.runs
    if table is not None:
        path = RESIDUALS_OF_EXPERTS
        mixtures = [each for each in runs if each.plan is not None and each.plan.experts]
        runs = tuple(replace(each, source=family_of(each.source)) for each in mixtures)
    mixed = table is not None
    found = residuals_of(runs, load_residuals(experts=mixed).widening, of_middle=mixed)
    head = path.read_text().split("sources:")[0]
    content = json.loads(to_json(found))
    widening = {"widening": content.pop("widening")}
    ordered = {"sources": content["sources"], "within_model": content["within_model"]}
    path.write_text(
        head + yaml.safe_dump(ordered | widening, sort_keys=False, width=130, allow_unicode=True)
    )


if __name__ == "__main__":
    main()
