"""AMPeD's time model: seconds of one layer for one global batch, and of the whole training.

The ring ("ELEC") branch of ``performance_model.py`` as a public description of it gives it formula
by formula; AMPeD's own source is not public. Reconstructed, since no text read gives them: the
all-to-all of mixtures of experts (``moe_communication``) and what the total of operations counts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from phaze_common.array_types import FloatArray

from .calculated import calculated
from .corrections import BUBBLE, DECODER, GATING, GROUP_VOLUMES, NON_LINEAR, PRECISION, SHARDING
from .system import SHARDED_WEIGHTS, SystemQuantities

TOTAL_S = "total_time_to_train"
PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Link:
    """Latency and bandwidth of an accelerator within its node, or of a node."""

    latency_s: FloatArray
    bits_per_s: FloatArray


@dataclass(frozen=True)
class PassTraffic:
    """Seconds that one pass over a layer communicates for a batch."""

    tensor_intra: FloatArray  # two all-reduces of a layer
    tensor_inter: FloatArray
    moe: FloatArray  # dispatch to the experts and back (reconstructed)
    pipeline_intra: FloatArray
    pipeline_inter: FloatArray
    pipeline: FloatArray  # over the slower link
    zero_overhead: FloatArray  # gathering the model as a share of other communication
    stage_communication: FloatArray
    communication: FloatArray  # and gathering of the layer's weights

    def named(self, phase: str) -> dict[str, float]:
        """The seconds under the names that reports have."""
        return {f"{each.name}_{phase}": float(getattr(self, each.name)) for each in fields(self)}


def ring_all_reduce(accelerators: FloatArray, bits: FloatArray, link: Link) -> FloatArray:
    """Seconds of an all-reduce over a ring: 2(n - 1) steps, each element over 2(n - 1)/n of a link;
    0 for one accelerator."""
    steps = 2 * (accelerators - 1)
    return link.latency_s * steps + bits * steps / accelerators / link.bits_per_s


def pipeline_transfer(
    stages: FloatArray, bits: FloatArray, link: Link, layers: FloatArray
) -> FloatArray:
    """Seconds of handing activations to the next stage, shared out among the layers; 0 for one
    stage."""
    return np.where(stages > 1, (link.latency_s + bits / link.bits_per_s) / layers, 0.0)


class TimeQuantities(SystemQuantities):
    """Everything that is known of a training, its times included."""

    @calculated()
    def seconds_per_MAC(self) -> FloatArray:  # 8 bits wide
        return 1 / (self.peak_compute_8bit_MACs * self.efficiency)

    @calculated()
    def seconds_per_non_linear_operation(self) -> FloatArray:
        if NON_LINEAR in self.corrections:
            return 1 / self.peak_compute_8bit_NLINs
        units = self.frequency * self.non_linear_functional_units_per_core
        return 1 / (units * self.non_linear_functional_unit_hardware_8bit_NLIN_per_cycle)

    def _passes(self, bits: FloatArray) -> FloatArray:
        """How often hardware of 8 bits works on numbers of so many bits."""
        return bits / 8 if PRECISION in self.corrections else np.ceil(bits / 32)

    @calculated()
    def mac_passes_forward(self) -> FloatArray:
        return self._passes(self.weight_precision)

    @calculated()
    def mac_passes_backward(self) -> FloatArray:
        return self._passes(np.maximum(self.weight_precision, self.gradient_precision))

    @calculated()
    def mac_passes_update(self) -> FloatArray:
        if PRECISION in self.corrections:
            return np.maximum(self.weight_precision, self.gradient_precision) / 8
        return np.asarray(1.0)

    @calculated()
    def non_linear_passes_forward(self) -> FloatArray:
        return self._passes(self.activation_precision)

    @calculated()
    def non_linear_passes_backward(self) -> FloatArray:
        return self._passes(self.weight_precision)

    @calculated()
    def gating_MACs_per_layer(self) -> FloatArray:
        return self.gating_MAC_operations / (self.layers if GATING in self.corrections else 1)

    @calculated()
    def decoder_MACs_forward_per_layer(self) -> FloatArray:
        return self.decoder_NMACs / (self.layers if DECODER in self.corrections else 1)

    @calculated()
    def decoder_MACs_backward_per_layer(self) -> FloatArray:
        if DECODER in self.corrections:
            return self.decoder_NMACs / self.layers
        return np.asarray(0.0)

    def _layer_MACs(self, gating_share: float, decoder: FloatArray) -> FloatArray:
        products = (
            self.total_attention_sublayer_MAC_operations + self.total_MLP_sublayer_MAC_operations
        )
        return products + self.gating_MACs_per_layer * gating_share + decoder

    @calculated()
    def MACs_forward_per_layer(self) -> FloatArray:
        return self._layer_MACs(0.5, self.decoder_MACs_forward_per_layer)

    @calculated()
    def MACs_backward_per_layer(self) -> FloatArray:
        return self._layer_MACs(0.5, self.decoder_MACs_backward_per_layer)

    @calculated()
    def MACs_update_per_layer(self) -> FloatArray:
        return self._layer_MACs(1.0, self.decoder_MACs_backward_per_layer)

    def _non_linear_s(self, passes: FloatArray) -> FloatArray:
        operations = (
            self.non_linear_operations_for_attention_sublayer
            + self.non_linear_operations_for_MLP_sublayer
        )
        return self.seconds_per_non_linear_operation * operations * passes

    @calculated()
    def computation_forward(self) -> FloatArray:  # this and the next two on one accelerator
        products_s = self.seconds_per_MAC * self.MACs_forward_per_layer * self.mac_passes_forward
        return products_s + self._non_linear_s(self.non_linear_passes_forward)

    @calculated()
    def computation_backward(self) -> FloatArray:
        products_s = self.seconds_per_MAC * self.MACs_backward_per_layer * self.mac_passes_backward
        return products_s + self._non_linear_s(self.non_linear_passes_backward)

    @calculated()
    def computation_update(self) -> FloatArray:
        return self.seconds_per_MAC * self.MACs_update_per_layer * self.mac_passes_update

    # The parts of a layer's volume that a group is charged for. Corrected, they are averaged over
    # stages, as all of the model is: a layer's volume passes links of one stage of pp, of one
    # replica of dp.

    def _share(self, corrected: FloatArray, published: FloatArray | float = 1.0) -> FloatArray:
        return corrected if GROUP_VOLUMES in self.corrections else np.asarray(published)

    @calculated()
    def share_tensor_intra(self) -> FloatArray:
        groups = self.data_parallel_degree * self.pipeline_parallel_degree
        return self._share(1 / groups, published=1 / self.number_of_nodes_required)

    @calculated()
    def share_tensor_inter(self) -> FloatArray:
        # All-reduces over both kinds of links go by the node: within it first, each accelerator's
        # part of 1 / tp_intra beyond it.
        groups = self.data_parallel_degree * self.pipeline_parallel_degree
        parts = groups * self.intra_node_tensor_parallel_degree
        return self._share(self.accelerators_per_node_required / parts)

    @calculated()
    def share_pipeline_intra(self) -> FloatArray:
        # Accelerators of a tensor parallel group send a part each (scatter/gather: Narayanan et al.
        # 2021, section 4.1).
        return self._share(1 / (self.data_parallel_degree * self.tensor_parallel_degree))

    @calculated()
    def share_pipeline_inter(self) -> FloatArray:
        parts = self.data_parallel_degree * self.tensor_parallel_degree
        return self._share(self.accelerators_per_node_required / parts)

    @calculated()
    def share_gradient_intra(self) -> FloatArray:
        return self._share(1 / self.pipeline_parallel_degree)

    @calculated()
    def share_gradient_inter(self) -> FloatArray:
        parts = self.pipeline_parallel_degree * self.intra_node_data_parallel_degree
        return self._share(self.accelerators_per_node_required / parts)

    @calculated("extra traffic of ZeRO-DP as a share of other traffic (M_f_DP)")
    def zero_DP_overhead(self) -> FloatArray:
        return np.asarray(0.0 if SHARDING in self.corrections else 0.25)

    def _inside(self) -> Link:
        return Link(self.inter_accelerator_latency, self.inter_accelerator_bandwidth)

    def _between(self) -> Link:
        return Link(self.inter_node_latency, self.electrical_inter_node_bandwidth)

    def _gradients(self, bits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds of all-reduces of a layer's parameters of so many bits, inside and between
        nodes."""
        size = self.number_of_parameters_per_layer / self.tensor_parallel_degree
        intra, inter = self.intra_node_data_parallel_degree, self.inter_node_data_parallel_degree
        inside_bits = size * self.share_gradient_intra * bits
        between_bits = size * self.share_gradient_inter * bits
        return (
            ring_all_reduce(intra, inside_bits, self._inside()),
            ring_all_reduce(inter, between_bits, self._between()),
        )

    @calculated()
    def zero_gathering(self) -> FloatArray:
        """All-gather of a layer's weights for one pass: half of an all-reduce."""
        if SHARDING not in self.corrections:
            return np.asarray(0.0)
        inside_s, between_s = self._gradients(self.weight_precision)
        return np.where(self.zero_stage >= SHARDED_WEIGHTS, (inside_s + between_s) / 2, 0.0)

    @calculated()
    def gradient_ring_share(self) -> FloatArray:
        """Gradients are only reduce-scattered where weights are gathered."""
        if SHARDING in self.corrections:
            return np.where(self.zero_stage >= SHARDED_WEIGHTS, 0.5, 1.0)
        return np.asarray(1.0)

    def _moe(self, bits: FloatArray) -> FloatArray:
        """Seconds of two all-to-alls of activations over the experts, shared out among all layers
        (reconstructed).

        Experts are spread over the nodes, or over the accelerators of the only one; each of the n
        holders sends (n - 1)/n of its activations away.
        """
        nodes, per_node = self.number_of_nodes_required, self.accelerators_per_node_required
        experts, inside, between = self.number_of_experts, self._inside(), self._between()
        several = nodes > 1
        holders = np.where(several, np.minimum(experts, nodes), np.minimum(experts, per_node))
        latency_s = np.where(several, between.latency_s, inside.latency_s)
        bits_per_s = np.where(several, between.bits_per_s, inside.bits_per_s)
        own_bits = bits / np.where(several, nodes, per_node)
        seconds: FloatArray = (
            latency_s * (holders - 1) + own_bits * (holders - 1) / holders / bits_per_s
        )
        share: FloatArray = self.expert_flag * self.number_of_MoE_layers / self.layers
        return 2 * (share * seconds)

    def _traffic(self, volume: FloatArray, precision: FloatArray) -> PassTraffic:
        inside, between = self._inside(), self._between()
        tp_intra = self.intra_node_tensor_parallel_degree
        tp_inter = self.inter_node_tensor_parallel_degree
        intra_bits = 2 * volume * self.share_tensor_intra * precision
        inter_bits = 2 * volume * self.share_tensor_inter * precision
        tensor_intra = ring_all_reduce(tp_intra, intra_bits, inside)
        tensor_inter = ring_all_reduce(tp_inter, inter_bits, between)
        moe = self._moe(volume * precision)
        pp_intra = self.intra_node_pipeline_parallel_degree
        pp_inter = self.inter_node_pipeline_parallel_degree
        layers = self.layers
        intra_bits = volume * self.share_pipeline_intra * precision
        inter_bits = volume * self.share_pipeline_inter * precision
        pipeline_intra = pipeline_transfer(pp_intra, intra_bits, inside, layers)
        pipeline_inter = pipeline_transfer(pp_inter, inter_bits, between, layers)
        pipeline = np.maximum(pipeline_intra, pipeline_inter)
        parts = tensor_intra + tensor_inter + moe + pipeline
        overhead = self.zero_DP_overhead * parts
        stage = parts + overhead
        return PassTraffic(
            tensor_intra,
            tensor_inter,
            moe,
            pipeline_intra,
            pipeline_inter,
            pipeline,
            overhead,
            stage,
            stage + self.zero_gathering,
        )

    @calculated()
    def forward(self) -> PassTraffic:
        return self._traffic(self.activations_volume_per_layer_batch, self.activation_precision)

    @calculated()
    def backward(self) -> PassTraffic:
        return self._traffic(self.error_volume_per_layer_batch, self.gradient_precision)

    @calculated()
    def gradients_intra(self) -> FloatArray:
        all_reduce_s, _ = self._gradients(self.gradient_precision)
        return self.r_non_overlapping * self.gradient_ring_share * all_reduce_s

    @calculated()
    def gradients_inter(self) -> FloatArray:
        _, all_reduce_s = self._gradients(self.gradient_precision)
        return self.r_non_overlapping * self.gradient_ring_share * all_reduce_s

    @calculated()
    def pipeline_bubble(self) -> FloatArray:
        """Waiting of a layer and batch."""
        accelerators = self.number_of_accelerators_required
        computation = self.computation_forward + self.computation_backward
        if BUBBLE in self.corrections:
            computation_s = (computation + self.computation_update) / accelerators
        else:
            computation_s = computation / (accelerators * self.layers)
        traffic_f, traffic_b = self.forward.stage_communication, self.backward.stage_communication
        waiting = self.r_non_overlapping * (self.pipeline_parallel_degree - 1)
        stage_s = computation_s + traffic_f + traffic_b
        return waiting * stage_s / self.number_of_microbatches_per_minibatch

    @calculated()
    def layer_batches(self) -> FloatArray:
        return self.number_of_batches * self.layers

    @calculated()
    def total_time_to_train(self) -> FloatArray:
        computation = self.computation_forward + self.computation_backward + self.computation_update
        return self.layer_batches * (
            computation / self.number_of_accelerators_required
            + self.forward.communication
            + (self.gradients_intra + self.gradients_inter)
            + self.backward.communication
            + self.pipeline_bubble
        )

    @calculated()
    def total_MACs(self) -> FloatArray:
        """Of the whole training (reconstructed: all three passes)."""
        return self.layer_batches * (
            self.MACs_forward_per_layer + self.MACs_backward_per_layer + self.MACs_update_per_layer
        )
