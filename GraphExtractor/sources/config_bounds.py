"""Bounds on the sizes in a Hugging Face configuration, beyond which a model cannot be built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from phaze_common.echo import clipped
from phaze_common.errors import InputError

# the first that a key matches holds: modules that are made one by one, then axes of tensors
_BOUNDS = (
    (re.compile(r"(layers?|depths?|num_blocks|num_stages)$"), 1000),
    (re.compile(r"^(num|n)_.*experts$"), 2**15),
    (re.compile(r"num_labels$"), 2**20),
    (re.compile(r"vocab|positions?|seq"), 2**31),
    # two make a matrix
    (
        re.compile(r"size|dim|heads?|hidden|channels|width|rank|n_embd|n_inner|d_model|d_ff|d_kv"),
        2**24,
    ),
)


def check_sizes(values: Mapping[str, Any], path: str) -> None:
    """Refuse a size that no model has.

    Raises: InputError: names ``path``, the key and the bound.
    """
    for key, value in _integers(values):
        name = key.rpartition(".")[2].lower()
        most = next((most for words, most in _BOUNDS if words.search(name)), None)
        if most is not None and value > most:
            raise InputError(
                f"{path}: {clipped(key)} is {value}, at most {most:,} is possible; correct it"
            )


def _integers(values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Whole numbers with the keys they are under; those of a list are under the key of the list."""
    pending: list[tuple[str, object]] = list(values.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            pending += [(key, inner) for inner in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            yield key, value
