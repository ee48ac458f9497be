"""What transformers' own files say of a model, read as text: importing them takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# what a model type is trained for where its configuration names no architecture; encoders come as
# decoders too
_TASKS = (
    "MASKED_LM CAUSAL_LM IMAGE_TEXT_TO_TEXT ZERO_SHOT_IMAGE_CLASSIFICATION IMAGE_CLASSIFICATION "
    "SEMANTIC_SEGMENTATION OBJECT_DETECTION VIDEO_CLASSIFICATION AUDIO_CLASSIFICATION "
    "SEQUENCE_CLASSIFICATION"
)
_PAIRED_TASKS = "SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ"  # of encoder-decoders, before all others
# of a configuration's class: the classes of its parts, by name
_PARTS = ("sub_configs_defaults", "sub_configs")


@lru_cache(maxsize=64)
def _classes(file: Path) -> Mapping[str, ast.ClassDef]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # of another version: what is not known has defaults
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@lru_cache(maxsize=1)
def _mappings() -> Mapping[str, Mapping[str, Any]]:
    """The tables of classes by model type, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in ("modeling_auto", "auto_mappings"):
        try:
            tree = ast.parse((_models() / "auto" / f"{name}.py").read_bytes())
        except (OSError, SyntaxError):
            continue
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            if isinstance(node.targets[0], ast.Name):
                with suppress(ValueError, TypeError, IndexError):
                    found[node.targets[0].id] = dict(ast.literal_eval(node.value.args[0]))
    return found


@lru_cache(maxsize=1)
def _models() -> Path:
    spec = find_spec("transformers")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "models"


def _file(kind: str, model_type: str) -> Path:
    special = _mappings().get("SPECIAL_MODEL_TYPE_TO_MODULE_NAME", {})
    folder: str = special.get(model_type, model_type.replace("-", "_"))
    return _models() / folder / f"{kind}_{folder}.py"


def default_values(model_type: str) -> dict[str, Any]:
    """What a configuration of this type says where its file leaves it out, parts of it included."""
    classes = _classes(_file("configuration", model_type))
    for each in classes.values():
        name = dict(_assignments(each)).get("model_type")
        if isinstance(name, ast.Constant) and name.value == model_type:
            return _defaults(each, classes)
    return {}


def _defaults(
    own: ast.ClassDef, classes: Mapping[str, ast.ClassDef], depth: int = 3
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for base in own.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            values |= _defaults(classes[base.id], classes, depth)
    for name, value in _assignments(own):
        if name in _PARTS and isinstance(value, ast.Dict):
            for key, part in zip(value.keys, value.values, strict=True):
                if depth and isinstance(key, ast.Constant):
                    values[str(key.value)] = _part(part, classes, depth - 1)
        elif not isinstance(values.get(name), Mapping):
            with suppress(ValueError, TypeError):
                values[name] = ast.literal_eval(value)
    return values


def _part(part: ast.expr, classes: Mapping[str, ast.ClassDef], depth: int) -> dict[str, Any]:
    """Defaults of a part of a configuration: its class, or a call that names its type."""
    if isinstance(part, ast.Name) and part.id in classes:
        return _defaults(classes[part.id], classes, depth)
    if isinstance(part, ast.Call):
        named = next((each.value for each in part.keywords if each.arg == "model_type"), None)
        if isinstance(named, ast.Constant):
            return default_values(str(named.value))
    return {}


def _assignments(own: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in own.body:
        if isinstance(node, ast.Assign):
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name) and node.value is not None:
            yield target.id, node.value


def known_model_types() -> tuple[str, ...]:
    """The types of models that transformers has configurations for; none where unknown."""
    return tuple(_mappings().get("CONFIG_MAPPING_NAMES", {}))


def architecture_name(model_type: str, paired: bool) -> str | None:
    """The usual class of models of this type; ``paired`` ones read and write."""
    tables = _mappings()
    tasks = f"{_PAIRED_TASKS} {_TASKS}" if paired else _TASKS
    names = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in tasks.split()]
    for table in (*names, "MODEL_MAPPING_NAMES"):
        found = tables.get(table, {}).get(model_type)
        if found:
            return str(found[0] if isinstance(found, list | tuple) else found)
    return None


def forward_parameters(model_type: str, architecture: str | None) -> frozenset[str]:
    """Names of what the module of a class reads; none where the files do not tell."""
    classes = _classes(_file("modeling", model_type))
    return frozenset(_forward(architecture or "", classes))


def _forward(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    own = classes.get(name)
    if own is None:
        return
    for node in own.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            given = node.args
            yield from (each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))
            return
    for base in own.bases:
        if isinstance(base, ast.Name):
            yield from _forward(base.id, classes)


def places_tokens_behind_padding(model_type: str) -> bool:
    """Whether positions begin behind the number of the padding token, as RoBERTa's do."""
    return _mentions(model_type, "def create_position_ids_from_input_ids")


def stacks_experts(model_type: str) -> bool:
    """Whether its experts are stacked, and asked of an interface how they run."""
    return _mentions(model_type, "@use_experts_implementation")


def rotates_by_sections(model_type: str) -> bool:
    """Whether its heads have parts of their own for time, height and width."""
    return _mentions(model_type, "mrope_section")


def _mentions(model_type: str, words: str) -> bool:
    try:
        return words in _file("modeling", model_type).read_text(encoding="utf-8")
    except OSError:
        return False


def named_architecture(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """The class that a configuration names first, else the most usual one of its type."""
    named = values.get("architectures")
    if named:
        name = named[0] if isinstance(named, list) else named
        return name if isinstance(name, str) else None
    paired = bool({**defaults, **values}.get("is_encoder_decoder"))
    return architecture_name(str(values["model_type"]), paired)
