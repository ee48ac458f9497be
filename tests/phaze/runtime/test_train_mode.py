"""``phaze train`` from the plan's file to its answer: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trained_plans import BACK, FRONT, TINY, Stage, tiny_plan

import phaze
from Estimator.plans.results import PipelineReport, StageReport
from phaze.runtime.training.records import TrainRecord
from phaze_common.file_formats import BEST, TRAINING
from phaze_common.records import from_json, to_json
from tests.builders.plans_by_hand import report_of

FORWARD_S, BACKWARD_S = 0.25, 0.5
BELOW_FLOAT32 = 1e-12  # of its rounding; float64's is below this


def best_json(folder: Path) -> Path:
    """A file as a search writes it, as far as training reads it."""
    plan = tiny_plan(Stage(FRONT), Stage(BACK))
    stages = [
        StageReport(
            layers.layers,
            1,
            FORWARD_S + BACKWARD_S,
            FORWARD_S,
            BACKWARD_S,
            0.0,
            1,
            4e6,
            3e6,
            1e6,
            0.0,
            0.0,
        )
        for layers in plan.stages
    ]
    pipeline = PipelineReport(
        "1f1b", 2, 4, (FORWARD_S,) * 2, (BACKWARD_S,) * 2, (0.0,), (0.0,), True, (0.0, 0.0), 0.0
    )
    report = report_of(plan, stages, pipeline)
    path = folder / "best.json"
    path.write_text(
        json.dumps(BEST.stamped({"optimal": True, "models": {TINY: json.loads(to_json(report))}}))
    )
    return path


def test_a_plan_of_a_search_is_trained_checked_and_set_beside_its_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "phaze.runtime.training.comparison.TOLERANCE", BELOW_FLOAT32
    )  # so that float32 cannot decide
    assert (
        phaze.main(
            [
                "train",
                "--plan",
                str(best_json(tmp_path)),
                "--steps",
                "3",
                "--check",
                "--format",
                "json",
            ]
        )
        == 0
    )
    written = (tmp_path / "train" / "train.json").read_bytes()
    record = from_json(TrainRecord, TRAINING.current_json(written, "train.json"), "train.json")
    assert json.loads(capsys.readouterr().out) == json.loads(written)
    assert record.check is not None and record.check.equal and record.check.dtype == "float64"
    first = record.check.as_trained
    assert (
        first is not None
        and first.dtype == "float32"
        and max(first.loss, first.parameter) > BELOW_FLOAT32
    )
    assert not (tmp_path / "train" / "check").exists()
    assert record.predicted_step_s == 5.0 and record.step_s > 0
    for stage in record.stages:
        assert stage.predicted.forward_s == FORWARD_S * record.micro_batches
        assert stage.predicted.backward_s == BACKWARD_S * record.micro_batches
        predicted_s, measured = (FORWARD_S + BACKWARD_S) * record.micro_batches, stage.measured
        measured_s = measured.forward_processor_s + measured.backward_processor_s
        assert stage.processor_error == pytest.approx(predicted_s / measured_s - 1)
    page = (tmp_path / "train" / "report.html").read_text()
    for name in ("losses", "stage-seconds", "step-seconds", "memory", "timeline"):
        assert f'data-figure="{name}"' in page
    assert "In float32 they differ by" in page
    events = json.loads((tmp_path / "train" / "trace.json").read_text())["traceEvents"]
    tracks = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert sum(track.startswith("measured: stage") for track in tracks) == 2
    assert sum("predicted" in track for track in tracks) == 2
    drawn = [
        event
        for event in events
        if event["ph"] == "X" and event["pid"] == 1 and event["cat"] == "forward"
    ]
    assert len(drawn) == 2 * record.micro_batches  # of the last two steps
