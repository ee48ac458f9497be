"""AMPeD's calculated parameters of the training itself: batches, multiply-accumulates, parameters
of a layer and of the model.

As published: the names and formulas are those of AMPeD's ``inputs.py`` in a derivative project
(``amped_deepflow``), which is public where AMPeD's own repository holds a README alone. Operations
and volumes are of one layer and one global batch. The formulas marked "ours" have no counterpart
there; they let a configuration say what it knows and leave the rest. What ``corrections`` replaces
is there.
"""

import numpy as np

from third_party.amped.table import Formula

BATCHES = (
    Formula(
        "batch_size",
        ("minibatch_size", "data_parallel_degree"),
        lambda mini, dp: mini * dp,
        description="ours: sequences",
    ),
    Formula(
        "minibatch_size",
        ("batch_size", "data_parallel_degree"),
        lambda batch, dp: batch / dp,
        description="sequences",
    ),
    Formula(
        "microbatch_size",
        ("minibatch_size", "number_of_microbatches_per_minibatch"),
        lambda mini, count: mini / count,
        description="sequences",
    ),
    Formula(
        "number_of_microbatches_per_minibatch",
        ("pipeline_parallel_degree",),
        lambda pp: pp,
        description="as many as pipeline stages",
    ),
    Formula(
        "samples",
        ("tokens_to_train", "context"),
        lambda tokens, context: tokens / context,
        description="sequences",
    ),
    Formula(
        "tokens_to_train",
        ("samples", "context"),
        lambda samples, context: samples * context,
        description="ours: tokens",
    ),
    Formula(
        "number_of_batches",
        ("samples", "batch_size"),
        lambda samples, batch: samples / batch,
        description="iterations",
    ),
    Formula(
        "summarization_len",
        ("context",),
        lambda context: context,
        description="ours: all tokens are attended to",
    ),
)

SIZES = (
    Formula(
        "hidden_layer_dimension_for_attention_sublayers",
        ("dimensionality", "attention_heads"),
        lambda width, heads: width / heads,
        description="ours: width of one head",
    ),
    Formula(
        "dimensionality",
        ("hidden_layer_dimension_for_attention_sublayers", "attention_heads"),
        lambda head, heads: head * heads,
        description="ours: width of the model",
    ),
    Formula(
        "attention_heads",
        ("dimensionality", "hidden_layer_dimension_for_attention_sublayers"),
        lambda width, head: width / head,
        description="ours",
    ),
    Formula(
        "key_query_value_length",
        ("hidden_layer_dimension_for_attention_sublayers",),
        lambda head: head,
        description="ours: width of one head",
    ),
    Formula(
        "hidden_layer_dimension_MLP_1",
        ("dimensionality",),
        lambda width: width,
        description="width into the MLP",
    ),
    Formula(
        "hidden_layer_dimension_MLP_2",
        ("dimensionality",),
        lambda width: 4 * width,
        description="ours: width within the MLP",
    ),
)

_TOKENS = ("batch_size", "context")
_HEAD = "hidden_layer_dimension_for_attention_sublayers"
_MLP = ("hidden_layer_dimension_MLP_1", "hidden_layer_dimension_MLP_2")
_OF_MACS = "multiply-accumulates per layer and batch"


def _projection(name: str) -> Formula:
    return Formula(
        f"{name}_MAC_operations",
        (*_TOKENS, _HEAD, "dimensionality"),
        lambda batch, context, head, width: batch * context * head * width,
        description=f"{_OF_MACS} and head",
    )


OPERATIONS = (
    _projection("query"),
    _projection("key"),
    _projection("value"),
    Formula(
        "self_attention_MAC_operations",
        (*_TOKENS, "summarization_len", _HEAD),
        lambda batch, context, seen, head: 2 * batch * context * seen * head,
        description=f"{_OF_MACS} and head",
    ),
    Formula(
        "multihead_MAC_operations",
        (
            "attention_heads",
            "query_MAC_operations",
            "key_MAC_operations",
            "value_MAC_operations",
            "self_attention_MAC_operations",
        ),
        lambda heads, query, key, value, attention: heads * (query + key + value + attention),
        description=_OF_MACS,
    ),
    Formula(
        "attention_sublayer_output_MAC_operations",
        (*_TOKENS, "dimensionality"),
        lambda batch, context, width: batch * context * width**2,
        description=_OF_MACS,
    ),
    Formula(
        "total_attention_sublayer_MAC_operations",
        ("multihead_MAC_operations", "attention_sublayer_output_MAC_operations"),
        lambda heads, output: heads + output,
        description=_OF_MACS,
    ),
    Formula(
        "total_MLP_sublayer_MAC_operations",
        (*_TOKENS, *_MLP),
        lambda batch, context, one, two: 2 * batch * context * one * two,
        description=_OF_MACS,
    ),
    Formula(
        "gating_MAC_operations",
        (
            "context",
            "dimensionality",
            "batch_size",
            "expert_flag",
            "number_of_experts",
            "number_of_MoE_layers",
        ),
        lambda context, width, batch, flag, experts, layers: (
            context * (width - 1) * batch * flag * experts * layers
        ),
        description="multiply-accumulates per batch of all MoE layers",
    ),
    Formula(
        "decoder_NMACs",
        ("batch_size", "number_of_tokens_in_vocabulary", "dimensionality", "decoder_flag"),
        lambda batch, vocabulary, width, flag: batch * vocabulary * width * flag,
        description="multiply-accumulates of the projection onto the vocabulary",
    ),
    Formula(
        "decoder_flag",
        ("minibatch_size", "embedding_layer_parameters", "query_MAC_operations"),
        lambda mini, embedding, query: mini * embedding * query,
        description="whether the projection onto the vocabulary counts",
    ),
    Formula(
        "non_linear_operations_for_attention_sublayer",
        (*_TOKENS, _HEAD, "attention_heads"),
        lambda batch, context, head, heads: batch * context * head * heads,
        description="per layer and batch",
    ),
    Formula(
        "non_linear_operations_for_MLP_sublayer",
        ("batch_size", *_MLP),
        lambda batch, one, two: 2 * batch * (one + two),
        description="per layer and batch",
    ),
    Formula(
        "activations_volume_per_layer_batch",
        (*_TOKENS, _HEAD),
        lambda batch, context, head: batch * context * head,
        description="elements",
    ),
    Formula(
        "error_volume_per_layer_batch",
        (*_TOKENS, _HEAD),
        lambda batch, context, head: batch * context * head,
        description="elements",
    ),
)

_WIDTHS = (
    *("dim_query_weight", "dim_key_weight", "dim_value_weight", "projection_weight"),
    *("feedforward_bias_1", "feedforward_bias_2", "feedforward_scale_1", "feedforward_scale_2"),
)
PARAMETERS = (
    *(Formula(name, ("dimensionality",), lambda width: width) for name in _WIDTHS),
    Formula(
        "number_of_parameters_per_layer",
        (
            *_WIDTHS,
            "key_query_value_length",
            "attention_heads",
            *_MLP,
            "embedding_layer_parameters",
            "layers",
        ),
        lambda q, k, v, o, b1, b2, s1, s2, head, heads, one, two, embedding, layers: (
            (q + k + v + o) * head * heads + b1 + b2 + s1 + s2 + 2 * two * one + embedding / layers
        ),
        description="the embedding's shared out among the layers",
    ),
    Formula(
        "number_of_parameters_per_expert",
        ("number_of_parameters_per_layer", "layers"),
        lambda parameters, layers: parameters * layers,
    ),
    Formula(
        "number_of_MoE_layers",
        ("layers",),
        lambda layers: layers // 2,
        description="every second layer",
    ),
    Formula("expert_flag", ("number_of_experts",), lambda experts: np.where(experts > 1, 1.0, 0.0)),
    Formula(
        "number_of_gating_parameters",
        ("expert_flag", "dimensionality", "number_of_experts", "number_of_MoE_layers"),
        lambda flag, width, experts, layers: flag * width * experts * layers,
    ),
    Formula(
        "number_of_expert_parameters",
        ("number_of_experts", "number_of_MoE_layers", *_MLP),
        lambda experts, layers, one, two: (experts - 1) * layers * 2 * one * two,
        description="of all experts but the first of each layer",
    ),
    Formula(
        "embedding_layer_parameters",
        ("number_of_tokens_in_vocabulary", "dimensionality"),
        lambda vocabulary, width: vocabulary * width,
    ),
    Formula(
        "total_number_of_parameters_without_embedding",
        (
            "number_of_parameters_per_layer",
            "layers",
            "number_of_gating_parameters",
            "number_of_expert_parameters",
        ),
        lambda parameters, layers, gating, experts: parameters * layers + gating + experts,
        description="embedding included in spite of the name",
    ),
)

_ROWS = ("microbatch_size", "context")


def _parallel(name: str, width: str, tile: str) -> Formula:
    return Formula(
        f"parallelization_degree_{name}",
        (*_ROWS, width, tile),
        lambda micro, context, size, side: micro * context * size / side / side,
        description="tiles of a product; not in the time",
    )


def _effective(name: str) -> Formula:
    return Formula(
        f"effective_perf_perc_{name}",
        (f"parallelization_degree_{name}",),
        lambda degree: np.minimum(1.0, degree / 100),
        description="share of the peak; not in the time",
    )


def _intensity(name: str, width: str) -> Formula:
    return Formula(
        f"compute_intensity_{name}",
        (width, "tile_block_size"),
        lambda size, tile: size / (size / tile + 1) / 2,
        description="not in the time",
    )


UTILISATION = (
    _parallel("K_Q_V", _HEAD, "tile_block_size"),
    _parallel("attention", _HEAD, "tile_block_size"),
    _parallel("output", "dimensionality", "bigger_tile_block_size"),
    _parallel("MLP", "hidden_layer_dimension_MLP_2", "bigger_tile_block_size"),
    *(_effective(name) for name in ("K_Q_V", "attention", "output", "MLP")),
    _intensity("K_Q_V", "dimensionality"),
    _intensity("attention_output", "dimensionality"),
    Formula(
        "compute_intensity_self_attention",
        (*_ROWS, "tile_block_size"),
        lambda micro, context, tile: micro * context / (micro * context / tile + 1) / 2,
        description="not in the time",
    ),
    Formula(
        "compute_intensity_MLP",
        ("hidden_layer_dimension_MLP_1", "tile_block_size", "activation_precision"),
        lambda size, tile, bits: size / (size / tile + 1) / (bits / 8),
        description="not in the time",
    ),
    Formula("compute_intensity_weight_updates", (), lambda: 1 / 3, description="not in the time"),
    Formula("compute_intensity_NonLin_ops", (), lambda: 0.0, description="not in the time"),
    Formula("tile_block_size", (), lambda: 1.0, description="not in the time"),
    Formula(
        "bigger_tile_block_size",
        ("tile_block_size",),
        lambda tile: tile,
        description="ours; not in the time",
    ),
    Formula(
        "main_mem_bw_A100",
        (),
        lambda: 350.0,
        description="as AMPeD has it, without a unit; not in the time",
    ),
)

TRANSFORMER_FORMULAS = (*BATCHES, *SIZES, *OPERATIONS, *PARAMETERS, *UTILISATION)
