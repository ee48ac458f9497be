"""What notes of runs and arguments of Megatron-LM say of CUDA graphs."""

import pytest

from phaze.settings.graph_words import graphs_in, graphs_of
from phaze_common.choices import CudaGraphs

BOTH = CudaGraphs.ATTENTION_ROUTER
NOTES = {  # as tables of runs of 2025 and 2026 have them
    "dispatcher hybridep; EP a2a overlap on; CUDA graph full_iteration": CudaGraphs.ITERATION,
    "delayed wgrad, full-iteration CUDA graph, paged stash": CudaGraphs.ITERATION,
    "cuda_graph_impl=full_iteration; cuda_graph_scope=[]": CudaGraphs.ITERATION,
    "CUDA graph local full_iteration": CudaGraphs.ITERATION,
    "EP a2a overlap off; helper _apply_gpt_oss_120b_full_iter_fp8mx": CudaGraphs.ITERATION,
    "NeMo 25.09; full CUDA graphs, asymmetric embedding/loss stages": CudaGraphs.ITERATION,
    "CUDA graph none full_iteration": CudaGraphs.NONE,
    "cuda_graph_impl=none; cuda_graph_scope=full; sequence_packing=offline": CudaGraphs.NONE,
    "CUDA graph transformer_engine ['attn', 'moe_router', 'moe_preprocess']": BOTH,
    "CUDA graph transformer_engine ['attn', 'mamba', 'moe_router', 'moe_preprocess']": BOTH,
    "EP overlap off; HybridEP; TE graph moe_router+moe_preprocess": CudaGraphs.ROUTER,
    "cuda_graph={'implementation': 'transformer_engine', 'scopes': ['mamba']}": (
        CudaGraphs.ATTENTION
    ),
    "cuda_graph_impl=transformer_engine; cuda_graph_scope=['moe_router']; recompute=none": (
        CudaGraphs.ROUTER
    ),
    "HybridEP, CUDA graph, expert capacity factor 7": CudaGraphs.LAYER,
    "partial CUDA graph": BOTH,
    "helper set_cuda_graph_modules": None,
    "a graph of the losses": None,
    "selective recomputation of core_attn; moe_router_dtype=fp32": None,
    "": None,
}


@pytest.mark.parametrize("notes", NOTES)
def test_notes_say_what_is_replayed(notes: str) -> None:
    assert graphs_in("BF16; recompute none", notes) is NOTES[notes]


@pytest.mark.parametrize(
    ("chosen", "scope", "graphs"),
    [
        ("none", ("attn",), CudaGraphs.NONE),
        ("local", (), CudaGraphs.LAYER),
        ("local", ("full",), CudaGraphs.LAYER),
        ("transformer_engine", ("attn", "mlp"), CudaGraphs.LAYER),
        ("transformer_engine", ("attn", "mlp", "moe_router"), BOTH),
        ("transformer_engine", ("mlp",), CudaGraphs.NONE),
        ("full_iteration", (), CudaGraphs.ITERATION),
    ],
)
def test_arguments_say_what_is_replayed(
    chosen: str, scope: tuple[str, ...], graphs: CudaGraphs
) -> None:
    assert graphs_of(chosen, scope) is graphs
