"""How experts are loaded, by what published runs say of their routing."""

from __future__ import annotations

import pytest

from phaze.validation.assumptions import first_found, load_assumptions
from phaze.validation.exchange_words import dispatcher_in, expert_overlap_in
from phaze_common.choices import Dispatcher, ExpertOverlap


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("dropless, force-balanced routing", 1.0),
        ("router forced to balance; same plan measured with both routings", 1.0),
        ("moe_router_force_load_balancing=True; HybridEP", 1.0),
        ("fake balanced gate; mock data", 1.0),
        ("natural routing, dropless", 1.5),
        ("moe_router_force_load_balancing=False; use_megatron_fsdp=False", 1.5),
        ("Grok 1 314b BF16", 1.3),
        ("token drop", None),
        ("natural routing, not forced to balance", 1.5),
    ],
)
def test_words_say_the_load_of_the_busiest_experts(text: str, load: float | None) -> None:
    found = first_found(load_assumptions().routing, text)
    assert (None if found is None else found.load) == load


@pytest.mark.parametrize(
    ("text", "dispatcher", "overlap"),
    [
        (
            "EP a2a overlap off; helper _apply_gpt_oss_120b_full_iter_fp8mx_configs",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.DELAYED,
        ),
        (
            "moe_flex_dispatcher_backend=hybridep; cuda_graph_impl=full_iteration",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.DELAYED,
        ),
        (
            "moe_flex_dispatcher_backend=hybridep; cuda_graph_impl=full_iteration; "
            "overlap_moe_expert_parallel_comm=False",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.NONE,
        ),
    ],
)
def test_graphs_of_whole_iterations_hide_exchanges(
    text: str, dispatcher: Dispatcher, overlap: ExpertOverlap
) -> None:
    assert dispatcher_in(text) == dispatcher and expert_overlap_in(text) == overlap
