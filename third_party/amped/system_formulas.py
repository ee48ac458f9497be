"""AMPeD's calculated parameters of the mapping, the system and the accelerator: degrees, nodes,
bandwidths, peaks, memory.

As published, from the same source as ``transformer_formulas``. Memory is in bytes here, where AMPeD
has GB of 1e9 bytes.
"""

import numpy as np

from third_party.amped.quantities import Kind
from third_party.amped.table import Formula

DEGREES = ("data_parallel_degree", "tensor_parallel_degree", "pipeline_parallel_degree")
INTRA, INTER = (
    tuple(f"intra_node_{name}" for name in DEGREES),
    tuple(f"inter_node_{name}" for name in DEGREES),
)

MAPPING = (
    *(
        Formula(
            name,
            (inside, between),
            lambda inside, between: inside * between,
            description="inside times between nodes",
        )
        for name, inside, between in zip(DEGREES, INTRA, INTER, strict=True)
    ),
    Formula("accelerators_per_node_required", INTRA, lambda dp, tp, pp: dp * tp * pp),
    Formula("number_of_accelerators_required", DEGREES, lambda dp, tp, pp: dp * tp * pp),
    Formula(
        "number_of_nodes_required",
        ("number_of_accelerators_required", "accelerators_per_node_required"),
        lambda accelerators, per_node: accelerators // per_node,
    ),
)

SYSTEM = (
    Formula(
        "number_of_network_cards_per_node",
        ("accelerators_per_node_required",),
        lambda accelerators: accelerators,
        description="one for each accelerator",
    ),
    Formula(
        "inter_node_bandwidth",
        ("number_of_network_cards_per_node", "bandwidth_per_network_card"),
        lambda cards, bandwidth: cards * bandwidth,
        Kind.BITS_PER_SECOND,
        "of a node",
    ),
    Formula(
        "total_intra_node_bandwidth",
        ("inter_accelerator_bandwidth", "number_of_accelerators_per_node"),
        lambda bandwidth, accelerators: bandwidth * accelerators,
        Kind.BITS_PER_SECOND,
    ),
    Formula(
        "electrical_inter_node_bandwidth",
        ("inter_node_bandwidth", "electrical_oversub_factor"),
        lambda bandwidth, oversubscription: bandwidth / oversubscription,
        Kind.BITS_PER_SECOND,
        "of a node through the oversubscribed network",
    ),
    Formula(
        "number_of_nodes",
        ("number_of_accelerators_required", "number_of_accelerators_per_node"),
        lambda accelerators, per_node: accelerators / per_node,
    ),
    Formula(
        "total_number_of_accelerators",
        ("number_of_accelerators_per_node", "number_of_nodes"),
        lambda per_node, nodes: per_node * nodes,
    ),
)


def _saturating(size: float, most: float, half: float) -> object:
    return np.minimum(0.91, most * size / (size + half))


ACCELERATOR = (
    Formula(
        "efficiency",
        ("microbatch_size", "efficiency_curve_limit", "efficiency_curve_half_size"),
        _saturating,
        description="share of the peak: limit x / (x + half size) of the micro-batch size x; at "
        "most 0.91 as published",
    ),
    Formula(
        "peak_compute_8bit_MACs",
        (
            "frequency",
            "number_of_cores",
            "functional_units_per_core",
            "functional_unit_hardware_8bit_MAC_per_cycle",
        ),
        lambda frequency, cores, units, per_cycle: frequency * cores * units * per_cycle,
        description="multiply-accumulates per second",
    ),
    Formula(
        "peak_compute_8bit_OPS",
        ("peak_compute_8bit_MACs", "OPS_per_MAC"),
        lambda macs, per_mac: macs * per_mac,
        description="operations per second",
    ),
    Formula(
        "peak_compute_8bit_NLINs",
        (
            *("frequency", "number_of_cores", "non_linear_functional_units_per_core"),
            "non_linear_functional_unit_hardware_8bit_NLIN_per_cycle",
        ),
        lambda frequency, cores, units, per_cycle: frequency * cores * units * per_cycle,
        description="non-linear operations per second",
    ),
)

_SHARDS = DEGREES
_WEIGHT_BITS = ("weight_precision", "gradient_precision", "optimizer_state_precision")
MEMORY = (
    Formula(
        "required_memory_per_accelerator_weights",
        (*_WEIGHT_BITS, "total_number_of_parameters_without_embedding", *_SHARDS),
        lambda w, g, o, parameters, dp, tp, pp: (w + g + 3 * o) * parameters / (8 * dp * tp * pp),
        Kind.BYTES,
        "weights and gradients and three optimizer states",
    ),
    Formula(
        "required_memory_per_accelerator_activations",
        (
            *("activation_precision", "layers", "non_linear_operations_for_attention_sublayer"),
            *("non_linear_operations_for_MLP_sublayer", "error_volume_per_layer_batch"),
            *("number_of_microbatches_per_minibatch", *_SHARDS),
        ),
        lambda bits, layers, attention, mlp, error, count, dp, tp, pp: (
            bits * layers * (attention + mlp + 2 * error) / count / dp / (8 * dp * tp * pp)
        ),
        Kind.BYTES,
    ),
    Formula(
        "total_required_memory_per_accelerator",
        ("required_memory_per_accelerator_weights", "required_memory_per_accelerator_activations"),
        lambda weights, activations: weights + activations,
        Kind.BYTES,
    ),
    Formula(
        "min_required_memory_per_accelerator",
        (
            *(
                "weight_precision",
                "gradient_precision",
                "total_number_of_parameters_without_embedding",
                *_SHARDS,
            ),
            "required_memory_per_accelerator_activations",
        ),
        lambda w, g, parameters, dp, tp, pp, activations: (
            (w + g / 2) * parameters / (8 * dp * tp * pp) + activations
        ),
        Kind.BYTES,
        "weights and half of the gradients and activations",
    ),
)

SYSTEM_FORMULAS = (*MAPPING, *SYSTEM, *ACCELERATOR, *MEMORY)
