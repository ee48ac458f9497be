"""The operators of a model in order, and which stretches of them are the same: repeated layers are
priced once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .compiled import Integers, outer
from .models import Model, operator_chain


@dataclass(frozen=True)
class Chain:
    """Rows of the files in the order of the model; ``body`` is where the operators behind the last
    repeated layer begin."""

    rows: tuple[int, ...]
    body: int

    @property
    def length(self) -> int:
        """Operators."""
        return len(self.rows)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The distinct pairs of rows that follow each other."""
        return tuple(dict.fromkeys(zip(self.rows[:-1], self.rows[1:], strict=True)))

    @cached_property
    def row_array(self) -> Integers:
        """(operators) the rows."""
        return np.array(self.rows, dtype=np.int64)

    @cached_property
    def pair_array(self) -> Integers:
        """(operators) which pair an operator ends; 0 for the first."""
        index = {pair: at for at, pair in enumerate(self.pairs)}
        pairs = zip(self.rows[:-1], self.rows[1:], strict=True)
        return np.array([0, *(index[pair] for pair in pairs)], dtype=np.int64)


def model_chain(model: Model, names: Sequence[str]) -> Chain:
    """The chain of a model whose files list ``names``. Raises InputError: the files lack operators
    of a layer."""
    rows = operator_chain(model, names)
    last = model.family.layers[-1][1] if model.family.layers else None
    tail = 0 if last is None else len(names) - 1 - list(names).index(last)
    return Chain(rows, len(rows) - tail)


@outer
def first_alike(rows: Integers, body: int, longest: int) -> Integers:
    """(operators) for each start of ``rows`` the first start from which the same operators follow,
    up to ``longest`` or the end of the ``body``."""
    n = len(rows)
    first = np.arange(n)
    starts = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        needed = min(longest, body - i)
        if needed > 0:
            for at in range(count):
                c = starts[at]
                k = 0
                while k < needed and rows[c + k] == rows[i + k]:
                    k += 1
                if k == needed and c + k <= body:
                    first[i] = c
                    break
        if first[i] == i:
            starts[count] = i
            count += 1
    return first
