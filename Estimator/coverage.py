"""Vector functions of training graphs that have no cost: priced as element-wise work, and never without a word."""

import logging
from collections.abc import Collection, Iterable, Mapping

from Common.errors import InputError
from GraphExtractor.graph import ModelGraph

logger = logging.getLogger(__name__)


def unknown_functions(graphs: Iterable[ModelGraph], known: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Vector functions of ``graphs`` that are not ``known``, by name, with the layers that apply them."""
    found: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for layer in graph.layers:
            for operator in (*layer.forward.operators, *layer.backward.operators):
                for work in operator.vector:
                    if work.function not in known:
                        found.setdefault(work.function, {})[layer.name] = None
    return {function: tuple(layers) for function, layers in found.items()}


def check_functions(graphs: Iterable[ModelGraph], known: Collection[str], *, strict: bool) -> None:
    """Warn of functions of ``graphs``, all of one model, whose cost is not ``known``.

    Raises:
        InputError: there are any, and the study is ``strict``.
    """
    graphs = tuple(graphs)
    unknown = unknown_functions(graphs, known)
    if not unknown:
        return
    model = graphs[0].key.label
    words = ", ".join(f"{function} (in {', '.join(layers)})" for function, layers in unknown.items())
    if strict:
        raise InputError(
            f"operators of {model} have no cost: {words}; leave out --strict to price them as element-wise work, or give them a "
            "cost (of chips to design: in the vector functions YAML of the platform)"
        )
    logger.warning("operators of %s have no cost and are priced as element-wise work: %s", model, words)
