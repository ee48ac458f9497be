"""Every flag of a Megatron-LM launch is read, changes nothing, is refused, or is said; and what a
refusal advises works."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from launches import settings_of

import phaze
from phaze.exports.launchers import read_launch
from phaze.exports.megatron_lm.flags import Flags
from phaze.exports.megatron_lm.known_arguments import known_arguments
from phaze.exports.megatron_lm.model import OTHER_MODELS
from phaze.exports.megatron_lm.reader import read
from phaze.settings.launched import KeyKind
from phaze.studies.optimum import Optimum
from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml

ARGUMENTS = (
    Path(__file__).resolve().parents[3]
    / "phaze"
    / "exports"
    / "megatron_lm"
    / "megatron_arguments.yaml"
)
SIZES = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --max-position-embeddings 64 "
    "--vocab-size 128"
)
PLAN = "--seq-length 64 --micro-batch-size 1 --global-batch-size 8 --bf16"
SMALL = f"pretrain_gpt.py {SIZES} {PLAN}"
TINY = "gpt:layers=2,hidden=64,heads=2,vocabulary=128,sequence_length=64"


def kinds(text: str) -> dict[str, KeyKind]:
    return {key.bare: key.kind for key in read(text).keys}


# Kinds of flags.


def test_every_argument_of_megatron_is_of_a_known_kind() -> None:
    listed = read_yaml(ARGUMENTS)["arguments"]
    assert len(listed) > 800
    known = known_arguments()
    assert [name for name in listed if known.meaning(name).kind is KeyKind.UNKNOWN] == []


def test_a_usual_value_is_never_refused() -> None:
    known = known_arguments()
    for name, entry in read_yaml(ARGUMENTS)["arguments"].items():
        meaning, usual = known.meaning(name), entry["default"]
        if meaning.kind is KeyKind.NOT_EXPRESSIBLE and entry["takes"] == 1 and usual is not None:
            assert str(usual) in meaning.off, name


def test_what_counts_as_read_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set[str]()
    latent = (
        "--multi-latent-attention --num-experts 8 --moe-shared-expert-intermediate-size 1 "
        "--kv-channels 128 --hidden-size 7168"
    )
    stages = f"{SMALL} --pipeline-model-parallel-size 2"
    launches = [
        f"{SMALL} --transformer-impl local --optimizer-cpu-offload --use-megatron-fsdp "
        "--padded-vocab-size 128",
        f"{SMALL} --group-query-attention --num-query-groups 2 --nproc-per-node 2 "
        "--model-parallel-size 2",
        f"{SMALL} --fp8-format hybrid --tensor-model-parallel-size 2 --nodes 1 --ntasks-per-node 2",
        f"{SMALL} --num-experts 8",
        f"{SMALL} --fp4-format e2m1",
        f"{SMALL} --num-gpus 2",
        f"{stages} --num-virtual-stages-per-pipeline-rank 1 --decoder-first-pipeline-num-layers 1",
        f"{stages} --decoder-last-pipeline-num-layers 1 --pipeline-model-parallel-layout 'Et|tL'",
        f"{stages} --num-layers-per-virtual-pipeline-stage 1 --context-parallel-size 2",
        f"pretrain_gpt.py {PLAN} --encoder-num-layers 2 --num-attention-heads 2 {latent}",
        "--num-layers 2 --hidden-size 64 --batch-size 1 --encoder-seq-length 8 "
        "--num-attention-heads 2",
    ]
    made = list[Flags]()
    first = Flags.__init__

    def kept(self: Flags, *positional: object, **named: object) -> None:
        first(self, *positional, **named)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Flags, "__init__", kept)
    for launch in launches:
        with contextlib.suppress(InputError):  # what was asked before counts too
            read(launch)
        asked |= {name for flags in made for name in flags.asked}
    assert asked - known_arguments().read == set()
    assert known_arguments().read - asked == set()


@pytest.mark.parametrize(
    "launch",
    [
        f"torchrun --nproc_per_node 8 --nnodes 2 {SMALL}",
        f"deepspeed --num_gpus 8 --num_nodes 2 {SMALL}",
        f"mpirun -np 16 python {SMALL}",
        f"srun --nodes=2 --ntasks-per-node=8 python {SMALL}",
        f"#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun python {SMALL}",
        f"export WORLD_SIZE=$((8 * 2))\npython {SMALL}",
        f'ARGS=({SMALL})\nCMD="torchrun --nproc-per-node 8 --nnodes 2 ${{ARGS[@]}}"\nsrun bash -c '
        '"$CMD"',
    ],
)
def test_processes_are_counted_as_launchers_are_told_them(launch: str) -> None:
    assert (
        read(launch.replace("--global-batch-size 8", "--global-batch-size 16")).settings["dp"] == 16
    )


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("--tensor-model-parallel-size 1", KeyKind.READ),
        ("--lr 1e-4", KeyKind.NO_EFFECT),
        ("--dist-ckpt-strictness log_all", KeyKind.NO_EFFECT),
        ("--mtp-num-layers 1", KeyKind.NOT_EXPRESSIBLE),
        ("--mtp-num-layers 0", KeyKind.NO_EFFECT),
        ("--main-grads-dtype fp32", KeyKind.READ),
        ("--cpu-offloading-num-layers 4", KeyKind.NOT_EXPRESSIBLE),
        ("--fine-grained-activation-offloading", KeyKind.NOT_EXPRESSIBLE),
        ("--window-size 128,0", KeyKind.NOT_EXPRESSIBLE),
        ("--keep-fp8-transpose-cache", KeyKind.NOT_EXPRESSIBLE),
        (
            "--recompute-granularity selective --recompute-modules core_attn mhc",
            KeyKind.NOT_EXPRESSIBLE,
        ),
        ("--recompute-granularity selective --recompute-modules core_attn", KeyKind.READ),
        ("--recompute-granularity selective --recompute-modules core_attn mlp", KeyKind.READ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 1",
            KeyKind.NOT_EXPRESSIBLE,
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
            KeyKind.READ,
        ),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
            KeyKind.NOT_EXPRESSIBLE,
        ),
        ("--decoder-seq-length 32", KeyKind.NOT_EXPRESSIBLE),
        ("--decoder-seq-length 64", KeyKind.READ),
        ("--moe-permute-fusion", KeyKind.USUAL),
        ("--recompute-modules moe_act", KeyKind.USUAL),
        ("--cuda-graph-scope attn", KeyKind.USUAL),
        ("--fp8-recipe mxfp8", KeyKind.USUAL),
        ("--fp4-recipe nvfp4", KeyKind.USUAL),
        ("--colour blue", KeyKind.UNKNOWN),
        ("--node_rank 0", KeyKind.NO_EFFECT),
    ],
)
def test_flags_are_of_their_kind(flag: str, kind: KeyKind) -> None:
    name = flag.split(" --")[-1].split()[0].lstrip("-").replace("_", "-")
    assert kinds(f"{SMALL} {flag}")[name] is kind


MIXTURE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --max-position-embeddings 4096 --swiglu "
    "--disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights "
    "--normalization RMSNorm --num-experts 8 --moe-router-topk 2 "
)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--moe-layer-freq ([0]*16+[1]*16)", "16 of 32 blocks have experts: 26.97B parameters"),
        ("--moe-layer-freq '[0,1]*16'", "16 of 32 blocks have experts"),
        ("--moe-layer-freq 2", "16 of 32 blocks have experts"),
        ("--moe-layer-freq 1", ""),
        ("--moe-layer-freq ([1]*32)", ""),
        (
            "--tensor-model-parallel-size 4 --sequence-parallel --expert-tensor-parallel-size 2",
            "experts are cut over 2 devices, not over tp 4",
        ),
        ("--tensor-model-parallel-size 4 --sequence-parallel --expert-tensor-parallel-size 1", ""),
        ("--tensor-model-parallel-size 4 --sequence-parallel --expert-tensor-parallel-size 4", ""),
    ],
)
def test_blocks_and_cuts_of_experts_are_read_or_refused(flags: str, reason: str) -> None:
    found = read(f"{MIXTURE} --vocab-size 32000 {PLAN} {flags}")
    assert found.settings["model"] == "mixtral-8x7b"
    refused = found.of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert (reason in refused[0].reason) if reason else not refused
    if reason:
        with pytest.raises(
            InputError, match="no plan of phaze says; to price it without: --ignore"
        ):
            found.check_expressible(())
        assert found.ignoring([f"--{refused[0].bare}"]).ignored == (refused[0].bare,)


LAYOUT = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout"
DEEPSEEK = (
    "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 "
    "--multi-latent-attention --num-experts 256 --moe-layer-freq ([0]*3+[1]*58) "
    "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8 "
    "--q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim "
    "128 --swiglu "
)


@pytest.mark.parametrize(
    ("flags", "given", "untold"),
    [
        ("--mtp-num-layers 1", {"model": "deepseek-v3-mtp"}, ""),
        ("--mtp-num-layers 0", {}, ""),
        ("--mtp-num-layers 1", {}, "give --model deepseek-v3-mtp"),
        ("--mtp-num-layers 1", {"model": "deepseek-v3"}, "give --model deepseek-v3-mtp"),
        ("--mtp-num-layers 2", {"model": "deepseek-v3-mtp"}, "predict further tokens"),
        ("--mtp-num-layers 2", {"model": "nemotron-3-nano-30b-a3b"}, "nemotron-3.5-lightning"),
        (f"--mtp-num-layers 1 {LAYOUT} 'Et*31|t*30mL'", {"model": "deepseek-v3-mtp"}, ""),
        (f"--mtp-num-layers 1 {LAYOUT} 'Et*31m|t*30L'", {"model": "deepseek-v3-mtp"}, "layers m"),
    ],
)
def test_modules_of_further_tokens_are_those_of_the_model(
    flags: str, given: dict[str, str], untold: str
) -> None:
    found = read(f"{DEEPSEEK} {PLAN} {flags}", given).of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert untold in found[0].reason if untold else not found


def test_models_of_latent_attention_are_read_by_their_sizes() -> None:
    assert read(f"{DEEPSEEK} {PLAN}").settings["model"] == "deepseek-v3"
    with pytest.raises(InputError, match=r"heads 64 for 128.*give --model"):
        read(f"{DEEPSEEK} {PLAN}".replace("--num-attention-heads 128", "--num-attention-heads 64"))


@pytest.mark.parametrize(
    "pattern",
    ["--hybrid-layer-pattern M-M*-", "--hybrid-override-pattern M*M*", "--spec x mamba_stack_spec"],
)
def test_hybrids_are_refused_and_alternating_ones_are_decoders(pattern: str) -> None:
    with pytest.raises(InputError, match=r"a hybrid of Mamba.*give --model"):
        read(f"{SMALL} {pattern}")
    assert (
        read(f"{SMALL} --hybrid-layer-pattern *-*-".replace("--num-layers 2", "")).settings["model"]
        == read(SMALL).settings["model"]
    )


@pytest.mark.parametrize("program", OTHER_MODELS)
def test_the_program_that_is_started_tells_the_family(program: str) -> None:
    with pytest.raises(InputError, match=f"{program}.*give --model"):
        read(f"torchrun {program} {SIZES} {PLAN}")
    assert "model" not in read(f"torchrun {program} {SIZES} {PLAN}", {"model": TINY}).settings


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--bf16 --grad-reduce-in-bf16", {"gradient_dtype": "bf16"}),
        ("--bf16 --accumulate-allreduce-grads-in-fp32", {"gradient_dtype": "fp32"}),
        (
            "--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16",
            {"gradient_dtype": "bf16"},
        ),
        ("--bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", {"moment_dtype": "bf16"}),
        ("--bf16 --main-params-dtype fp16", {"main_weight_dtype": "fp16"}),
        (
            "--bf16 --fp8-format hybrid --fp8-param-gather",
            {"precision": "fp8", "fp8_weights": True},
        ),
        ("--optimizer-cpu-offload", {"offload": ["optimizer"]}),
        (
            "--optimizer-cpu-offload --optimizer-offload-fraction 0.5",
            {"offload": ["optimizer=0.5"]},
        ),
        ("--optimizer fusedadamw", {"optimizer": "adam"}),
        ("--transformer-impl local", {"attention": "eager"}),
        ("--transformer-impl local --use-flash-attn", {"attention": "flash"}),
        ("--use-megatron-fsdp", {"zero_stage": 3}),
        ("--checkpoint-activations", {"recompute": "full"}),
    ],
)
def test_formats_offload_and_old_names_are_read(flags: str, found: dict[str, object]) -> None:
    settings = settings_of(f"{SMALL} {flags}")
    assert {key: settings.get(key) for key in found} == found


@pytest.mark.parametrize(
    ("flags", "name", "other"),
    [
        ("--main-grads-dtype bf16", "main-grads-dtype", "use-precision-aware-optimizer"),
        ("--optimizer-cpu-offload", "optimizer-cpu-offload", "use-precision-aware-optimizer"),
        (
            "--use-precision-aware-optimizer",
            "use-precision-aware-optimizer",
            "use-distributed-optimizer",
        ),
    ],
)
def test_flags_that_megatron_starts_only_beside_another_are_said(
    flags: str, name: str, other: str
) -> None:
    said = {key.bare: key.reason for key in read(f"{SMALL} {flags}").keys}
    assert f"only with --{other}" in said[name]
    assert (
        "only with"
        not in {key.bare: key.reason for key in read(f"{SMALL} {flags} --{other}").keys}[name]
    )


def test_recompute_activations_is_selective_whatever_the_granularity() -> None:
    assert (
        read(f"{SMALL} --recompute-granularity full --recompute-activations").settings["recompute"]
        == "selective"
    )


def test_what_the_command_line_gives_instead_of_a_flag_is_said() -> None:
    given = {"global_batch_size": "64", "devices": "8"}
    keys = {
        key.bare: key.reason for key in read(f"torchrun --nproc-per-node 2 {SMALL}", given).keys
    }
    assert keys["global-batch-size"] == "not read: the command line gives --global-batch-size 64"
    assert keys["nproc-per-node"] == "not read: the command line gives --devices 8"


def test_moments_of_two_formats_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"gives --exp-avg-dtype bf16 .the first moment is kept in bf16, the second in fp32",
    ):
        settings_of(f"{SMALL} --exp-avg-dtype bf16")


def test_the_width_of_dense_blocks_counts_only_where_there_are_any() -> None:
    words = (
        "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --moe-ffn-hidden-size 768 "
        "--num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 "
        "--qk-layernorm --max-position-embeddings 40960 --swiglu --normalization RMSNorm "
        "--disable-bias-linear --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --num-experts 128 --moe-router-topk 8 --vocab-size "
        "151936"
    )
    assert settings_of(f"{words} {PLAN}")["model"] == "qwen3-30b-a3b"


def test_what_is_trained_beside_a_language_model_is_left_out_only_when_asked() -> None:
    found = read(
        f"torchrun examples/multimodal/train.py {SIZES} {PLAN} --decoder-seq-length 128 "
        "--vision-model-type clip --freeze-LM"
    )
    assert found.settings["sequence_length"] == 128
    beside = [key.bare for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)]
    assert beside == ["vision-model-type", "freeze-LM", "train.py"]
    with pytest.raises(InputError, match="a vision encoder beside the language model"):
        found.check_expressible(())
    assert found.ignoring([",".join(beside)]).ignored == tuple(beside)


def test_arguments_in_yaml_are_read() -> None:
    text = "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n" + "".join(
        f"  {name}: {value}\n"
        for name, value in {
            **{
                "--num-layers": 2,
                "--hidden-size": 64,
                "--num-attention-heads": 2,
                "--seq-length": 64,
                "--bf16": "true",
            },
            **{
                "--max-position-embeddings": 64,
                "--micro-batch-size": "${MBS}",
                "--vocab-size": "'128'",
                "--fp16": "false",
            },
            **{
                "--tensor-model-parallel-size": "1  # one",
                "--recompute-modules": "[core_attn]",
                "--num-attention-heads ": 2,
            },
        }.items()
    )
    with pytest.raises(InputError, match="give --micro-batch-size"):
        read(text)
    assert read(text, {"micro_batch_size": "1"}).settings["precision"] == "bf16"


def test_a_file_of_two_launches_is_no_launch() -> None:
    with pytest.raises(
        InputError,
        match=r"2 Megatron-LM commands that differ \(--micro-batch-size 1 and 2\); keep one",
    ):
        read(f"python {SMALL}\npython {SMALL} --micro-batch-size 2")
    assert read(f"python {SMALL}\npython {SMALL}").settings == read(SMALL).settings


# What refusals advise.

REMEDIES = {  # a launch, and what its refusal says will do
    "pretrain_mamba.py " + SIZES + " " + PLAN + " --hybrid-override-pattern M-M*": [
        "--model",
        TINY,
    ],
    f"{SMALL} --multi-latent-attention": ["--model", TINY],
    f"{SMALL} --num-experts 3": ["--model", TINY],
    f"{SMALL} --squared-relu": ["--model", TINY],
    f"{SMALL} --position-embedding-type none": ["--model", TINY],
    f"{SMALL} --position-embedding-type rope --untie-embeddings-and-output-weights": [
        *("--ignore", "position-embedding-type", "--ignore", "untie-embeddings-and-output-weights")
    ],
    f"{SMALL} --zero-stage 4": ["--zero-stage", "1"],
    f"pretrain_gpt.py {PLAN}": ["--model", TINY],
    f"{SMALL} --hidden-size 65": ["--model", TINY],
    f"{SMALL} --num-experts 4 --moe-layer-freq x": ["--model", TINY],
    SMALL.replace("--micro-batch-size 1", ""): ["--micro-batch-size", "1"],
    SMALL.replace("--micro-batch-size 1", "--micro-batch-size $4"): ["--micro-batch-size", "1"],
    SMALL.replace("--seq-length 64", ""): ["--sequence-length", "64"],
    f"{SMALL} --tensor-model-parallel-size $TP": ["--tp", "1"],
    f"{SMALL} --global-batch-size ${{GBS}}": ["--global-batch-size", "8"],
    f"{SMALL} --context-parallel-size x": ["--cp", "1"],
    f"{SMALL} --expert-model-parallel-size x": ["--ep", "1"],
    f"{SMALL} --pipeline-model-parallel-size 3": ["--pp", "2"],
    f"{SMALL} --pipeline-model-parallel-size 99": ["--pp", "2"],
    f"{SMALL} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t|tL": [
        "--stage-layers",
        "2",
        "2",
    ],
    f"{SMALL} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tmL": [
        "--stage-layers",
        "2",
        "2",
    ],
    f"{SMALL} --pipeline-model-parallel-size 1 --num-layers-per-virtual-pipeline-stage 3": [
        "--interleave",
        "1",
    ],
    f"{SMALL} --nproc-per-node 3 --tensor-model-parallel-size 2": ["--devices", "4"],
    f"{SMALL} --nproc-per-node 2 --nnodes $SLURM_JOB_NUM_NODES": ["--devices", "4"],
    f"{SMALL} --nproc-per-node $NGPUS": ["--devices", "4"],
    f"#SBATCH --nodes=your_number\n#SBATCH --ntasks-per-node=8\n{SMALL}": ["--devices", "4"],
    f"{SMALL} --fp16": ["--precision", "bf16"],
    f"{SMALL} --optimizer lion": ["--optimizer", "adam"],
    f"{SMALL} --optimizer-cpu-offload --optimizer-offload-fraction most": [
        "--offload",
        "optimizer",
    ],
    f"{SMALL} --context-parallel-size 2 --cp-comm-type a2a+p2p": ["--exchange", "ring"],
    f"{SMALL} --recompute-granularity full --recompute-method block": ["--recompute", "full"],
    f"{SMALL} --recompute-granularity selective --recompute-modules mlp mhc": [
        "--ignore",
        "recompute-modules",
    ],
    f"{SMALL} --mtp-num-layers 1 --window-size 8": ["--ignore", "mtp-num-layers,window-size"],
    f"{SMALL} --mtp-num-layers 1 --fp32-residual-connection": [
        "--ignore",
        "mtp-num-layers",
        "--ignore",
        "fp32-residual-connection",
    ],
}


@pytest.fixture
def evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    monkeypatch.setattr(
        "phaze.studies.optimum.optimum_beside", lambda evaluation: Optimum(None, 0.0)
    )

    def run(launch: str, words: list[str]) -> tuple[int, str, str]:
        file = tmp_path / "launch.sh"
        file.write_text(launch)
        status = phaze.main(
            ["evaluate", "--from", str(file), "--device", "h100", "--quiet", *words]
        )
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.parametrize("launch", REMEDIES)
def test_remedies_that_refusals_name_work(launch: str, evaluated: object) -> None:
    assert callable(evaluated)
    remedy = REMEDIES[launch]
    status, _, said = evaluated(launch, [])
    assert status == 2
    assert all(word in said for word in remedy if word.startswith("--"))
    assert evaluated(launch, remedy)[0] == 0


def test_what_was_not_read_is_said_beside_the_result(evaluated: object) -> None:
    assert callable(evaluated)
    launch = (
        f"{SMALL} --colour blue --mtp-num-layers 1 --moe-permute-fusion --lr 1 --log-interval 1"
    )
    status, printed, _ = evaluated(launch, ["--ignore", "mtp-num-layers"])
    assert status == 0
    lines = [line.split() for line in printed.splitlines()]
    assert ["read", "9;", "2", "more", "change", "nothing", "that", "is", "priced"] in lines
    told = next(" ".join(line) for line in lines if line[:2] == ["not", "read"])
    for words in (
        "ignored, as asked: --mtp-num-layers 1",
        "unknown: --colour blue",
        "--moe-permute-fusion (fusions and kernels)",
    ):
        assert words in told
    launched = json.loads(evaluated(launch, ["--ignore", "mtp-num-layers", "--format", "json"])[1])[
        "launch"
    ]
    assert launched["ignored"] == ["mtp-num-layers"]
    assert {key["name"]: key["kind"] for key in launched["keys"]}["--colour"] == "unknown"
    assert len(launched["keys"]) > 12


def test_what_is_not_there_cannot_be_ignored(evaluated: object) -> None:
    assert callable(evaluated)
    status, _, said = evaluated(SMALL, ["--ignore", "window-size"])
    assert status == 2 and "gives no such key" in said
    assert (
        phaze.main(["evaluate", "--model", TINY, "--device", "h100", "--ignore", "window-size"])
        == 2
    )


def test_a_launch_that_does_not_fit_is_told_what_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = (
        f"{SMALL} --seq-length 512 --max-position-embeddings 512 --vocab-size 50304 "
        "--micro-batch-size 8 --nproc-per-node 1"
    )
    file = tmp_path / "launch.sh"
    file.write_text(launch)
    words = ["evaluate", "--from", str(file), "--device", "h100", "--memory-size", "4", "--quiet"]
    words += ["--best"]
    assert phaze.main(words) == 3
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "the plan above does not fit; the fastest plan that fits:" in lines
    assert any(line.startswith("plan tp 1") for line in lines)
    told = next(line for line in reversed(lines) if line.startswith("iteration"))
    assert told.endswith(" s")
    assert phaze.main([*words, "--format", "json"]) == 3
    optimum = json.loads(capsys.readouterr().out)["optimum"]
    assert optimum["fits"] is False and optimum["saves"] == 0.0


# Cases with right answers.

CASES: dict[str, dict[str, object]] = {
    "llama3_8b_fp8_h100": {
        "cp": 2,
        "dp": 4,
        "precision": "fp8",
        "gradient_dtype": "bf16",
        "fp8_weights": True,
    },
    "megatron_expert_tensor_parallel": {"etp": "1"},
    "megatron_ignored_memory_flags": {"gradient_dtype": "bf16", "dp": 8},
    "megatron_moe_layer_freq": {"refused": "moe-layer-freq"},
    "megatron_optimizer_cpu_offload": {"offload": ["optimizer"]},
    "megatron_pretrain_mamba_as_gpt": {"refused": "give --model"},
    "megatron_qwen3_moe_refused": {"model": "qwen3-30b-a3b", "dp": 32, "ep": 8},
    "megatron_recompute_modules": {"recompute": "core_attn+mlp+layernorm"},
    "megatron_shell_arithmetic": {"tp": 4, "dp": 4},
}


def test_cases_are_read_rightly(shared_data: Path) -> None:
    folders = [
        path
        for path in (shared_data / "cases_2026").iterdir()
        if path.name.startswith(("megatron_", "llama3_8b_fp8"))
    ]
    if not folders:
        pytest.skip("the cases of 2026 are not on this machine")
    for folder in folders:
        right = CASES[folder.name]
        try:
            found = read_launch(folder / "launch.sh")
            found.check_expressible(())
        except InputError as error:
            assert str(right.get("refused", "not to be refused")) in str(error)
            continue
        assert {key: found.settings.get(key) for key in right} == right


def test_other_decoders_are_the_nearest_one_and_say_in_what_they_differ() -> None:
    dense = (
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--micro-batch-size 1 --vocab-size 512 --bf16 "
    )
    rotary = (
        dense + "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights "
        "--position-embedding-type rope "
    )
    experts = rotary + "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 32 "
    for command, model, differing in (
        (dense, "gpt-", set()),
        (
            dense + "--squared-relu --disable-bias-linear",
            "gpt-",
            {"squared-relu", "disable-bias-linear"},
        ),
        (
            dense + "--use-rotary-position-embeddings --qk-layernorm",
            "gpt-",
            {"use-rotary-position-embeddings", "qk-layernorm"},
        ),
        (dense + "--swiglu", "llama-", {"disable-bias-linear", "position-embedding-type"}),
        (rotary, "llama-", set()),
        (rotary + "--kv-channels 32", "llama-.*-head_width32", set()),
        (rotary + "--qk-layernorm", "qwen3-.*-head_width16", set()),
        (experts, "mixtral-.*-ffn32-vocabulary512", set()),
        (experts + "--qk-layernorm", "qwen3moe-.*-experts8-chosen2", set()),
        (
            experts + "--moe-shared-expert-intermediate-size 64",
            "mixtral-",
            {"moe-shared-expert-intermediate-size"},
        ),
    ):
        found = read(f"python pretrain_gpt.py {command}")
        assert re.match(model, str(found.settings["model"])), command
        assert {key.bare for key in found.of_kind("not expressible")} == differing, command
        assert sum("give --model" in key.reason for key in found.of_kind("not expressible")) == (
            1 if differing else 0
        )


def test_a_file_that_a_script_reads_and_that_is_not_there_is_named(tmp_path: Path) -> None:
    launch = 'source $(dirname "$0")/common.sh\nsource /opt/conda/bin/activate\n' + f"{SMALL} $MORE"
    (tmp_path / "launch.sh").write_text(launch)
    unknown = [key.name for key in read_launch(tmp_path / "launch.sh").of_kind("unknown")]
    assert any(name.endswith("common.sh") for name in unknown) and not any(
        "conda" in name for name in unknown
    )
    (tmp_path / "common.sh").write_text("MORE='--bf16 --tensor-model-parallel-size 2'")
    found = read_launch(tmp_path / "launch.sh")
    assert found.settings["tp"] == 2 and not found.of_kind("unknown")


EXCHANGE = "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--fp8-format hybrid --fp4-format e2m1", "of which Megatron takes one"),
        ("--fp8-format hybrid --fp8-recipe mxpf8", "give delayed, tensorwise, blockwise, mxfp8"),
        ("--fp8-format e5m2", "give hybrid, e4m3"),
        ("--fp8-format hybrid --fp8-recipe custom", "written by hand"),
        ("--delay-wgrad-compute", "needs --overlap-moe-expert-parallel-comm"),
        (
            f"{EXCHANGE} --overlap-moe-expert-parallel-comm --recompute-granularity full "
            "--recompute-method uniform",
            "stands beside --recompute-granularity full",
        ),
        (
            f"{EXCHANGE} --overlap-moe-expert-parallel-comm --recompute-granularity selective "
            "--recompute-modules moe",
            "stands beside --recompute-modules moe",
        ),
        (
            f"{EXCHANGE} --overlap-moe-expert-parallel-comm --moe-shared-expert-overlap",
            "stands beside --moe-shared-expert-overlap",
        ),
        ("--overlap-moe-expert-parallel-comm", "needs --expert-model-parallel-size above 1"),
        (
            "--expert-model-parallel-size 2 --overlap-moe-expert-parallel-comm",
            "needs --moe-token-dispatcher-type alltoall or flex",
        ),
        ("--num-distributed-optimizer-instances 2", "needs --use-distributed-optimizer"),
        (f"{EXCHANGE} --moe-enable-deepep", "needs --moe-token-dispatcher-type flex"),
        ("--tensor-model-parallel-size 2", "--num-experts .* needs --sequence-parallel"),
        (
            "--recompute-granularity selective --recompute-method uniform",
            "--recompute-method .* stands beside --recompute-granularity selective",
        ),
        (
            "--recompute-activations --recompute-method uniform",
            "--recompute-method .* stands beside --recompute-activations",
        ),
        ("--moe-router-topkk 2", "did you mean --moe-router-topk?"),
        ("--moe-permute-fusoin", "did you mean --moe-permute-fusion?"),
        (
            "--recompute-granularity selective --recompute-modules core_atn",
            "did you mean 'core_attn'",
        ),
        ("--attention-backend flahs", "give flash, fused, auto, unfused, local"),
        (
            f"{EXCHANGE} --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepepp",
            "--moe-flex-dispatcher-backend .* give deepep, hybridep, ncclep",
        ),
        (
            "--expert-model-parallel-size 2 --moe-token-dispatcher-type deepep",
            "--moe-token-dispatcher-type .* give alltoall, allgather, flex",
        ),
    ],
)
def test_what_megatron_refuses_is_refused(flags: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read(f"{SMALL} --num-experts 8 {flags}").check_expressible(())


def test_what_the_command_line_gives_counts_before_a_contradiction() -> None:
    text = f"{SMALL} --delay-wgrad-compute"
    read(text, {"overlap_experts": "none"}).check_expressible(())


def test_fp8_by_the_flags_of_2023_is_fp8() -> None:
    assert read(f"{SMALL} --bf16 --fp8-hybrid").settings["precision"] == "fp8"


@pytest.mark.parametrize(
    "modules", ["moe_act layernorm", "[moe_act,layernorm]", "['moe_act', layernorm]"]
)
def test_lists_of_modules_are_read_in_brackets_too(modules: str) -> None:
    text = f'{SMALL} --recompute-granularity selective --recompute-modules "{modules}"'
    assert read(text).settings["recompute"] == "moe_act+layernorm"


@pytest.mark.parametrize("flag", ["tokenizer-hf-include-special-tokens", "save-intervals 5"])
def test_names_of_other_versions_that_change_no_price_are_not_misspelt(flag: str) -> None:
    read(f"{SMALL} --{flag}")
