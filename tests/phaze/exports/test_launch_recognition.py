"""A file is read by what it is: files without marks are never priced, and whatever is in a file,
refusals are sentences."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phaze.exports.launchers import READERS, Content, read_launch, reading_of
from phaze_common.errors import InputError
from tests.phaze.exports.launch_samples import (
    ACCELERATE,
    BRIDGE,
    DEEPSPEED,
    FILES,
    NEMO,
    TITAN,
    TITAN_PYTHON,
    TRAINER,
    toml,
)

PROGRAMS = {  # of FILES, as their readings call them
    "DeepSpeed": "DeepSpeed",
    "accelerate": "accelerate",
    "NeMo 1": "NeMo or Megatron Bridge",
    "Megatron Bridge": "NeMo or Megatron Bridge",
    "Hugging Face Trainer": "Hugging Face Trainer",
    "torchtitan in TOML": "torchtitan",
    "torchtitan in Python": "torchtitan",
}
WORDS = (  # of launches and of others, none of which is a mark by itself
    *(
        "hello",
        "model",
        "training",
        "train",
        "optimizer",
        "lr",
        "name",
        "bf16",
        "fp16",
        "precision",
        "stage",
        "seed",
        "batch_size",
    ),
    *(
        "gradient_accumulation_steps",
        "num_layers",
        "hidden_size",
        "devices",
        "trainer",
        "num_processes",
        "mixed_precision",
        "data",
    ),
    *(
        "gradient_clipping",
        "steps_per_print",
        "scheduler",
        "micro",
        "version",
        "services",
        "image",
        "on",
        "jobs",
        "tp",
        "pp",
    ),
)
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        3,
        7,
        2**31,
        2**63,
        10**30,
        0.5,
        -0.5,
        1e300,
        float("inf"),
        float("nan"),
        "",
        " ",
        "auto",
        "none",
    ),
    *(
        "x" * 5000,
        "\u202e",
        "${model.seq_length}",
        "${.hidden_size}",
        "NaN",
        "1e3",
        "8",
        [],
        {},
        [1],
        [[]],
        [None],
        {"a": 1},
    ),
    *(
        {"enabled": True},
        {"enabled": "auto"},
        [{"a": [1, {"b": None}]}],
        "int('2')",
        "Et*3|L",
        "cpu",
        "nvme",
        "full",
    ),
)
SAMPLES = {
    "deepspeed": DEEPSPEED,
    "accelerate": ACCELERATE,
    "nemo": NEMO,
    "bridge": BRIDGE,
    "trainer": TRAINER,
}


def plain_values(depth: int = 3) -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-5, 5000)
        | st.floats(0.0, 2.0)
        | st.sampled_from(WORDS)
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | mappings(inner), max_leaves=12
    )


def mappings(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(
        st.sampled_from(WORDS) | st.text("abcdefgh_", min_size=1, max_size=8), inner, max_size=5
    )


def as_formats(content: dict[str, Any]) -> Iterator[str]:
    """One content in five languages, in some as far as it goes."""
    yield json.dumps(content)
    yield yaml.safe_dump(content)
    plain = {key: value for key, value in content.items() if isinstance(value, str | int | float)}
    yield toml({"tool": plain, "training": dict.fromkeys(plain, 1)})
    yield (
        "\n".join(f"{key.replace('-', '_')} = {value!r}" for key, value in plain.items())
        + "\nprint(1)\n"
    )
    yield (
        "#!/bin/bash\n"
        + "\n".join(f"export {key.upper()}={value}" for key, value in plain.items())
        + "\nsrun python train.py\n"
    )


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ["launch.txt", "launch.json", "launch.py", "launch.sh"])
def test_a_file_is_known_by_its_marks_whatever_it_is_called(
    kind: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(FILES[kind])
    assert read_launch(tmp_path / name).program == PROGRAMS[kind]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mappings(plain_values()))
def test_files_without_marks_are_never_priced(content: dict[str, Any]) -> None:
    formats = [content.get(name) for name in ("bf16", "fp16")]
    if any(isinstance(each, dict) and "enabled" in each for each in formats):
        return  # a mark of DeepSpeed
    for text in as_formats(content):
        with pytest.raises(InputError):
            reading_of(Content(text))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('{"hello": 1}', "a DeepSpeed configuration"),
        ("", "a DeepSpeed configuration"),
        ("[]", "a DeepSpeed configuration"),
        ("torch>=2.3\nnumpy==1.26\n", "a DeepSpeed configuration"),
        ("[project]\nname = 'x'\n[tool.ruff]\nline-length = 100\n", "a DeepSpeed configuration"),
        ("services:\n  web:\n    image: nginx\n", "a DeepSpeed configuration"),
        ('{"model_type": "llama", "hidden_size": 4096}', "--model"),
        (
            "from nemo.collections import llm\n\nrecipe = "
            "llm.llama3_8b.pretrain_recipe(num_nodes=1)\n",
            "it is a recipe of NeMo",
        ),
        ("import nemo_run as run\n\nrun.run(configure())\n", "it is a recipe of NeMo"),
        (
            "from megatron.bridge.recipes.llama import config\n\ncfg = "
            "config()\ncfg.model.seq_length = 8\n",
            "it is a recipe of NeMo",
        ),
        ('{"architectures": ["JetMoEForCausalLM"]}', "--model"),
        ("model: gpt2\ntp: 2\nmicro_batch_size: 1\n", "--plan"),
        ('{"status": "optimal", "accelerator": {}, "models": {}}', "--plan"),
        (
            '{"model_name": "gpt", "num_stages": 2, "num_gpus": [4, 4], "num_ops_in_each_stage": '
            "[3, 4]}",
            "third_party.aceso",
        ),
    ],
)
def test_what_is_no_launch_is_told_where_it_goes(text: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        reading_of(Content(text))


def test_published_plans_of_aceso_are_no_launches(shared_data: Path) -> None:
    files = [
        path for path in sorted(shared_data.rglob("*.json"))[:400] if path.stat().st_size < 10**6
    ]
    assert files
    for path in files:
        if "deepspeed" in str(path) or "ds_config" in path.name:
            continue
        with pytest.raises(InputError):
            read_launch(path)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_cut_off_is_refused_or_read_as_its_own(kind: str) -> None:
    text = FILES[kind]
    for end in range(1, len(text), max(1, len(text) // 60)):
        try:
            assert reading_of(Content(text[:end])).program == PROGRAMS[kind]
        except InputError as error:
            assert str(error)


@pytest.mark.parametrize("name", SAMPLES)
def test_odd_values_of_every_key_are_read_or_refused_in_a_sentence(name: str) -> None:
    sample = SAMPLES[name]
    for path in leaves(sample):
        for odd in ODD:
            changed = copy.deepcopy(sample)
            place: Any = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = odd
            try:
                reading_of(Content(json.dumps(changed)))
            except InputError as error:
                assert "\n" not in str(error) and len(str(error)) < 2000, path


def test_odd_values_in_toml_and_python_are_read_or_refused_in_a_sentence() -> None:
    for section, key in [(section, key) for section, table in TITAN.items() for key in table]:
        for odd in ODD:
            if (
                odd is None
                or (isinstance(odd, float) and not abs(odd) < 1e309)
                or "{" in json.dumps(odd)
            ):
                continue
            changed = copy.deepcopy(TITAN)
            changed[section][key] = odd
            try:
                reading_of(Content(toml(changed)))
            except InputError as error:
                assert "\n" not in str(error)
    for written in (
        "1 * 2",
        "2 * 4096",
        '"8B"',
        "FullAC.Config()",
        "2",
        "4",
        '{"tensor_parallel_degree": 2',
    ):
        for odd in (
            "None",
            "-1",
            "10**99",
            "9**9**9",
            "[1] * 10**9",
            "lambda: 1",
            "{**x}",
            "base()",
            "1 if x else 2",
            "f'{x}'",
            "...",
        ):
            try:
                reading_of(Content(TITAN_PYTHON.replace(written, odd, 1)))
            except InputError as error:
                assert len(str(error)) < 2000


def leaves(content: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = list[tuple[str, ...]]()
    for key, value in content.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += leaves(value, (*above, key))
    return found


def test_every_reader_has_a_sample_here() -> None:
    seen = set[int]()
    for text in FILES.values():
        content = Content(text)
        seen.add(next(index for index, reader in enumerate(READERS) if reader.recognises(content)))
    left = [reader.program for index, reader in enumerate(READERS) if index not in seen]
    assert left == [
        "Megatron Bridge",
        "Megatron-LM",
    ]  # a recipe in Python and commands, which test_command exports and reads


@pytest.mark.parametrize(
    "text",
    [
        '{"train_batch_size": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "a: &a [x, x, x, x]\n"
        + "".join(
            f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n"
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "distributed_type: FSDP\nx: " + "[" * 5000,
        "training = " + "[" * 5000,
        "def f():\n return Trainer.Config(training=TrainingConfig(seq_len="
        + "(" * 5000
        + "1"
        + ")" * 5000
        + "))",
        "x = " + "+".join(["1"] * 30_000) + "\nTrainingConfig(seq_len=x)",
        "x0 = [1]\n"
        + "".join(f"x{i + 1} = [x{i}, x{i}]\n" for i in range(60))
        + "TrainingConfig(seq_len=8)\nParallelismConfig(a=x60)",
        "def f0():\n return TrainingConfig()\n"
        + "".join(f"def f{i + 1}():\n a = f{i}()\n return f{i}()\n" for i in range(60)),
        "def f():\n c = Trainer.Config(training=TrainingConfig())\n c.training = c\n "
        "c.parallelism = c\n return c",
        "def f():\n return f()\nTrainingConfig(seq_len=1)",
        "#" + "x" * 3_000_000 + "\ntraining: 1",
    ],
    ids=lambda text: text[:20],
)
def test_reading_is_bounded(text: str) -> None:
    try:
        reading_of(Content(text))
    except InputError as error:
        assert len(str(error)) < 2000


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\ndeepspeed main.py --per_device_train_batch_size 8 --zero_stage 2 "
        "--deepspeed\n",
        "python run.py \\\n  --per_device_train_batch_size 8\n",
        'cat > ds.json <<EOF\n{"zero_optimization": {"stage": 2}}\nEOF\ntorchrun train.py '
        "--deepspeed ds.json\n",
    ],
)
def test_a_command_line_of_other_programs_is_called_one(text: str) -> None:
    with pytest.raises(
        InputError, match=r"on a command line.*give the configuration of DeepSpeed or accelerate"
    ):
        reading_of(Content(text))
