"""Work of recurrences over the tokens: what their steps do, each after the one before.

A scan without products is priced in its sequential form, which does the least work: lanes that the
states of one token do not fill stay idle. A parallel form (Blelloch 1990) needs twice the
operations and gains nothing where they fill them.
"""

from __future__ import annotations

import math

from torch.fx import Node

from GraphExtractor.graph import Gemm, OperatorKind, VectorWork
from GraphExtractor.products import Work
from GraphExtractor.scans import GATES


def scan_work(node: Node, name: str) -> Work | None:
    """The work of a recurrence; None for any other operator."""
    if name in ("selective_scan", "selective_scan_backward"):
        return _selective_scan(node, name)
    if name in ("linear_scan", "linear_scan_backward"):
        # a selective scan of one state, which nothing reads out
        gate = _shape(node.args[1])
        function = name.replace("linear", "selective")
        return Work(OperatorKind.SCAN, (), (VectorWork(function, math.prod(gate), steps=gate[1]),))
    if name in ("wkv", "wkv_backward"):
        key = _shape(node.args[2 if name == "wkv" else 3])
        return Work(OperatorKind.SCAN, (), (VectorWork(name, math.prod(key), steps=key[1]),))
    return _recurrence(node, name) if name in ("recurrence", "recurrence_backward") else None


def _selective_scan(node: Node, name: str) -> Work:
    """States of (batch, channels, state size) per token; products with C read them out."""
    backward = name.endswith("backward")
    batch, channels, tokens = _shape(node.args[1 if backward else 0])
    elements = batch * channels * tokens * _shape(node.args[3 if backward else 2])[1]
    macs = elements * (2 if backward else 1)
    return Work(OperatorKind.SCAN, (), (VectorWork(name, elements, steps=tokens, macs=macs),))


def _recurrence(node: Node, name: str) -> Work:
    """A product with the recurrent weights, and the gates, per token; backward one of its own."""
    backward = name.endswith("backward")
    mode = next(argument for argument in node.args if isinstance(argument, str))
    batch, tokens, width = _shape(node.args[0])
    gates = GATES[mode]
    width = width if backward else width // gates
    function = f"{mode}_cell{'_backward' if backward else ''}"
    cell = VectorWork(function, batch * tokens * width, steps=tokens)
    inner, columns = (gates * width, width) if backward else (width, gates * width)
    # none leads to a first state that is not trained
    products = tokens if not backward or node.args[-1] else tokens - 1
    gemms = (Gemm(products, batch, inner, columns, dependent=True),) if products else ()
    return Work(OperatorKind.SCAN, gemms, (cell,))


def _shape(argument: object) -> tuple[int, ...]:
    assert isinstance(argument, Node)  # a tensor of the schema
    return tuple(argument.meta["val"].shape)
