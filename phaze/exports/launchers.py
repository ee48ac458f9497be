"""What launch files of other programs say, as settings of a plan: which program a file is of is
read from what is in it.

A reader takes a file by its marks, names that only its program has; an extension says nothing. What
no reader takes is refused with what it seems to be, where that is known, and with what can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from phaze.exports.accelerate import reader as accelerate_reading
from phaze.exports.deepspeed import reader as deepspeed_reading
from phaze.exports.hf_trainer import reader as hf_trainer_reading
from phaze.exports.megatron_lm import reader as megatron_reading
from phaze.exports.nemo import reader as nemo_reading
from phaze.exports.torchtitan import reader as torchtitan_reading
from phaze.settings.launched import LaunchReading
from phaze_common.errors import InputError
from phaze_common.files import parse_json, read_text
from phaze_common.toml_text import parse_toml
from phaze_common.yaml_files import MAX_YAML_BYTES, parse_yaml

READABLE = (
    "a Megatron-LM command or script, a DeepSpeed configuration (JSON), a torchtitan configuration "
    "(Python or TOML), a configuration of accelerate (YAML), of NeMo or Megatron Bridge (YAML, or "
    "Python with its ConfigContainer), or arguments of Hugging Face's Trainer (Python, YAML or "
    "JSON)"
)
_RECIPE = re.compile(
    r"^\s*(?:from|import) (?:nemo\.collections|nemo_run|megatron\.bridge)\b", re.MULTILINE
)  # in Python
_FLAGS = re.compile(r"^#!.*sh\b|^[^\"'{}]*\s--[a-z]", re.MULTILINE)  # a script or a command
_SCRIPT = re.compile(r"\.sh\b")
MOST_STARTED, LONGEST_NAME = 20, 100
_TRAINER_FLAGS = re.compile(
    r"--per_device_train_batch_size\b|--(?:ds|deepspeed)_config\b|--deepspeed[ =]\S*\.json"
)
_TABLE = re.compile(r"^\s*\[[A-Za-z0-9_.\"-]+\]\s*(#.*)?$", re.MULTILINE)
_KEY = re.compile(r"^[\"']?[A-Za-z_][A-Za-z0-9_. -]*[\"']?\s*:(\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Content:
    """A file by what is in it: its text, and what that is as JSON, YAML or TOML where it is one of
    them."""

    text: str
    name: str = ""  # of the configuration to take, where a file has several
    folder: Path = Path()  # that the file lies in
    # settings of the command line by their keys; None: there is none
    given: Mapping[str, str] | None = None

    @cached_property
    def json(self) -> object:
        """What JSON it is; None where it is none."""
        if self.text.lstrip()[:1] in ("{", "["):
            return self._as(lambda text: parse_json(text, "it"))
        return None

    @cached_property
    def yaml(self) -> object:
        """What YAML it is, JSON too; None where it is none."""
        if self.json is not None:
            return self.json
        return self._as(lambda text: parse_yaml(text, "it")) if _KEY.search(self.text) else None

    @cached_property
    def toml(self) -> Mapping[str, object]:
        """What TOML it is; empty where it is none."""
        found = self._as(lambda text: parse_toml(text, "it")) if _TABLE.search(self.text) else None
        return found if isinstance(found, dict) else {}

    def beside(self, name: str) -> str | None:
        """The text of another file in the folder; None where there is none of that name."""
        other = self.folder / name
        return read_text(other, "a file that a launch reads") if other.is_file() else None

    def starts(self, recognises: Callable[[str], bool]) -> bool:
        """Whether it is a script that names another one beside it which is recognised."""
        ends = [found.end() for found in islice(_SCRIPT.finditer(self.text), MOST_STARTED)]
        before = [self.text[max(0, end - LONGEST_NAME) : end] for end in ends]
        words = [re.split(r"[^\w.-]", text)[-1] for text in before]
        others = [self.beside(word) for word in dict.fromkeys(words)]
        return any(text is not None and recognises(text) for text in others)

    def _as(self, parse: Callable[[str], object]) -> object:
        if len(self.text) > MAX_YAML_BYTES:
            return None
        try:
            return parse(self.text)
        except InputError:
            return None


@dataclass(frozen=True)
class Reader:
    """A way to read a kind of file: whether it is one, and what it says."""

    program: str
    recognises: Callable[[Content], bool]
    read: Callable[[Content], LaunchReading]
    marks: tuple[str, ...] = ()  # words of a damaged file by which it would be of this kind
    # the listed framework that is nearest, where it is not that of devices as a rule
    software: str = ""


PYTORCH = "pytorch_fsdp"
READERS = (
    Reader(
        "DeepSpeed",
        lambda content: deepspeed_reading.recognises(content.json),
        lambda content: deepspeed_reading.read(content.text, content.given),
        ('"zero_optimization"', '"train_micro_batch_size_per_gpu"', '"train_batch_size"'),
        software=PYTORCH,
    ),
    Reader(
        "Hugging Face Trainer",
        lambda content: (
            hf_trainer_reading.recognises(content.yaml)
            or hf_trainer_reading.recognises_python(content.text)
        ),
        lambda content: hf_trainer_reading.read(content.text, content.given),
        ("per_device_train_batch_size",),
        software=PYTORCH,
    ),
    Reader(
        "accelerate",
        lambda content: accelerate_reading.recognises(content.yaml),
        lambda content: accelerate_reading.read(content.text, content.given),
        ("distributed_type:",),
        software=PYTORCH,
    ),
    Reader(
        "Megatron Bridge",
        lambda content: nemo_reading.recognises_python(content.text),
        lambda content: nemo_reading.read_python(content.text, content.name),
    ),
    Reader(
        "torchtitan",
        lambda content: torchtitan_reading.recognises_python(content.text),
        lambda content: torchtitan_reading.read(
            content.text, content.name, content.folder.name, content.given
        ),
        software=PYTORCH,
    ),
    Reader(
        "torchtitan",
        lambda content: torchtitan_reading.recognises_toml(content.toml),
        lambda content: torchtitan_reading.read_toml(content.text, content.given),
        ("[parallelism]",),
        software=PYTORCH,
    ),
    Reader(
        "NeMo or Megatron Bridge",
        lambda content: nemo_reading.recognises(content.yaml),
        lambda content: nemo_reading.read(content.text, content.given),
        ("tensor_model_parallel_size:", "global_batch_size:"),
    ),
    Reader(
        "Megatron-LM",
        lambda content: (
            megatron_reading.is_megatron(content.text)
            or content.starts(megatron_reading.is_megatron)
        ),
        lambda content: megatron_reading.read(content.text, content.given, content.beside),
    ),
)


def read_launch(path: Path, given: Mapping[str, str] | None = None) -> LaunchReading:
    """What a launch file says: ``FILE``, or ``FILE:NAME`` for one of the configurations that a
    Python file has.

    Settings ``given`` besides, by their keys, count before what the file says.

    Raises: InputError: the file cannot be read, is of no program that is known, or lacks what a
        plan needs.
    """
    file, name = _chosen(path)
    text = read_text(file, "a launch file")
    try:
        return _beside(reading_of(Content(text, name, file.parent, given)), given or {})
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _beside(reading: LaunchReading, given: Mapping[str, str]) -> LaunchReading:
    """Without the replicas of the file where the command line gives devices, of which they are a
    part."""
    own = {key: value for key, value in reading.settings.items() if key != "dp"}
    return replace(reading, settings=own) if "devices" in given else reading


def reading_of(content: Content) -> LaunchReading:
    """What a file says by what is in it.

    Raises:
        InputError: it is of no program that is known, or lacks what a plan needs.
    """
    for reader in READERS:
        if reader.recognises(content):
            return replace(reader.read(content), software=reader.software)
    parsed = content.json is not None or content.yaml is not None or content.toml
    damaged = not parsed and not _FLAGS.search(content.text)
    for reader in READERS if damaged else ():
        if any(mark in content.text for mark in reader.marks):
            return reader.read(content)  # it is damaged, and the reader says where
    raise InputError(_other(content))


def _chosen(path: Path) -> tuple[Path, str]:
    """The file and the name behind its last colons, where there is no file of the whole name."""
    home, colon, name = path.name.rpartition(":")
    home = home.rstrip(":")
    if not colon or not home or not name or path.exists():
        return path, ""
    return path.with_name(home), name


def _other(content: Content) -> str:
    """What a file that no reader takes seems to be, with the way to give it.

    Raises:
        InputError: it begins as JSON does and is none.
    """
    if content.text.lstrip().startswith("{") and content.yaml is None:
        parse_json(content.text, "it")
    found = content.yaml if isinstance(content.yaml, dict) else {}
    if _RECIPE.search(content.text):
        return (
            "it is a recipe of NeMo or Megatron Bridge whose values other files tell; write it out "
            "as a function that returns ConfigContainer(...), give its values in YAML, or the plan "
            "by flags such as --model, --tp and --global-batch-size"
        )
    if _TRAINER_FLAGS.search(content.text):
        return (
            "it gives a training script its arguments on a command line, of which only "
            "Megatron-LM's are read; give the configuration of DeepSpeed or accelerate that it "
            "names, and the rest by flags such as --micro-batch-size and --dp"
        )
    if "model_type" in found or "architectures" in found:
        return "it is the configuration of a model, not of a launch; give it with --model"
    if "num_stages" in found and "num_gpus" in found:
        return "it is a plan of Aceso; price it with python -m third_party.aceso evaluate"
    of_phaze = {"phaze_version", "accelerator", "tp", "pp", "dp", "micro_batch_size"}
    if of_phaze & found.keys():
        return "it is a plan of phaze, not a launch of another program; give it with --plan"
    return (
        "it is no launch file that is known: no name in it is one that only such a program "
        f"has; what can be read is {READABLE}"
    )
