"""Batches of launches: what a file leaves open follows from the devices of the command line, as the
program has it."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import phaze
from phaze.exports.launchers import read_launch
from phaze_common.errors import InputError

SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def read(folder: Path, content: dict[str, object], **besides: object) -> dict[str, object]:
    path = folder / "launch.json"
    path.write_text(json.dumps(content))
    return dict(read_launch(path, {key: str(value) for key, value in besides.items()}).settings)


@given(some.data(), some.integers(1, 6), some.integers(1, 6), some.integers(1, 6))
def test_any_two_sizes_and_the_devices_give_the_third(
    tmp_path_factory: pytest.TempPathFactory,
    data: some.DataObject,
    micro: int,
    steps: int,
    replicas: int,
) -> None:
    """DeepSpeed's ``_set_batch_related_parameters``: all three, two of them, or one with one
    micro-batch or one replica's."""
    folder = tmp_path_factory.mktemp("sizes")
    whole = dict(zip(SIZES, (micro * steps * replicas, micro, steps), strict=True))
    kept = data.draw(
        some.lists(some.sampled_from(SIZES[:2]), min_size=1, unique=True), label="kept"
    )
    if (steps > 1 and len(kept) == 1) or data.draw(some.booleans(), label="steps too"):
        kept.append(SIZES[2])
    told = {name: whole[name] for name in kept}
    counted = (
        {"devices": replicas}
        if data.draw(some.booleans(), label="by devices")
        else {"dp": replicas}
    )
    found = read(folder, told, **counted)
    assert found["micro_batch_size"] == micro
    assert found["global_batch_size"] == micro * steps * replicas
    if len(told) < 3 if SIZES[0] in told else steps > 1:
        with pytest.raises(InputError, match="give --devices or --dp"):
            read(folder, told)


@pytest.mark.parametrize(
    ("content", "besides", "micro", "batch"),
    [
        ({"train_batch_size": 32}, {"devices": 8}, 4, 32),
        ({"train_batch_size": 32}, {"devices": 8, "tp": 2}, 8, 32),
        ({"train_batch_size": 32, "tensor_parallel": {"autotp_size": 2}}, {"devices": 8}, 4, 16),
        ({"train_batch_size": 32, "pipeline": {"stages": 2}}, {"devices": 8}, 8, 32),
        ({"train_batch_size": 32}, {"devices": 8, "micro_batch_size": 2}, 2, 32),
        ({"train_batch_size": 32}, {"devices": 8, "global_batch_size": 64}, 8, 64),
        (
            {"train_batch_size": 32, "gradient_accumulation_steps": 2},
            {"dp": 8, "global_batch_size": 64},
            4,
            64,
        ),
        (
            {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2},
            {"devices": 8, "global_batch_size": 64},
            2,
            32,
        ),
        (
            {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2},
            {"devices": 8},
            2,
            None,
        ),
        (
            {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4},
            {"devices": 8},
            2,
            64,
        ),
    ],
)
def test_batches_by_hand(
    tmp_path: Path,
    content: dict[str, object],
    besides: dict[str, object],
    micro: int | None,
    batch: int | None,
) -> None:
    found = read(tmp_path, content, **besides)
    assert (found.get("micro_batch_size"), found.get("global_batch_size")) == (micro, batch)


@pytest.mark.parametrize(
    ("content", "besides", "sentence"),
    [
        ({"train_batch_size": 30}, {"devices": 8}, "not shared out evenly by 8 devices"),
        ({"train_batch_size": 4}, {"devices": 8}, "not shared out evenly by 8 devices"),
        (dict(zip(SIZES, (64, 2, 4), strict=True)), {"devices": 16}, "which DeepSpeed refuses"),
        (
            {"train_batch_size": 32, "pipeline": {"stages": 3}},
            {"devices": 8},
            "no multiple of tp x pp x cp, 3",
        ),
    ],
)
def test_sizes_that_contradict_the_devices_are_refused(
    tmp_path: Path, content: dict[str, object], besides: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        read(tmp_path, content, **besides)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_num_micro_batches: "
            "8\nnum_processes: 4\n",
            "megatron_lm_config.megatron_lm_num_micro_batches",
        ),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_accumulation_steps: "
            "8\nnum_processes: 4\n",
            "deepspeed_config.gradient_accumulation_steps",
        ),
        (
            "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\nbf16: true\n",
            "gradient_accumulation_steps",
        ),
    ],
)
def test_micro_batches_of_an_iteration_are_never_dropped(
    tmp_path: Path, text: str, key: str
) -> None:
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    assert (
        read_launch(path, {"devices": "16", "micro_batch_size": "2"}).settings["global_batch_size"]
        == 2 * 8 * 16
    )
    by_file = read_launch(path, {"micro_batch_size": "2"})
    asked = [each.name for each in by_file.of_kind("not expressible")]
    assert by_file.settings.get("global_batch_size") == 2 * 8 * 4 or asked == [key]


def test_a_batch_that_counts_devices_of_tensor_parallelism_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    for content, batch in (
        ({"train_batch_size": 32, "tensor_parallel": {"autotp_size": 2}}, 16),
        (
            {
                "train_batch_size": 32,
                "train_micro_batch_size_per_gpu": 2,
                "tensor_parallel": {"autotp_size": 4},
            },
            8,
        ),
        ({"train_batch_size": 32}, 32),
        ({"train_micro_batch_size_per_gpu": 2, "tensor_parallel": {"autotp_size": 4}}, None),
    ):
        path.write_text(json.dumps(content))
        found = read_launch(path, {"devices": "8"})
        said = [
            each.reason
            for each in found.of_kind("priced as usual")
            if each.name == "train_batch_size"
        ]
        if batch is not None:
            assert found.settings["global_batch_size"] == batch
        assert len(said) == (batch in (16, 8)) and all(
            f"{batch} are trained on" in each for each in said
        )


LEFT_OPEN = {
    "accelerate": (
        "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n",
        {"micro_batch_size", "global_batch_size"},
    ),
    "all auto": (
        json.dumps(
            dict.fromkeys(SIZES, "auto")
            | {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
        ),
        {"micro_batch_size", "global_batch_size", "dp"},
    ),
    "one replica": ("per_device_train_batch_size: 2\nbf16: true\n", {"global_batch_size", "dp"}),
}


@pytest.mark.parametrize(("text", "open_to"), LEFT_OPEN.values(), ids=LEFT_OPEN)
def test_batches_that_nobody_gives_are_said_beside_the_result(
    text: str, open_to: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    model = "gpt:layers=1,hidden=64,heads=1,vocabulary=100,sequence_length=32"
    words = [
        "evaluate",
        "--from",
        str(path),
        "--model",
        model,
        "--device",
        "h100_sxm",
        "--output",
        str(tmp_path / "output"),
    ]
    for flags in (
        [],
        ["--devices", "2"],
        ["--micro-batch-size", "2", "--global-batch-size", "4", "--devices", "2"],
    ):
        said = {key.lstrip("-").replace("-", "_") for key in flags[::2]}
        left = open_to - said - ({"dp"} if "devices" in said else set())
        assert phaze.main([*words, *flags, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        taken = {
            key["name"]: key["value"]
            for key in answer["launch"]["keys"]
            if key["reason"].startswith("taken")
        }
        assert taken.keys() == left
        for name, value in taken.items():
            assert (
                value == str(answer["plan"]["global_batch_size"])
                if name == "global_batch_size"
                else value
            )
    assert phaze.main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(
        name in shown for name in open_to
    ) and "taken, since neither the file nor the command line" in " ".join(shown.split())


def test_what_surrounds_a_launch_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A length that only the model has, the software of another program, and another number of
    nodes."""
    path = tmp_path / "launch.yaml"
    path.write_text(
        "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 4\nmixed_precision: bf16\n"
    )
    model = "gpt:layers=1,hidden=64,heads=1,vocabulary=100"
    words = [
        "evaluate",
        "--from",
        str(path),
        "--model",
        model,
        "--device",
        "h100_sxm",
        "--output",
        str(tmp_path / "output"),
    ]

    def said(*flags: str) -> dict[str, str]:
        assert phaze.main([*words, *flags, "--format", "json"]) == 0
        keys = json.loads(capsys.readouterr().out)["launch"]["keys"]
        return {key["name"]: f"{key['value']} {key['reason']}" for key in keys if not key["given"]}

    taken = said()
    assert taken["sequence_length"].startswith("1024 taken")
    assert "--software pytorch_fsdp is nearer" in taken["software"]
    assert taken["nodes"].startswith("4 priced on 1 of 8")
    others = said("--sequence-length", "64", "--software", "pytorch_fsdp", "--devices", "4")
    assert not {"sequence_length", "software", "nodes"} & others.keys()
