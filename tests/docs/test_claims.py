"""Strong words of the manual stand beside the tests that fail where they are false:
``claims.yaml``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CLAIMS = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))
STRONG = re.compile(
    r"\b(?:exact|exactly|agrees?|never|always|ever|identical|identically|in all cases|byte for "
    r"byte|last digit|to the cycle)\b",
    re.IGNORECASE,
)
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in [
        *(REPOSITORY / "docs" / "explanation").glob("*.md"),
        *(REPOSITORY / "docs" / f"{name}.md" for name in ("physics", "chips", "network")),
        *(
            REPOSITORY / "docs" / "how-to" / f"{name}.md"
            for name in ("neighbours", "sweeps-and-pages", "uneven-stages")
        ),
        REPOSITORY / "docs" / "tutorials" / "first-search.md",
        REPOSITORY / "README.md",
    ]
)


@cache
def prose(page: str) -> str:
    """A page without its blocks of code, each run of white space as one blank."""
    text = re.sub(
        r"^ *```.*?^ *```$",
        "",
        (REPOSITORY / page).read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    return " ".join(re.sub(r"`[^`\n]*`", "", text).split())


def entries() -> list[tuple[str, dict[str, Any]]]:
    return [(page, entry) for page, listed in CLAIMS.items() for entry in listed]


@cache
def named_in(path: str) -> frozenset[str]:
    """Tests of a file, those of classes as Class::test."""

    def found(body: list[ast.stmt], before: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield before + node.name
            elif isinstance(node, ast.ClassDef):
                yield from found(node.body, f"{node.name}::")

    return frozenset(found(ast.parse((REPOSITORY / path).read_text(encoding="utf-8")).body))


@pytest.mark.parametrize("page", PAGES)
def test_strong_words_are_in_a_listed_sentence(page: str) -> None:
    text = prose(page)
    spans = [
        found.span()
        for entry in CLAIMS.get(page, [])
        for found in re.finditer(re.escape(entry["says"]), text, re.IGNORECASE)
    ]
    unlisted = [
        text[max(0, word.start() - 80) : word.end() + 60]
        for word in STRONG.finditer(text)
        if not any(start <= word.start() and word.end() <= end for start, end in spans)
    ]
    assert not unlisted, (
        f"name the tests of these in tests/docs/claims.yaml, or say what is true: {unlisted}"
    )


@pytest.mark.parametrize(
    ("page", "entry"),
    entries(),
    ids=lambda each: each["says"][:60] if isinstance(each, dict) else None,
)
def test_what_is_listed_is_said_and_tested(page: str, entry: dict[str, Any]) -> None:
    assert set(entry) in ({"says", "tests"}, {"says", "no_claim"})
    assert page in PAGES and entry["says"] in prose(page), "the page does not say this any more"
    assert entry.get("tests") or entry.get("no_claim")
    for test in entry.get("tests", []):
        path, _, name = test.partition("::")
        assert (REPOSITORY / path).is_file() and name in named_in(path), f"there is no {test}"


def test_strong_words_are_found_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("It is exact.", "| a | both agree |", "(never)", "Always so", "to the last digit"):
        assert STRONG.search(said)
    for said in ("inexactness", "agreement", "whichever", "everything", "nevertheless"):
        assert not STRONG.search(said)
