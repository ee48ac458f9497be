"""A search over modules that are recomputed, from Python, against every plan priced by itself."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import phaze

COMMON = {"model": "llama3-8b", "cluster": "dgx_a100", "sequence_length": 4096}
MODES = ["none", "mlp", "mlp+layernorm", "second_products", "full"]
SIZES, DEGREES, BATCH = [2, 4], [(1, 8), (2, 4), (4, 2)], 32


def priced(device: str) -> pd.DataFrame:
    rows = [
        {"tp": tp, "dp": dp, "pp": 1, "micro_batch_size": size, "recompute": mode}
        for tp, dp in DEGREES
        for size in SIZES
        for mode in MODES
        if size * dp <= BATCH
    ]
    plans = pd.DataFrame(rows).assign(zero_stage=1, global_batch_size=BATCH)
    plans["overlap_gradients"] = True
    return phaze.evaluate_many(plans, device=device, **COMMON)


@pytest.mark.parametrize("device", ["a100_80gb", "a100_40gb"])
def test_the_best_of_all_modes_is_found(tmp_path: Path, device: str) -> None:
    """With less memory more is recomputed."""
    study = phaze.study(
        **COMMON,
        device=device,
        devices=8,
        tp=[tp for tp, _ in DEGREES],
        pp=[1],
        micro_batch_size=SIZES,
        global_batch_size=BATCH,
        recompute=MODES,
        zero_stage=[1],
        sequence_parallel=[False],
        overlap_gradients=[True],
        overlap_tensor=[False],
        group_order=["tensor-data-pipeline"],
        output=tmp_path / "run",
    )
    found = phaze.run_solver(study)
    assert found.best is not None
    every = priced(device)
    fitting = every[every["feasible"]]
    best = fitting.loc[fitting["iteration_s"].idxmin()]
    (plan,) = found.best.models.values()
    assert plan.time_per_batch_s == pytest.approx(best["iteration_s"], rel=1e-9)
    assert str(plan.recompute) == best["recompute"]
    assert set(phaze.open_run(found.run_directory).designs["recompute"]) == {*MODES}
