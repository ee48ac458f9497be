"""The mode in which described models are built and traced: tensors of torch's device ``meta``.

A fake tensor answers whatever code may ask of one on the CPU, which takes torch several times as
long as the work itself. Most described models ask for shapes and types alone, which tensors
without memory have. What an operator gives for tensors of the same shapes, strides and types is
found once in a process: blocks are alike, and graphs of other sizes share most of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from GraphExtractor.torch_internals import DataDependentOutputException

_META = torch.device("meta")
# keep statistics in the type of their input, as they do on a CPU
_STATISTICS = frozenset(
    {torch.ops.aten.native_layer_norm.default, torch.ops.aten.native_batch_norm.default}
)


class _Tensor(NamedTuple):
    """What a tensor is but its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> _Tensor:
        """That of a ``tensor``."""
        return _Tensor(tensor.shape, tensor.stride(), tensor.dtype)

    def made(self) -> torch.Tensor:
        """A new one."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=_META)


class _Other(NamedTuple):
    """Any other argument, with its type: a whole number is not the float that it equals."""

    kind: type
    value: Any


class MetaMode:
    """While active, tensors are made without memory."""

    def __enter__(self) -> MetaMode:
        _META.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        _META.__exit__(*error)

    def run(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What an operator gives, of which nothing is computed.

        Raises: DataDependentOutputException: it gives the value of a tensor.
        """
        if torch.Tag.data_dependent_output in function.tags:
            raise DataDependentOutputException(function)
        if not _makes_all(function):
            return function(*arguments, **named)
        asked = tuple([_asked(each) for each in arguments])
        by_name = tuple([(name, _asked(each)) for name, each in named.items()])
        results = [
            None if each is None else each.made() for each in _results(function, asked, by_name)
        ]
        return results[0] if len(results) == 1 else tuple(results)


@cache
def _makes_all(function: Any) -> bool:
    """Whether an operator's results are new tensors, and it changes no other."""
    schema = getattr(function, "_schema", None)
    return (
        schema is not None
        and not schema.is_mutable
        and bool(schema.returns)
        and all(str(each.type) == "Tensor" and each.alias_info is None for each in schema.returns)
    )


@lru_cache(maxsize=65_536)
def _results(
    function: Any, arguments: tuple[Any, ...], named: tuple[tuple[str, Any], ...]
) -> tuple[_Tensor | None, ...]:
    """What an operator's results are; gradients that nobody asked for are None."""
    made = function(*map(_given, arguments), **{name: _given(each) for name, each in named})
    results = made if isinstance(made, tuple) else (made,)
    found = tuple([None if each is None else _Tensor.of(each) for each in results])
    if function in _STATISTICS and found[0] is not None:
        kind = found[0].dtype
        return tuple([None if each is None else each._replace(dtype=kind) for each in found])
    return found


def _asked(value: Any) -> Any:
    """An argument as others may equal it."""
    if isinstance(value, torch.Tensor):
        return _Tensor.of(value)
    if isinstance(value, list | tuple):
        return _Other(type(value), tuple(map(_asked, value)))
    return _Other(type(value), value)


def _given(value: Any) -> Any:
    """The argument again."""
    if isinstance(value, _Tensor):
        return value.made()
    if issubclass(value.kind, list | tuple):
        return value.kind(map(_given, value.value))
    return value.value
