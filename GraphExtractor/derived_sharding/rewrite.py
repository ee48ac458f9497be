"""One device's graph of a step with split values: local shapes, all-reduces behind sums."""

import operator as python_operator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node

from GraphExtractor.custom_operators import OWN_PART
from GraphExtractor.derived_sharding.layout_rules import piece_sizes, slice_range
from GraphExtractor.derived_sharding.propagation import Propagation
from GraphExtractor.derived_sharding.rules import names_in, splits_product_from_bias
from GraphExtractor.derived_sharding.specs import MIXED, PARTIAL, Shard, Spec, local_shape, shape_of
from GraphExtractor.fake_mode import mode_of
from GraphExtractor.torch_internals import pytree
from GraphExtractor.tracing import NodeOrigin, TracedStep
from GraphExtractor.values import argument, operator_name
from phaze_common.errors import PhazeError

# their second argument is the shape of the result, or of what it is put into
_SHAPED = names_in(
    "view _unsafe_view reshape expand slice_backward select_backward new_empty new_empty_strided"
)


def local_step(step: TracedStep, splits: Propagation, tp: int) -> TracedStep:
    """The step of the first of ``tp`` devices, as a new graph.

    Raises: PhazeError: an operator on parts of operands does not give its part of the result.
    """
    return _Rewriter(step, splits, tp).run()


class _Rewriter:
    def __init__(self, step: TracedStep, splits: Propagation, tp: int) -> None:
        self.step, self.splits, self.tp = step, splits, tp
        self.graph = Graph(step.graph.owning_module)
        self.copies: dict[Node, Node] = {}
        # whole summand, and the one to be summed over the devices
        self.mixed: dict[Node, tuple[Node | None, Node | None]] = {}
        # what backward nodes differentiate, where a node is not simply copied
        self.links: dict[Node, Node] = {}
        self.origins: dict[Node, NodeOrigin] = {}
        self.mode = mode_of(next(iter(step.parameters)).meta["val"])

    def run(self) -> TracedStep:
        copies = self.copies
        for node in self.step.graph.nodes:
            if node.op == "output":
                self.graph.output(pytree.tree_map_only(Node, copies.__getitem__, node.args[0]))
            else:
                copies[node] = self._rewritten(node)
        return replace(
            self.step,
            graph=self.graph,
            origins=self.origins,
            parameters={copies[node]: name for node, name in self.step.parameters.items()},
            inputs={copies[node]: name for node, name in self.step.inputs.items()},
            gradients={name: copies[node] for name, node in self.step.gradients.items()},
            division=replace(self.step.division, tp=self.tp, divided=self._divided()),
        )

    def _divided(self) -> frozenset[str]:
        """Names of the parameters of which a device has a part."""
        return frozenset(
            name
            for node, name in self.step.parameters.items()
            if node.meta["val"].numel() != self.copies[node].meta["val"].numel()
        )

    def _rewritten(self, node: Node) -> Node:
        """Copy of a node, summed where the sum is due."""
        if node.op != "call_function":
            copy = self.graph.node_copy(node, self.copies.__getitem__)
            shard = self.splits.seed(node)
            if shard is not None:
                shape = local_shape(shape_of(node), shard, self.tp)
                with self.mode:
                    copy.meta["val"] = torch.empty(shape, dtype=node.meta["val"].dtype)
            return copy
        origin = self.step.origins[node]
        if origin.forward is not None:
            forward = self.links.get(origin.forward) or self.copies[origin.forward]
            origin = replace(origin, forward=forward)
        if splits_product_from_bias(node, partial(self.splits.seen, node)):
            return self._product_then_bias(node, origin)
        if self.splits.result(node) is MIXED:
            return self._mixed(node, origin)
        if self._is_whole(node):
            copy = self.graph.node_copy(node, self.copies.__getitem__)
            self.origins[copy] = origin
        else:
            copy = self._call(node.target, *self._local_arguments(node, origin), origin, node)
            self._check(node, copy)
        due = self.splits.result(node) is PARTIAL and node in self.splits.summed
        return self._reduced(copy, origin) if due else copy

    def _is_whole(self, node: Node) -> bool:
        """Whether neither operands nor results are split."""
        specs: list[Spec] = []
        for result in map(self.splits.result, (node, *node.all_input_nodes)):
            specs += result if isinstance(result, tuple) else (result,)
        return not any(isinstance(spec, Shard) for spec in specs)

    def _call(
        self, target: Any, args: Any, kwargs: Any, origin: NodeOrigin, like: Node | None = None
    ) -> Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta = dict(like.meta) if like else {}
        args, kwargs = pytree.tree_map_only(Node, lambda each: each.meta["val"], (args, kwargs))
        try:
            with self.mode, torch.no_grad():
                node.meta["val"] = target(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise PhazeError(
                f"operator {target} of {origin.module} does not work on the parts of {self.tp} "
                "devices"
            ) from error
        self.origins[node] = origin
        return node

    def _reduced(self, value: Node, origin: NodeOrigin) -> Node:
        communication = replace(origin, core_attention=False, causal=False)
        return self._call(torch.ops.phaze.all_reduce.default, (value, self.tp), {}, communication)

    def _product_then_bias(self, node: Node, origin: NodeOrigin) -> Node:
        bias, left, right = (self._operand(node, operand, origin) for operand in node.args[:3])
        product = self._call(torch.ops.aten.mm.default, (left, right), {}, origin)
        self.links[node] = product
        summands = self._reduced(product, origin), bias
        return self._call(torch.ops.aten.add.Tensor, summands, {}, origin)

    def _mixed(self, node: Node, origin: NodeOrigin) -> Node:
        """Adds whole values to whole ones, partial to partial ones, and both once it is due."""
        summands: list[tuple[Node | None, Node | None]] = []
        for operand in node.args:
            copy, partial_ = self.copies[operand], self.splits.spec(operand) is PARTIAL
            alone = (None, copy) if partial_ else (copy, None)
            summands.append(self.mixed.get(operand) or alone)
        added: list[Node | None] = []
        for each in zip(*summands, strict=True):
            present = tuple(summand for summand in each if summand is not None)
            both = len(present) == 2
            added.append(self._call(node.target, present, {}, origin) if both else present[0])
        whole, summand = added
        assert whole is not None and summand is not None
        if node not in self.splits.summed:
            self.mixed[node] = whole, summand
            self.links[node] = summand
            return summand
        reduced = self._reduced(summand, self.origins[summand])
        return self._call(node.target, (whole, reduced), {}, origin)

    def _operand(self, node: Node, operand: Node, origin: NodeOrigin) -> Node:
        """Copy of an operand as ``node`` reads it: whole, its part, or a part cut out."""
        copy = self.copies[operand]
        shard = self.splits.slices.get((node, operand))
        if shard is None:
            return copy
        origin = replace(origin, core_attention=False, causal=False)
        pieces, position = [], 0
        for part in shard.parts:
            bounds = (copy, shard.dim, position, position + part // self.tp)
            pieces.append(self._call(torch.ops.aten.slice.Tensor, bounds, {}, origin))
            pieces[-1].meta[OWN_PART] = True
            position += part
        if len(pieces) == 1:
            return pieces[0]
        return self._call(torch.ops.aten.cat.default, (pieces, shard.dim), {}, origin)

    def _local_arguments(
        self, node: Node, origin: NodeOrigin
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a node with sizes and positions of one device."""
        given = {operand: self._operand(node, operand, origin) for operand in node.all_input_nodes}
        args, kwargs = pytree.tree_map_only(Node, given.__getitem__, (node.args, node.kwargs))
        if node.target is python_operator.getitem or not node.all_input_nodes:
            return tuple(args), kwargs
        args, name = list(args), operator_name(node)
        result = self.splits.result(node)
        if name in _SHAPED:
            assert not isinstance(result, tuple)
            args[1] = local_shape(shape_of(node), result, self.tp)
        elif name in {"split", "split_with_sizes"} and self._cuts(node, argument(node, "dim")):
            sizes = [size // self.tp for size in piece_sizes(node)]
            args[1] = sizes if name == "split_with_sizes" else sizes[0]
        if name in {"slice", "slice_backward"} and self._cuts(node, argument(node, "dim")):
            size = shape_of(node.args[0] if name == "slice" else node)[argument(node, "dim")]
            bounds = [position // self.tp for position in slice_range(node, size)]
            first = 2 if name == "slice" else 3
            args[first : first + 2] = bounds
        return tuple(args), kwargs

    def _cuts(self, node: Node, dim: int) -> bool:
        """Whether a node cuts its operand along the dimension that is split."""
        spec = self.splits.seen(node, node.args[0])
        return isinstance(spec, Shard) and spec.dim == dim % len(shape_of(node.args[0]))

    def _check(self, node: Node, copy: Node) -> None:
        result = self.splits.result(node)
        values = node.meta["val"], copy.meta["val"]
        wholes, locals_ = (each if isinstance(each, list | tuple) else (each,) for each in values)
        specs: tuple[Spec, ...] = result if isinstance(result, tuple) else (result,) * len(wholes)
        for spec, whole, local in zip(specs, wholes, locals_, strict=True):
            if not isinstance(whole, torch.Tensor):
                continue
            before, after = tuple(whole.shape), tuple(local.shape)
            if list(after) != local_shape(before, spec, self.tp):
                raise PhazeError(
                    f"{node.target} gives a part of shape {after} of {before} split {spec}"
                )
