"""What notes of published runs say of their mixtures of experts."""

from __future__ import annotations

import pytest

from phaze.settings.graph_words import graphs_in
from phaze.validation.exchange_words import dispatcher_in, expert_overlap_in
from phaze_common.choices import CudaGraphs, Dispatcher, ExpertOverlap


@pytest.mark.parametrize(
    ("text", "dispatcher", "overlap", "graphs"),
    [
        ("ring attention, CUDA 12.8", None, None, None),
        (
            "dispatcher hybridep; EP a2a overlap off; CUDA graph transformer_engine ['attn', "
            "'moe_router', 'moe_preprocess']",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.NONE,
            CudaGraphs.ATTENTION_ROUTER,
        ),
        (
            "HybridEP in NVLink domain, 1F1B EP overlap, delayed wgrad, full-iteration CUDA graph",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.DELAYED,
            CudaGraphs.ITERATION,
        ),
        ("alltoall dispatcher", Dispatcher.ALLTOALL, None, None),
        # what Megatron-Bridge's moe_a2a_overlap sets
        ("EP a2a overlap on", None, ExpertOverlap.DELAYED, None),
        ("EP overlap on (repeat); no delayed wgrad", None, ExpertOverlap.BATCHES, None),
        (
            "moe_flex_dispatcher_backend=hybridep; moe_token_dispatcher_type=flex; "
            "overlap_moe_expert_parallel_comm=True; delay_wgrad_compute=False; "
            "cuda_graph_impl=none; cuda_graph_scope=full",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.BATCHES,
            CudaGraphs.NONE,
        ),
        (  # the backend is of the flexible dispatcher alone
            "moe_flex_dispatcher_backend=hybridep; moe_token_dispatcher_type=alltoall",
            Dispatcher.ALLTOALL,
            None,
            None,
        ),
        (
            "cuda_graph={'implementation': 'transformer_engine', 'scopes': ['moe_router', "
            "'moe_preprocess']}; moe_dispatcher=deepep",
            Dispatcher.DEEPEP,
            None,
            CudaGraphs.ROUTER,
        ),
    ],
)
def test_words_and_settings_are_read(
    text: str,
    dispatcher: Dispatcher | None,
    overlap: ExpertOverlap | None,
    graphs: CudaGraphs | None,
) -> None:
    assert (dispatcher_in(text), expert_overlap_in(text), graphs_in(text)) == (
        dispatcher,
        overlap,
        graphs,
    )
