"""The manual builds strictly: no page without a place, no link or anchor that leads nowhere,
nothing loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?(https?:[^"' >]+)""")


def pages(entry: object) -> list[str]:
    """Files that the navigation names."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for each in entry.values() for page in pages(each)]
    return [page for each in entry for page in pages(each)] if isinstance(entry, list) else []


def test_every_page_has_its_place() -> None:
    stated = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    docs = REPOSITORY / "docs"
    assert sorted(pages(stated["nav"])) == sorted(
        str(path.relative_to(docs)) for path in docs.rglob("*.md")
    )


def test_it_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=environment
    )
    assert built.returncode == 0, built.stdout + built.stderr
    found = {
        str(page): SOURCES.findall(page.read_text(encoding="utf-8"))
        for page in (tmp_path / "site").rglob("*.html")
    }
    assert len(found) > 5 and {name: each for name, each in found.items() if each} == {}
