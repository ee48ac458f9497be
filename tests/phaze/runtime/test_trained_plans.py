"""Plans train the model that one process would train, whatever their stages; all in one set of
processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trained_plans import NARROWING, PLANS

from GraphExtractor.models.registry import find_model
from phaze.runtime.training.comparison import compare
from phaze.runtime.training.job import Job, check_job
from phaze.runtime.training.launch import launch
from phaze.runtime.training.plan_file import PlanToTrain, train_record
from phaze.runtime.training.records import JobRecord

MOST_PROCESSES = 4
AGAIN = "checkpointed"  # trained in one go; "resumed" goes on from its second step


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("trained")
    named = {
        name: Job(plan, 3, folder / f"run{number}", check=True, dtype="float64")
        for number, (name, plan) in enumerate(PLANS.items())
    }
    named["a run of bytes"] = Job(
        NARROWING, 3, folder / "text", data=str(Path(__file__)), check=True, seed=7
    )
    kept = Job(PLANS["zero 1 and 2"], 4, folder / AGAIN, checkpoint_every=2)
    named[AGAIN] = replace(kept, steps=2)
    named["straight"] = replace(kept, folder=folder / "straight", checkpoint_every=0)
    named["resumed"] = replace(kept, resume=folder / AGAIN)
    return named


@pytest.fixture(scope="module")
def records(jobs: dict[str, Job]) -> dict[str, JobRecord]:
    for job in jobs.values():
        check_job(job, MOST_PROCESSES)
    return dict(zip(jobs, launch(list(jobs.values())), strict=True))


@pytest.mark.parametrize("name", [*PLANS, "a run of bytes"])
def test_losses_and_parameters_are_those_of_one_process(
    name: str, jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    job = jobs[name]
    found = compare(job, records[name], find_model(job.plan.model))
    assert found.equal, found


def test_the_comparison_finds_another_training(
    jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    job = jobs["narrowing"]
    slower = replace(
        job,
        optimization=replace(
            job.optimization, learning_rate=job.optimization.learning_rate * 0.999
        ),
    )
    assert not compare(slower, records["narrowing"], find_model(job.plan.model)).equal


def test_losses_go_down_and_gradients_were_clipped(
    jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    steps = records["uniform"].steps
    assert steps[-1].loss < steps[0].loss
    assert max(step.gradient_norm for step in steps) > jobs["uniform"].optimization.clip


def test_a_resumed_training_goes_on_with_the_same_losses(records: dict[str, JobRecord]) -> None:
    straight, resumed = records["straight"].steps, records["resumed"].steps
    assert [step.step for step in resumed] == [3, 4]
    assert [step.loss for step in resumed] == [step.loss for step in straight[2:]]


def test_zero_keeps_less_of_the_state_and_recomputation_less_of_the_passes(
    jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    plain, sharded, fully = (
        records[name].processes for name in ("uniform", "zero 1 and 2", "zero 3")
    )
    assert all(
        less.state_bytes < more.state_bytes for less, more in zip(sharded, plain, strict=True)
    )
    assert fully[0].state_bytes < plain[0].state_bytes * 0.8
    assert fully[2].kept_bytes < plain[2].kept_bytes


def test_the_record_has_what_every_stage_measured(
    jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    answer = train_record(jobs["narrowing"], PlanToTrain(NARROWING), records["narrowing"], None)
    assert [(stage.dp, stage.tp) for stage in answer.stages] == [(2, 1), (1, 1)]
    for stage in answer.stages:
        assert stage.measured.forward_processor_s > 0 and stage.measured.backward_processor_s > 0
        assert stage.measured.idle_s > 0 and stage.measured.communication_s > 0
        assert stage.kept_bytes > 0
