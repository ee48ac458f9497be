"""What layers save less where modules are recomputed by name, against sums by hand, and what a plan
makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from GraphExtractor import extract
from GraphExtractor.graph import (
    AS_TRACED,
    Keeping,
    LayerGraph,
    ModelGraph,
    OperatorKind,
    Recompute,
)
from GraphExtractor.models.registry import canonical_name
from phaze_common.errors import InputError
from phaze_common.recompute_modules import (
    BETWEEN_PRODUCTS,
    BY_OPERATOR,
    RecomputedModules,
    known_modules,
    recompute_of,
)
from tests.builders.training_cases import iteration_of

TOKENS, HIDDEN, FFN, HEADS, KEYS = 256, 512, 1408, 8, 2
LLAMA = (
    f"llama:layers=2,hidden={HIDDEN},heads={HEADS},kv_heads={KEYS},ffn={FFN},vocabulary=1024,"
    f"sequence_length={TOKENS}"
)
EXPERTS, CHOSEN, EXPERT_FFN = 8, 2, 256
MIXTURE = (
    f"mixtral:layers=2,hidden={HIDDEN},heads={HEADS},kv_heads={KEYS},ffn={EXPERT_FFN},"
    f"experts={EXPERTS},chosen={CHOSEN},vocabulary=1024,sequence_length={TOKENS}"
)
PLAN = UniformPlan(global_batch_size=4)


def graph_of(model: str, plan: UniformPlan = PLAN) -> ModelGraph:
    return extract.extract_graph(plan.graph_key(canonical_name(model), TOKENS))


def block_of(model: str) -> LayerGraph:
    graph = graph_of(model)
    return graph.layers[graph.sequence[1]]


def less(block: LayerGraph, modules: str, keeping: Keeping = AS_TRACED) -> int:
    chosen = recompute_of(modules)
    return block.saved_under(Recompute.NONE, keeping) - block.saved_under(chosen, keeping)


def test_a_dense_block_saves_what_its_modules_make() -> None:
    """In bytes of two an element: gate, SiLU, up and product of the MLP; the results of both norms
    and a statistic of four bytes for each token."""
    block = block_of(LLAMA)
    assert less(block, "mlp") == 2 * TOKENS * 4 * FFN
    assert less(block, "layernorm") == 2 * (2 * TOKENS * HIDDEN + 4 * TOKENS)
    assert less(block, "mlp+layernorm") == less(block, "mlp") + less(block, "layernorm")
    assert less(block, "core_attn") == block.saved.none - block.saved.selective
    for absent in ("moe", "moe_act", "mla_up_proj", "shared_experts"):
        assert less(block, absent) == 0


def test_kept_by_operator_are_inputs_attention_and_every_second_product() -> None:
    """Of q, k, v, o, gate, up and down the first, third, fifth and seventh."""
    block, width = block_of(LLAMA), HIDDEN // HEADS
    products = HIDDEN + KEYS * width + FFN + HIDDEN
    attention = 2 * TOKENS * HIDDEN + 4 * TOKENS * HEADS
    kept = 2 * TOKENS * (HIDDEN + products) + attention
    tables = 2 * 2 * TOKENS * width  # cosines and sines, which all blocks share
    assert block.saved_under(BY_OPERATOR) == pytest.approx(kept + tables, abs=4096)
    in_fp8 = Keeping(in_fp8=True, joined=True)
    assert block.saved_under(BY_OPERATOR, in_fp8) == block.saved_under(BY_OPERATOR)


def test_experts_save_their_rows() -> None:
    """The activation's result; of the whole also the rows as they enter, gate and up, their results
    and what the router saves."""
    block, rows = block_of(MIXTURE), TOKENS * CHOSEN
    assert less(block, "moe_act") == 2 * rows * EXPERT_FFN
    least = 2 * rows * (HIDDEN + 3 * EXPERT_FFN)
    assert least <= less(block, "moe") <= least + 2 * rows * HIDDEN + 64 * TOKENS * EXPERTS
    assert less(block, "mlp") == 0


def test_modules_in_fp8_save_less_where_what_they_keep_is_one_byte() -> None:
    block, keeping = block_of(LLAMA), Keeping(in_fp8=True)
    assert 0 < less(block, "mlp", keeping) < less(block, "mlp")
    assert block.saved_under(recompute_of("mlp"), keeping) > 0


def test_more_modules_save_more_and_take_longer() -> None:
    model = DeviceModel(load_device("h100"), load_software("megatron_core"), "bfloat16")
    cluster, graph = load_cluster("dgx_h100"), graph_of(MIXTURE)
    chosen = ["none", "layernorm", "moe_act+layernorm", "moe+layernorm", "full"]
    found = [
        iteration_of(graph, replace(PLAN, recompute=recompute_of(each)), model, cluster)
        for each in chosen
    ]
    saved = [each.stages[0].activation_bytes for each in found]
    again = [each.breakdown.recompute_s + each.breakdown.launch_s for each in found]
    assert saved == sorted(saved, reverse=True) and len(set(saved)) == len(saved)
    assert again == sorted(again) and found[0].breakdown.recompute_s == 0.0


@pytest.mark.parametrize(
    ("words", "said"),
    [("moe_act+dropout", "recompute has 'dropout'"), ("mlp+second_products", "one of them alone")],
)
def test_modules_that_are_none_are_refused(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        RecomputedModules.parsed(words)


def test_modules_are_written_in_one_order_without_those_within_others() -> None:
    assert str(recompute_of("layernorm+moe_act+core_attn")) == "core_attn+moe_act+layernorm"
    assert str(recompute_of("shared_experts+moe+moe_act")) == "moe"
    assert recompute_of("full") is Recompute.FULL
    assert known_modules(["core_attn"]) == ("selective", ())
    assert known_modules(["mhc"]) == ("none", ("mhc",))
    assert known_modules(["mlp", "mhc"]) == ("mlp", ("mhc",))


def test_between_products_all_but_results_of_products_is_made_again() -> None:
    """Kept are the block's input and the results of q, k, v, o, gate and up; that of down is in the
    input of the next block, and attention runs again."""
    block, width = block_of(LLAMA), HIDDEN // HEADS
    products = HIDDEN + 2 * KEYS * width + HIDDEN + 2 * FFN
    kept = 2 * TOKENS * (HIDDEN + products)
    tables = 2 * 2 * TOKENS * width  # cosines and sines, which all blocks share
    assert block.saved_under(BETWEEN_PRODUCTS) == pytest.approx(kept + tables, abs=4096)
    (module,) = block.again(BETWEEN_PRODUCTS)
    kinds = {each.kind for each in module.operators}
    assert OperatorKind.GEMM not in kinds and OperatorKind.ATTENTION in kinds
