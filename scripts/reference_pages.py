"""Write the pages of docs/reference that follow from the code: cli, yaml, files, models.

    .venv/bin/python scripts/reference_pages.py [PAGE ...]

Without a name all of them. Tests say when one is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

REFERENCE = ROOT / "docs" / "reference"


def writers() -> Mapping[str, Callable[[], str]]:
    """What makes each page, by its name."""
    from scripts.reference import cli_page, files_page, models_page, yaml_page

    return {
        "cli": cli_page.page,
        "yaml": yaml_page.page,
        "files": files_page.page,
        "models": lambda: models_page.page(ROOT / "GraphExtractor" / "out"),
    }


def main() -> None:
    """Write the pages that are named."""
    pages = writers()
    for name in sys.argv[1:] or list(pages):
        if name not in pages:
            sys.exit(f"no page {name!r}; the pages are {', '.join(pages)}")
        REFERENCE.mkdir(parents=True, exist_ok=True)
        (REFERENCE / f"{name}.md").write_text(pages[name]())


if __name__ == "__main__":
    main()
