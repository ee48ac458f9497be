"""A Hugging Face configuration as a family of ours reads it: all that shapes the graph is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from phaze_common.echo import clipped
from phaze_common.errors import InputError

# tokens: positions that a released model allows are no length that it was trained with
LONGEST_DEFAULT = 8192


class InexpressibleError(Exception):
    """A configuration says something that a family does not have; says what."""


_FLOAT = "__float__"  # what transformers writes for numbers that JSON does not have
_FLOATS = ("Infinity", "-Infinity", "NaN")


def with_floats(value: Any) -> Any:
    """A value with numbers that transformers writes as mappings: ``{"__float__": "Infinity"}``."""
    if isinstance(value, Mapping):
        if set(value) == {_FLOAT} and value[_FLOAT] in _FLOATS:
            return float(value[_FLOAT])
        return {key: with_floats(each) for key, each in value.items()}
    return [with_floats(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class HuggingFaceForm:
    """How a module of transformers is built and fed: with ``masks``, ``images`` and ``labels``.

    ``sections``: the parts of a head that rotate by time, height and width are made to fit heads
    that they were not said for.
    """

    masks: bool = False
    sections: bool = False
    images: bool = True
    labels: bool = True


@dataclass(frozen=True)
class ConfigSize:
    """A size that a configuration says under ``key``, or ``instead`` of it under another one.

    The ``default`` is a number (0: it need not be there), or the name of another size.
    """

    key: str
    default: int | str = 0
    instead: str = ""


_STANDARD = MappingProxyType(  # keys that most types of models have
    {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_width": "head_dim",
        "ffn": "intermediate_size",
        "chosen": "num_experts_per_tok",
        "vocabulary": "vocab_size",
        "sequence_length": "max_position_embeddings",
    }
)


def standard_sizes(**defaults: int | str) -> dict[str, ConfigSize]:
    """Sizes under the keys that most types of models have, with their defaults."""
    return {name: ConfigSize(_STANDARD[name], default) for name, default in defaults.items()}


@dataclass(frozen=True)
class ConfigValues:
    """The content of a ``config.json`` at ``path``; it leaves out defaults of transformers."""

    path: str
    values: Mapping[str, Any]

    def size(self, key: str, default: int) -> int:
        """A positive whole number; null is the default, which may be 0.

        Raises: InputError: it is something else.
        """
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) is not int or value < 1:
            raise InputError(
                f"{self.path}: {key} is {value!r:.80}, but must be a positive whole number"
            )
        return value

    def sizes(self, keys: Mapping[str, ConfigSize]) -> dict[str, Any]:
        """Sizes by name; a sequence length is that of a model with so many positions.

        Raises: InputError: one is no positive whole number.
        """
        found: dict[str, Any] = {}
        for name, size in keys.items():
            default = found[size.default] if isinstance(size.default, str) else size.default
            found[name] = self.size(size.key, default)
            if size.instead:
                found[name] = self.size(size.instead, found[name])
            if name == "sequence_length":
                found[name] = min(found[name], LONGEST_DEFAULT)
        return found

    def expect(self, key: str, default: object, *allowed: object) -> None:
        """Go on only with a value among ``allowed``."""
        value = self.values.get(key, default)
        if value not in allowed:
            raise InexpressibleError(f"{key} {value!r:.80}")

    def expect_each(self, **values: object) -> None:
        """Go on only with these values, which are the defaults too."""
        for key, value in values.items():
            self.expect(key, value, value)

    def expect_architecture(self, *allowed: str) -> None:
        """Go on only where nothing but ``allowed`` is named."""
        names = self.values.get("architectures") or list(allowed[:1])
        if not isinstance(names, list) or names[0] not in allowed:
            raise InexpressibleError(f"architectures {names!r:.80}")

    def inside(self, key: str) -> ConfigValues:
        """The values of a part of the configuration.

        Raises: InputError: it is no mapping.
        """
        value = self.values.get(key) or {}
        if not isinstance(value, Mapping):
            raise InputError(f"{self.path}: {key} is {value!r:.80}, but must be a mapping")
        return ConfigValues(self.path, value)


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
