"""What the search for splits must know of a traced step that does not depend on any split."""

import math
import operator as python_operator
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import torch
from torch.fx import Node

from GraphExtractor.derived_sharding.rules import REARRANGING
from GraphExtractor.derived_sharding.specs import shape_of
from GraphExtractor.tracing import TracedStep
from GraphExtractor.values import operator_name

aten = torch.ops.aten
_PARTS_OF_WEIGHTS = frozenset(
    {"_to_copy", "expand", "split", "split_with_sizes", "unbind", "slice", "select"}
)
# position of the first factor
_FACTORS = MappingProxyType(
    {
        **dict.fromkeys((aten.mm.default, aten.bmm.default, aten._grouped_mm.default), 0),
        **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), 1),
    }
)
_CONVOLUTIONS = (torch.ops.aten.convolution.default,)


@dataclass(frozen=True)
class Product:
    """A product with a weight of ``module``; the result has the weight's dimension ``columns``."""

    module: str
    weight: Node
    parameter: Node
    columns: int


class StepFacts:
    """Order, passes, weights and products of a step."""

    def __init__(self, step: TracedStep) -> None:
        self.step = step
        self.order = {node: position for position, node in enumerate(step.graph.nodes)}
        self.gradients: dict[Node, list[Node]] = {}  # result -> parameters it is the gradient of
        for parameter, name in step.parameters.items():
            if name in step.gradients:
                self.gradients.setdefault(step.gradients[name], []).append(parameter)

    def is_backward(self, node: Node) -> bool:
        """Whether a node belongs to the backward pass."""
        return node in self.step.origins and self.step.origins[node].backward

    def layer(self, node: Node) -> int | None:
        """Layer of a node; None for parameters, inputs and constants."""
        return self.step.origins[node].layer if node in self.step.origins else None

    @cached_property
    def learned(self) -> frozenset[Node]:
        """Parameters and all that is computed from them."""
        found: set[Node] = set(self.step.parameters)
        for node in self.order:
            if any(operand in found for operand in node.all_input_nodes):
                found.add(node)
        return frozenset(found)

    @cached_property
    def weights(self) -> frozenset[Node]:
        """Parameters, and what is a parameter, or a part of one, looked at, cast or copied."""
        found: set[Node] = set(self.step.parameters)
        for node in self.order:
            operands = node.all_input_nodes
            if node.op != "call_function" or len(operands) != 1 or operands[0] not in found:
                continue
            item = node.target is python_operator.getitem
            if item or operator_name(node) in REARRANGING | _PARTS_OF_WEIGHTS:
                found.add(node)
        return frozenset(found)

    @cached_property
    def products(self) -> dict[Node, Product]:
        """Matrix products of the forward pass of which one factor is a weight."""
        found = {}
        for node in self.order:
            if node.op != "call_function" or self.is_backward(node) or node.target not in _FACTORS:
                continue
            left, right = node.args[_FACTORS[node.target] : _FACTORS[node.target] + 2]
            if (left in self.weights) != (right in self.weights):
                weight, columns = (right, -1) if right in self.weights else (left, -2)
                module, columns = self.step.origins[node].module, columns % len(shape_of(weight))
                found[node] = Product(module, weight, self.parameter(weight), columns)
        return found

    def parameter(self, weight: Node) -> Node:
        """The parameter a weight is made of."""
        while weight.all_input_nodes:
            weight = weight.all_input_nodes[0]
        return weight

    @cached_property
    def vocabulary(self) -> frozenset[Node]:
        """Tables of inputs, and heads: weights of last products that give more than they take."""
        fed: set[Node] = set(self.step.inputs)  # and what is computed from inputs
        leading: set[Node] = set()  # to a product with a weight
        for node in self.order:
            if any(operand in fed for operand in node.all_input_nodes):
                fed.add(node)
        found: set[Node] = set()
        for node in reversed(self.order):
            if self.is_backward(node):
                continue
            users = node.users
            if any(u in leading or u in self.products or u.target in _CONVOLUTIONS for u in users):
                leading.add(node)
            elif node in self.products:
                product = self.products[node]
                columns = shape_of(product.weight)[product.columns]
                if columns**2 > math.prod(shape_of(product.weight)[-2:]):
                    found.add(product.parameter)
            if node.target is aten.embedding.default:
                table, rows = node.args[:2]
                if rows in fed and table in self.weights:
                    found.add(self.parameter(table))
        return frozenset(found)
