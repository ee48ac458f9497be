"""Calculated parameters: properties that are worked out once, where no value of theirs is given.

Values are scalars or arrays of one shape: with arrays for some of the given ones, each quantity is
computed for all points of a search at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError

from .corrections import Correction
from .units import Kind

Value = TypeVar("Value")


class Calculated(Generic[Value]):
    """A property of ``Quantities`` whose value is kept, as with ``functools.cached_property``.

    A value that an instance was given under its name is found first.
    """

    def __init__(
        self, function: Callable[[Any], Value], description: str = "", kind: Kind = Kind.NUMBER
    ) -> None:
        self.function, self.description, self.kind = function, description, kind
        self.name = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type[Any]) -> Calculated[Value]: ...
    @overload
    def __get__(self, table: Quantities, owner: type[Any]) -> Value: ...
    def __get__(self, table: Quantities | None, owner: type[Any]) -> Value | Calculated[Value]:
        """The value, worked out and kept. Raises InputError: it depends on itself or on a value
        that is not given, or leaves the range of numbers."""
        if table is None:
            return self
        if self.name in table.pending:
            raise InputError(
                f"parameters are calculated from each other: {_as_chain(self.name, table.pending)};"
                " give one of them a value"
            )
        table.pending.append(self.name)
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                value = self.function(table)
        except FloatingPointError as error:
            read = [each for each in self.function.__code__.co_names if each in vars(table)]
            raise InputError(
                f"{self.name} cannot be calculated from {' and '.join(read)}: {error}; give less "
                "extreme values"
            ) from error
        except AttributeError as error:
            raise InputError(
                f"parameter {error.name!r}, which {self.name} needs, has no value; add it to the "
                "configuration"
            ) from error
        finally:
            table.pending.pop()
        vars(table)[self.name] = value
        return value


def calculated(
    description: str = "", kind: Kind = Kind.NUMBER
) -> Callable[[Callable[[Any], Value]], Calculated[Value]]:
    """Makes a method a calculated parameter, which configurations and reports know by its name."""
    return lambda function: Calculated(function, description, kind)


class Quantities:
    """The parameters of a configuration: those given, and properties for those calculated.

    ``given`` overrides properties of the same names; ``corrections`` are those applied.
    """

    def __init__(
        self,
        given: Mapping[str, ArrayLike],
        corrections: Collection[Correction],
        wanted: Iterable[str],
    ) -> None:
        """Calculate the ``wanted`` ones and what they need. Raises InputError: as for
        ``Calculated``."""
        self.corrections = corrections
        self.pending: list[str] = []  # being calculated, each for the one before it
        self.given = tuple(given)
        for name, value in given.items():
            vars(self)[name] = np.asarray(value, dtype=np.float64)
        for name in wanted:
            if not hasattr(self, name):
                raise InputError(f"parameter {name!r} has no value; add it to the configuration")
        names = calculated_parameters(type(self))
        self.calculated = tuple(
            name for name in names if name in vars(self) and name not in self.given
        )

    def value(self, name: str) -> FloatArray:
        """Value of a parameter, of shape () or that of the arrays given. Raises InputError: as for
        ``Calculated``."""
        found: FloatArray = getattr(self, name)
        return found

    def number(self, name: str) -> float:
        """A scalar parameter."""
        return float(self.value(name))


def calculated_parameters(of: type[Quantities]) -> dict[str, Calculated[Any]]:
    """The calculated parameters of a class and those it extends, in their order."""
    return {
        name: each
        for owner in reversed(of.__mro__)
        for name, each in vars(owner).items()
        if isinstance(each, Calculated)
    }


def _as_chain(name: str, pending: list[str]) -> str:
    """The cycle as "a -> b -> a", where a is calculated from b, from its first name in the
    alphabet."""
    around = pending[pending.index(name) :]
    first = around.index(min(around))
    return " -> ".join([*around[first:], *around[:first], around[first]])
