"""CUDA graphs as Megatron is told them, and which of its graphs a plan has.

An implementation replays parts of layers (``attn``, ``mlp``, ``moe_router`` with the shared experts
and, with ``moe_preprocess``, what prepares the exchange of tokens; none named: whole layers) or
the iteration (core_v0.16.1, megatron/training/arguments.py). Today's names are
``--cuda-graph-modules`` for the scope and ``--cuda-graph-impl full_iteration``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from GraphExtractor.graph import Recompute
from phaze.exports.launch import Launch, unsupported
from phaze.exports.refusals import Refusals
from phaze.settings.graph_words import ITERATION
from phaze_common.choices import CudaGraphs

SCOPES: Mapping[CudaGraphs, tuple[str, ...]] = MappingProxyType(
    {
        CudaGraphs.ATTENTION: ("attn",),
        CudaGraphs.ROUTER: ("moe_router", "moe_preprocess"),
        CudaGraphs.ATTENTION_ROUTER: ("attn", "moe_router", "moe_preprocess"),
        CudaGraphs.LAYER: (),
        CudaGraphs.ITERATION: (ITERATION,),
    }
)


def implementation(graphs: CudaGraphs) -> str:
    """The one that replays them."""
    return "local" if graphs is CudaGraphs.ITERATION else "transformer_engine"


def graph_limits(launch: Launch) -> Refusals:
    """What of the graphs it cannot be told."""
    graphs, shape = launch.degrees.cuda_graphs, launch.shape
    if graphs is CudaGraphs.NONE:
        return
    experts = shape is not None and shape.experts is not None
    if experts and graphs in (CudaGraphs.LAYER, CudaGraphs.ITERATION):
        what = "its graphs of experts need as many tokens for each, filled up or dropped"
        yield unsupported(what, cuda_graphs=CudaGraphs.ATTENTION_ROUTER.value)
    if not experts and graphs in (CudaGraphs.ROUTER, CudaGraphs.ATTENTION_ROUTER):
        what = "the model has no router of experts that a graph could replay"
        yield unsupported(what, cuda_graphs=CudaGraphs.ATTENTION.value)
    if launch.degrees.recompute is Recompute.FULL and graphs is not CudaGraphs.ITERATION:
        what = "its graphs replay no layers that are run again as a whole"
        yield unsupported(what, cuda_graphs=CudaGraphs.NONE.value)
