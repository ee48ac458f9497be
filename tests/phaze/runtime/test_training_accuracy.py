"""Profiled, searched, trained: the predicted processor time of every stage is that which is
measured.

Time of the thread does not hold what other programs take of the cores, but caches and clocks are
shared with them: on a machine with other work the same pass takes up to half as long again. The
bounds are those that hold there as well; they tell a pass that is priced wrongly (dropout that is
not trained with, gradients counted twice) from noise. On a machine of one's own errors are about a
third of them. Where a search is for stages that differ, it has so little memory that of GPT no plan
of stages alike is best: the first stages alone recompute what they hold for the micro-batches in
flight.

How long a pass takes decides thorough sessions alone: on a machine that changes its speed between
profile and training no bound holds that a wrong price would break.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

import phaze
from phaze.runtime.training.plan_file import read_plan_to_train
from phaze.runtime.training.records import TrainRecord
from phaze_common.file_formats import TRAINING
from phaze_common.records import from_json
from tests.builders.samples import sampled

GPT = "gpt:layers=4,hidden=128,heads=4,vocabulary=1024"
T5 = {
    **{
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "feed_forward_proj": "relu",
        "dropout_rate": 0.1,
    },
    **{
        "num_layers": 1,
        "num_decoder_layers": 1,
        "d_model": 128,
        "num_heads": 4,
        "d_kv": 32,
        "d_ff": 512,
        "vocab_size": 1024,
    },
    **{"n_positions": 64, "relative_attention_num_buckets": 32, "tie_word_embeddings": True},
}
RESNET = "resnet:depths=1x1x1x1,base=8,classes=10,image_side=64"
DEGREES = ["--devices", "4", "--pp", "2", "--dp", "2", "--tp", "1", "--global-batch-size", "16"]
TRAINABLE = [
    "--recompute",
    "none",
    "--zero-stage",
    "0",
    "--interleave",
    "1",
    "--sequence-parallel",
    "false",
]


MOST_IN_MEDIAN, MOST = 1.5, 2.0  # predicted over measured, or the other way round


SEARCHED = ["--tp", "1", "--global-batch-size", "16", "--interleave", "1", "--layout", "1d"]
MEMORY = {
    **{("gpt", 4): "8 MiB", ("gpt", 8): "7 MiB", ("t5", 4): "8 MiB", ("t5", 8): "7 MiB"},
    **{("resnet", 4): "2 MiB", ("resnet", 8): "1.6 MiB"},
}


def common_flags(name: str, folder: Path) -> list[str]:
    """Of a tiny model of that name, whose file is in ``folder`` where it needs one."""
    if (
        name == "resnet"
        # of one image a batch norm behind the last stage has four values: float32 rounds what it gives
        # by much
    ):
        return ["--model", RESNET, "--micro-batch-size", "2", "--quiet"]
    model = GPT
    if name == "t5":
        model = str(folder / "config.json")
        Path(model).write_text(json.dumps(T5))
    return ["--model", model, "--sequence-length", "64", "--micro-batch-size", "1", "--quiet"]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile of each model, once it was asked for."""
    return tmp_path_factory.mktemp("profiles")


def profiled(name: str, profiles: Path) -> tuple[list[str], Path]:
    """The flags of a model, and its profile."""
    common, folder = common_flags(name, profiles), profiles / name
    if not folder.exists():
        profile = ["--processes", "--devices", "8", "--cap", "0.1", "--output", str(folder)]
        assert phaze.main(["profile", *common, *profile]) == 0
    return common, folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gpt", "t5", "resnet"])
def test_predicted_processor_time_of_a_stage_is_that_of_its_training(
    name: str, profiles: Path, tmp_path: Path
) -> None:
    common, folder = profiled(name, profiles)
    searched = ["--device", str(folder), "--output", str(tmp_path / "run")]
    assert phaze.main(["run_solver", *common, *DEGREES, *TRAINABLE, *searched]) == 0
    assert (
        phaze.main(
            ["train", "--plan", str(tmp_path / "run" / "best.json"), "--steps", "6", "--quiet"]
        )
        == 0
    )
    record = from_json(
        TrainRecord,
        TRAINING.current_json(
            (tmp_path / "run" / "train" / "train.json").read_bytes(), "train.json"
        ),
        "train.json",
    )
    assert len(record.stages) == 2
    check_times(record)
    check_page(tmp_path / "run")


def check_times(record: TrainRecord) -> None:
    """Predicted and measured processor time of every stage agree."""
    errors = [stage.processor_error for stage in record.stages]
    off = [max(error + 1, 1 / (error + 1)) for error in errors if error is not None]
    assert len(off) == len(record.stages)
    assert median(off) <= MOST_IN_MEDIAN and max(off) <= MOST, errors


def check_page(run: Path) -> None:
    """The page of a run shows its profile, search, training and comparison, each once."""
    assert phaze.main(["report", str(run), "--quiet"]) == 0
    page = (run / "report.html").read_text()
    for section in ("profile", "training", "compared", "plans"):
        assert page.count(f'<section id="{section}"') == 1


@pytest.mark.parametrize(("name", "processes"), sampled(list(MEMORY), [("gpt", 4)]))
def test_plans_of_a_search_for_stages_that_differ_train_the_model(
    name: str,
    processes: int,
    profiles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    common, folder = profiled(name, profiles)
    run = tmp_path / "run"
    searched = [
        "--device",
        str(folder),
        "--devices",
        str(processes),
        "--memory-size",
        MEMORY[name, processes],
        "--heterogeneous",
    ]
    assert phaze.main(["run_solver", *common, *SEARCHED, *searched, "--output", str(run)]) == 0
    plan = read_plan_to_train(run / "best.json", None).plan
    if name == "gpt":  # of others stages alike may be as good
        assert len({replace(stage, layers=()) for stage in plan.stages}) > 1
    assert (
        phaze.main(
            ["train", "--plan", str(run / "best.json"), "--steps", "3", "--check", "--quiet"]
        )
        == 0
    )
    record = from_json(
        TrainRecord,
        TRAINING.current_json((run / "train" / "train.json").read_bytes(), "train.json"),
        "train.json",
    )
    assert record.check is not None and record.check.equal
    assert record.processes == sum(stage.degrees.dp * stage.degrees.tp for stage in plan.stages)
    if pytestconfig.getoption("--thorough"):
        check_times(record)
    assert all(stage.processor_error is not None for stage in record.stages)
    check_page(run)
    check_validation(run, folder, record, capsys)


def check_validation(
    run: Path, database: Path, record: TrainRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table with the training as a run of its plan on its database is predicted as the search
    did, or refused."""

    def validated(**changes: object) -> int:
        capsys.readouterr()
        cells = {
            "gpus": record.processes,
            "stages": len(record.stages),
            "dtype": "fp32",
            "model": record.model,
            **changes,
        }
        table = {
            "plan": run / "best.json",
            "database": database,
            "measured_s": record.step_s,
            "peak_allocated_mib": 8,
            **cells,
        }
        (run / "runs.csv").write_text(f"{','.join(table)}\n{','.join(map(str, table.values()))}\n")
        return phaze.main(["validate", str(run / "runs.csv"), "--format", "json", "--quiet"])

    assert validated() == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["predicted_s"] == pytest.approx(record.predicted_step_s, rel=1e-9)
    assert found["error"] == pytest.approx(found["predicted_s"] / record.step_s - 1)
    assert found["predicted_memory_bytes"] > 0 and found["devices"] == record.processes
    for changes, said in (
        (
            {"gpus": record.processes + 1},
            f"says gpus {record.processes + 1}, but best.json has {record.processes}",
        ),
        ({"model": "gpt2"}, "says model 'gpt2', but best.json is of"),
        ({"dtype": "bf16"}, "dtype is 'bf16', but"),
        ({"plan": database / "machine.yaml"}, "line 2: "),
    ):
        assert validated(**changes) == 2
        assert said in capsys.readouterr().err
