"""What is wrong in AMPeD's published formulas, each with the formulas that put it right. All apply
unless kept as published.

Each replaces formulas of its own, so that any of them can be left out alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from third_party.amped.quantities import Kind
from third_party.amped.system_formulas import DEGREES, SYSTEM_FORMULAS
from third_party.amped.table import Formula
from third_party.amped.time_formulas import TIME_FORMULAS, ring_all_reduce
from third_party.amped.transformer_formulas import TRANSFORMER_FORMULAS

_DP, _TP, _PP = DEGREES
_DP_INTRA, _DP_INTER = f"intra_node_{_DP}", f"inter_node_{_DP}"
_TOKENS = ("batch_size", "context")
_HEAD = "hidden_layer_dimension_for_attention_sublayers"
SHARDED_WEIGHTS, SHARDED_GRADIENTS, SHARDED_STATES = (
    3,
    2,
    1,
)  # lowest stage of ZeRO that does it (Rajbhandari et al. 2020)


@dataclass(frozen=True)
class Correction:
    """An error: what was published, what is done instead, and the formulas that do it."""

    name: str
    published: str
    corrected: str
    formulas: tuple[Formula, ...]


HEAD_WIDTH = Correction(
    "head_width",
    "activation and error volumes are those of one attention head",
    "they are those of all heads",
    tuple(
        Formula(
            name,
            (*_TOKENS, _HEAD, "attention_heads"),
            lambda batch, context, head, heads: batch * context * head * heads,
            description="elements of all heads",
        )
        for name in ("activations_volume_per_layer_batch", "error_volume_per_layer_batch")
    ),
)

GROUP_VOLUMES = Correction(
    "group_volumes",
    "every group is charged the whole batch's activations between nodes and the gradients of all "
    "stages; it has its "
    "node's network for itself",
    "a group moves the activations and gradients of its own replica and stage; the groups of a "
    "node share its network",
    (
        # Averaged over stages, as all of the model is: a layer's volume passes links of one stage
        # of pp, of one replica of dp.
        Formula("share_tensor_intra", (_DP, _PP), lambda dp, pp: 1 / (dp * pp)),
        # All-reduces over both kinds of links go by the node: within it first, each accelerator's
        # part of 1 / tp_intra beyond it.
        Formula(
            "share_tensor_inter",
            (_DP, _PP, f"intra_node_{_TP}", "accelerators_per_node_required"),
            lambda dp, pp, inside, per_node: per_node / (dp * pp * inside),
        ),
        Formula("share_gradient_intra", (_PP,), lambda pp: 1 / pp),
        Formula(
            "share_gradient_inter",
            (_PP, _DP_INTRA, "accelerators_per_node_required"),
            lambda pp, inside, per_node: per_node / (pp * inside),
        ),
        # Accelerators of a tensor parallel group send a part each (scatter/gather: Narayanan et al.
        # 2021, section 4.1).
        Formula("share_pipeline_intra", (_DP, _TP), lambda dp, tp: 1 / (dp * tp)),
        Formula(
            "share_pipeline_inter",
            (_DP, _TP, "accelerators_per_node_required"),
            lambda dp, tp, per_node: per_node / (dp * tp),
        ),
    ),
)


def _eighths(*bits: Any) -> Any:
    return reduce(np.maximum, bits) / 8


PRECISION = Correction(
    "precision",
    "a product of n bits takes ceil(n / 32) times that of 8 bits; weight updates take the same at "
    "any precision",
    "n / 8 times: the rates are those of 8 bits",
    (
        Formula("mac_passes_forward", ("weight_precision",), _eighths),
        Formula("mac_passes_backward", ("weight_precision", "gradient_precision"), _eighths),
        Formula("mac_passes_update", ("weight_precision", "gradient_precision"), _eighths),
        Formula("non_linear_passes_forward", ("activation_precision",), _eighths),
        Formula("non_linear_passes_backward", ("weight_precision",), _eighths),
    ),
)

MICRO_BATCHES = Correction(
    "micro_batches",
    "a minibatch has as many micro-batches as the pipeline has stages where the configuration "
    "names no number",
    "it has micro-batches of one sequence",
    (
        Formula(
            "number_of_microbatches_per_minibatch",
            ("minibatch_size",),
            lambda mini: mini,
            description="of one sequence each",
        ),
    ),
)

BUBBLE = Correction(
    "bubble",
    "of a stage's time the bubble has all communication but of computation a share of 1 / layers "
    "and no weight gradients",
    "(pp - 1) / micro-batches of all that a stage does for a batch",
    (
        Formula(
            "pipeline_bubble",
            (
                *(
                    "r_non_overlapping",
                    _PP,
                    "computation_forward",
                    "computation_backward",
                    "computation_update",
                ),
                *(
                    "number_of_accelerators_required",
                    "stage_communication_forward",
                    "stage_communication_backward",
                ),
                "number_of_microbatches_per_minibatch",
            ),
            lambda exposed, pp, forward, backward, update, accelerators, traffic_f, traffic_b, count: (
                exposed
                * (pp - 1)
                * ((forward + backward + update) / accelerators + traffic_f + traffic_b)
                / count
            ),
            Kind.SECONDS,
            "waiting of a layer and batch",
        ),
    ),
)


def _gathering(stage: Any, *of_links: Any) -> Any:
    """Seconds of gathering a layer's weights for a pass: an all-gather is half of an all-reduce."""
    dp, latency, bandwidth, share, dp_x, latency_x, bandwidth_x, share_x, parameters, tp, bits = (
        of_links
    )
    size = parameters / tp * bits
    seconds = ring_all_reduce(dp, latency, size * share, bandwidth) + ring_all_reduce(
        dp_x, latency_x, size * share_x, bandwidth_x
    )
    return np.where(stage >= SHARDED_WEIGHTS, seconds / 2, 0.0)


def _divided(stage: Any, lowest: int, dp: Any) -> Any:
    return np.where(stage >= lowest, dp, 1.0)


_SHARDING_OF = ("zero_stage", "total_number_of_parameters_without_embedding", _DP, _TP, _PP)
SHARDING = Correction(
    "sharding",
    "memory holds 1 / (dp tp pp) of weights and gradients and optimizer (ZeRO-3) while time has "
    "full all-reduces and a "
    "quarter of other traffic on top",
    "both follow zero_stage (0 where the configuration names none): with 3 each pass gathers the "
    "weights",
    (
        Formula(
            "required_memory_per_accelerator_weights",
            ("weight_precision", "gradient_precision", "optimizer_state_precision", *_SHARDING_OF),
            lambda w, g, o, stage, parameters, dp, tp, pp: (
                (
                    w / _divided(stage, SHARDED_WEIGHTS, dp)
                    + g / _divided(stage, SHARDED_GRADIENTS, dp)
                    + 3 * o / _divided(stage, SHARDED_STATES, dp)
                )
                * parameters
                / (8 * tp * pp)
            ),
            Kind.BYTES,
            "weights and gradients and three optimizer states",
        ),
        Formula(
            "min_required_memory_per_accelerator",
            (
                "weight_precision",
                "gradient_precision",
                *_SHARDING_OF,
                "required_memory_per_accelerator_activations",
            ),
            lambda w, g, stage, parameters, dp, tp, pp, activations: (
                (
                    w / _divided(stage, SHARDED_WEIGHTS, dp)
                    + g / 2 / _divided(stage, SHARDED_GRADIENTS, dp)
                )
                * parameters
                / (8 * tp * pp)
                + activations
            ),
            Kind.BYTES,
            "weights and half of the gradients and activations",
        ),
        Formula(
            "zero_DP_overhead",
            (),
            lambda: 0.0,
            description="extra traffic of ZeRO-DP as a share of other traffic (M_f_DP)",
        ),
        Formula(
            "zero_gathering",
            (
                *(
                    "zero_stage",
                    _DP_INTRA,
                    "inter_accelerator_latency",
                    "inter_accelerator_bandwidth",
                    "share_gradient_intra",
                ),
                *(
                    _DP_INTER,
                    "inter_node_latency",
                    "electrical_inter_node_bandwidth",
                    "share_gradient_inter",
                ),
                *("number_of_parameters_per_layer", _TP, "weight_precision"),
            ),
            _gathering,
            Kind.SECONDS,
            "all-gather of a layer's weights for one pass",
        ),
        Formula(
            "gradient_ring_share",
            ("zero_stage",),
            lambda stage: np.where(stage >= SHARDED_WEIGHTS, 0.5, 1.0),
            description="of an all-reduce: gradients are only reduce-scattered where weights are "
            "gathered",
        ),
    ),
)

ACTIVATION_MEMORY = Correction(
    "activation_memory",
    "activations are divided by the data parallel degree twice and are those of one micro-batch",
    "they are divided once and are those of the micro-batches that 1F1B has in flight: at most "
    "one for each stage",
    (
        Formula(
            "required_memory_per_accelerator_activations",
            (
                *("activation_precision", "layers", "non_linear_operations_for_attention_sublayer"),
                *("non_linear_operations_for_MLP_sublayer", "error_volume_per_layer_batch"),
                *("number_of_microbatches_per_minibatch", *DEGREES),
            ),
            lambda bits, layers, attention, mlp, error, count, dp, tp, pp: (
                bits
                * layers
                * (attention + mlp + 2 * error)
                * np.minimum(pp, count)
                / count
                / (8 * dp * tp * pp)
            ),
            Kind.BYTES,
        ),
    ),
)

DECODER = Correction(
    "decoder",
    "decoder_flag is a product of sizes; the projection onto the vocabulary is counted for one "
    "token of a sequence and in "
    "each layer and forward only",
    "the flag is 1 where the configuration gives none; the projection is counted for all tokens "
    "and once and in all passes",
    (
        Formula(
            "decoder_flag",
            (),
            lambda: 1.0,
            description="whether the projection onto the vocabulary counts",
        ),
        Formula(
            "decoder_NMACs",
            (*_TOKENS, "number_of_tokens_in_vocabulary", "dimensionality", "decoder_flag"),
            lambda batch, context, vocabulary, width, flag: (
                batch * context * vocabulary * width * flag
            ),
            description="multiply-accumulates of the projection onto the vocabulary",
        ),
        *(
            Formula(name, ("decoder_NMACs", "layers"), lambda decoder, layers: decoder / layers)
            for name in ("decoder_MACs_forward_per_layer", "decoder_MACs_backward_per_layer")
        ),
    ),
)

GATING = Correction(
    "gating",
    "the gating networks of all layers are counted in each layer",
    "they are counted once",
    (
        Formula(
            "gating_MACs_per_layer",
            ("gating_MAC_operations", "layers"),
            lambda gating, layers: gating / layers,
        ),
    ),
)

NON_LINEAR = Correction(
    "non_linear",
    "non-linear operations of the MLP do not grow with the sequence and run on one core",
    "they do, for each token, and run on all cores",
    (
        Formula(
            "non_linear_operations_for_MLP_sublayer",
            (*_TOKENS, "hidden_layer_dimension_MLP_1", "hidden_layer_dimension_MLP_2"),
            lambda batch, context, one, two: 2 * batch * context * (one + two),
            description="per layer and batch",
        ),
        Formula(
            "seconds_per_non_linear_operation",
            ("peak_compute_8bit_NLINs",),
            lambda peak: 1 / peak,
            Kind.SECONDS,
        ),
    ),
)

MATRIX_DIMENSIONS = Correction(
    "matrix_dimensions",
    "the two products of the MLP in mat_dims.txt are D x MLP_1 and MLP_1 x MLP_2",
    "they are MLP_1 x MLP_2 and MLP_2 x MLP_1, so that the six lines add up to the layer's "
    "operations",
    (),  # of a file alone; see ``matrices``
)

CORRECTIONS = (
    *(
        HEAD_WIDTH,
        GROUP_VOLUMES,
        PRECISION,
        MICRO_BATCHES,
        BUBBLE,
        SHARDING,
        ACTIVATION_MEMORY,
        DECODER,
        GATING,
        NON_LINEAR,
    ),
    MATRIX_DIMENSIONS,
)
NAMES = tuple(each.name for each in CORRECTIONS)


def applied(kept: Collection[str]) -> tuple[Correction, ...]:
    """The corrections but those whose names are ``kept`` as published.

    Raises:
        InputError: a name is none of a correction.
    """
    for name in kept:
        if name not in NAMES:
            raise InputError(
                f"unknown correction {name!r}; "
                f"{nearest(name, NAMES, 'choose among ' + ', '.join(NAMES))}"
            )
    return tuple(each for each in CORRECTIONS if each.name not in kept)


def formulas(corrections: Iterable[Correction]) -> dict[str, Formula]:
    """All formulas by name: the published ones, those of the corrections in place of theirs."""
    published = {
        each.name: each for each in (*TRANSFORMER_FORMULAS, *SYSTEM_FORMULAS, *TIME_FORMULAS)
    }
    return published | {
        each.name: each for correction in corrections for each in correction.formulas
    }
