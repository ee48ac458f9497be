"""AMPeD's calculated parameters of the training itself: batches, multiply-accumulates, parameters
of a layer and of the model.

As published: the names and formulas are those of AMPeD's ``inputs.py`` in a derivative project
(``amped_deepflow``), which is public where AMPeD's own repository holds a README alone. Operations
and volumes are of one layer and one global batch. The formulas marked "ours" have no counterpart
there; they let a configuration say what it knows and leave the rest.
"""

import numpy as np

from phaze_common.array_types import FloatArray

from .calculated import Calculated, calculated
from .corrections import DECODER, HEAD_WIDTH, MICRO_BATCHES, NON_LINEAR
from .mapping import MappingQuantities

_OF_MACS = "multiply-accumulates per layer and batch"
_SHARE = "share of the peak; not in the time"
_TILES = "tiles of a product; not in the time"


class NetworkQuantities(MappingQuantities):
    """Sizes and operations of the transformer and its batches."""

    context: FloatArray
    layers: FloatArray
    number_of_tokens_in_vocabulary: FloatArray
    number_of_experts: FloatArray
    weight_precision: FloatArray
    activation_precision: FloatArray
    gradient_precision: FloatArray
    optimizer_state_precision: FloatArray

    @calculated("ours: sequences")
    def batch_size(self) -> FloatArray:
        return self.minibatch_size * self.data_parallel_degree

    @calculated("sequences")
    def minibatch_size(self) -> FloatArray:
        return self.batch_size / self.data_parallel_degree

    @calculated("sequences")
    def microbatch_size(self) -> FloatArray:
        return self.minibatch_size / self.number_of_microbatches_per_minibatch

    @calculated("as many as pipeline stages")
    def number_of_microbatches_per_minibatch(self) -> FloatArray:
        if MICRO_BATCHES in self.corrections:
            return self.minibatch_size
        return self.pipeline_parallel_degree

    @calculated("sequences")
    def samples(self) -> FloatArray:
        return self.tokens_to_train / self.context

    @calculated("ours: tokens")
    def tokens_to_train(self) -> FloatArray:
        return self.samples * self.context

    @calculated("iterations")
    def number_of_batches(self) -> FloatArray:
        return self.samples / self.batch_size

    @calculated("ours: all tokens are attended to")
    def summarization_len(self) -> FloatArray:
        return self.context

    @calculated("ours: width of one head")
    def hidden_layer_dimension_for_attention_sublayers(self) -> FloatArray:
        return self.dimensionality / self.attention_heads

    @calculated("ours: width of the model")
    def dimensionality(self) -> FloatArray:
        return self.hidden_layer_dimension_for_attention_sublayers * self.attention_heads

    @calculated("ours")
    def attention_heads(self) -> FloatArray:
        return self.dimensionality / self.hidden_layer_dimension_for_attention_sublayers

    @calculated("ours: width of one head")
    def key_query_value_length(self) -> FloatArray:
        return self.hidden_layer_dimension_for_attention_sublayers

    @calculated("width into the MLP")
    def hidden_layer_dimension_MLP_1(self) -> FloatArray:
        return self.dimensionality

    @calculated("ours: width within the MLP")
    def hidden_layer_dimension_MLP_2(self) -> FloatArray:
        return 4 * self.dimensionality

    def _head_volume(self) -> FloatArray:
        head = self.hidden_layer_dimension_for_attention_sublayers
        return self.batch_size * self.context * head

    def _projection(self) -> FloatArray:
        return self._head_volume() * self.dimensionality

    query_MAC_operations = Calculated(_projection, f"{_OF_MACS} and head")
    key_MAC_operations = Calculated(_projection, f"{_OF_MACS} and head")
    value_MAC_operations = Calculated(_projection, f"{_OF_MACS} and head")

    @calculated(f"{_OF_MACS} and head")
    def self_attention_MAC_operations(self) -> FloatArray:
        scores = 2 * self.batch_size * self.context * self.summarization_len
        return scores * self.hidden_layer_dimension_for_attention_sublayers

    @calculated(_OF_MACS)
    def multihead_MAC_operations(self) -> FloatArray:
        return self.attention_heads * (
            self.query_MAC_operations
            + self.key_MAC_operations
            + self.value_MAC_operations
            + self.self_attention_MAC_operations
        )

    @calculated(_OF_MACS)
    def attention_sublayer_output_MAC_operations(self) -> FloatArray:
        return self.batch_size * self.context * self.dimensionality**2

    @calculated(_OF_MACS)
    def total_attention_sublayer_MAC_operations(self) -> FloatArray:
        return self.multihead_MAC_operations + self.attention_sublayer_output_MAC_operations

    @calculated(_OF_MACS)
    def total_MLP_sublayer_MAC_operations(self) -> FloatArray:
        width, within = self.hidden_layer_dimension_MLP_1, self.hidden_layer_dimension_MLP_2
        return 2 * self.batch_size * self.context * width * within

    @calculated("multiply-accumulates per batch of all MoE layers")
    def gating_MAC_operations(self) -> FloatArray:
        macs = self.context * (self.dimensionality - 1) * self.batch_size
        return macs * self.expert_flag * self.number_of_experts * self.number_of_MoE_layers

    @calculated("multiply-accumulates of the projection onto the vocabulary")
    def decoder_NMACs(self) -> FloatArray:
        tokens = self.batch_size * (self.context if DECODER in self.corrections else 1)
        size = self.number_of_tokens_in_vocabulary
        return tokens * size * self.dimensionality * self.decoder_flag

    @calculated("whether the projection onto the vocabulary counts")
    def decoder_flag(self) -> FloatArray:
        if DECODER in self.corrections:
            return np.asarray(1.0)
        return self.minibatch_size * self.embedding_layer_parameters * self.query_MAC_operations

    @calculated("per layer and batch")
    def non_linear_operations_for_attention_sublayer(self) -> FloatArray:
        return self._head_volume() * self.attention_heads

    @calculated("per layer and batch")
    def non_linear_operations_for_MLP_sublayer(self) -> FloatArray:
        rows = 2 * self.batch_size * (self.context if NON_LINEAR in self.corrections else 1)
        return rows * (self.hidden_layer_dimension_MLP_1 + self.hidden_layer_dimension_MLP_2)

    def _volume(self) -> FloatArray:
        heads = self.attention_heads if HEAD_WIDTH in self.corrections else 1
        return self._head_volume() * heads

    activations_volume_per_layer_batch = Calculated(_volume, "elements")
    error_volume_per_layer_batch = Calculated(_volume, "elements")

    def _width(self) -> FloatArray:
        return self.dimensionality

    dim_query_weight = Calculated(_width)
    dim_key_weight = Calculated(_width)
    dim_value_weight = Calculated(_width)
    projection_weight = Calculated(_width)
    feedforward_bias_1 = Calculated(_width)
    feedforward_bias_2 = Calculated(_width)
    feedforward_scale_1 = Calculated(_width)
    feedforward_scale_2 = Calculated(_width)

    @calculated("the embedding's shared out among the layers")
    def number_of_parameters_per_layer(self) -> FloatArray:
        of_inputs = self.dim_query_weight + self.dim_key_weight + self.dim_value_weight
        projections = of_inputs + self.projection_weight
        return (
            projections * self.key_query_value_length * self.attention_heads
            + self.feedforward_bias_1
            + self.feedforward_bias_2
            + self.feedforward_scale_1
            + self.feedforward_scale_2
            + 2 * self.hidden_layer_dimension_MLP_2 * self.hidden_layer_dimension_MLP_1
            + self.embedding_layer_parameters / self.layers
        )

    @calculated()
    def number_of_parameters_per_expert(self) -> FloatArray:
        return self.number_of_parameters_per_layer * self.layers

    @calculated("every second layer")
    def number_of_MoE_layers(self) -> FloatArray:
        return self.layers // 2

    @calculated()
    def expert_flag(self) -> FloatArray:
        return np.where(self.number_of_experts > 1, 1.0, 0.0)

    @calculated()
    def number_of_gating_parameters(self) -> FloatArray:
        parameters = self.expert_flag * self.dimensionality * self.number_of_experts
        return parameters * self.number_of_MoE_layers

    @calculated("of all experts but the first of each layer")
    def number_of_expert_parameters(self) -> FloatArray:
        others = (self.number_of_experts - 1) * self.number_of_MoE_layers
        return others * 2 * self.hidden_layer_dimension_MLP_1 * self.hidden_layer_dimension_MLP_2

    @calculated()
    def embedding_layer_parameters(self) -> FloatArray:
        return self.number_of_tokens_in_vocabulary * self.dimensionality

    @calculated("embedding included in spite of the name")
    def total_number_of_parameters_without_embedding(self) -> FloatArray:
        shared = self.number_of_parameters_per_layer * self.layers
        return shared + self.number_of_gating_parameters + self.number_of_expert_parameters

    def _tiles(self, size: FloatArray, side: FloatArray) -> FloatArray:
        return self.microbatch_size * self.context * size / side / side

    @calculated(_TILES)
    def parallelization_degree_K_Q_V(self) -> FloatArray:
        size = self.hidden_layer_dimension_for_attention_sublayers
        return self._tiles(size, self.tile_block_size)

    @calculated(_TILES)
    def parallelization_degree_attention(self) -> FloatArray:
        size = self.hidden_layer_dimension_for_attention_sublayers
        return self._tiles(size, self.tile_block_size)

    @calculated(_TILES)
    def parallelization_degree_output(self) -> FloatArray:
        return self._tiles(self.dimensionality, self.bigger_tile_block_size)

    @calculated(_TILES)
    def parallelization_degree_MLP(self) -> FloatArray:
        return self._tiles(self.hidden_layer_dimension_MLP_2, self.bigger_tile_block_size)

    @calculated(_SHARE)
    def effective_perf_perc_K_Q_V(self) -> FloatArray:
        return np.minimum(1.0, self.parallelization_degree_K_Q_V / 100)

    @calculated(_SHARE)
    def effective_perf_perc_attention(self) -> FloatArray:
        return np.minimum(1.0, self.parallelization_degree_attention / 100)

    @calculated(_SHARE)
    def effective_perf_perc_output(self) -> FloatArray:
        return np.minimum(1.0, self.parallelization_degree_output / 100)

    @calculated(_SHARE)
    def effective_perf_perc_MLP(self) -> FloatArray:
        return np.minimum(1.0, self.parallelization_degree_MLP / 100)

    def _width_intensity(self) -> FloatArray:
        return self.dimensionality / (self.dimensionality / self.tile_block_size + 1) / 2

    compute_intensity_K_Q_V = Calculated(_width_intensity, "not in the time")
    compute_intensity_attention_output = Calculated(_width_intensity, "not in the time")

    @calculated("not in the time")
    def compute_intensity_self_attention(self) -> FloatArray:
        rows = self.microbatch_size * self.context
        return rows / (rows / self.tile_block_size + 1) / 2

    @calculated("not in the time")
    def compute_intensity_MLP(self) -> FloatArray:
        size = self.hidden_layer_dimension_MLP_1
        return size / (size / self.tile_block_size + 1) / (self.activation_precision / 8)

    @calculated("not in the time")
    def compute_intensity_weight_updates(self) -> FloatArray:
        return np.asarray(1 / 3)

    @calculated("not in the time")
    def compute_intensity_NonLin_ops(self) -> FloatArray:
        return np.asarray(0.0)

    @calculated("not in the time")
    def tile_block_size(self) -> FloatArray:
        return np.asarray(1.0)

    @calculated("ours; not in the time")
    def bigger_tile_block_size(self) -> FloatArray:
        return self.tile_block_size

    @calculated("as AMPeD has it, without a unit; not in the time")
    def main_mem_bw_A100(self) -> FloatArray:
        return np.asarray(350.0)
