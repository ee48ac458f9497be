"""Graphs in which what operators stream is operators of its own, for schedules that place communication themselves.

A broadcast comes before the product that it feeds, a reduction behind the one that it ends; keys and values pass around a ring
before attention, their gradients behind it. What starts from parameters, or in the backward pass from what was kept, waits for
nothing. So whole operands are on their way at once, beside other work, where panels would be beside their own product.
"""

from collections.abc import Iterator
from dataclasses import replace

from GraphExtractor.graph import Collective, CollectiveGroup, CollectiveKind, Operator, OperatorGraph, OperatorKind, Phase


def streams_apart(graph: OperatorGraph) -> OperatorGraph:
    """The same work with every streamed collective as an operator; its id follows those of the graph."""
    if not any(operator.streamed for operator in graph.operators):
        return graph
    next_id = max(operator.id for operator in graph.operators) + 1
    before: dict[int, list[int]] = {}  # operators that wait for what comes before a product
    last: dict[int, int] = {}  # what ends a product
    operators: list[Operator] = []
    edges: list[tuple[int, int]] = []
    for operator in graph.operators:
        behind = []
        for collective, comes_behind in _placed(operator):
            made = _as_operator(operator, collective, next_id)
            next_id += 1
            if comes_behind:
                edges.append((last.get(operator.id, operator.id), made.id))
                last[operator.id] = made.id
                behind.append(made)
            else:
                edges.append((made.id, operator.id))
                operators.append(made)
                if _needs_results(operator, collective):
                    before.setdefault(operator.id, []).append(made.id)
        operators += [replace(operator, streamed=()), *behind]
    for maker, reader in graph.edges:
        edges += [(last.get(maker, maker), each) for each in (reader, *before.get(reader, ()))]
    return OperatorGraph(tuple(operators), tuple(sorted(edges)))


def _placed(operator: Operator) -> Iterator[tuple[Collective, bool]]:
    """Collectives, and whether each comes behind the operator."""
    for place, collective in enumerate(operator.streamed):
        gradients_passed = collective.kind is CollectiveKind.PASS and place > 0
        yield collective, collective.kind is CollectiveKind.REDUCE or gradients_passed


def _needs_results(operator: Operator, collective: Collective) -> bool:
    return operator.phase is Phase.FORWARD and collective.group is not CollectiveGroup.TENSOR2


def _as_operator(operator: Operator, collective: Collective, number: int) -> Operator:
    return Operator(
        id=number,
        name=f"{operator.name}.{collective.kind}",
        kind=OperatorKind.COLLECTIVE,
        phase=operator.phase,
        yields=operator.yields,
        collective=collective,
        forward_id=operator.forward_id,
    )
