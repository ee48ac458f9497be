"""All devices of a layout run a traced step in lockstep on real numbers, and their gradients are
compared with the whole model's.

Every device has its part of the parameters, its tokens and its positions. Nodes that communicate,
or that are only shapes in a trace (attention, norms, losses, products in panels), are given their
meaning here; every other node is run as torch runs it. All numbers are float64, dropout does
nothing. Devices have coordinates: their place along the first tensor axis, along the second and in
the context-parallel group.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from itertools import product

import torch
from lockstep_operators import LOCAL, TOGETHER
from whole_traces import traced_step

from GraphExtractor.graph import GraphKey, KeyExchange


@dataclass(frozen=True)
class Device:
    """Coordinates, and the positions of its tokens in the sequence."""

    tp: int
    tp2: int
    cp: int
    positions: torch.Tensor

    @property
    def part(self):
        """Its place among the devices that share the sequence: rows of a 2D layout are
        neighbours."""
        return self.tp2, self.cp


def token_parts(key):
    """Positions of the tokens of each device of a sequence: an early and a late part, or one where
    heads are exchanged."""
    parts, length = key.sequence_devices, key.sequence_length
    if parts == 1 or key.exchange is KeyExchange.ULYSSES:
        return list(torch.arange(length).chunk(parts))
    chunks = torch.arange(length).chunk(2 * parts)
    return [torch.cat([chunks[place], chunks[-1 - place]]) for place in range(parts)]


def devices_of(key):
    """All devices of a layout, those of the first tensor axis next to each other."""
    parts = token_parts(key)
    return [
        Device(tp, tp2, cp, parts[cp * key.tp2 + tp2])
        for cp, tp2, tp in product(range(key.cp), range(key.tp2), range(key.tp))
    ]


class Lockstep:
    """One traced step and the devices that run it."""

    def __init__(self, key: GraphKey, family) -> None:
        self.key, self.family = replace(key, dtype="float64"), family
        self.step = traced_step(self.key, family)
        self.devices = devices_of(key)
        self.here: list[dict] = []
        self.node = None

    def groups(self, axis):
        """Indices of the devices of each group of an axis, in order; those that share a sequence in
        the order of their parts."""
        of = {
            "tensor": lambda d: (d.tp2, d.cp),
            "tensor2": lambda d: (d.tp, d.cp),
            "context": lambda d: (d.tp,),
            "plane": lambda d: (d.cp,),
        }[axis]
        found: dict[tuple, list[int]] = {}
        for index, device in enumerate(self.devices):
            found.setdefault(of(device), []).append(index)
        return list(found.values())

    def gradients(self, parameters, inputs, constants):
        """Gradients by parameter on every device; ``parameters(name, device)`` and so on give what
        a device holds."""
        step = self.step
        self.here = [
            {node: parameters(name, device) for node, name in step.parameters.items()}
            | {node: inputs(name, device) for node, name in step.inputs.items()}
            for device in self.devices
        ]
        for environment in self.here:
            for node, name in step.parameters.items():
                assert environment[node].shape == node.meta["val"].shape, (
                    name,
                    environment[node].shape,
                    node.meta["val"].shape,
                )
        for node in step.graph.nodes:
            self.node = node
            if node.op == "get_attr":
                for environment, device in zip(self.here, self.devices, strict=True):
                    environment[node] = constants(node.meta["val"], device)
            elif node.op == "call_function":
                self._run(node)
        return [
            {name: environment[node] for name, node in step.gradients.items()}
            for environment in self.here
        ]

    def losses(self):
        """The loss of every device, which the backward pass begins at."""
        first = next(
            node
            for node in self.step.graph.nodes
            if node.op == "call_function" and self.step.origins[node].backward
        )
        return [environment[first.args[0]] for environment in self.here]

    def _run(self, node):
        arguments = [self._arguments(node, environment) for environment in self.here]
        name = "" if node.target is operator.getitem else node.target._schema.name
        if name in TOGETHER:
            axis, together = TOGETHER[name]
            for group in self.groups(axis):
                results = together(
                    self,
                    [arguments[index] for index in group],
                    [self.devices[index] for index in group],
                )
                for index, result in zip(group, results, strict=True):
                    self.here[index][node] = result
        else:
            for environment, device, given in zip(self.here, self.devices, arguments, strict=True):
                environment[node] = self._alone(node, name, device, given)
        for environment in self.here:
            value, expected = environment[node], node.meta["val"]
            pairs = (
                [(value, expected)]
                if isinstance(expected, torch.Tensor)
                else zip(value, expected, strict=False)
            )
            for each, like in pairs:
                assert not isinstance(each, torch.Tensor) or each.shape == like.shape, (
                    node,
                    each.shape,
                    like.shape,
                )

    def _alone(self, node, name, device, given):
        args, kwargs = given
        if name in LOCAL:
            return LOCAL[name](self, device, *args, **kwargs)
        if name in ("aten::view", "aten::_unsafe_view"):
            return args[0].reshape(args[1])  # strides differ from those of the trace
        return node.target(*args, **kwargs)

    def _arguments(self, node, environment):
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), environment.__getitem__)
        if (
            node.target is not operator.getitem and node.target.namespace == "phaze"
        ):  # traces leave out what is the default
            args = (
                *args,
                *(each.default_value for each in node.target._schema.arguments[len(args) :]),
            )
        return torch.fx.node.map_aggregate((tuple(args), dict(kwargs)), _exact)

    def is_backward(self):
        """Whether the node being run is one of the backward pass."""
        return self.step.origins[self.node].backward

    def is_split(self, table):
        """Whether a node is the embedding table that is split over the vocabulary."""
        return self.step.parameters.get(table) == f"{self.family.parallel_plan.embedding}.weight"


def _exact(value):
    """Exact numbers on the CPU, also where the trace has tensors without memory."""
    if value == torch.device("meta"):
        return torch.device("cpu")
    return torch.float64 if value is torch.float32 else value
