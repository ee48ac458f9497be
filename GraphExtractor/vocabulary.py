"""What torch's operators are as priced work: the vector functions that the Estimator prices.

An operator that is not listed is priced by its bytes, under its own name, which is said beside the
result.
"""

from types import MappingProxyType

from GraphExtractor.graph import OperatorKind


def _functions(kind: OperatorKind, names: str) -> dict[str, tuple[OperatorKind, str]]:
    pairs = (name.split(":") for name in names.split())
    return {pair[0]: (kind, pair[-1]) for pair in pairs}


# torch operator -> kind and vector function, written as torch_name[:function]; what has no count of
# its own is priced as the function that does as much to an element
VECTOR_FUNCTIONS = MappingProxyType(
    _functions(
        OperatorKind.ELEMENTWISE,
        """add addcmul:mul addcdiv:div sub rsub:sub lerp:mul mul square:mul div reciprocal:div
        true_divide:div neg abs:neg sign:compare floor:cast ceil:cast round:cast trunc:cast pow sqrt
        rsqrt exp exp2:exp expm1:exp log log2:log log1p:log sin cos erf tanh sigmoid logit:sigmoid
        silu mish:tanh softplus:sigmoid log_sigmoid_forward:sigmoid elu:exp gelu relu
        leaky_relu:relu prelu:relu _prelu_kernel:relu hardtanh:relu hardsigmoid:relu hardswish:relu
        glu:sigmoid threshold:relu where masked_fill:where tril:where triu:where clamp:where
        clamp_min:where clamp_max:where eq:compare ne:compare lt:compare le:compare gt:compare
        ge:compare logical_and:compare logical_or:compare logical_not:compare logical_xor:compare
        bitwise_and:compare bitwise_or:compare bitwise_not:compare maximum:compare minimum:compare
        _to_copy:cast native_dropout:dropout bernoulli:dropout
        native_dropout_backward:dropout_backward gelu_backward silu_backward tanh_backward
        sigmoid_backward mish_backward:silu_backward softplus_backward:silu_backward
        log_sigmoid_backward:silu_backward elu_backward:exp glu_backward:silu_backward
        threshold_backward:relu_backward leaky_relu_backward:relu_backward
        _prelu_kernel_backward:relu_backward hardtanh_backward:relu_backward
        hardsigmoid_backward:relu_backward hardswish_backward:relu_backward mse_loss:mul
        mse_loss_backward:mul smooth_l1_loss:mul smooth_l1_loss_backward:mul huber_loss:mul
        huber_loss_backward:mul binary_cross_entropy:log binary_cross_entropy_backward:div
        binary_cross_entropy_with_logits:cross_entropy swiglu:silu swiglu_backward:silu_backward""",
    )
    | _functions(
        OperatorKind.MOVE,
        """clone:copy copy cat:copy stack:copy repeat:copy roll:copy flip:copy constant_pad_nd:copy
        reflection_pad2d:copy replication_pad2d:copy slice_backward:copy select_backward:copy
        slice_scatter:copy select_scatter:copy as_strided_scatter:copy fill:copy zero:copy full:copy
        zeros:copy ones:copy full_like:copy zeros_like:copy ones_like:copy new_zeros:copy
        new_full:copy new_ones:copy pixel_shuffle:copy pixel_unshuffle:copy upsample_nearest1d:copy
        upsample_nearest2d:copy im2col:copy unfold_backward:scatter_add col2im:scatter_add""",
    )
    | _functions(
        OperatorKind.REDUCTION,
        """_softmax:softmax _safe_softmax:softmax _softmax_backward_data:softmax_backward
        _log_softmax:log_softmax _log_softmax_backward_data:log_softmax_backward
        native_layer_norm:layer_norm native_layer_norm_backward:layer_norm_backward
        native_batch_norm:layer_norm _native_batch_norm_legit:layer_norm
        native_batch_norm_backward:layer_norm_backward native_group_norm:layer_norm
        native_group_norm_backward:layer_norm_backward rms_norm rms_norm_backward sum mean prod:mul
        amax:max amin:max max min:max topk:max sort:max cumsum:sum logsumexp:log_softmax
        var:layer_norm var_mean:layer_norm std:layer_norm linalg_vector_norm:mul norm:mul
        nll_loss_forward:nll_loss nll_loss_backward nll_loss2d_forward:nll_loss
        nll_loss2d_backward:nll_loss_backward cross_entropy cross_entropy_backward route:softmax
        route_backward:softmax_backward max_pool2d_with_indices:max avg_pool1d:sum avg_pool2d:sum
        avg_pool3d:sum _adaptive_avg_pool2d:sum avg_pool2d_backward:copy
        _adaptive_avg_pool2d_backward:copy upsample_nearest1d_backward:sum
        upsample_nearest2d_backward:sum upsample_bilinear2d:sum
        upsample_bilinear2d_backward:scatter_add""",
    )
    | _functions(
        OperatorKind.GATHER,
        """embedding index:embedding gather:embedding index_select:embedding
        embedding_dense_backward:embedding_backward index_put:scatter_add scatter_add
        index_add:scatter_add scatter:scatter_add gather_rows:embedding sum_rows:scatter_add
        sum_rows_backward:embedding histc:scatter_add
        max_pool2d_with_indices_backward:scatter_add""",
    )
)
