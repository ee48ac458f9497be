"""Which of many graphs are traced, and which follow from those by the law of their sizes.

Of graphs that differ in their micro-batch size alone the smallest and the largest fix the law, and
others show whether the model follows it: always of a model whose code may do anything, once for
every kind of division of a model that is described. In some models a single sample is broadcast
instead, so that the law begins with the second size. Of a described model also groups of graphs
that differ in one degree follow from those of its least and largest value, which a graph in between
shows every time. What follows no law is traced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.graphs_beside import graphs_between
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.size_laws import DEGREES, SAMPLES, SizeLaw, with_size
from GraphExtractor.storage import load_stored, store_graph, traced_key
from GraphExtractor.widths import check_key
from phaze_common.choices import KeyExchange
from phaze_common.errors import InputError

FIXED_BY = 3  # graphs that fix a law and check it
# what is to be traced next, for its graphs, which lie in the folder then
Traces = Generator[list[GraphKey], Mapping[GraphKey, ModelGraph], None]
Group = tuple[GraphKey, ...]  # by micro-batch size, in which alone they differ


class KindOfDivision:
    """Graphs of a model in one kind of division, as they are traced into ``folder`` or follow.

    ``first`` is the place of the size that the law in the micro-batch size begins with (None: there
    is none), as a group has ``shown``; ``known`` are the graphs that are there by now. ``beside``
    is the kind of another exchange of keys, which is all there before (None: there is none).
    """

    def __init__(
        self, keys: Iterable[GraphKey], known: Mapping[GraphKey, ModelGraph], folder: Path
    ) -> None:
        self.keys, self.known, self.folder = frozenset(keys), dict(known), folder
        self._families = {name: find_model(name) for name in {key.model for key in self.keys}}
        self.described = all(family.described for family in self._families.values())
        self.first: int | None = 0
        self.shown = self.shown_beside = False
        self.beside: KindOfDivision | None = None

    def traces(self) -> Traces:
        """Trace and derive all; the largest group first, which shows what the others follow."""
        alike: dict[GraphKey, list[GraphKey]] = defaultdict(list)
        for key in sorted(self.keys, key=_sizes_of):
            alike[replace(key, micro_batch_size=1)].append(key)
        groups = {degrees: tuple(group) for degrees, group in alike.items()}
        yield from self._sizes(max(groups.values(), key=len))
        yield from self._degrees(groups, DEGREES if self.described else ())

    def _sizes(self, group: Group) -> Traces:
        """Trace what fixes the law of the micro-batch sizes of ``group``, and derive the others."""
        yield from self._sizes_beside(group)
        while not all(key in self.known for key in group):
            first = self.first
            traced = group
            if first is not None and len(group) >= first + FIXED_BY:
                traced = (*group[: first + 1], group[-1])
                if not (self.described and self.shown):
                    traced = (*traced, *self._checks(group[first + 1 : -1]))
            yield from self._trace(traced)
            if first is None or len(group) < first + FIXED_BY:
                return
            found = self._followed(group, first)
            if found is not None:
                self.shown = True
                self._store(found)
                return
            self.first, self.shown = (1 if first == 0 else None), False

    def _sizes_beside(self, group: Group) -> Traces:
        """Derive what lies between the ends of ``group`` from them and from the graphs ``beside``,
        which a group of this kind shows; nothing where it does not follow these."""
        there = self.beside.known if self.beside is not None else {}
        others = [there.get(replace(key, exchange=KeyExchange.GATHER)) for key in group]
        beside = [each for each in others if each is not None]
        if len(beside) < len(group) or len(group) < FIXED_BY:
            return
        checks = group[1:2] if not self.shown_beside else ()
        yield from self._trace((group[0], group[-1], *checks))
        ends = self.known[group[0]], self.known[group[-1]]
        found = graphs_between(group, ends, beside)
        if found is None or any(graph != self.known.get(graph.key, graph) for graph in found):
            return
        self.shown_beside = True
        self._store(graph for graph in found if graph.key not in self.known)

    def _checks(self, between: Group) -> Group:
        """Graphs that show whether a law holds of those ``between`` its ends: the next, and of code
        that may do anything also that with the fewest factors of two, since it may pad its rows."""
        if self.described:
            return between[:1]
        fewest = min(between, key=lambda key: key.micro_batch_size & -key.micro_batch_size)
        return between[0], fewest

    def _followed(self, group: Group, first: int) -> list[ModelGraph] | None:
        """The graphs of ``group`` that were not traced, by the law that begins with the size at
        place ``first``; None where there is none."""
        law = SizeLaw.through(SAMPLES, self.known[group[first]], self.known[group[-1]])
        checks = (self.known[key] for key in group[first + 1 : -1] if key in self.known)
        if law is None or not all(map(law.holds_for, checks)):
            return None
        return _all_there(law.at(key.micro_batch_size) for key in group if key not in self.known)

    def _degrees(self, groups: Mapping[GraphKey, Group], axes: Sequence[str]) -> Traces:
        """Trace the ``groups`` at the ends of every line along the first of ``axes``, those in the
        same way along the others, and derive what lies between."""
        if not axes:
            yield from together([self._sizes(group) for group in groups.values()])
            return
        axis, others = axes[0], axes[1:]
        lines = [line for line in _lines(groups, axis) if len(line) >= FIXED_BY]
        between = {degrees for line in lines for degrees in line[1:-1]}
        ends = {degrees: group for degrees, group in groups.items() if degrees not in between}
        yield from self._degrees(ends, others)
        while lines:
            apart = {}
            for line in lines:
                inner = {degrees: groups[degrees] for degrees in line[1:-1]}
                laws = self._laws(axis, groups[line[0]], groups[line[-1]])
                lawful = [key for key in inner[line[1]] if key.micro_batch_size in laws]
                checks = lawful[len(lawful) // 2 :][:1]
                yield from self._trace(checks)
                held = [laws[key.micro_batch_size].holds_for(self.known[key]) for key in checks]
                if any(held):
                    self._follow(axis, laws, inner.values())
                else:  # the last may differ, where a dimension would be 1
                    apart[line[-2]] = inner[line[-2]]
            yield from self._degrees(apart, others)
            lines = [line[:-1] for line in lines if line[-2] in apart and len(line) > FIXED_BY]
        yield from together([self._sizes(groups[degrees]) for degrees in between])

    def _follow(self, axis: str, laws: Mapping[int, SizeLaw], groups: Iterable[Group]) -> None:
        """Store what follows of ``groups`` by the ``laws`` of their micro-batch sizes."""
        for key in chain.from_iterable(groups):
            if key not in self.known and key.micro_batch_size in laws:
                graph = laws[key.micro_batch_size].at(getattr(key, axis))
                self._store([] if graph is None else [graph])

    def _laws(self, axis: str, low: Group, high: Group) -> dict[int, SizeLaw]:
        """Laws along ``axis`` by micro-batch size, of the sizes that both ends have."""
        sizes = {key.micro_batch_size: key for key in high}
        found = {
            key.micro_batch_size: SizeLaw.through(
                axis, self.known[key], self.known[sizes[key.micro_batch_size]]
            )
            for key in low
            if key.micro_batch_size in sizes
        }
        return {size: law for size, law in found.items() if law is not None}

    def _trace(self, keys: Iterable[GraphKey]) -> Traces:
        """Have those of ``keys`` traced that are not known."""
        missing = [key for key in dict.fromkeys(keys) if key not in self.known]
        if not missing:
            return
        made = yield missing
        for key in missing:
            graph = made[key] if self.described else load_stored(key, self.folder)
            if graph is None:
                raise InputError(f"{key.model} changed while it was traced; give the command again")
            self.known[key] = graph

    def _store(self, graphs: Iterable[ModelGraph]) -> None:
        for graph in graphs:
            store_graph(graph, self.folder, self._families[graph.key.model])
            self.known[graph.key] = graph


def kinds_of_division(
    keys: Sequence[GraphKey], stored: Mapping[GraphKey, ModelGraph], folder: Path
) -> list[KindOfDivision]:
    """``keys`` by the kinds of division whose graphs are not all ``stored``.

    Raises: InputError: there is no such model, or it has no such graph.
    """
    kinds: dict[GraphKey, set[GraphKey]] = defaultdict(set)
    known: dict[GraphKey, ModelGraph] = {}
    missing = set()
    for key in keys:
        named = replace(key, model=canonical_name(key.model))
        check_key(named, find_model(named.model))
        traced = traced_key(named)
        kind = _kind_of(traced)
        kinds[kind].add(traced)
        if key not in stored:
            missing.add(kind)
        elif stored[key].key == traced:
            known[traced] = stored[key]
    found = {
        kind: KindOfDivision(each, {key: known[key] for key in each & known.keys()}, folder)
        for kind, each in kinds.items()
        if kind in missing
    }
    for kind, made in found.items():
        if made.described and kind.exchange is not KeyExchange.GATHER:
            made.beside = found.get(replace(kind, exchange=KeyExchange.GATHER))
    return list(found.values())


def all_traces(kinds: Sequence[KindOfDivision]) -> Traces:
    """What ``kinds`` trace, those that others lie ``beside`` first."""
    yield from together([kind.traces() for kind in kinds if kind.beside is None])
    yield from together([kind.traces() for kind in kinds if kind.beside is not None])


def together(parts: Sequence[Traces]) -> Traces:
    """What all ``parts`` trace, as far as they need not wait for it."""
    going, made = list(parts), None
    while going:
        asked = [(part, next_traces(part, made)) for part in going]
        going = [part for part, keys in asked if keys]
        if going:
            made = yield [key for _, keys in asked for key in keys]


def next_traces(part: Traces, made: Mapping[GraphKey, ModelGraph] | None) -> list[GraphKey]:
    """What ``part`` traces when it has the graphs that were ``made`` for it (None: it begins); none
    where it has ended."""
    try:
        return next(part) if made is None else part.send(made)
    except StopIteration:
        return []


def _sizes_of(key: GraphKey) -> tuple[int, ...]:
    """What keys of a kind differ in, the micro-batch size last."""
    return (*(int(getattr(key, axis)) for axis in DEGREES), key.micro_batch_size)


def _lines(groups: Iterable[GraphKey], axis: str) -> list[list[GraphKey]]:
    """Those of ``groups`` that differ in ``axis`` alone, by its values above 1; the words of their
    vocabulary are padded to as many."""
    lines: dict[tuple[GraphKey, int], list[GraphKey]] = defaultdict(list)
    divided = (each for each in groups if getattr(each, axis) > 1)
    for degrees in sorted(divided, key=lambda each: int(getattr(each, axis))):
        padded = find_model(degrees.model).padded_vocabulary(degrees.tp)
        lines[with_size(degrees, axis, 1), padded].append(degrees)
    return list(lines.values())


def _all_there(graphs: Iterable[ModelGraph | None]) -> list[ModelGraph] | None:
    """``graphs``; None where one is."""
    found = []
    for graph in graphs:
        if graph is None:
            return None
        found.append(graph)
    return found


def _kind_of(key: GraphKey) -> GraphKey:
    """How a model is divided, whatever the degrees."""
    above_one = {name: min(getattr(key, name), 2) for name in ("ep", "tp2", "cp")}
    return replace(key, micro_batch_size=1, tp=1, **above_one)
