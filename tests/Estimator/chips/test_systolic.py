"""Closed forms of the systolic array, double-buffered, beside SCALE-Sim's array, which is not."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.accelerator import Dataflow
from Estimator.chips.systolic import _fold, pipelined_time

SIZES = st.integers(1, 700)
ARRAYS = st.sampled_from([1, 2, 3, 8, 32, 128])


def systolic_cycles(
    dataflow: Dataflow, m: int, k: int, n: int, rows: int, columns: int, double_buffered: bool
) -> float:
    """Cycles of an (m, k) by (k, n) product; not double-buffered, as SCALE-Sim 3.0, which reports
    the index of the last cycle."""
    if double_buffered:
        time = pipelined_time(dataflow, 1, m, k, n, rows, columns)
        return float(time.steady + time.fill)
    folds, stream = _fold(dataflow, m, k, n, rows, columns)
    loads = (
        1 if dataflow is Dataflow.OUTPUT_STATIONARY else 2
    )  # the stationary tile passes the rows before the stream does
    return float(folds * (stream + loads * rows + columns - 2) - 1)


def test_differs_from_scalesim_by_what_double_buffering_hides(shared_data: Path) -> None:
    """Of all folds but the last: loading or filling and draining, beyond what streams meanwhile; to
    the cycle, in every run."""
    runs = json.loads((shared_data / "cost_models" / "scalesim.json").read_text())
    assert len(runs) == 16
    for run in runs:
        dataflow, rows, columns = Dataflow(run["dataflow"]), run["array_h"], run["array_w"]
        sizes = (run["M"], run["K"], run["N"], rows, columns)
        assert (
            systolic_cycles(dataflow, *sizes, double_buffered=False) + run["stall_cycles"]
            == run["cycles"]
        )
        time = pipelined_time(dataflow, 1, *sizes)
        folds, stream = (
            (run["K"], run["M"]) if dataflow is Dataflow.WEIGHT_STATIONARY else (run["M"], run["K"])
        )
        folds = -(-folds // rows) * -(-run["N"] // columns)
        alone = stream + (2 if dataflow is Dataflow.WEIGHT_STATIONARY else 1) * rows + columns - 2
        hidden = (folds - 1) * (alone - max(stream, rows))
        assert (
            float(time.steady + time.fill) + hidden - 1 == run["cycles"] - run["stall_cycles"]
        )  # it counts from 0


@given(st.sampled_from(Dataflow), SIZES, SIZES, SIZES, ARRAYS, ARRAYS)
def test_double_buffering_only_helps_and_never_beats_the_array(
    dataflow: Dataflow, m: int, k: int, n: int, rows: int, columns: int
) -> None:
    buffered = systolic_cycles(dataflow, m, k, n, rows, columns, double_buffered=True)
    alone = systolic_cycles(dataflow, m, k, n, rows, columns, double_buffered=False)
    assert m * k * n / (rows * columns) <= buffered <= alone + 1  # SCALE-Sim counts cycles from 0


def test_a_single_fold_has_nothing_to_overlap() -> None:
    for dataflow, m, k, n in (
        (Dataflow.WEIGHT_STATIONARY, 500, 64, 100),
        (Dataflow.OUTPUT_STATIONARY, 64, 500, 100),
    ):
        buffered = systolic_cycles(dataflow, m, k, n, 64, 128, double_buffered=True)
        assert buffered == systolic_cycles(dataflow, m, k, n, 64, 128, double_buffered=False) + 1


@given(SIZES, SIZES, SIZES, ARRAYS, ARRAYS)
def test_input_stationary_is_weight_stationary_transposed(
    m: int, k: int, n: int, rows: int, columns: int
) -> None:
    for buffered in (True, False):
        assert systolic_cycles(
            Dataflow.INPUT_STATIONARY, m, k, n, rows, columns, buffered
        ) == systolic_cycles(Dataflow.WEIGHT_STATIONARY, n, k, m, rows, columns, buffered)
