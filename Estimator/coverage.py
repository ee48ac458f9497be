"""Operators of training graphs that no formula describes: priced by the bytes they move, and never
without a word."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from GraphExtractor.graph import LayerGraph, ModelGraph, Operator, OperatorGraph
from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError
from phaze_common.numbers import share
from phaze_common.recompute_modules import Recomputation

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PricedByBytes:
    """An operator of torch that is priced by its bytes alone: how often a step runs it, and its
    part of all operators' seconds.

    Of several joined in a kernel each counts as the whole kernel.
    """

    operator: str  # operator of torch that is priced by the bytes it moves alone
    times: int  # how often a step runs it
    share_of_seconds: float  # of all operators

    @property
    def words(self) -> str:
        """As part of a sentence."""
        return (
            f"{self.operator} ({_often(self.times)}, {share(self.share_of_seconds)} of the "
            "time of operators)"
        )


def words_of(found: Iterable[PricedByBytes]) -> str:
    """All of them, as a list in words."""
    return ", ".join(each.words for each in found)


def unknown_functions(
    graphs: Iterable[ModelGraph], known: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Vector functions of ``graphs`` that are not ``known``, by name, with the layers that apply
    them."""
    found: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for layer in graph.layers:
            for function in _functions(layer):
                if function not in known:
                    found.setdefault(function, {})[layer.name] = None
    return {function: tuple(layers) for function, layers in found.items()}


def times_by_bytes(graph: ModelGraph, known: Collection[str]) -> Mapping[str, int]:
    """How often each operator that is priced by its bytes alone runs in a step without
    recomputation, by its name in torch."""
    runs = Counter(graph.sequence)
    found: Counter[str] = Counter()
    for index, layer in enumerate(graph.layers):
        for function in _functions(layer):
            if function not in known:
                found[_in_torch(function)] += runs[index]
    return dict(found)


def priced_by_bytes(
    graph: ModelGraph,
    recompute: Recomputation,
    known: Collection[str],
    seconds: Callable[[OperatorGraph], FloatArray],
) -> tuple[PricedByBytes, ...]:
    """The operators of a step that are priced so; ``seconds`` are those of the operators of a
    graph, in its order."""
    times: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    whole = 0.0
    runs = Counter(graph.sequence)
    for index, layer in enumerate(graph.layers):
        for each in (layer.forward, layer.backward_graph(recompute)):
            of_operators = seconds(each)
            whole += runs[index] * float(of_operators.sum())
            for operator, own_s in zip(each.operators, of_operators, strict=True):
                for function in _of(operator):
                    if function not in known:
                        times[_in_torch(function)] += runs[index]
                        spent[_in_torch(function)] += runs[index] * float(own_s)  # type: ignore[assignment]
    return tuple(
        PricedByBytes(name, count, spent[name] / (whole or 1.0)) for name, count in times.items()
    )


def _functions(layer: LayerGraph) -> Iterator[str]:
    for operator in (*layer.forward.operators, *layer.backward.operators):
        yield from _of(operator)


def _of(operator: Operator) -> Iterator[str]:
    return (work.function for work in operator.vector)


def _in_torch(function: str) -> str:
    """Name with its namespace, which those of torch's own have not among the vector functions."""
    return function if "." in function else f"aten.{function}"


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"


def check_functions(graphs: Iterable[ModelGraph], known: Collection[str], *, strict: bool) -> None:
    """Warn of operators of ``graphs``, all of one model, whose cost is not ``known``.

    Raises:
        InputError: there are any, and the study is ``strict``.
    """
    graphs = tuple(graphs)
    unknown = unknown_functions(graphs, known)
    if not unknown:
        return
    model = graphs[0].key.label
    times = times_by_bytes(graphs[0], known)
    words = ", ".join(
        f"{_in_torch(function)} ({_often(times.get(_in_torch(function), 1))}, in "
        f"{', '.join(layers)})"
        for function, layers in unknown.items()
    )
    if strict:
        raise InputError(
            f"operators of {model} have no cost: {words}; leave out --strict to price them by "
            "their bytes, or give them a "
            "cost (of chips to design: in the vector functions YAML of the platform)"
        )
    logger.warning("operators of %s have no cost and are priced by bytes alone: %s", model, words)
