"""Whether a training is that of one process is decided where rounding cannot decide it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trained_plans import UNIFORM

from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import find_model
from phaze.runtime.training import comparison
from phaze.runtime.training.comparison import TOLERANCE, check_training
from phaze.runtime.training.job import CHECKED_STEPS, Job
from phaze.runtime.training.records import CheckRecord, JobRecord

NOTHING = JobRecord((), ())


def found(dtype: str, difference: float) -> CheckRecord:
    return CheckRecord(CHECKED_STEPS, difference, difference, "wte", TOLERANCE, dtype)


@pytest.mark.parametrize(
    ("float32", "float64", "trained_again", "equal"),
    [
        (0.5, None, 0, True),
        (2.0, 1e-6, 1, True),
        (2.0, 2.0, 1, False),
        (float("inf"), float("inf"), 1, False),
    ],
)
def test_float64_decides_where_float32_differs(
    float32: float,
    float64: float | None,
    trained_again: int,
    equal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compared(job: Job, record: JobRecord, family: ModelFamily) -> CheckRecord:
        of_tolerance = float32 if job.dtype == "float32" else float64
        assert of_tolerance is not None
        return found(job.dtype, of_tolerance * TOLERANCE)

    def again(job: Job) -> JobRecord:
        runs.append(job)
        return NOTHING

    runs: list[Job] = []
    monkeypatch.setattr(comparison, "compare", compared)
    job = Job(UNIFORM, 20, tmp_path, check=True, checkpoint_every=5)
    check = check_training(job, find_model(UNIFORM.model), NOTHING, bool, again)
    assert check is not None and check.equal is equal
    assert [(run.dtype, run.steps, run.checkpoint_every) for run in runs] == [
        ("float64", CHECKED_STEPS, 0)
    ] * trained_again
    assert (check.as_trained is not None) is bool(trained_again)
    if check.as_trained is not None:
        assert check.dtype == "float64" and check.as_trained.loss == float32 * TOLERANCE


def test_processes_without_a_record_train_again_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "compare", None)
    runs: list[Job] = []

    def again(job: Job) -> None:
        runs.append(job)

    job, family = Job(UNIFORM, 3, tmp_path, check=True), find_model(UNIFORM.model)
    assert check_training(job, family, None, lambda _: True, again) is None
    assert runs == [replace(job, dtype="float64", traced=0)]
    assert check_training(job, family, None, lambda _: False, again) is None
    assert len(runs) == 1


def test_a_training_that_diverged_is_not_equal(tmp_path: Path) -> None:
    assert comparison._of_numbers(float("nan")) == float("inf")
    assert not found("float32", comparison._of_numbers(float("nan"))).equal
