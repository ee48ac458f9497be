"""Settings of ``phaze evaluate`` out of a configuration of torchtitan, a Python file or, of 0.1 and
0.2, TOML; nothing is run.

A Python file holds functions that return ``Trainer.Config(...)``, of which ``torchtitan.train
--config NAME`` takes one. Where there are several, one is chosen behind the file,
``config_registry.py:llama3_8b``; two are never mixed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from phaze.exports.given_keys import flattened, known_keys, shown, written
from phaze.exports.python_files.module import Module
from phaze.exports.python_files.values import UNTOLD, Expression, Made, parsed
from phaze.exports.torchtitan.files import EXPERT_BACKEND
from phaze.exports.torchtitan.sections import (
    BACKEND,
    GATHERS_FP8,
    RECIPE,
    SAMPLES,
    STAGES,
    NamedModel,
    Sections,
    named_model,
    settings_of,
)
from phaze.settings.launched import LaunchReading
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from phaze_common.toml_text import parse_toml

PYTHON_MARKS = ("ParallelismConfig", "TrainingConfig", "Trainer.Config")
# of Trainer.Config, by the class of each; of an argument that is not written out its name is enough
SECTIONS = {
    "ParallelismConfig": "parallelism",
    "TrainingConfig": "training",
    "CompileConfig": "compile",
    "ActivationCheckpointConfig": "activation_checkpoint",
}
PARTS = (
    *SECTIONS.values(),
    "optimizer",
    "lr_scheduler",
    "checkpoint",
    "dataloader",
    "metrics",
    "profiler",
    "debug",
    "comm",
)
SPECIFICATIONS = ("model_spec",)
# one of them is there in every configuration of a training
OF_A_TRAINER = ("training", "parallelism")
# of reinforcement learning, whose configuration holds two of these
OF_OTHERS = ("trainer", "generator")
# sections whose class says something
BY_CLASS = ("activation_checkpoint", "optimizer", "compile", "loss", *SPECIFICATIONS)
NAMES_OF_BACKEND = ("comm_backend", "moe_comm_backend")  # in what makes a model
MOST_LISTED = 40
OLDER = {  # keys of TOML before 0.1.0, by what they became
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.disable_loss_parallel": "parallelism.disable_loss_parallel",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.context_parallel_rotate_method": "parallelism.context_parallel_rotate_method",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_split_points": "parallelism.pipeline_parallel_split_points",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
}
# micro-batches of a pipeline by their number, by default pp
OLDER_PASSES = "experimental.pipeline_parallel_microbatches"
# it has a ParallelismConfig too
_OF_ACCELERATE = re.compile(r"^\s*(from|import) accelerate\b", re.MULTILINE)
_IMPORTED = re.compile(r"^(from|import) torchtitan\b", re.MULTILINE)


def recognises_python(text: str) -> bool:
    """Whether a text may be such a Python file: it names a class of torchtitan's as one calls it,
    or imports from it."""
    if _IMPORTED.search(text) is not None:
        return True
    return any(f"{mark}(" in text for mark in PYTHON_MARKS) and _OF_ACCELERATE.search(text) is None


def recognises_toml(content: Mapping[str, object]) -> bool:
    """Whether parsed TOML has sections of torchtitan's with a key that only it has."""
    training, parallelism = content.get("training"), content.get("parallelism")
    if isinstance(parallelism, dict) and any(
        str(key).endswith("_parallel_degree") or "data_parallel" in key for key in parallelism
    ):
        return True
    model = content.get("model")
    return (
        isinstance(training, dict)
        and isinstance(model, dict)
        and "flavor" in model
        and "seq_len" in training
    )


def read(
    text: str, name: str = "", folder: str = "", command_line: Mapping[str, str] | None = None
) -> LaunchReading:
    """The plan in ``text``, a Python file, as settings of ``evaluate``; what cannot be known is
    left out.

    Args: text: the file. name: of the function to take, where there are several. folder: that the
        file lies in, which is the model's where its imports are relative (``from . import
        model_registry``). command_line: its settings, which say the devices of a file
        that takes all there are (None: nobody was asked).

    Raises: InputError: it is no Python, configures nothing or several things, or configures what no
        plan of phaze is.
    """
    tree = parsed(text)
    module = Module(tree, parts=PARTS)
    if not configurations(module):
        module = Module(tree, main=True, parts=PARTS)  # nothing to import, so it is a script
    config = _configuration(module, name)
    _check_told(config)
    values, converters = _given(config), dict[str, None]()
    if module.has(EXPERT_BACKEND):
        values[BACKEND] = module.constant(EXPERT_BACKEND)
    known_keys("torchtitan").check_spelling(values)
    for record in config.all():
        converts = record.name.endswith("Converter")
        if converts or record.name.startswith("LoRA"):
            converters[record.name] = None
        for key in (GATHERS_FP8, RECIPE):
            if converts and key in record.values:
                values[f"{record.name}.{key}"] = record.values[key]
        backends = {name: BACKEND for name in NAMES_OF_BACKEND if name in record.values}
        values |= {path: record.values[name] for name, path in backends.items()}
    return _reading(values, converters, command_line, _model(config, module, tree, folder), {})


def _reading(
    values: Mapping[str, object],
    converters: Iterable[str],
    command_line: Mapping[str, str] | None,
    model: NamedModel,
    spelled: Mapping[str, str],
) -> LaunchReading:
    known, alone, names = known_keys("torchtitan"), command_line is None, tuple(converters)
    given = Sections(
        known, values, values, command_line or {}, spelled, converters=names, alone=alone
    )
    return given.reading({**settings_of(given), **model.settings}, no_model=model.why)


def read_toml(text: str, command_line: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan of a train configuration in TOML; settings ``command_line`` as of ``read``.

    Raises: InputError: it is no TOML, has no mark of torchtitan, or configures what no plan of
        phaze is.
    """
    content = parse_toml(text, "the configuration")
    if not recognises_toml(content):
        raise InputError(
            "the configuration has neither [parallelism] nor [training] and [model] of "
            "torchtitan; give one that has"
        )
    given = flattened(content)
    for path, value in given.items():
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            raise InputError(f"{path} is {value}; give a finite number")
    names = given.get("model.converters", [])
    if not isinstance(names, list):
        raise InputError(f"model.converters is {written(names)}; torchtitan takes a list of names")
    placed, spelled = _placed(given)
    known_keys("torchtitan").check_spelling(placed)
    model = named_model((str(given.get("model.name")),), given.get("model.flavor"))
    return _reading(placed, map(str, names), command_line, model, spelled)


def _placed(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Values by the keys of today, and the keys as the file has them where they are older.

    Raises:
        InputError: micro-batches of a pipeline do not come out whole.
    """
    placed, spelled = dict(given), dict[str, str]()
    for path, name in OLDER.items():
        if given.get(path) is not None and given.get(name) is None:
            spelled[name] = path
    for name, path in spelled.items():
        placed[name] = placed.pop(path)
    stages = placed.get(STAGES)
    if STAGES in spelled and isinstance(stages, int) and stages > 1:
        passes, local = given.get(OLDER_PASSES) or stages, given.get("training.batch_size", SAMPLES)
        if (
            not isinstance(passes, int)
            or not isinstance(local, int)
            or passes < 1
            or local % passes
        ):
            raise InputError(
                f"training.batch_size {shown(local)} is no multiple of {shown(passes)} "
                "micro-batches of the pipeline "
                f"({OLDER_PASSES}, by default its stages); correct one of them"
            )
        placed["parallelism.pipeline_parallel_microbatch_size"] = local // passes
        spelled["parallelism.pipeline_parallel_microbatch_size"] = OLDER_PASSES
    placed.pop(OLDER_PASSES, None)
    return placed, spelled


def configurations(module: Module) -> dict[str, Made]:
    """The configurations that functions of a module return, by name; private functions only where
    there are no others."""
    for private in (False, True):
        made = {name: _trainer(module.returned(name)) for name in module.functions(private)}
        found = {name: each for name, each in made.items() if each is not None}
        if found:
            return found
    return {}


def _trainer(value: object) -> Made | None:
    if not isinstance(value, Made) or value.name in SECTIONS:
        return None
    if any(key in value.values for key in OF_OTHERS):
        return None
    marks = (*OF_A_TRAINER, UNTOLD) if value.name == "Trainer" else OF_A_TRAINER
    return value if any(key in value.values for key in marks) else None


def _configuration(module: Module, name: str) -> Made:
    found = configurations(module)
    some = ", ".join(list(found)[:MOST_LISTED])
    if name and name not in found:
        hint = nearest(name, found, f"give one of {some}")
        raise InputError(f"it has no configuration {shown(repr(name))}; {hint}")
    if name or len(found) == 1:
        return found[name] if name else next(iter(found.values()))
    if found:
        raise InputError(
            f"it has {len(found)} configurations, of which torchtitan takes one by --config; name "
            f"it behind the file, such as --from FILE.py:{next(iter(found))}: {some}"
        )
    made = module.records(("Trainer",))
    trainers = [each for each in made if any(key in each.values for key in OF_A_TRAINER)]
    if len(trainers) > 1:
        lines = ", ".join(str(trainer.line) for trainer in trainers[:MOST_LISTED])
        raise InputError(
            f"the file makes {len(trainers)} configurations, in lines {lines}; give one of them"
        )
    if trainers:
        return trainers[0]
    records = module.records(SECTIONS)
    if not any(record.name in ("ParallelismConfig", "TrainingConfig") for record in records):
        raise InputError(
            "the file has no function that returns Trainer.Config(...), and neither "
            "ParallelismConfig(...) nor TrainingConfig(...) that is written out; where it takes "
            "them from another file, give that one"
        )
    names = [SECTIONS[record.name] for record in records]
    if len(set(names)) < len(names):
        raise InputError(
            "the file makes a record of one kind twice outside of any function that returns "
            "Trainer.Config(...); give one of them"
        )
    return Made("Trainer", dict(zip(names, records, strict=True)))


def _given(config: Made) -> dict[str, object]:
    """Values by section and key; a record in a section is its class, and its own arguments behind
    it."""
    nested = dict[str, object]()
    for section, value in config.values.items():
        if isinstance(value, Made) and value.name == section and not value.values:
            continue  # a part with its defaults that somebody looked at
        if section in BY_CLASS or not isinstance(value, Made) or not value.values:
            nested[section] = value
        if isinstance(value, Made) and section not in SPECIFICATIONS:
            nested |= {f"{section}.{key}": _plain(inner) for key, inner in value.values.items()}
    return {path: _word(value) for path, value in nested.items() if path != UNTOLD}


def _check_told(config: Made) -> None:
    """Refuse what other files or only running this one would tell of a configuration and its
    sections.

    Raises:
        InputError: says which, and what to do.
    """
    sections = {id(value): name for name, value in config.values.items() if name in OF_A_TRAINER}
    for record in config.all():
        section = sections.get(id(record), "")
        checked = record is config or section
        by_function = record.name != section and record.name.lstrip("_")[:1].islower()
        if checked and by_function:
            raise InputError(
                f"{record.name}(...) in line {record.line} is a function of another file, whose "
                "values are not told here; "
                f"write {section or 'the configuration'} out, or give that file"
            )
        if checked or record.name in SECTIONS:
            record.check_told()


def _plain(value: object) -> object:
    return Expression(str(value)) if isinstance(value, Made) else value


def _word(value: object) -> object:
    return value.name if isinstance(value, Made) else value


def _model(config: Made, module: Module, tree: ast.Module, folder: str) -> NamedModel:
    named = module.constant("MODEL")
    if isinstance(named, str):
        return NamedModel({"model": named})
    made = config.values.get("model_spec")
    if isinstance(made, Made) and made.name == "model_registry" and made.positional:
        flavor = made.positional[0]
    elif isinstance(made, Made):
        flavor = made.values.get("flavor")
    else:
        return NamedModel()
    return named_model({*_imported(tree), folder}, flavor)


def _imported(tree: ast.Module) -> Iterable[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and "model_registry" in [it.name for it in each.names]:
            yield from (each.module or "").split(".")
