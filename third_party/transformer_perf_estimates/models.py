"""Transformers: the five numbers transformer-perf-estimates knows of a model."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from phaze_common.yaml_files import read_yaml

from .values import mapping_of, refuse_unknown, whole

MOST_TOKENS, MOST_WIDTH, MOST_HEADS, MOST_LAYERS = 2**30, 2**24, 2**20, 2**16


@dataclass(frozen=True)
class TransformerModel:
    """Layers of equal size; without embeddings, head and loss, which it leaves out."""

    sequence_length: int  # l
    hidden: int  # e
    heads: int  # h
    layers: int  # depth
    ffn: int  # f


def read_model(document: Any, source: str) -> TransformerModel:
    """A model from its own keys: l, e, h, depth, and f, which is 4 e where it is not given. Raises
    InputError: a key is missing, unknown or wrong; names ``source``."""
    given = mapping_of(document, source, "l, e, h, depth")
    refuse_unknown(given, ("l", "e", "h", "depth", "f"), source)
    hidden = whole(given.get("e"), f"{source}: e", 1, MOST_WIDTH)
    heads = whole(given.get("h"), f"{source}: h", 1, MOST_HEADS)
    if hidden % heads:
        raise InputError(f"{source}: h is {heads}; heads must divide the width e = {hidden}")
    return TransformerModel(
        sequence_length=whole(given.get("l"), f"{source}: l", 1, MOST_TOKENS),
        hidden=hidden,
        heads=heads,
        layers=whole(given.get("depth"), f"{source}: depth", 1, MOST_LAYERS),
        ffn=whole(given.get("f", 4 * hidden), f"{source}: f", 1, 4 * MOST_WIDTH),
    )


@cache
def published_models() -> dict[str, TransformerModel]:
    """The published models by name."""
    path = Path(__file__).with_name("models.yaml")
    return {
        name: read_model(document, f"{path}: {name}") for name, document in read_yaml(path).items()
    }


def published_model(name: str) -> TransformerModel:
    """A published model. Raises InputError: there is none of that name; says which there are."""
    known = published_models()
    if name not in known:
        instead = nearest(name, known, f"known are {', '.join(known)}")
        raise InputError(f"model '{name}' is not known; {instead}, or give 'model' as an object")
    return known[name]
