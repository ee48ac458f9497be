"""Bytes that the kernel of a vector function moves when it touches every operand once.

``causal_softmax`` is softmax of scores above whose diagonal nothing counts, in one kernel: it reads
the lower half only and writes all. Profiled on a V100 (Aceso), forward and backward so reach 73 %
of the bandwidth; were all read, more than there is.
"""

from types import MappingProxyType

MASK_BYTES = 1  # of an element of a dropout mask


def _moving(tensors: float, functions: str) -> dict[str, float]:
    return dict.fromkeys(functions.split(), tensors)


# function -> tensors read and written; those of ``DROPOUTS`` move a mask too
TENSORS_MOVED: MappingProxyType[str, float] = MappingProxyType(
    _moving(1, "sum mean max")
    | _moving(
        2,
        """neg pow sqrt rsqrt exp log sin cos erf tanh sigmoid silu gelu relu where compare copy
        cast dropout dropout_backward softmax fused_softmax log_softmax layer_norm rms_norm
        embedding nll_loss cross_entropy clamped_halves expert_bias expert_bias_backward
        causal_conv""",
    )
    | _moving(
        3,
        """add sub mul div scatter_add softmax_backward fused_softmax_backward log_softmax_backward
        layer_norm_backward rms_norm_backward gelu_backward relu_backward silu_backward
        tanh_backward sigmoid_backward nll_loss_backward cross_entropy_backward
        embedding_backward clamped_halves_backward causal_conv_backward""",
    )
    # states of chunks are written, passed on and read in fp32 beside inputs and outputs
    | {"chunk_scan": 11.5, "chunk_scan_backward": 26}
    | {"causal_softmax": 1.5, "causal_softmax_backward": 2.0}
    | _moving(1, "layer_norm_sums rms_norm_sums")
    | _moving(2, "layer_norm_apply rms_norm_apply layer_norm_backward_sums rms_norm_backward_sums")
    | _moving(3, "layer_norm_backward_apply rms_norm_backward_apply")
)
# kernels of a norm whose rows devices share do what its one kernel does, and reach as much of the
# bandwidth; so do gradients of convolutions and scans
WHOLE_FUNCTIONS: MappingProxyType[str, str] = MappingProxyType(
    {
        f"{norm}_{part}": norm
        for norm in ("layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward")
        for part in ("sums", "apply")
    }
    | {f"{name}_backward": name for name in ("causal_conv", "chunk_scan")}
)
DROPOUTS = frozenset({"dropout", "dropout_backward"})

# Lane operations per element (and state) of a recurrence. A multiply-add is one, a special function
# four: special-function units are a quarter as wide as the lanes of fp32 (NVIDIA A100 architecture
# whitepaper, 2020). A kernel of selective scans works on many tokens at once (a block-wide scan), a
# multiply-add more per state; its backward makes the states again.
SCAN_OPERATIONS: MappingProxyType[str, float] = MappingProxyType(
    {"selective_scan": 9, "selective_scan_backward": 20, "wkv": 33, "wkv_backward": 70}
    | {"lstm_cell": 43, "lstm_cell_backward": 24, "gru_cell": 31, "gru_cell_backward": 20}
    | {
        "rnn_tanh_cell": 6,
        "rnn_tanh_cell_backward": 3,
        "rnn_relu_cell": 3,
        "rnn_relu_cell_backward": 2,
    }
)
PARALLEL_SCANS = frozenset({"selective_scan", "selective_scan_backward"})


def traffic_bytes(function: str, elements: float, element_bytes: int) -> float:
    """Bytes that ``function`` moves for ``elements`` elements of its (first) operand; an unknown
    one moves three tensors."""
    return elements * (
        TENSORS_MOVED.get(function, 3) * element_bytes + (MASK_BYTES if function in DROPOUTS else 0)
    )
