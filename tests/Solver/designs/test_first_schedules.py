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

AXES = {"num_vc": [1, 2, 16], "width": [8, 32, 128], "depth": [8, 64, 128], "glb_mib": [2, 16]}
FAST: dict[str, Any] = {
    "model": "gpt:layers=6,hidden=256,heads=4,vocabulary=1000",
    "sequence_length": 64,
    "devices": 12,
    "global_batch_size": 48,
    "hbm_size": 0.1,
    "micro_batch_size": [2, 4],
    "front": "none",
}
FRUGAL = FAST | {
    "devices": 7,
    "global_batch_size": 21,
    "hbm_size": [0.1, 2],
    "micro_batch_size": 1,
    "objective": "throughput_per_joule",
    "front": ["energy", "area"],
}
NARROW = FAST | {
    "model": "llama:layers=4,hidden=256,heads=4,vocabulary=1000",
    "sequence_length": 128,
    "micro_batch_size": 2,
    "objective": "throughput_per_joule",
}
NARROW_AXES = {"width": [32], "depth": [8, 128], "glb_mib": [2, 4]}


@pytest.mark.parametrize(
    ("axes", "asked", "steps"),
    [
        ({"num_tc": [2]}, FAST, 25),  # what dominates a chip bounds it, however long its schedules
        ({"num_tc": [1, 2, 8, 32]}, FRUGAL, 25),  # and is not known to use as little as unproven
        ({"num_tc": [2, 4, 8]} | NARROW_AXES, NARROW, 1),  # schedules do
    ],
    ids=["fast", "frugal", "narrow"],
)
def test_an_answer_is_as_proven_as_if_all_schedules_were(
    axes: dict[str, list[int]],
    asked: dict[str, Any],
    steps: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proven = answer(tmp_path / "proven", axes, asked, native.NODES[NodeLimit.THOROUGH], monkeypatch)
    few = answer(tmp_path / "few", axes, asked, steps, monkeypatch)
    assert few.status is Status.OPTIMAL and few.rows == proven.rows
    assert few.best is not None and proven.best is not None
    assert few.best.axes or asked is FAST
    for mine, others in zip(few.best.axes, proven.best.axes, strict=True):
        for value, expected in zip(mine.values, others.values, strict=True):
            assert value.status is expected.status and value.accelerator == expected.accelerator
            assert value.reached == pytest.approx(expected.reached, rel=1e-12)
            assert value.bound == pytest.approx(expected.bound, rel=1e-12)


def answer(
    folder: Path,
    axes: dict[str, list[int]],
    asked: dict[str, Any],
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
) -> SearchResult:
    """Of a search whose first schedules get so many ``steps``, with a cache of its own: these do not
    count to what decides the layer times that are kept."""
    monkeypatch.setitem(native.NODES, NodeLimit.FIRST, steps)
    monkeypatch.setenv("PHAZE_CACHE", str(folder / "cache"))
    space = SPACE | {"axes": SPACE["axes"] | AXES | axes, "budget": {"area_mm2": 500.0}}
    hardware = write_hardware(folder, space | {"references": []})
    settings = {"design_space": hardware["design_space"], "output": str(folder / "out")}
    return solved(resolve({}, settings | asked), axes=asked is not FAST)
