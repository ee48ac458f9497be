"""Plans of models with batch norms, whose replicas normalise their own rows, train that of one
process that does the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trained_plans import Stage, tiny_plan

import phaze
from Estimator.plans.plan import Plan
from GraphExtractor.models.registry import find_model
from phaze.runtime.training import comparison
from phaze.runtime.training.comparison import compare
from phaze.runtime.training.job import Job, check_job
from phaze.runtime.training.launch import launch
from phaze.runtime.training.plan_file import PlanToTrain, train_record
from phaze.runtime.training.records import JobRecord
from phaze.runtime.training.start_checks import check_start
from phaze_common.choices import PipelineSchedule, Recompute
from phaze_common.errors import InputError
from phaze_common.records import to_json

TINY = "resnet-depths1x1x1x1-base4-classes10-image_side{}"
FRONT, BACK = ("embedding", "stages.0", "stages.1"), ("stages.2", "stages.3", "head")


def images(
    *stages: Stage, side: int = 64, schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
) -> Plan:
    """A plan of a ResNet, whose micro-batches have two images on every stage."""
    return replace(
        tiny_plan(*stages, model=TINY.format(side), schedule=schedule), sequence_length=1
    )


NARROWING = images(Stage(FRONT, dp=2), Stage(BACK))
WIDENING = images(
    Stage(FRONT, recompute=Recompute.FULL),
    Stage(BACK, dp=2, recompute=Recompute.FULL),
    schedule=PipelineSchedule.GPIPE,
)
PLANS = {
    "narrowing": NARROWING,
    "widening, gpipe, recomputed": WIDENING,
    "zero 2 beside three stages": images(
        Stage(FRONT[:2]), Stage((FRONT[2], *BACK[:1]), dp=2, zero=2), Stage(BACK[1:])
    ),
    "zero 3": images(Stage(FRONT, dp=2, zero=3), Stage(BACK, dp=2, zero=1)),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on busy cores take most of the time of so small a model."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(jobs: list[Job]) -> list[JobRecord]:
    for job in jobs:
        check_job(job, 4)
    return launch(jobs)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("resnets")
    return {
        name: Job(plan, 3, folder / f"run{number}", check=True, dtype="float64")
        for number, (name, plan) in enumerate(PLANS.items())
    }


@pytest.fixture(scope="module")
def records(jobs: dict[str, Job]) -> dict[str, JobRecord]:
    return dict(zip(jobs, trained(list(jobs.values())), strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_losses_and_parameters_are_those_of_one_process(
    name: str, jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    job = jobs[name]
    check_start(job, find_model(job.plan.model))
    found = compare(job, records[name], find_model(job.plan.model))
    assert found.equal, found


def test_rows_that_are_normalised_together_decide_what_is_trained(
    jobs: dict[str, Job], records: dict[str, JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check tells plans that split rows otherwise, and a process that normalises all rows of a
    micro-batch."""
    job, family = jobs["narrowing"], find_model(NARROWING.model)
    other = replace(job, plan=images(Stage(FRONT), Stage(BACK, dp=2)))
    monkeypatch.setattr(comparison, "_differences", lambda *_: [])
    assert compare(job, records["narrowing"], family).equal
    assert compare(other, records["narrowing"], family).loss_difference > 1e-3
    monkeypatch.setattr(comparison, "normalise_as_replicas", lambda *_: None)
    assert compare(job, records["narrowing"], family).loss_difference > 1e-3


def test_the_record_says_which_rows_are_normalised(
    jobs: dict[str, Job], records: dict[str, JobRecord]
) -> None:
    said = [
        train_record(jobs[name], PlanToTrain(PLANS[name]), records[name], None).notes[-1]
        for name in ("narrowing", "zero 3")
    ]
    assert (
        "rows of one replica (1, 2 from the first to the last stage)" in said[0]
        and "all 2 of a micro-batch" in said[0]
    )
    assert "rows of one replica (1)" in said[1]


def test_a_stage_whose_rows_cannot_be_normalised_is_refused(tmp_path: Path) -> None:
    plan = images(Stage(FRONT), Stage(BACK, dp=2), side=32)
    with pytest.raises(InputError, match="one pixel of an image of 32 x 32"):
        check_start(Job(plan, 3, tmp_path), find_model(plan.model))
    alone = images(Stage(FRONT + BACK), side=32)
    check_start(Job(alone, 3, tmp_path), find_model(alone.model))


def test_a_configuration_of_another_resnet_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "resnet", "architectures": ["ResNetForImageClassification"], '
        '"layer_type": "basic"}'
    )
    path = tmp_path / "plan.json"
    path.write_bytes(to_json(replace(NARROWING, model=str(config))))
    assert phaze.main(["train", "--plan", str(path), "--quiet"]) == 2
    assert (
        "of ResNets: bottlenecks, hidden_sizes 4, 8, 16 and 32 times embedding_size"
        in capsys.readouterr().err
    )
