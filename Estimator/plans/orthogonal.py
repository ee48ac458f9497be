"""The matrices that Muon orthogonalises in its step, and what that takes (Jordan et al. 2024).

Five times X becomes a X + (b A + c A A) X with A = X X^T, where X is the momentum of a weight with
m rows, its smaller side, and n columns: products of 4 m^2 n + 2 m^3 FLOPs in 16 bits. Embedding and
head, norms and biases stay with Adam. Where tensor parallelism divides a weight, its devices gather
the whole and all do the same work (``--muon-tp-mode duplicated``, Megatron-LM's default; what is
gathered is some percent of the products' time and is not counted). Replicas that divide the
optimizer's state each do whole matrices, so that none does less than the largest of them takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from Estimator.devices.operator_cost import DeviceModel
from Estimator.plans.layer_costs import ends_of
from Estimator.plans.policy import optimizer_state
from GraphExtractor.graph import (
    CollectiveGroup,
    Gemm,
    GraphKey,
    LayerGraph,
    ModelGraph,
    OperandRole,
    OperatorKind,
)
from phaze_common.array_types import FloatArray
from phaze_common.choices import Optimizer

COLUMNS = 4  # seconds of dense matrices and of experts', and of the largest of both


@dataclass(frozen=True)
class WeightMatrix:
    """Weights of one shape as they are before tensor parallelism divides them."""

    smaller: int
    larger: int
    count: int
    of_experts: bool

    @property
    def flops(self) -> int:
        """Of one iteration for all of them."""
        return self.count * (4 * self.smaller**2 * self.larger + 2 * self.smaller**3)


def weight_matrices(layer: LayerGraph, key: GraphKey) -> Iterator[WeightMatrix]:
    """Those that products of a block read.

    A weight as wide as the layer's output whose products the group adds up, or an expert's, has its
    rows divided, another one its columns, unless all devices of the group compute it alike, each
    for tokens of its own or all for the same.
    """
    operators = [each for each in layer.forward.operators if each.gemms or each.collective]
    if not operators:
        return
    products = [
        (each, following.collective)
        for each, following in zip_longest(operators, operators[1:], fillvalue=operators[0])
        if each.kind is OperatorKind.GEMM
        and any(read.role is OperandRole.PARAMETER for read in each.reads)
    ]
    width = max((each.gemms[0].n for each, _ in products[-1:]), default=0)
    tokens = max((each.gemms[0].m for each, _ in products if not each.grouped), default=0)
    for each, sent in products:
        gemm, parts = each.gemms[0], key.expert_tp if each.grouped else key.tp
        across = 1 if each.grouped else key.tp2
        if not each.grouped and (each.model_share < 1.0 or gemm.m < tokens):
            parts = 1
        rows, columns = gemm.k, gemm.n
        added_up = sent is not None and sent.group is CollectiveGroup.TENSOR
        if columns == width and (added_up or each.grouped):
            rows, columns = rows * parts, columns * across
        else:
            rows, columns = rows * across, columns * parts
        yield WeightMatrix(min(rows, columns), max(rows, columns), gemm.batch, each.grouped)


def orthogonal_s(graph: ModelGraph, seconds_of: Callable[[int, int], float]) -> FloatArray:
    """Seconds of one device for the matrices of every layer of ``graph``, (layers, 4): of dense
    ones and of experts, and of the largest of both. ``seconds_of`` a matrix is ``matrix_s``."""
    seconds, ends = np.zeros((len(graph.layers), COLUMNS)), ends_of(graph)
    for place, layer in enumerate(graph.layers):
        for each in weight_matrices(layer, graph.key) if place not in ends else ():
            alone_s = seconds_of(each.smaller, each.larger)
            kind = 1 if each.of_experts else 0
            seconds[place, kind] += each.count * alone_s
            seconds[place, 2 + kind] = max(seconds[place, 2 + kind], alone_s)
    return seconds


def matrix_s(model: DeviceModel, smaller: int, larger: int) -> float:
    """Seconds of one matrix: of its kernels, or of the host that issues them one by one."""
    way = optimizer_state(Optimizer.MUON).orthogonal
    assert way is not None  # a test reads the file
    products = [
        Gemm(1, smaller, larger, smaller),
        Gemm(1, smaller, smaller, smaller),
        Gemm(1, smaller, smaller, larger),
    ]
    one_s = model.products_time(products).device_s
    stream_s = model.stream_time(way.kernel_bytes * smaller * larger / way.kernels).device_s
    issued = way.iterations * len(products) + way.kernels
    host_s = issued * min(way.issue_s, model.software.host_issue.value)
    return max(way.iterations * one_s + way.kernels * stream_s, host_s)
