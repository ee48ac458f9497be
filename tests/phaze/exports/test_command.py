"""Exports on the command line, and back: what is written out is priced as what was exported, and
odd input is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

import phaze
from phaze.exports.registry import HOMES, exporter
from phaze.studies.optimum import Optimum

PLAN = {
    "model": "gpt:layers=4,hidden=256,heads=4,vocabulary=1024,sequence_length=128",
    "device": "a100_80gb",
    "precision": "bf16",
    "micro_batch_size": 1,
    "zero_stage": 1,
    "global_batch_size": 8,
    "dp": 2,
}
OTHER = "llama:layers=4,hidden=256,heads=4,ffn=768,vocabulary=1024,sequence_length=128"
SAID = (
    "--model",
    str(PLAN["model"]),
    "--micro-batch-size",
    "1",
    "--global-batch-size",
    "8",
    "--sequence-length",
    "128",
)
OF_PROGRAMS: dict[
    str, tuple[str, str, dict[str, object], tuple[str, ...]]
] = {  # its file, a plan, and what the file cannot say
    "megatron_lm": ("megatron_lm", "launch.sh", {"tp": 2, "pp": 2}, ()),
    "deepspeed": ("deepspeed", "ds_config.json", {"zero_stage": 2, "gradient_dtype": "bf16"}, ()),
    "deepspeed, gradients in fp32": ("deepspeed", "ds_config.json", {"zero_stage": 1}, ()),
    "deepspeed, recomputed": (
        *(
            "deepspeed",
            "ds_config.json",
            {"zero_stage": 3, "recompute": "full", "gradient_dtype": "bf16"},
        ),
        (),
    ),
    "torchtitan": (
        "torchtitan",
        "phaze_plan.py",
        {"model": OTHER, "zero_stage": 3, "dp": 4, "overlap_gradients": True},
        (),
    ),
    "torchtitan, fp8": (
        "torchtitan",
        "phaze_plan.py",
        {"model": OTHER, "zero_stage": 2, "dp": 4, "precision": "fp8", "device": "h100"},
        (),
    ),
    "accelerate": (
        "accelerate",
        "accelerate.yaml",
        {"zero_stage": 3, "dp": 4, "overlap_gradients": True},
        SAID,
    ),
    "accelerate, replicas": (
        "accelerate",
        "accelerate.yaml",
        {"zero_stage": 0, "dp": 4, "overlap_gradients": True},
        SAID,
    ),
    "hf_trainer by DeepSpeed": (
        "hf_trainer",
        "ds_config.json",
        {"zero_stage": 3, "dp": 4, "gradient_dtype": "bf16"},
        (),
    ),
    "hf_trainer, replicas": (
        "hf_trainer",
        "arguments.py",
        {"zero_stage": 0, "dp": 4, "overlap_gradients": True},
        ("--dp", "4", "--global-batch-size", "8"),
    ),
    "megatron_bridge": ("megatron_bridge", "phaze_recipe.py", {"tp": 2, "pp": 2}, ("--dp", "2")),
    "megatron_bridge, mixture": (
        *(
            "megatron_bridge",
            "phaze_recipe.py",
            {"model": OTHER, "zero_stage": 2, "recompute": "full", "dp": 4},
        ),
        ("--dp", "4"),
    ),
}


def write_plan(folder: Path, **changes: object) -> Path:
    path = folder / "plan.yaml"
    path.write_text(json.dumps(PLAN | changes))
    return path


def price(words: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    assert phaze.main(["evaluate", *words, "--format", "json", "--quiet"]) == 0
    return float(json.loads(capsys.readouterr().out)["iteration_s"])


def test_every_program_that_the_command_names_has_an_exporter() -> None:
    for name in HOMES:
        found = exporter(name)
        assert found.name == name and found.title


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_a_plan_that_is_exported_and_read_back_has_the_same_price(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, file, changes, said = OF_PROGRAMS[name]
    plan = write_plan(tmp_path, **changes)
    assert (
        phaze.main(["export", str(plan), "--to", program, "--output", str(tmp_path / "out")]) == 0
    )
    capsys.readouterr()
    before = price(["--plan", str(plan)], capsys)
    device = ("--device", str(({**PLAN, **changes})["device"]))
    words = ["--from", str(tmp_path / "out" / file), *device, *said]
    assert price(words, capsys) == pytest.approx(before, rel=1e-12)


def test_what_a_search_would_save_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, tp=4, pp=2, dp=1, zero_stage=0)
    assert (
        phaze.main(["export", str(plan), "--to", "megatron_lm", "--output", str(tmp_path / "out")])
        == 0
    )
    capsys.readouterr()
    words = ["evaluate", "--from", str(tmp_path / "out" / "launch.sh"), "--device", "a100_80gb"]
    assert phaze.main([*words, "--best", "--format", "json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    best_s = told["optimum"]["plan"]["time_per_batch_s"]
    assert (
        told["optimum"]["saves"] == pytest.approx(1.0 - best_s / told["iteration_s"])
        and told["optimum"]["saves"] > 0.0
    )
    assert phaze.main([*words, "--best", "--quiet"]) == 0
    assert "the best plan of a search on as many devices" in capsys.readouterr().out
    assert phaze.main([*words, "--quiet"]) == 0
    assert "of a search" not in capsys.readouterr().out


def test_a_price_is_printed_before_a_better_plan_is_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object) -> Optimum:
        assert "iteration" in capsys.readouterr().out
        return Optimum(None, 0.0)

    monkeypatch.setattr("phaze.studies.optimum.optimum_beside", searched)
    plan = str(write_plan(tmp_path, tp=4, pp=2, dp=1, zero_stage=0))
    assert phaze.main(["evaluate", "--plan", plan, "--best", "--quiet"]) == 0
    assert "none fits" in capsys.readouterr().out


def test_a_better_plan_is_searched_on_devices_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["evaluate", "--model", "bertbase", "--chip", "tpu_v4", "--best"]) == 2
    assert "--best searches plans on devices" in capsys.readouterr().err


def test_the_nearest_plan_is_exported_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, pp=2)
    words = ["export", str(plan), "--to", "deepspeed", "--output", str(tmp_path / "out")]
    assert phaze.main(words) == 2
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1
        and "--nearest exports that" in said
        and not (tmp_path / "out").exists()
    )
    assert phaze.main([*words, "--nearest"]) == 0
    assert (
        "changed to" in capsys.readouterr().err and (tmp_path / "out" / "ds_config.json").exists()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "nowhere", "--to", "megatron_lm"], "there is no"),
        (["export", "plan.yaml", "--to", "megatron"], "did you mean 'megatron_lm'"),
        (["evaluate", "--from", "nowhere.sh", "--device", "h100"], "cannot read"),
        (["evaluate", "--from", "plan.yaml", "--device", "h100"], "give it with --plan"),
        (
            ["evaluate", "--from", "plan.yaml", "--plan", "plan.yaml", "--device", "h100"],
            "two plans; give one of them",
        ),
    ],
)
def test_what_cannot_be_exported_or_read_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_plan(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert phaze.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("phaze: ") and said in error and error.count("\n") == 1


@pytest.mark.parametrize(("kind", "file"), [("slurm", "job.sbatch"), ("kubernetes", "job.yaml")])
def test_a_job_starts_the_launch_on_every_node(
    kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, tp=4, dp=4, global_batch_size=16)
    words = [
        "export",
        str(plan),
        "--to",
        "megatron_lm",
        "--output",
        str(tmp_path / "out"),
        "--job",
        kind,
    ]
    assert phaze.main([*words, "--cluster", "dgx_a100"]) == 0
    text = (tmp_path / "out" / file).read_text()
    assert (tmp_path / "out" / "launch.sh").exists() and "launch.sh" in text
    if kind == "slurm":
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
        assert "#SBATCH --nodes=2 " in text and "#SBATCH --gpus-per-node=8" in text
        return
    service, job = yaml.safe_load_all(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 2)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    names = {each["name"]: each.get("value") for each in container["env"]}
    assert (
        names["NNODES"] == "2"
        and names["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    )


def test_a_job_needs_whole_nodes_and_a_script_that_starts_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, tp=4, dp=3, global_batch_size=12)
    words = ["export", str(plan), "--cluster", "dgx_a100", "--output", str(tmp_path / "out")]
    for rest, said in (
        (["--to", "megatron_lm", "--job", "slurm"], "12 devices do not fill nodes of 8"),
        (["--to", "chakra", "--job", "slurm"], "starts no nodes"),
        (["--to", "megatron_lm", "--job", "pbs"], "give slurm or kubernetes"),
    ):
        assert phaze.main([*words, *rest]) == 2
        assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
    "--num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --micro-batch-size 2 "
    "--global-batch-size 64 --bf16 --vocab-size 1000"
)


@pytest.mark.parametrize(
    ("more", "flags", "said"),
    [
        ("", ["--dp", "3"], "a global batch of 64 is no multiple of 6, micro-batch 2 x dp 3"),
        ("--tensor-model-paralel-size " "2", [], "is no flag that " "is read; did you mean " "--tensor-model-parallel-size?"),
        ("--fp16", [], "asks for --bf16 and for --fp16; leave one out"),
        ("--num-attention-heads 7", [], "--hidden-size 512 of " "the Megatron-LM " "command is no " "multiple " "of its 7 heads"),
    ],
)  # fmt: skip
def test_launches_that_contradict_themselves_are_refused(
    more: str, flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"{MEGATRON} {more}\n")
    assert phaze.main(["evaluate", "--from", str(script), "--device", "a100_80gb", *flags]) == 2
    refused = capsys.readouterr().err.strip().splitlines()[-1]
    assert refused.startswith(f"phaze: {script}: ") and said in refused
