"""The notebook, run from top to bottom in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from GraphExtractor.graph import GraphKey
from GraphExtractor.storage import load_or_extract

NOTEBOOK = Path(__file__).resolve().parents[3] / "notebooks" / "search.ipynb"

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient")
pytest.importorskip("ipykernel", reason="notebooks need ipykernel")
pytest.importorskip("altair", reason="the notebook draws with altair")

ELSEWHERE = """
from pathlib import Path
from phaze.settings import folders
folders.REPOSITORY = Path.cwd()  # what it makes goes there
(Path.cwd() / "pyproject.toml").touch()
"""


@pytest.fixture(scope="module")
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_committed_notebook_is_valid_and_has_no_outputs(notebook: Any) -> None:
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert len(first.source.splitlines()) == 10
    assert first.source in (NOTEBOOK.parents[1] / "docs" / "how-to" / "from-python.md").read_text(
        encoding="utf-8"
    )


@pytest.fixture(scope="module")
def executed(notebook: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each code cell says, as text."""
    folder = tmp_path_factory.mktemp("notebook")
    for micro_batch_size in (1, 4, 8, 32):  # what it searches; tracing is none of its matter
        load_or_extract(
            GraphKey("bertbase", micro_batch_size, 128, 1), folder / "GraphExtractor" / "out"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        at_work = nbformat.v4.new_notebook(
            metadata=notebook.metadata,
            cells=[nbformat.v4.new_code_cell(ELSEWHERE), *notebook.cells],
        )
        client = nbclient.NotebookClient(
            at_work, timeout=120, resources={"metadata": {"path": str(folder)}}
        )
        _, *cells = (cell for cell in client.execute().cells if cell.cell_type == "code")
    return ["\n".join(_text(output) for output in cell.outputs) for cell in cells]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return "\n".join(
        str(output.data[kind]) for kind in ("text/plain", "image/svg+xml") if kind in output.data
    )


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


@pytest.mark.thorough
def test_every_cell_says_what_the_text_around_it_promises(executed: list[str]) -> None:
    first, statuses, bound, chart, explained, instead, moved, devices = executed
    assert "Warning" not in first
    assert (
        "Accelerator(num_tc=" in first
        and "samples/s, optimal" in first
        and "throughput_samples_per_s" in first
    )
    assert {"evaluated", "pruned"} <= set(statuses.split())
    best, most_of_pruned = numbers(bound.splitlines()[0])[0], numbers(bound.splitlines()[1])[0]
    assert best >= most_of_pruned > 0
    assert "<svg" in chart and "area, mm2" in chart
    assert explained.startswith("For bertbase, build ") and "binds" in explained
    assert numbers(instead)[0] > 1 and "4 TC" in instead
    assert re.findall(r"^\d +(\d+) ", moved, re.MULTILINE)[:3] == ["1024", "4096", "16384"]
    assert "NVIDIA A100" in devices and "optimal" in devices
