"""Write phaze/validation/residuals.yaml: how far predictions are off the runs that ship, source by
source.

    .venv/bin/python scripts/residuals.py

A test says when it is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Predict the runs that ship and write the residuals."""
    import json

    from phaze.settings.folders import folders_of
    from phaze.validation.intervals import RESIDUALS, load_residuals, residuals_of
    from phaze.validation.run import validate
    from phaze_common.progress import SilentProgress
    from phaze_common.records import to_json

    def unpriced(plan: Path, database: Path) -> None:
        raise AssertionError("runs that ship have no plan files")

    report = validate(None, None, None, None, folders_of(None).graphs, SilentProgress(), unpriced)  # type: ignore[arg-type]
    found = residuals_of(report.runs, load_residuals().widening)
    head = RESIDUALS.read_text().split("sources:")[0]
    content = json.loads(to_json(found))
    widening = {"widening": content.pop("widening")}
    ordered = {"sources": content["sources"], "within_model": content["within_model"]}
    RESIDUALS.write_text(
        head + yaml.safe_dump(ordered | widening, sort_keys=False, width=130, allow_unicode=True)
    )


if __name__ == "__main__":
    main()
