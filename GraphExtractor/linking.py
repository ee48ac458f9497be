"""Every backward operator beside the forward operator that it differentiates, in one layer.

Autograd names the traced node a gradient belongs to. Where that is a view, which is no operator,
the gradient belongs to what makes or reads the data that is looked at: in the same layer if there
is such an operator, else wherever it is, and the gradient moves to that layer. A view at the border
of two layers is such a case: a module that starts with a transpose, a residual stream that is
stacked at the end.
"""

import operator as python_operator
from collections.abc import Iterator
from dataclasses import replace

from torch.fx import Node

from GraphExtractor.tracing import TracedStep, unlinked_gradient
from GraphExtractor.user_lines import line_of
from GraphExtractor.values import ValueTable, is_bookkeeping, is_view, operator_name


def operator_nodes(step: TracedStep) -> tuple[Node, ...]:
    """The nodes that are work, in execution order: no views, no parts, no bookkeeping."""
    return tuple(
        node
        for node in step.graph.nodes
        if node.op == "call_function"
        and node.target is not python_operator.getitem
        and not is_view(node)
        and not is_bookkeeping(node)
    )


def linked(step: TracedStep) -> TracedStep:
    """The step whose backward operators differentiate one of their layer; layers have operators.

    Raises: PhazeError: a backward operator differentiates no forward operator; names the line of
        code that made it, where known.
    """
    nodes = operator_nodes(step)
    links = _Links(step, frozenset(nodes))
    origins = dict(step.origins)
    for node in nodes:
        origin = step.origins[node]
        if origin.backward:
            forward = links.of(node)
            if forward is None:
                where = line_of(origin.forward or node) or operator_name(node)
                raise unlinked_gradient(where)
            origins[node] = replace(origin, layer=step.origins[forward].layer, forward=forward)
    used = sorted({origins[node].layer for node in nodes})
    if len(used) == step.layer_count or not used:
        return replace(step, origins=origins)
    position = {layer: index for index, layer in enumerate(used)}
    inside = {
        node: replace(origin, layer=position[origin.layer])
        for node, origin in origins.items()
        if origin.layer in position
    }
    return replace(step, origins=inside, places=tuple(step.places[layer] for layer in used))


class _Links:
    def __init__(self, step: TracedStep, real: frozenset[Node]) -> None:
        self.step, self.real, self.values = step, real, ValueTable(step)

    def of(self, node: Node) -> Node | None:
        """The forward operator that ``node`` differentiates, else that of gradients it reads."""
        seen: set[Node] = set()
        pending = [node]
        while pending:
            backward = pending.pop(0)
            seen.add(backward)
            origin = self.step.origins[backward]
            if origin.forward:
                found = next(self._candidates(origin.forward, origin.layer), None)
                if found is not None:
                    return found
            for each in reversed(backward.all_input_nodes):
                if (
                    each in self.step.origins
                    and each not in seen
                    and self.step.origins[each].backward
                ):
                    pending.append(each)
        return None

    def _candidates(self, forward: Node, layer: int) -> Iterator[Node]:
        """Operators that stand for a forward node, best first."""
        if forward in self.real:
            yield forward
            return
        maker = self.values[forward].maker
        made = maker in self.real and not self.step.origins[maker].backward
        if made and self.step.origins[maker].layer == layer:
            yield maker
        readers = tuple(self._readers(forward))
        yield from (reader for reader in readers if self.step.origins[reader].layer == layer)
        yield from sorted(readers, key=lambda reader: self.step.origins[reader].layer)
        if made:
            yield maker

    def _readers(self, forward: Node) -> Iterator[Node]:
        """Forward operators that read a node, through views too."""
        pending = list(forward.users)
        while pending:
            user = pending.pop(0)
            if user in self.real:
                if not self.step.origins[user].backward:
                    yield user
            elif user.op == "call_function":
                pending.extend(user.users)
