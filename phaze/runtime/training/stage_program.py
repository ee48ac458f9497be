"""A traced forward pass cut into the stages of a plan: what crosses between them, and a stage's
layers as modules that run.

Operators made from nothing but constants (positions, masks) are run by every stage that reads them;
all other tensors that one stage makes and another reads are sent, so that any model that can be
traced can be cut, branching ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from Estimator.plans.plan import Plan
from GraphExtractor.forward_trace import ForwardTrace
from GraphExtractor.graph import Recompute
from phaze.runtime.training.recomputation import recomputing
from phaze_common.errors import InputError
from phaze_common.recompute_modules import Recomputation

ATTENTION = (
    "scaled_dot_product"  # is in the names of the operators that selective recomputation runs again
)


@dataclass(frozen=True)
class Crossing:
    """A tensor that a stage makes and others read; ``rows_times`` is its first dimension per row
    (0: it has no rows)."""

    name: str
    source: int
    targets: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows_times: int
    has_gradient: bool


@dataclass(frozen=True)
class LayerModule:
    """A layer of a stage: a module that takes the values named ``takes`` and gives those named
    ``gives``.

    ``differentiable`` says which of these have gradients. ``recompute`` full runs all of it again
    in the backward pass; under selective the module does so with its attention by itself.
    """

    name: str
    module: GraphModule
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    differentiable: tuple[bool, ...]
    recompute: Recomputation


@dataclass(frozen=True)
class StageProgram:
    """What one process of a stage runs.

    ``parameters`` by their names in the model say which value they are, ``constants`` and
    ``inputs`` as well. ``tied`` are the stages that hold each parameter which several stages hold.
    """

    layers: tuple[LayerModule, ...]
    parameters: Mapping[str, str]
    inputs: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    receives: tuple[Crossing, ...]
    sends: tuple[Crossing, ...]
    crossings: tuple[Crossing, ...]
    tied: Mapping[str, tuple[int, ...]]
    loss: str | None


def stages_of_layers(plan: Plan, layers: Sequence[str]) -> tuple[int, ...]:
    """The stage of each of the model's ``layers``.

    Raises:
        InputError: the plan's stages do not hold each layer once.
    """
    held = [(layer, number) for number, stage in enumerate(plan.stages) for layer in stage.layers]
    if sorted(layer for layer, _ in held) != sorted(layers):
        odd = sorted({layer for layer, _ in held} ^ set(layers))
        if odd:
            which = f"{odd[0]!r} is {'in none' if odd[0] in layers else 'no layer of it'}"
        else:
            which = "one is in several"
        raise InputError(
            f"the stages of the plan must hold each of the {len(layers)} layers of {plan.model} "
            f"once, but {which}; correct it"
        )
    stage = dict(held)
    return tuple(stage[layer] for layer in layers)


class Cutter:
    """Cuts one trace by the stage of each layer; ``rows`` is the number of rows that it was traced
    for."""

    def __init__(self, trace: ForwardTrace, stages: Sequence[int], rows: int) -> None:
        self.trace, self.stages, self.rows = trace, stages, rows
        self.order = [node for node in trace.graph.nodes if node.op == "call_function"]
        self.of_data = _reached(self.order, trace.inputs)
        self.of_weights = _reached(self.order, trace.parameters)
        self.free = {
            node for node in self.order if node not in self.of_data and node not in self.of_weights
        }

    def stage(self, node: Node) -> int:
        """The stage that makes a value."""
        return self.stages[self.trace.layer[node]]

    def crossings(self) -> tuple[Crossing, ...]:
        """All tensors that cross between stages, in the order in which they are made.

        Raises: InputError: a stage would read what a later one makes, or a tensor whose rows cannot
            be told apart.
        """
        found = []
        for node in self.order:
            if node in self.free:
                continue
            source = self.stage(node)
            targets = sorted(
                {self.stage(user) for user in node.users if user.op == "call_function"} - {source}
            )
            if not targets:
                continue
            if targets[0] < source:
                raise InputError(
                    f"stage {targets[0]} of the plan reads what stage {source} makes "
                    f"({node.name}); give the stages in the order in which they run"
                )
            found.append(self._crossing(node, source, tuple(targets)))
        return tuple(found)

    def _crossing(self, node: Node, source: int, targets: tuple[int, ...]) -> Crossing:
        value = node.meta["val"]
        shape, in_rows = tuple(value.shape), node in self.of_data
        if in_rows and (not shape or shape[0] % self.rows):
            raise InputError(
                f"stages {source} and {targets[0]} exchange {node.name} of shape {shape}, which "
                "has no rows; cut elsewhere"
            )
        rows_times = shape[0] // self.rows if in_rows else 0
        return Crossing(
            node.name, source, targets, shape, value.dtype, rows_times, self._has_gradient(node)
        )

    def program(
        self,
        stage: int,
        recompute: Recomputation,
        real: Mapping[str, Callable[..., Any]],
        recomputed_layers: Collection[str] | None = None,
    ) -> StageProgram:
        """The program of one ``stage``; ``real`` are functions that run in the place of operators,
        by their names.

        Recomputed are its layers called as in ``recomputed_layers`` (None: all); the model's first
        and last never are, as plans have it.
        """
        crossings = self.crossings()
        layers, ends = [], {0, len(self.trace.layers) - 1}
        for place, name in enumerate(self.trace.layers):
            if self.stages[place] == stage:
                as_it_is = place in ends or (
                    recomputed_layers is not None and name not in recomputed_layers
                )
                mode = Recompute.NONE if as_it_is else recompute
                layers.append(self._layer(place, name, mode, real))
        taken = {value for layer in layers for value in layer.takes}
        loss = self.trace.loss
        return StageProgram(
            layers=tuple(layers),
            parameters={
                name: node.name
                for node, name in self.trace.parameters.items()
                if node.name in taken
            },
            inputs={
                name: node.name for node, name in self.trace.inputs.items() if node.name in taken
            },
            constants={
                node.name: value
                for node, value in self.trace.constants.items()
                if node.name in taken
            },
            receives=tuple(each for each in crossings if stage in each.targets),
            sends=tuple(each for each in crossings if each.source == stage),
            crossings=crossings,
            tied=self._tied(),
            loss=loss.name if self.stage(loss) == stage else None,
        )

    def _tied(self) -> dict[str, tuple[int, ...]]:
        holders = {
            name: tuple(
                sorted({self.stage(user) for user in node.users if user.op == "call_function"})
            )
            for node, name in self.trace.parameters.items()
        }
        return {name: stages for name, stages in holders.items() if len(stages) > 1}

    def _layer(
        self,
        place: int,
        name: str,
        recompute: Recomputation,
        real: Mapping[str, Callable[..., Any]],
    ) -> LayerModule:
        own = {
            node for node in self.order if self.trace.layer[node] == place and node not in self.free
        }
        needed = own | _makers(own, self.free)
        members = [node for node in self.order if node in needed]
        takes = dict.fromkeys(
            source for node in members for source in node.all_input_nodes if source not in needed
        )
        gives = [
            node
            for node in members
            if node in own
            and (node is self.trace.loss or any(user not in own for user in node.users))
        ]
        graph = torch.fx.Graph()
        values = {node: graph.placeholder(node.name) for node in takes}
        # others read it too, and what is given must be able to run again
        for node in _overwritten(members) & set(takes):
            values[node] = graph.call_function(torch.ops.aten.clone.default, (values[node],))
        for node in members:
            values[node] = graph.node_copy(node, lambda each: values[each])
            values[node].target = real.get(str(node.target), node.target)
            if recompute is Recompute.SELECTIVE and ATTENTION in str(node.target):
                values[node].target = _recomputed_attention(
                    node.target, isinstance(node.meta["val"], tuple)
                )
        graph.output(tuple(values[node] for node in gives))
        return LayerModule(
            name=name,
            module=GraphModule(torch.nn.Module(), graph),
            takes=tuple(node.name for node in takes),
            gives=tuple(node.name for node in gives),
            differentiable=tuple(self._has_gradient(node) for node in gives),
            recompute=recompute,
        )

    def _has_gradient(self, node: Node) -> bool:
        value = node.meta["val"]
        return (
            node in self.of_weights
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
        )


def run_layer(layer: LayerModule, values: dict[str, Any]) -> None:
    """Run a layer on ``values`` by name, and add what it gives to them."""
    given = [values[name] for name in layer.takes]
    if layer.recompute is Recompute.FULL:
        made = recomputing(layer.module, given, layer.differentiable)
    else:
        made = layer.module(*given)
    values.update(zip(layer.gives, made, strict=True))


def _recomputed_attention(operator: Callable[..., Any], is_tuple: bool) -> Callable[..., Any]:
    """An operator of attention that is computed again; of several results the first one alone has a
    gradient."""

    def attention(*operands: Any, **named: Any) -> tuple[Any, ...] | torch.Tensor:
        def run(*values: Any) -> tuple[Any, ...]:
            result = operator(
                *values[: len(operands)], **dict(zip(named, values[len(operands) :], strict=True))
            )
            return result if is_tuple else (result,)

        results = recomputing(run, (*operands, *named.values()))
        return results if is_tuple else results[0]

    return attention


def _overwritten(nodes: Iterable[Node]) -> set[Node]:
    """The values into which operators write, themselves or through a view of them."""
    found: set[Node] = set()
    for node in nodes:
        pending = list(_aliased(node, written=True))
        while pending:
            value = pending.pop()
            if value not in found:
                found.add(value)
                pending += _aliased(value, written=False)
    return found


def _aliased(node: Node, written: bool) -> Iterator[Node]:
    """Operands that an operator writes into, or of which its result is a view."""
    schema = getattr(node.target, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema else ()):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if (
            argument.alias_info is not None
            and argument.alias_info.is_write >= written
            and isinstance(value, Node)
        ):
            yield value


def _reached(order: Iterable[Node], sources: Iterable[Node]) -> set[Node]:
    """Operators with ``sources`` among what they are made from."""
    reached = set(sources)
    for node in order:
        if reached.intersection(node.all_input_nodes):
            reached.add(node)
    return reached


def _makers(nodes: Iterable[Node], free: set[Node]) -> set[Node]:
    """Those of the ``free`` operators that ``nodes`` are made from."""
    found: set[Node] = set()
    pending = [source for node in nodes for source in node.all_input_nodes]
    while pending:
        node = pending.pop()
        if node in free and node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found
