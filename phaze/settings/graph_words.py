"""What texts say of CUDA graphs: words of Megatron-LM's arguments, which its launches, recipes and
tables of runs have in common."""

from __future__ import annotations

import re
from collections.abc import Collection

from phaze_common.choices import CudaGraphs

ITERATION = "full_iteration"  # an implementation, before that a scope
IMPLEMENTATIONS = ("none", "local", "transformer_engine", ITERATION)
PARTS = ("attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess")
# from the word graph to the end of what is said there: the argument, its value, a list behind it
_SAID = re.compile(r"\bgraphs?\b[^;]*|\bcuda_graph_?\w*[^;]*", re.IGNORECASE)
_ITERATION = re.compile(r"full[-_ ]iter|full cuda graphs?\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_NAMED = re.compile(r"\b(partial )?(cuda|te) graphs?\b", re.IGNORECASE)


def older_switches(*, external: bool, enabled: bool) -> str:
    """The implementation that ``external_cuda_graph`` and ``enable_cuda_graph`` name, which came
    before it had a name."""
    return "local" if enabled else "transformer_engine" if external else "none"


def graphs_of(chosen: str, scope: Collection[str]) -> CudaGraphs:
    """What an implementation by name replays of a ``scope``; of a part that no plan tells apart
    nothing: feed-forward layers of a mixture, and experts without their attention."""
    if chosen == "none":
        return CudaGraphs.NONE
    parts = {*scope} - {"full"}
    if ITERATION in (chosen, *parts):
        return CudaGraphs.ITERATION
    if not parts or {"attn", "moe"} <= parts or parts == {"attn", "mlp"}:
        return CudaGraphs.LAYER
    attention, router = parts & {"attn", "mamba"}, parts & {"moe_router", "moe"}
    if attention and router:
        return CudaGraphs.ATTENTION_ROUTER
    if router:
        return CudaGraphs.ROUTER
    return CudaGraphs.ATTENTION if attention else CudaGraphs.NONE


def graphs_in(*texts: str) -> CudaGraphs | None:
    """The graphs of a run as its notes say; None where they say nothing.

    Graphs of no part that is named are of whole layers, as without a scope, and "partial" ones of
    what a layer with experts can have: attention and router.
    """
    said = [each.group() for text in texts for each in _SAID.finditer(text)]
    words = {word for each in said for word in _WORD.findall(each)}
    chosen = next((each for each in IMPLEMENTATIONS if each in words), "")
    if chosen == "none":
        return CudaGraphs.NONE
    if any(_ITERATION.search(text) for text in texts):
        return CudaGraphs.ITERATION
    parts = words.intersection(PARTS)
    if parts:
        return graphs_of(chosen, parts)
    named = next((found for text in texts if (found := _NAMED.search(text))), None)
    if named is None:
        return None
    return CudaGraphs.ATTENTION_ROUTER if named[1] else CudaGraphs.LAYER
