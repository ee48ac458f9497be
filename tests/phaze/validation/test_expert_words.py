"""What notes of published runs say of their mixtures of experts."""

from __future__ import annotations

import pytest
from phaze.validation.expert_words import ExpertWords, expert_words

from phaze_common.choices import CudaGraphs, Dispatcher, ExpertOverlap


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ExpertWords()),
        ("ring attention, CUDA 12.8", ExpertWords()),
        (
            "dispatcher hybridep; EP a2a overlap off; CUDA graph transformer_engine ['attn', "
            "'moe_router', 'moe_preprocess']",
            ExpertWords(Dispatcher.HYBRIDEP, ExpertOverlap.NONE, CudaGraphs.ATTENTION_ROUTER),
        ),
        (
            "dispatcher hybridep; EP a2a overlap on + delayed wgrad, CUDA graph full_iteration",
            ExpertWords(Dispatcher.HYBRIDEP, ExpertOverlap.DELAYED, CudaGraphs.ITERATION),
        ),
        (
            "HybridEP in NVLink domain, 1F1B EP overlap, delayed wgrad, full-iteration CUDA graph",
            ExpertWords(Dispatcher.HYBRIDEP, ExpertOverlap.DELAYED, CudaGraphs.ITERATION),
        ),
        ("TE + DeepEP", ExpertWords(Dispatcher.DEEPEP)),
        ("alltoall dispatcher", ExpertWords(Dispatcher.ALLTOALL)),
        ("DualPipe", ExpertWords(overlap_experts=ExpertOverlap.BATCHES)),
        (
            "moe_flex_dispatcher_backend=hybridep; moe_token_dispatcher_type=flex; "
            "overlap_moe_expert_parallel_comm=True; delay_wgrad_compute=False; "
            "cuda_graph_impl=none; cuda_graph_scope=full",
            ExpertWords(Dispatcher.HYBRIDEP, ExpertOverlap.BATCHES, CudaGraphs.NONE),
        ),
        (  # the backend is of the flexible dispatcher alone
            "moe_flex_dispatcher_backend=hybridep; moe_token_dispatcher_type=alltoall",
            ExpertWords(Dispatcher.ALLTOALL),
        ),
        (
            "cuda_graph={'implementation': 'transformer_engine', 'scopes': ['moe_router', "
            "'moe_preprocess']}; moe_dispatcher=deepep",
            ExpertWords(Dispatcher.DEEPEP, cuda_graphs=CudaGraphs.ROUTER),
        ),
    ],
)
def test_words_and_settings_are_read(text: str, says: ExpertWords) -> None:
    assert expert_words(text) == says
