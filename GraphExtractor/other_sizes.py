"""Which of many graphs are traced, and which follow from those by the law of their sizes.

Of graphs that differ in their micro-batch size alone the smallest and the largest fix the law, and
others show whether the model follows it: always of a model whose code may do anything, once for
every kind of division of a model that is described. In some models a single sample is
broadcast instead, so that the law begins with the second size. What follows no law is traced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.size_laws import SizeLaw
from GraphExtractor.storage import load_stored, store_graph, traced_key
from GraphExtractor.widths import check_key
from phaze_common.errors import InputError

FIXED_BY = 3  # graphs that fix a law and check it


@dataclass
class _Kind:
    """What is known of a model in one kind of division: its law begins with the size at place
    ``first`` (None: it follows none), as a group has ``shown``."""

    described: bool
    first: int | None = 0
    shown: bool = False


@dataclass
class OtherSizes:
    """Graphs of ``keys``, which differ in their micro-batch size alone, from the smallest on."""

    keys: tuple[GraphKey, ...]
    kind: _Kind
    known: dict[GraphKey, ModelGraph] = field(default_factory=dict)

    def to_trace(self) -> list[GraphKey]:
        """What is still to be traced before the others can follow."""
        first, kind = self.kind.first, self.kind
        traced = self.keys
        if first is not None and len(self.keys) >= first + FIXED_BY:
            traced = (*self.keys[: first + 1], self.keys[-1])
            if not (kind.described and kind.shown):
                traced = (*traced, *self._checks(first))
        return [key for key in dict.fromkeys(traced) if key not in self.known]

    def _checks(self, first: int) -> tuple[GraphKey, ...]:
        """Graphs that show whether a law holds which begins with the size at place ``first``: the
        next, and of code that may do anything also that with the fewest factors of two, since it
        may pad its rows."""
        between = self.keys[first + 1 : -1]
        if self.kind.described:
            return between[:1]
        return between[0], min(
            between, key=lambda key: key.micro_batch_size & -key.micro_batch_size
        )

    def derive(self, traced: Collection[GraphKey], folder: Path) -> int:
        """Read what was ``traced`` and store what follows from it; how many graphs that are."""
        new = [key for key in self.keys if key in traced and key not in self.known]
        for key in new:
            graph = load_stored(key, folder)
            if graph is None:
                raise InputError(
                    f"the code of {key.model} changed while it was traced; give the command again"
                )
            self.known[key] = graph
        if not new or self.to_trace():
            return 0
        first = self.kind.first
        if first is None or len(self.keys) < first + FIXED_BY:
            return 0
        found = self._followed(first)
        if found is None:
            self.kind.first, self.kind.shown = (1 if first == 0 else None), False
            return 0
        self.kind.shown = True
        for graph in found:
            store_graph(graph, folder)
            self.known[graph.key] = graph
        return len(found)

    def _followed(self, first: int) -> list[ModelGraph] | None:
        """The graphs that were not traced, by the law that begins with the size at place ``first``;
        None where there is none."""
        law = SizeLaw.through(self.known[self.keys[first]], self.known[self.keys[-1]])
        checks = (self.known[key] for key in self.keys[first + 1 : -1] if key in self.known)
        if law is None or not all(map(law.holds_for, checks)):
            return None
        found = []
        for key in self.keys:
            graph = None if key in self.known else law.at(key.micro_batch_size)
            if graph is not None:
                found.append(graph)
            elif key not in self.known:
                return None
        return found


def sizes_of(keys: Sequence[GraphKey]) -> list[OtherSizes]:
    """``keys`` as they are traced, in groups of those that differ in their micro-batch size.

    Raises: InputError: there is no such model, or it has no such graph.
    """
    groups: dict[GraphKey, set[GraphKey]] = defaultdict(set)
    for key in keys:
        key = replace(key, model=canonical_name(key.model))
        check_key(key, find_model(key.model))
        traced = traced_key(key)
        groups[replace(traced, micro_batch_size=1)].add(traced)
    kinds = {_kind_of(key): _Kind(find_model(key.model).described) for key in groups}
    return [
        OtherSizes(
            tuple(sorted(group, key=lambda each: each.micro_batch_size)), kinds[_kind_of(key)]
        )
        for key, group in groups.items()
    ]


def first_of_kinds(sizes: Iterable[OtherSizes]) -> list[OtherSizes]:
    """The largest group of every kind."""
    largest: dict[int, OtherSizes] = {}
    for each in sizes:
        before = largest.setdefault(id(each.kind), each)
        if len(each.keys) > len(before.keys):
            largest[id(each.kind)] = each
    return list(largest.values())


def _kind_of(key: GraphKey) -> GraphKey:
    """How a model is divided, whatever the degrees."""
    above_one = {name: min(getattr(key, name), 2) for name in ("tp2", "cp", "ep")}
    return replace(key, micro_batch_size=1, tp=1, **above_one)
