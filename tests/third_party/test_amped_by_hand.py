"""AMPeD's totals against arithmetic by hand: a made-up training of 8 accelerators, line by line, as
published and corrected."""

from __future__ import annotations

import pytest

from tests.third_party.amped_cases import LEFT_OUT, answer
from third_party.amped import estimate_training_time
from third_party.amped.corrections import NAMES

# Of one layer and one batch of 8 sequences of 4 tokens, width 6, 2 heads of 3, MLP of 24.
ATTENTION_MACS = (
    2 * (3 * 8 * 4 * 3 * 6 + 2 * 8 * 4 * 4 * 3) + 8 * 4 * 6**2
)  # heads (Q, K, V, scores and values) + output
MLP_MACS = 2 * 8 * 4 * 6 * 24
MACS = ATTENTION_MACS + MLP_MACS
PARAMETERS = (
    4 * 6 * 3 * 2 + 4 * 6 + 2 * 6 * 24 + 10 * 6 / 4
)  # projections, biases and scales, MLP, embedding over 4 layers
TIMES = 3200 / 4 / 8 * 4  # 100 batches of 4 layers
FORWARD, BACKWARD = "Communication time forward pass", "Communication time backward pass"


def test_the_operations_are_those_of_a_transformer() -> None:
    assert (
        (ATTENTION_MACS, MLP_MACS)
        == (4 * 32 * 36 + 2 * 32 * 4 * 6, 2 * 32 * 6 * 24)
        == (6144, 9216)
    )


def test_corrected_totals() -> None:
    per_mac, per_nonlinear = 1 / (1e3 * 2 * 1 * 10 * 0.5), 1 / (1e3 * 2 * 2 * 5)
    nonlinear = 8 * 4 * 3 * 2 + 2 * 8 * 4 * (6 + 24)
    forward = per_mac * MACS * 16 / 8 + per_nonlinear * nonlinear * 16 / 8
    update = per_mac * MACS * 16 / 8
    # Activations of all heads, of one replica of 2 and one stage of 2, twice in a layer; a ring of
    # 2 has 2 steps of a half.
    tensor = 2 * 1e-3 + 2 * (8 * 4 * 6) / (2 * 2) * 16 / 1e6
    # Each of 2 accelerators has half of the activations of its replica and half of the node's 100
    # kb/s; shared out over 4 layers.
    pipeline = (2e-3 + 8 * 4 * 6 / 2 / 2 * 16 / 50e3) / 4
    # A stage of 2 has half of the layers, an accelerator half of a layer, at half of the node's
    # network.
    gradients = 2 * 2e-3 + PARAMETERS / 2 / 2 * 16 / 50e3
    computation = (2 * forward + update) / 8
    bubble = (
        (2 - 1) / 4 * (computation + 2 * (tensor + pipeline))
    )  # 4 micro-batches: one for each sequence of a replica
    total = TIMES * (computation + 2 * (tensor + pipeline) + gradients + bubble)

    result = answer().breakdown
    assert total == pytest.approx(626.948)
    assert result["Total time to train (s)"] == pytest.approx(total, rel=1e-12)
    assert result["Total time to train (days)"] == pytest.approx(total / 86400, rel=1e-12)
    assert result["Total time to train (years)"] == pytest.approx(total / 86400 / 365, rel=1e-12)
    assert result["Computation time forward pass (s)"] == pytest.approx(
        TIMES * forward / 8, rel=1e-12
    )
    assert result["Computation time backward pass (s)"] == pytest.approx(
        TIMES * forward / 8, rel=1e-12
    )
    assert result["Computation time weight updates (s)"] == pytest.approx(
        TIMES * update / 8, rel=1e-12
    )
    for direction in (FORWARD, BACKWARD):
        assert result[f"{direction}: tensor parallelism intra node (s)"] == pytest.approx(
            TIMES * tensor, rel=1e-12
        )
        assert result[f"{direction}: tensor parallelism inter node (s)"] == 0
        assert result[f"{direction}: pipeline parallelism (s)"] == pytest.approx(
            TIMES * pipeline, rel=1e-12
        )
        assert result[f"{direction}: Zero-DP (ad-hoc model gathering) (s)"] == 0
    assert result["Communication time: all-reduce gradients for DP intra node (s)"] == 0
    assert result[
        "Communication time: all-reduce gradients for DP inter node (s)"
    ] == pytest.approx(TIMES * gradients, rel=1e-12)
    assert result["Waiting Time due to pipeline bubbles (s)"] == pytest.approx(
        TIMES * bubble, rel=1e-12
    )
    assert result["total MACs"] == TIMES * 3 * MACS
    assert result["TFLOPS"] == pytest.approx(TIMES * 6 * MACS / 1e12, rel=1e-12)
    assert result["TFLOP/sec/GPU"] == pytest.approx(TIMES * 6 * MACS / 1e12 / total / 8, rel=1e-12)
    assert result["TFLOP/sec/GPU (peak)"] == pytest.approx(
        2 * 1e3 * 2 * 10 / (16 / 8) / 1e12, rel=1e-12
    )


def test_totals_as_published() -> None:
    per_mac, per_nonlinear = 1 / (1e3 * 2 * 1 * 10 * 0.5), 1 / (1e3 * 2 * 5)  # of one core
    nonlinear = 8 * 4 * 3 * 2 + 2 * 8 * (6 + 24)  # without the sequence
    forward, update = (
        per_mac * MACS + per_nonlinear * nonlinear,
        per_mac * MACS,
    )  # ceil(16 / 32) = 1
    volume = 8 * 4 * 3  # of one head
    tensor = 2 * 1e-3 + 2 * volume / 4 * 16 / 1e6
    pipeline = (2e-3 + volume * 16 / 100e3) / 4
    zero = 0.25 * (tensor + pipeline)
    gradients = 2 * 2e-3 + PARAMETERS / 2 * 16 / 100e3
    traffic = 2 * (tensor + pipeline + zero)
    bubble = (2 - 1) / 2 * (2 * forward / (8 * 4) + traffic)  # as many micro-batches as stages
    total = TIMES * ((2 * forward + update) / 8 + traffic + gradients + bubble)

    result = answer(kept=NAMES)
    assert total == pytest.approx(284.494)
    assert result.seconds == pytest.approx(total, rel=1e-12)
    assert result.breakdown[f"{FORWARD}: Zero-DP (ad-hoc model gathering) (s)"] == pytest.approx(
        TIMES * zero, rel=1e-12
    )
    assert result.breakdown["Waiting Time due to pipeline bubbles (s)"] == pytest.approx(
        TIMES * bubble, rel=1e-12
    )
    assert (
        answer().as_published is not None and answer().as_published.time_s == result.seconds
    )  # what the corrected answer says of it


def test_memory() -> None:
    parameters = PARAMETERS * 4
    corrected, published = answer().table, answer(kept=NAMES).table
    weights, activations = (
        "required_memory_per_accelerator_weights",
        "required_memory_per_accelerator_activations",
    )
    assert corrected.number(weights) == (16 + 16 + 3 * 32) * parameters / 8 / (2 * 2) == 7536
    assert published.number(weights) == (16 + 16 + 3 * 32) * parameters / 8 / (2 * 2 * 2) == 3768
    # Non-linear operations of attention and MLP and twice the errors; 2 of 4 micro-batches in
    # flight.
    elements = 192 + 1920 + 2 * 192
    assert corrected.number(activations) == 16 / 8 * 4 * elements * 2 / 4 / (2 * 2 * 2) == 1248
    assert (
        published.number(activations)
        == 16 / 8 * 4 * (192 + 480 + 2 * 96) / 2 / 2 / (2 * 2 * 2)
        == 216
    )
    assert corrected.number("total_required_memory_per_accelerator") == 7536 + 1248
    one_in_flight = answer(number_of_microbatches_per_minibatch=1).table  # fewer than the 2 stages
    assert one_in_flight.number(activations) == 16 / 8 * 4 * elements / (2 * 2 * 2)
    assert (
        published.number("min_required_memory_per_accelerator")
        == (16 + 16 / 2) * parameters / 8 / 8 + 216
    )
    assert (
        corrected.number("min_required_memory_per_accelerator")
        == (16 + 16 / 2) * parameters / 8 / 4 + 1248
    )


def test_zero_3_shards_memory_and_gathers_in_time() -> None:
    plain, sharded = answer(), answer(zero_stage=3)
    gathering = 2e-3 + PARAMETERS / 2 / 2 * 16 / 50e3 / 2  # an all-gather is half of an all-reduce
    for direction in (FORWARD, BACKWARD):
        zero = sharded.breakdown[f"{direction}: Zero-DP (ad-hoc model gathering) (s)"]
        assert zero == pytest.approx(TIMES * gathering, rel=1e-12)
    name = "Communication time: all-reduce gradients for DP total (s)"
    assert sharded.breakdown[name] == pytest.approx(plain.breakdown[name] / 2, rel=1e-12)
    assert (
        answer(zero_stage=2).seconds == plain.seconds
    )  # gradients and states are scattered and gathered: an all-reduce
    weights = [
        answer(zero_stage=stage).table.number("required_memory_per_accelerator_weights")
        for stage in range(4)
    ]
    of_parameters = [(16 + 16 + 96), (16 + 16 + 96 / 2), (16 + 16 / 2 + 96 / 2), (16 + 16 + 96) / 2]
    assert weights == [bits * PARAMETERS * 4 / 8 / 4 for bits in of_parameters]


def test_mixtures_of_experts() -> None:
    plain, experts = answer(), answer(number_of_experts=4)
    # 2 of 4 layers; 4 nodes each send 3 / 4 of their quarter of the activations, there and back.
    all_to_all = (3 * 2e-3 + 8 * 4 * 6 * 16 / 4 * 3 / 4 / 100e3) * 2 / 4
    assert experts.breakdown["MoE FW pass communication overhead time (s)"] == pytest.approx(
        TIMES * 2 * all_to_all, rel=1e-12
    )
    assert experts.breakdown["Total MoE communication overhead time"] == pytest.approx(
        TIMES * 4 * all_to_all, rel=1e-12
    )
    gating = (
        4 * (6 - 1) * 8 * 4 * 2 / 4
    )  # a layer's: context x (width - 1) x batch x experts x MoE layers over layers
    passes = (1 / 2 + 1 / 2 + 1) * 16 / 8
    name = "MoE Gating network: compute overhead time (s)"
    assert experts.breakdown[name] == pytest.approx(TIMES * 1e-4 * gating * passes / 8, rel=1e-12)
    more = (
        experts.breakdown["Total computation time (s)"]
        - plain.breakdown["Total computation time (s)"]
    )
    assert more == pytest.approx(experts.breakdown[name], rel=1e-9)
    assert experts.table.number("number_of_expert_parameters") == 3 * 2 * 2 * 6 * 24
    assert plain.breakdown["Total MoE communication overhead time"] == 0


def test_experts_are_where_there_are_as_many_holders() -> None:
    """Two experts on four nodes have two holders; on one node its two accelerators hold four, over
    the links within."""
    label = "MoE FW pass communication overhead time (s)"
    few = (2e-3 + 8 * 4 * 6 * 16 / 4 * 1 / 2 / 100e3) * 2 / 4
    assert answer(number_of_experts=2).breakdown[label] == pytest.approx(TIMES * 2 * few, rel=1e-12)
    one_node = {"inter_node_data_parallel_degree": 1, "inter_node_pipeline_parallel_degree": 1}
    within = (1e-3 + 8 * 4 * 6 * 16 / 2 * 1 / 2 / 1e6) * 2 / 4
    assert answer(number_of_experts=4, **one_node).breakdown[label] == pytest.approx(
        TIMES * 2 * within, rel=1e-12
    )


def test_of_stages_within_and_between_nodes_the_slower_transfer_counts() -> None:
    within = {"intra_node_pipeline_parallel_degree": 2, "intra_node_tensor_parallel_degree": 1}
    label = f"{FORWARD}: pipeline parallelism (s)"
    between_alone = answer(
        intra_node_tensor_parallel_degree=1,
        number_of_accelerators_per_node=1,
        number_of_network_cards_per_node=1,
    )
    assert answer(**within).breakdown[label] == pytest.approx(
        TIMES * (2e-3 + 8 * 4 * 6 / 2 * 16 / 50e3) / 4, rel=1e-12
    )
    assert answer(**within).breakdown[label] == between_alone.breakdown[label]
    slow = answer(**within, inter_accelerator_bandwidth="1 kb/s").breakdown[label]
    assert slow == pytest.approx(TIMES * (1e-3 + 8 * 4 * 6 / 2 * 16 / 1e3) / 4, rel=1e-12)


def test_the_projection_onto_the_vocabulary_counts_once() -> None:
    with_decoder = answer(decoder_flag=1).breakdown["total MACs"] - answer().breakdown["total MACs"]
    assert with_decoder == 100 * 3 * (
        8 * 4 * 10 * 6
    )  # batches, passes, tokens x vocabulary x width
    assert answer(decoder_flag=LEFT_OUT).seconds == answer(decoder_flag=1).seconds
    published = (
        answer(kept=NAMES, decoder_flag=1).breakdown["total MACs"]
        - answer(kept=NAMES).breakdown["total MACs"]
    )
    assert published == 100 * 4 * (
        8 * 10 * 6
    )  # in each layer, one token of a sequence, forward alone


def test_tensor_parallelism_between_nodes() -> None:
    """Two accelerators of each of two nodes: within the node as for two, between nodes each has its
    half of the activations."""
    changes = {"inter_node_tensor_parallel_degree": 2, "inter_node_data_parallel_degree": 1}
    result = answer(
        attention_heads=4, dimensionality=12, hidden_layer_dimension_MLP_1=12, **changes
    ).breakdown
    volume = 2 * (8 * 4 * 4 * 3) / 2 * 16  # of one replica and of one of 2 stages, in bits
    assert result[f"{FORWARD}: tensor parallelism intra node (s)"] == pytest.approx(
        TIMES * (2e-3 + volume / 1e6), rel=1e-12
    )
    between = 2 * 2e-3 + volume / 2 / 50e3
    assert result[f"{FORWARD}: tensor parallelism inter node (s)"] == pytest.approx(
        TIMES * between, rel=1e-12
    )


def test_stages_and_replicas_within_a_node() -> None:
    """2 nodes of 4: two stages and two replicas within each, two more replicas between them."""
    inside = {
        "intra_node_tensor_parallel_degree": 1,
        "intra_node_pipeline_parallel_degree": 2,
        "intra_node_data_parallel_degree": 2,
    }
    between = {"inter_node_pipeline_parallel_degree": 1, "inter_node_data_parallel_degree": 2}
    result = answer(**inside, **between, number_of_accelerators_per_node=4).breakdown
    pipeline = (
        1e-3 + 8 * 4 * 6 / 4 * 16 / 1e6
    ) / 4  # a quarter of the batch, over the links within
    assert result[f"{FORWARD}: pipeline parallelism (s)"] == pytest.approx(
        TIMES * pipeline, rel=1e-12
    )
    within = 2 * 1e-3 + PARAMETERS / 2 * 16 / 1e6  # a stage's half of the layers
    assert result[
        "Communication time: all-reduce gradients for DP intra node (s)"
    ] == pytest.approx(TIMES * within, rel=1e-12)
    beyond = 2 * 2e-3 + PARAMETERS / 2 / 2 * 16 / (
        100e3 / 4
    )  # of that the half that an accelerator has reduced, on a quarter
    assert result[
        "Communication time: all-reduce gradients for DP inter node (s)"
    ] == pytest.approx(TIMES * beyond, rel=1e-12)
    assert result[f"{FORWARD}: tensor parallelism intra node (s)"] == 0


def test_an_efficiency_curve_saturates() -> None:
    curve = {
        "efficiency": {"calculated": True},
        "efficiency_curve_limit": 0.8,
        "efficiency_curve_half_size": 1,
    }
    assert answer(**curve).table.number("efficiency") == 0.8 * 1 / (
        1 + 1
    )  # micro-batches of one sequence
    assert answer(**curve, number_of_microbatches_per_minibatch=1).table.number(
        "efficiency"
    ) == 0.8 * 4 / (4 + 1)
    bounded = {**curve, "efficiency_curve_limit": 1.0, "efficiency_curve_half_size": 0}
    assert answer(**bounded).table.number("efficiency") == 0.91


def test_the_corrections_stand_by_themselves() -> None:
    """Each is told with what it alone changes, and changes nothing where its error cannot show."""
    effects = {each.correction.name: each.kept for each in answer().effects}
    assert tuple(effects) == NAMES
    for name, kept in effects.items():
        assert kept == answer(kept=(name,)).totals
    unchanged = {name for name, kept in effects.items() if kept == answer().totals}
    assert unchanged == {
        "decoder",
        "gating",
        "matrix_dimensions",
    }  # no projection, no experts, a file alone
    one_head = {
        "attention_heads": 1,
        "hidden_layer_dimension_for_attention_sublayers": 6,
        "key_query_value_length": 6,
    }
    alone = {"intra_node_tensor_parallel_degree": 1, "intra_node_data_parallel_degree": 2}
    assert (
        answer(**one_head, **alone).seconds
        == answer(kept=("head_width",), **one_head, **alone).seconds
    )


def test_gpt3_on_1024_a100() -> None:
    """6 N D of Kaplan et al. 2020 at 51% of the data sheet's peak bounds the time from below;
    attention adds some per cent."""
    result = estimate_training_time()
    least_days = 6 * 175e9 * 300e9 / (1024 * 312e12 * 0.51) / 86400
    computation_days = result.breakdown["Total computation time (s)"] / 86400
    assert least_days * 0.99 < computation_days < least_days * 1.05
    assert (
        computation_days < result.days < 34
    )  # Narayanan et al. 2021, section 5.1, with a third more for recomputation
    assert result.table.number("total_number_of_parameters_without_embedding") == pytest.approx(
        175e9, rel=0.005
    )
    assert result.fits
    assert result.breakdown["TFLOP/sec/GPU (peak)"] == pytest.approx(312, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "tflops"), [("V100", 125), ("A100", 312), ("H100 PCIe", 756), ("H100 SXM", 989.4)]
)
def test_an_accelerator_by_name_reaches_its_data_sheet(name: str, tflops: float) -> None:
    result = estimate_training_time(name)
    assert result.configuration.accelerator == name
    assert result.breakdown["TFLOP/sec/GPU (peak)"] == pytest.approx(tflops, rel=3e-3)
