"""Hand-made operators of a transformer layer, so that estimation tests need no extracted graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    GraphKey,
    LayerGraph,
    ModelGraph,
    Operand,
    OperandRole,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    SavedBytes,
    VectorWork,
    Yields,
)
from Solver.designs.network_times import PassNetwork

ACTIVATION, PARAMETER = OperandRole.ACTIVATION, OperandRole.PARAMETER


def tensor(*shape: int, role: OperandRole = ACTIVATION) -> Operand:
    return Operand(shape, "bfloat16", role)


def gemm_operator(
    id: int, gemm: Gemm, tail: tuple[VectorWork, ...] = (), phase: Phase = Phase.FORWARD
) -> Operator:
    return Operator(
        id,
        f"gemm_{id}",
        OperatorKind.GEMM,
        phase,
        Yields.OUTPUT,
        gemms=(gemm,),
        vector=tail,
        reads=(
            tensor(gemm.batch, gemm.m, gemm.k),
            tensor(gemm.batch, gemm.k, gemm.n, role=PARAMETER),
        ),
        writes=(tensor(gemm.batch, gemm.m, gemm.n),),
    )


def vector_operator(id: int, function: str, *shape: int) -> Operator:
    operand = tensor(*shape)
    work = (VectorWork(function, operand.bytes // 2),)
    return Operator(
        id,
        function,
        OperatorKind.ELEMENTWISE,
        Phase.FORWARD,
        Yields.OUTPUT,
        vector=work,
        reads=(operand,),
        writes=(operand,),
    )


def scan_operator(
    id: int, function: str, batch: int, tokens: int, channels: int, states: int
) -> Operator:
    """A recurrence without products over operands of (batch, channels, tokens)."""
    operand = tensor(batch, channels, tokens)
    work = (VectorWork(function, batch * tokens * channels * states, steps=tokens),)
    return Operator(
        id,
        function,
        OperatorKind.SCAN,
        Phase.FORWARD,
        Yields.OUTPUT,
        vector=work,
        reads=(operand, operand),
        writes=(operand,),
    )


def recurrent_operator(
    id: int, batch: int, tokens: int, width: int, phase: Phase = Phase.FORWARD
) -> Operator:
    """The recurrent part of an LSTM."""
    backward = phase is Phase.BACKWARD
    gemm = Gemm(
        tokens, batch, *((4 * width, width) if backward else (width, 4 * width)), dependent=True
    )
    cell = VectorWork(
        "lstm_cell_backward" if backward else "lstm_cell", batch * tokens * width, steps=tokens
    )
    reads = (tensor(batch, tokens, 4 * width), tensor(4 * width, width, role=PARAMETER))
    yields = Yields.INPUT_GRADIENT if backward else Yields.OUTPUT
    writes = (tensor(batch, tokens, width), tensor(batch, tokens, 5 * width))
    return Operator(
        id, "recurrence", OperatorKind.SCAN, phase, yields, (gemm,), (cell,), reads, writes
    )


def attention_operator(
    id: int, batch: int, heads: int, sequence: int, head: int, backward: bool = False
) -> Operator:
    scores, values = (
        Gemm(batch * heads, sequence, head, sequence),
        Gemm(batch * heads, sequence, sequence, head),
    )
    operand = tensor(batch, sequence, heads * head)
    gemms = (scores, scores, values, values, values) if backward else (scores, values)
    softmax = VectorWork(
        "softmax_backward" if backward else "softmax", batch * heads * sequence * sequence
    )
    return Operator(
        id,
        "attention",
        OperatorKind.ATTENTION,
        Phase.BACKWARD if backward else Phase.FORWARD,
        Yields.INPUT_GRADIENT if backward else Yields.OUTPUT,
        gemms=gemms,
        vector=(softmax,),
        reads=(operand,) * (5 if backward else 3),
        writes=(operand,) * (3 if backward else 1),
        core_attention=True,
    )


def ring_operator(
    id: int, ring: int, rows: int, head: int = 64, heads: int = 8, backward: bool = False
) -> Operator:
    """Attention of ``rows`` queries over the keys and values of so many devices, which pass around;
    it reads what it receives."""
    columns = ring * rows
    scores, values = Gemm(heads, rows, head, columns), Gemm(heads, rows, columns, head)
    of_columns = Gemm(heads, columns, rows, head)
    own, received = tensor(heads, rows, head), tensor(heads, (ring - 1) * rows, head)
    statistics = Operand((heads, rows), "float32", ACTIVATION)
    passed = Collective(CollectiveKind.PASS, 2 * ring * own.bytes, ring, CollectiveGroup.CONTEXT)
    whole = attention_operator(id, 1, heads, rows, head, backward)
    softmax = (replace(whole.vector[0], elements=heads * rows * columns),)
    kept = (own,) * 5 + (statistics,) if backward else (own,) * 3
    return replace(
        whole,
        gemms=(scores, of_columns, scores, values, of_columns) if backward else (scores, values),
        vector=softmax,
        reads=(*kept, received, received),
        writes=(own, own, own) if backward else (own, statistics),
        streamed=(passed, passed) if backward else (passed,),
    )


def collective_operator(id: int, payload_bytes: int, group_size: int) -> Operator:
    operand = tensor(payload_bytes // 2)
    return Operator(
        id,
        "all_reduce",
        OperatorKind.COLLECTIVE,
        Phase.FORWARD,
        Yields.OUTPUT,
        reads=(operand,),
        writes=(operand,),
        collective=Collective(CollectiveKind.ALL_REDUCE, payload_bytes, group_size),
    )


def chain(operators: list[Operator]) -> OperatorGraph:
    return OperatorGraph(tuple(operators), tuple((a.id, b.id) for a, b in pairwise(operators)))


def transformer_layer(
    batch: int, sequence: int, hidden: int, heads: int, tp: int = 1
) -> LayerGraph:
    """Forward and backward operators of a GPT-like layer, matrix products with both gradients."""
    tokens = batch * sequence
    ffn = 4 * hidden // tp
    products = [
        Gemm(1, tokens, hidden, 3 * hidden // tp),
        Gemm(1, tokens, hidden // tp, hidden),
        Gemm(1, tokens, hidden, ffn),
    ]
    products.append(Gemm(1, tokens, ffn, hidden))
    forward = [vector_operator(0, "layer_norm", tokens, hidden), gemm_operator(1, products[0])]
    forward.append(attention_operator(2, batch, heads // tp, sequence, hidden // heads))
    forward.append(gemm_operator(3, products[1], (VectorWork("add", tokens * hidden),)))
    forward.append(collective_operator(4, 2 * tokens * hidden, tp))
    forward.append(gemm_operator(5, products[2], (VectorWork("gelu", tokens * ffn),)))
    forward.append(
        gemm_operator(
            6,
            products[3],
            (VectorWork("dropout", tokens * hidden), VectorWork("add", tokens * hidden)),
        )
    )
    backward = [vector_operator(0, "layer_norm_backward", tokens, hidden)]
    backward.append(
        attention_operator(1, batch, heads // tp, sequence, hidden // heads, backward=True)
    )
    for product in products:
        backward.append(
            gemm_operator(
                len(backward), Gemm(1, product.m, product.n, product.k), phase=Phase.BACKWARD
            )
        )
        backward.append(
            gemm_operator(
                len(backward), Gemm(1, product.k, product.m, product.n), phase=Phase.BACKWARD
            )
        )
    parameters = sum(product.k * product.n for product in products)
    saved = SavedBytes(1, 1, 1)
    return LayerGraph(
        "layer",
        chain(forward),
        chain(backward),
        chain(backward),
        parameters,
        parameters,
        0,
        0,
        saved,
        (),
    )


def model_graph(
    batch: int = 1, sequence: int = 128, hidden: int = 256, heads: int = 4, tp: int = 1
) -> ModelGraph:
    layer = transformer_layer(batch, sequence, hidden, heads, tp)
    return ModelGraph(
        GraphKey("by_hand", batch, sequence, tp), (layer,), (0, 0), (), 2 * layer.parameter_count
    )


def innermost_network(cluster: Cluster) -> PassNetwork:
    """Collectives among neighbouring devices."""
    return PassNetwork(
        lambda each: collective_s(each.kind, each.payload_bytes, each.group_size, 1, cluster)
    )
