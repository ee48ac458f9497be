"""AMPeD's calculated parameters of the system: nodes, bandwidths, peaks of an accelerator, memory.

As published, from the same source as ``network``. Memory is in bytes here, where AMPeD has GB of
1e9 bytes.
"""

import numpy as np

from phaze_common.array_types import FloatArray

from .calculated import calculated
from .corrections import ACTIVATION_MEMORY, SHARDING
from .network import NetworkQuantities
from .units import Kind

# Lowest stage of ZeRO that divides it (Rajbhandari et al. 2020).
SHARDED_WEIGHTS, SHARDED_GRADIENTS, SHARDED_STATES = 3, 2, 1
HIGHEST_EFFICIENCY = 0.91  # as published


class SystemQuantities(NetworkQuantities):
    """What the accelerators and their network offer, and the memory that is needed of them."""

    number_of_accelerators_per_node: FloatArray
    bandwidth_per_network_card: FloatArray
    inter_node_latency: FloatArray
    inter_accelerator_bandwidth: FloatArray
    inter_accelerator_latency: FloatArray
    electrical_oversub_factor: FloatArray
    frequency: FloatArray
    number_of_cores: FloatArray
    functional_units_per_core: FloatArray
    functional_unit_hardware_8bit_MAC_per_cycle: FloatArray
    non_linear_functional_units_per_core: FloatArray
    non_linear_functional_unit_hardware_8bit_NLIN_per_cycle: FloatArray
    OPS_per_MAC: FloatArray
    memory: FloatArray
    efficiency_curve_limit: FloatArray
    efficiency_curve_half_size: FloatArray

    @calculated("one for each accelerator")
    def number_of_network_cards_per_node(self) -> FloatArray:
        return self.accelerators_per_node_required

    @calculated("of a node", Kind.BITS_PER_SECOND)
    def inter_node_bandwidth(self) -> FloatArray:
        return self.number_of_network_cards_per_node * self.bandwidth_per_network_card

    @calculated("", Kind.BITS_PER_SECOND)
    def total_intra_node_bandwidth(self) -> FloatArray:
        return self.inter_accelerator_bandwidth * self.number_of_accelerators_per_node

    @calculated("of a node through the oversubscribed network", Kind.BITS_PER_SECOND)
    def electrical_inter_node_bandwidth(self) -> FloatArray:
        return self.inter_node_bandwidth / self.electrical_oversub_factor

    @calculated()
    def number_of_nodes(self) -> FloatArray:
        return self.number_of_accelerators_required / self.number_of_accelerators_per_node

    @calculated()
    def total_number_of_accelerators(self) -> FloatArray:
        return self.number_of_accelerators_per_node * self.number_of_nodes

    @calculated(
        "share of the peak: limit x / (x + half size) of the micro-batch size x; at most 0.91 as "
        "published"
    )
    def efficiency(self) -> FloatArray:
        limit = self.efficiency_curve_limit
        half = self.efficiency_curve_half_size
        size = self.microbatch_size
        return np.minimum(HIGHEST_EFFICIENCY, limit * size / (size + half))

    @calculated("multiply-accumulates per second")
    def peak_compute_8bit_MACs(self) -> FloatArray:
        units = self.frequency * self.number_of_cores * self.functional_units_per_core
        return units * self.functional_unit_hardware_8bit_MAC_per_cycle

    @calculated("operations per second")
    def peak_compute_8bit_OPS(self) -> FloatArray:
        return self.peak_compute_8bit_MACs * self.OPS_per_MAC

    @calculated("non-linear operations per second")
    def peak_compute_8bit_NLINs(self) -> FloatArray:
        units = self.frequency * self.number_of_cores * self.non_linear_functional_units_per_core
        return units * self.non_linear_functional_unit_hardware_8bit_NLIN_per_cycle

    def _bits_per_parameter(self, gradients: float, states: int) -> FloatArray:
        """Bits of a parameter on the accelerators that ZeRO's stage leaves its parts on, each share
        taken as that of all; ``gradients`` and ``states`` are how many are held."""
        dp, stage = self.data_parallel_degree, self.zero_stage
        weight, gradient, state = (
            np.where(stage >= lowest, dp, 1.0)
            for lowest in (SHARDED_WEIGHTS, SHARDED_GRADIENTS, SHARDED_STATES)
        )
        bits = self.weight_precision / weight + self.gradient_precision / gradients / gradient
        return bits + states * self.optimizer_state_precision / state if states else bits

    @calculated("weights and gradients and three optimizer states", Kind.BYTES)
    def required_memory_per_accelerator_weights(self) -> FloatArray:
        parameters = self.total_number_of_parameters_without_embedding
        dp, tp, pp = self._degrees()
        if SHARDING in self.corrections:
            return self._bits_per_parameter(1, 3) * parameters / (8 * tp * pp)
        bits = self.weight_precision + self.gradient_precision + 3 * self.optimizer_state_precision
        return bits * parameters / (8 * dp * tp * pp)

    @calculated("", Kind.BYTES)
    def required_memory_per_accelerator_activations(self) -> FloatArray:
        dp, tp, pp = self._degrees()
        count = self.number_of_microbatches_per_minibatch
        elements = (
            self.non_linear_operations_for_attention_sublayer
            + self.non_linear_operations_for_MLP_sublayer
            + 2 * self.error_volume_per_layer_batch
        )
        bits = self.activation_precision * self.layers * elements
        if ACTIVATION_MEMORY in self.corrections:
            return bits * np.minimum(pp, count) / count / (8 * dp * tp * pp)
        return bits / count / dp / (8 * dp * tp * pp)

    @calculated("", Kind.BYTES)
    def total_required_memory_per_accelerator(self) -> FloatArray:
        return (
            self.required_memory_per_accelerator_weights
            + self.required_memory_per_accelerator_activations
        )

    @calculated("weights and half of the gradients and activations", Kind.BYTES)
    def min_required_memory_per_accelerator(self) -> FloatArray:
        parameters = self.total_number_of_parameters_without_embedding
        activations = self.required_memory_per_accelerator_activations
        dp, tp, pp = self._degrees()
        if SHARDING in self.corrections:
            return self._bits_per_parameter(2, 0) * parameters / (8 * tp * pp) + activations
        bits = self.weight_precision + self.gradient_precision / 2
        return bits * parameters / (8 * dp * tp * pp) + activations

    def _degrees(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.data_parallel_degree, self.tensor_parallel_degree, self.pipeline_parallel_degree
