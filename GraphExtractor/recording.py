"""What torch runs, recorded operator by operator as an fx graph.

What ``make_fx`` does without what only compilers need of it: decompositions, sizes as symbols, code
of the graph. Nodes carry what ``torch.fx.traceback`` keeps at the time: ``custom`` notes, the
``seq_nr`` of the autograd function, and the lines that are remembered (``stack_trace``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import Graph, Node

from GraphExtractor.torch_internals import (
    GRADIENT_SUM,
    DispatchMode,
    FakeTensor,
    OpOverload,
    WeakIdKeyDictionary,
    fast_detach,
    has_parts,
    sequence_number,
    traceback,
)

_DEVICE = torch.ops.prim.device.default
Run = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]  # an operator, what it is given
_LIFT, _LIFTED = torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default


class Recorder(DispatchMode):
    """Records what runs while it is active into ``graph``, of ``inputs`` that are there before.

    ``run`` gives what an operator does, where that is not what torch does at once. Other tensors
    that nothing made are ``constants``, by the name of their attribute.
    """

    def __init__(self, inputs: Sequence[torch.Tensor], run: Run | None = None) -> None:
        super().__init__()
        self._run = run or (lambda function, arguments, named: function(*arguments, **named))
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        # autograd does otherwise with gradients that somebody holds
        self._nodes: Any = WeakIdKeyDictionary()
        for number, each in enumerate(inputs):
            self._keep(self.graph.placeholder(f"arg{number}_1"), each)

    def node_of(self, tensor: torch.Tensor) -> Node:
        """The node that made a tensor, or gives the constant that it is."""
        node: Node | None = self._nodes.get(tensor)
        if node is None:
            name = f"_tensor_constant{len(self.constants)}"
            self.constants[name] = tensor
            node = self.graph.create_node("get_attr", name)
            self._keep(node, tensor)
        return node

    def end(self, results: Sequence[torch.Tensor | None]) -> None:
        """Make ``results`` what the graph gives."""
        self.graph.output([None if each is None else self.node_of(each) for each in results])

    def __torch_dispatch__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        named = named or {}
        if function is _DEVICE and isinstance(arguments[0], FakeTensor):
            return arguments[0].fake_device  # asked for more often than anything is computed
        if function is _DEVICE or torch.Tag.data_dependent_output in function.tags:
            return self._run(function, arguments, named)  # which is no tensor
        if torch.is_inference_mode_enabled() and has_parts(function):
            with self:  # autograd, which takes operators apart, is not there
                return function.decompose(*arguments, **named)
        read = self._read(arguments), self._read(named)
        result = self._run(function, arguments, named)
        self._keep(self._call(_LIFTED if function is _LIFT else function, *read), result)
        return result

    def _read(self, value: Any) -> Any:
        """``value`` with the nodes of its tensors."""
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._read, value))
        if isinstance(value, dict):
            return {key: self._read(each) for key, each in value.items()}
        return value

    def _call(self, function: Any, arguments: Any, named: Any) -> Node:
        packet = function.overloadpacket if isinstance(function, OpOverload) else function
        node = self.graph.create_node("call_function", function, name=packet.__name__)
        node.args = arguments  # behind what searches them for sizes that are symbols
        if named:
            node.kwargs = named
        known = traceback.get_current_meta()
        lines = known.get("stack_trace")
        if lines:
            node.stack_trace = lines
            if GRADIENT_SUM in lines:
                node.meta["is_gradient_acc"] = True
        if "custom" in known:
            node.meta["custom"] = copy(known["custom"])
        node.meta["seq_nr"] = sequence_number(known)
        return node

    def _keep(self, node: Node, result: Any) -> None:
        """Let ``node`` have made a result, and nodes of their own its parts."""
        if isinstance(result, torch.Tensor):
            node.meta["val"] = _snapshot(result)
            self._nodes[result] = node
        elif isinstance(result, list | tuple):
            parts = [_snapshot(part) if isinstance(part, torch.Tensor) else part for part in result]
            node.meta["val"] = type(result)(parts)
            for place, part in enumerate(result):
                if isinstance(part, torch.Tensor | list | tuple):
                    self._keep(self._call(operator.getitem, (node, place), {}), part)


def _snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """What it is by now: an operator in place may give it another shape."""
    if isinstance(tensor, FakeTensor):
        return fast_detach(tensor.fake_mode, tensor, False)
    return tensor.detach()
