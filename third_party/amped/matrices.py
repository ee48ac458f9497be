"""The products of a layer: GEMM breakdown, compute graph as text, and matrix dimensions for
DeepFlow.

AMPeD's own gemm_breakdown.txt and visual_graph.txt are not public, so their layout is ours.
mat_dims.txt is that of DeepFlow's ``scripts/mat_dims_amped.py``: a line "rows inner columns" for
each of six products, of one replica's batch averaged over the stages.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from .corrections import MATRIX_DIMENSIONS
from .times import TimeQuantities
from .units import written


class MatDims(StrEnum):
    """Variants of mat_dims.txt."""

    PLAIN = "plain"  # rows inner columns
    TRAINING = "training"  # and the split of the product (CR, RC) and its name


@dataclass(frozen=True)
class Gemm:
    """A product of rows x inner by inner x columns, over the whole batch; ``macs`` of one layer."""

    name: str
    parameter: str
    rows: float
    inner: float
    columns: float
    times: float

    @property
    def macs(self) -> float:
        """Multiply-accumulates of a layer and batch."""
        return self.rows * self.inner * self.columns * self.times


@dataclass(frozen=True)
class _Sizes:
    tokens: float
    width: float
    heads: float
    head: float
    seen: float
    mlp_in: float
    mlp_within: float

    @classmethod
    def of(cls, table: TimeQuantities) -> _Sizes:
        return cls(
            float(table.batch_size * table.context),
            float(table.dimensionality),
            float(table.attention_heads),
            float(table.hidden_layer_dimension_for_attention_sublayers),
            float(table.summarization_len),
            float(table.hidden_layer_dimension_MLP_1),
            float(table.hidden_layer_dimension_MLP_2),
        )


def gemms(table: TimeQuantities) -> tuple[Gemm, ...]:
    """The products of a layer; their operations add up to those of attention and MLP in the time
    model."""
    s = _Sizes.of(table)
    return (
        Gemm("X.W=KQV", "query key value", s.tokens, s.width, s.head * s.heads, 3),
        Gemm("Q.K=R", "self_attention", s.tokens, s.head, s.seen, s.heads),
        Gemm("R.V=Z", "self_attention", s.tokens, s.seen, s.head, s.heads),
        Gemm("Z.W=O", "attention_sublayer_output", s.tokens, s.width, s.width, 1),
        Gemm("O.WL1=O1", "MLP_sublayer", s.tokens, s.mlp_in, s.mlp_within, 1),
        Gemm("O1.WL2=O2", "MLP_sublayer", s.tokens, s.mlp_within, s.mlp_in, 1),
    )


def gemm_breakdown(table: TimeQuantities) -> str:
    """Text of gemm_breakdown.txt: each product with its operations and its part of the training's
    forward computation."""
    products = gemms(table)
    seconds_per_mac = (
        table.number("seconds_per_MAC")
        * table.number("mac_passes_forward")
        / table.number("number_of_accelerators_required")
    )
    times = table.number("layer_batches")
    total = sum(product.macs for product in products)
    lines = [
        "GEMM BREAKDOWN",
        "",
        "One layer and one global batch; forward (s) is of the whole training. Backward and "
        "updates have as many operations.",
        "",
        f"{'product':<12}{'rows':>16}{'inner':>10}{'columns':>10}{'times':>8}"
        f"{'MACs':>26}{'share':>10}  forward (s)",
    ]
    for product in products:
        sizes = f"{written(product.rows):>16}{written(product.inner):>10}"
        sizes += f"{written(product.columns):>10}{written(product.times):>8}"
        seconds, share = times * product.macs * seconds_per_mac, product.macs / total
        macs = f"{written(product.macs):>26}{share:>10.4%}"
        lines.append(f"{product.name:<12}{sizes}{macs}  {seconds!r}")
    lines.append(
        f"{'total':<12}{'':44}{written(total):>26}{1:>10.4%}  {times * total * seconds_per_mac!r}"
    )
    return "\n".join(lines) + "\n"


def compute_graph(table: TimeQuantities) -> str:
    """Text of visual_graph.txt: the operations of a layer in order, with shapes and what is
    communicated where."""
    s = _Sizes.of(table)
    tp, pp, dp = (
        table.number(f"{name}_parallel_degree") for name in ("tensor", "pipeline", "data")
    )
    rows = written(s.tokens)
    width, attention = written(s.width), written(s.head * s.heads)
    scores = f"{written(s.heads)} x [{rows} x {written(s.seen)}]"
    all_reduce = "no communication (tensor parallel degree 1)"
    if tp > 1:
        all_reduce = f"all-reduce over {written(tp)} accelerators"
    steps = [
        f"X [{rows} x {width}]",
        f"|-- Q = X.WQ, K = X.WK, V = X.WV   [{rows} x {attention}] each, {written(s.heads)} "
        f"heads of {written(s.head)}",
        f"|   R = Q.K   {scores}",
        "|   softmax(R)",
        f"|   Z = R.V   [{rows} x {attention}]",
        f"|   O = Z.W   [{rows} x {width}]",
        f"|   ({all_reduce})",
        "+-- X + O, normalised",
        f"|   O1 = O.WL1   [{rows} x {written(s.mlp_within)}]",
        "|   activation(O1)",
        f"|   O2 = O1.WL2   [{rows} x {written(s.mlp_in)}]",
        f"|   ({all_reduce})",
        f"+-- O + O2, normalised   [{rows} x {width}]",
    ]
    if table.number("expert_flag"):
        experts = written(table.number("number_of_experts"))
        steps.insert(
            8,
            f"|   (in every second layer: gate, all-to-all to {experts} experts, and back behind "
            "O2)",
        )
    layers = table.number("layers")
    head = [
        "COMPUTE GRAPH",
        "",
        f"Rows are the tokens of a global batch; each of {written(dp)} replicas has its part.",
        f"{written(layers)} layers on {written(pp)} pipeline stages of {written(layers / pp)}; "
        f"between stages [{rows} x {width}] is sent.",
        "Behind the backward pass gradients of "
        f"{written(table.number('number_of_parameters_per_layer'))} parameters a layer "
        f"are summed over {written(dp)} replicas.",
        "",
    ]
    return "\n".join([*head, *steps]) + "\n"


def mat_dims(table: TimeQuantities, variant: MatDims, kept: Collection[str] = ()) -> str:
    """Text of mat_dims.txt: six lines "rows inner columns", of the training variant with CR or RC
    and the product's name."""
    s = _Sizes.of(table)
    own = s.tokens / table.number("data_parallel_degree") / table.number("pipeline_parallel_degree")
    attention = s.head * s.heads
    mlp = ((s.mlp_in, s.mlp_within), (s.mlp_within, s.mlp_in))
    if MATRIX_DIMENSIONS.name in kept:
        mlp = ((s.width, s.mlp_in), (s.mlp_in, s.mlp_within))
    sizes = (
        (3 * own, s.width, attention),
        (own, s.head, s.seen * s.heads),
        (own, s.seen, attention),
        (own, s.width, s.width),
        (own, *mlp[0]),
        (own, *mlp[1]),
    )
    lines = [" ".join(f"{int(size)}" for size in each) for each in sizes]
    if variant is MatDims.TRAINING:
        # Of weights: by columns, then rows; as DeepFlow's distributed products have it.
        splits = ("CR", "CR", "CR", "CR", "RC", "RC")
        products = zip(lines, splits, gemms(table), strict=True)
        lines = [f"{line} {split} {product.name}" for line, split, product in products]
    return "\n".join(lines) + "\n"
