"""Notebooks with stored outputs: run again from top to bottom they say what is stored, and nothing
of the machine they ran on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from GraphExtractor.graph import Attention, GraphKey
from GraphExtractor.storage import load_or_extract
from tests.phaze.library.test_notebook import ELSEWHERE

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"
BERT = [GraphKey("bertbase", rows, 128, 1) for rows in (4, 8, 16)]
MEGATRON = [
    GraphKey(
        f"gpt:{sizes},vocabulary=51200,sequence_length=2048",
        rows,
        2048,
        8,
        Attention.EAGER,
        sharded,
        "float16",
    )
    for sizes, rows in (
        ("layers=48,hidden=6144,heads=64", 4),
        ("layers=96,hidden=12288,heads=96", 1),
    )
    for sharded in (False, True)
]
MT_NLG = [
    GraphKey(
        "gpt:layers=105,hidden=20480,heads=128,sequence_length=2048", rows, 2048, 8, Attention.EAGER
    )
    for rows in (1, 2)
]
NEEDS = {
    "sweep": BERT,
    "explain": BERT[:1],
    "validate": [*MEGATRON, *MT_NLG],
}  # what they trace, which is none of their matter
AGAIN = "run it again in its folder (jupyter execute --inplace) and look at what changed"

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient")
pytest.importorskip("ipykernel", reason="notebooks need ipykernel")
pytest.importorskip("altair", reason="the notebooks draw with altair")


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def said(cell: Any) -> str:
    """What a cell printed and returned, as text."""
    texts = (
        str(each.text) if each.output_type == "stream" else str(each.data.get("text/plain", ""))
        for each in cell.outputs
    )
    return "\n".join(texts)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_each_notebook_is_tested() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {"search", *NEEDS}


@pytest.mark.parametrize("name", NEEDS)
def test_stored_outputs_are_whole_and_of_no_machine(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert 10 <= len(notebook.cells) <= 15
    assert [cell.execution_count for cell in code(notebook)] == list(
        range(1, len(code(notebook)) + 1)
    )
    assert all(cell.outputs for cell in code(notebook))
    kinds = {
        kind
        for cell in code(notebook)
        for output in cell.outputs
        for kind in output.get("data", {})
    }
    assert "image/svg+xml" in kinds
    everything = "".join(said(cell) for cell in code(notebook))
    assert (
        not re.search(r"(?:^|[\s'\"(])/(?:home|root|tmp|work|usr|opt)/", everything)
        and "Warning" not in everything
    )
    assert "?" in notebook.cells[0].source  # it begins with a question


@pytest.mark.some(1)
@pytest.mark.parametrize("name", NEEDS)
def test_run_again_it_says_what_is_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = read(name)
    for key in NEEDS[name]:
        load_or_extract(key, tmp_path / "GraphExtractor" / "out")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOKS.parent))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    at_work = nbformat.v4.new_notebook(
        metadata=stored.metadata, cells=[nbformat.v4.new_code_cell(ELSEWHERE), *read(name).cells]
    )
    client = nbclient.NotebookClient(
        at_work, timeout=None, resources={"metadata": {"path": str(tmp_path)}}
    )
    _, *again = code(client.execute())
    for place, (before, now) in enumerate(zip(code(stored), again, strict=True), start=1):
        assert said(now) == said(before), (
            f"cell [{place}] of {name}.ipynb says something else; {AGAIN}"
        )
        drawn = [
            ["image/svg+xml" in output.get("data", {}) for output in cell.outputs]
            for cell in (before, now)
        ]
        assert drawn[0] == drawn[1]
