"""A reactive table of parameters: values that are given, and declared functions of them that follow
every change.

Who depends on whom is declared by each ``Formula``, never found out by running it, so that a cycle,
a missing value and an unknown name are refused by their names before anything is computed. Values
are scalars or arrays of one shape: with arrays for some of the given ones, one pass computes all
points of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from third_party.amped.quantities import Kind

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Formula:
    """How a parameter is calculated: ``function`` of the values of ``inputs``, in their order,
    elementwise."""

    name: str
    inputs: tuple[str, ...]
    function: Callable[..., Any]
    kind: Kind = Kind.NUMBER
    description: str = ""


class ParameterTable:
    """Values by name. ``set`` changes one, and with it everything that depends on it and nothing
    else.

    Calculated are the ``targets`` and what they need. A given value stands in for the formula of
    its name.
    """

    def __init__(
        self,
        formulas: Mapping[str, Formula],
        given: Mapping[str, ArrayLike],
        targets: Iterable[str],
    ) -> None:
        """Calculate the targets.

        Raises: InputError: the formulas that are needed form a cycle, need a value that is not
            given, or leave the range of numbers.
        """
        self._formulas = dict(formulas)
        self._targets = tuple(targets)
        self._given = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
        self._order = self._ordered(self._given)
        self._values = {**self._given, **self._calculated(self._order, self._given)}

    def __getitem__(self, name: str) -> FloatArray:
        """Value of a parameter, of shape () or that of the arrays given.

        Raises:
            InputError: there is no such parameter among the given and the needed ones.
        """
        if name not in self._values:
            raise InputError(
                f"unknown parameter {name!r}; "
                f"{nearest(name, self._values, 'see those of config_summary.txt')}"
            )
        return self._values[name]

    def number(self, name: str) -> float:
        """A scalar parameter."""
        return float(self[name])

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the parameters with a value of their own."""
        return tuple(self._given)

    @property
    def calculated(self) -> tuple[str, ...]:
        """Names of the calculated parameters, each behind those it depends on."""
        return self._order

    def set(self, **values: ArrayLike) -> tuple[str, ...]:
        """Give parameters new values; returns the names of those that were calculated anew, in
        order.

        A calculated parameter that is set stays as it is set. On a refusal the table stays as it
        was.

        Raises:
            InputError: a name is unknown, or as for a new table.
        """
        for name in values:
            if name not in self._values and name not in self._formulas:
                known = {*self._values, *self._formulas}
                raise InputError(
                    f"unknown parameter {name!r}; "
                    f"{nearest(name, known, 'see those of config_summary.txt')}"
                )
        given = {
            **self._given,
            **{name: np.asarray(value, dtype=np.float64) for name, value in values.items()},
        }
        order = self._order if given.keys() == self._given.keys() else self._ordered(given)
        changed, affected = set(values), []
        for name in order:
            if name not in self._values or not changed.isdisjoint(self._formulas[name].inputs):
                changed.add(name)
                affected.append(name)
        known_before = {name: value for name, value in self._values.items() if name not in changed}
        new = self._calculated(affected, {**known_before, **given})
        kept = {name: self._values[name] for name in order if name not in changed}
        self._given, self._order, self._values = given, order, {**given, **kept, **new}
        return tuple(affected)

    def _ordered(self, given: Mapping[str, FloatArray]) -> tuple[str, ...]:
        """Everything to calculate for the targets, each behind what it depends on."""
        graph: dict[str, tuple[str, ...]] = {}
        pending = [(name, "") for name in self._targets]
        while pending:
            name, needed_by = pending.pop()
            if name in given or name in graph:
                continue
            if name not in self._formulas:
                reason = f", which {needed_by} needs," if needed_by else ""
                raise InputError(
                    f"parameter {name!r}{reason} has no value; add it to the configuration"
                )
            graph[name] = tuple(each for each in self._formulas[name].inputs if each not in given)
            pending.extend((each, name) for each in graph[name])
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise InputError(
                f"parameters are calculated from each other: {_as_chain(error.args[1])}; give one "
                "of them a value"
            ) from error

    def _calculated(
        self, names: Iterable[str], known: Mapping[str, FloatArray]
    ) -> dict[str, FloatArray]:
        values, new = dict(known), {}
        for name in names:
            formula = self._formulas[name]
            try:
                with np.errstate(divide="raise", over="raise", invalid="raise"):
                    result = np.asarray(
                        formula.function(*(values[each] for each in formula.inputs)),
                        dtype=np.float64,
                    )
            except FloatingPointError as error:
                raise InputError(
                    f"{name} cannot be calculated from {' and '.join(formula.inputs)}: {error}; "
                    "give less extreme values"
                ) from error
            values[name] = new[name] = result
        return new


def _as_chain(cycle: list[str]) -> str:
    """A cycle of ``graphlib`` (each node before those that depend on it) as "a -> b -> a", where a
    is calculated from b."""
    around = cycle[:0:-1]
    first = around.index(min(around))
    return " -> ".join([*around[first:], *around[:first], around[first]])
