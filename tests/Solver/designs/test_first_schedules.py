"""What a search says does not depend on how many steps the first schedules of all chips get, most of
which stay without a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_study import SPACE, solved, write_hardware

from Estimator.plans.results import Status
from phaze.settings.resolve import resolve
from Solver.results import SearchResult
from Solver.schedule import native
from Solver.schedule.solver import NodeLimit

GPT = "gpt:layers=6,hidden=256,heads=4,vocabulary=1000"
AXES = {"num_vc": [1, 2, 16], "width": [8, 32, 128], "depth": [8, 64, 128], "glb_mib": [2, 16]}
FAST: dict[str, Any] = {
    "devices": 12,
    "global_batch_size": 48,
    "hbm_size": 0.1,
    "micro_batch_size": [2, 4],
    "front": "none",
}
FRUGAL: dict[str, Any] = {
    "devices": 7,
    "global_batch_size": 21,
    "hbm_size": [0.1, 2],
    "objective": "throughput_per_joule",
    "front": ["energy", "area"],
}


@pytest.mark.parametrize(("num_tc", "asked"), [([2], FAST), ([1, 2, 8, 32], FRUGAL)])
def test_an_answer_is_as_proven_as_if_all_schedules_were(
    num_tc: list[int], asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dominated chips are as good as their dominators at most, however long their schedules; and
    what uses less energy only for want of a proof is no best design with a value."""
    answers = []
    for steps in (native.NODES[NodeLimit.THOROUGH], native.NODES[NodeLimit.FIRST]):
        monkeypatch.setitem(native.NODES, NodeLimit.FIRST, steps)
        answers.append(answer(tmp_path / str(steps), num_tc, asked, monkeypatch))
    proven, usual = answers
    assert usual.status is Status.OPTIMAL
    assert usual.rows == proven.rows
    assert usual.best is not None and proven.best is not None
    assert usual.best.axes == proven.best.axes and (usual.best.axes or asked is FAST)


def answer(
    folder: Path, num_tc: list[int], asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> SearchResult:
    """Of a search with a cache of its own: layer times are kept by what decides them, which steps
    in this test do not count to."""
    monkeypatch.setenv("PHAZE_CACHE", str(folder / "cache"))
    axes = SPACE["axes"] | AXES | {"num_tc": num_tc}
    settings = {"model": GPT, "sequence_length": 64, "output": str(folder / "out")} | asked
    space = SPACE | {"axes": axes, "budget": {"area_mm2": 500.0}, "references": []}
    settings["design_space"] = write_hardware(folder, space)["design_space"]
    return solved(resolve({}, settings), axes=asked is FRUGAL)
