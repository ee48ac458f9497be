"""Transformers: the five numbers transformer-perf-estimates knows of a model."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from phaze_common.errors import InputError

from .values import mapping_of, published_one, published_records, refuse_unknown, whole

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
    return published_records("models.yaml", read_model)


def published_model(name: str) -> TransformerModel:
    """A published model. Raises InputError: there is none of that name; says which there are."""
    return published_one(published_models(), "model", name)
