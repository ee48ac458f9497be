"""What notes of a published run say of its mixture of experts: settings of Megatron-Core
(``moe_token_dispatcher_type=flex; overlap_moe_expert_parallel_comm=True``) or words (``dispatcher
hybridep; EP a2a overlap on; CUDA graph full_iteration``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phaze.exports.megatron_lm.cuda_graphs import ITERATION, graphs_of
from phaze.exports.megatron_lm.dispatch import FLEX, dispatcher_of, overlap_of
from phaze_common.choices import CudaGraphs, Dispatcher, ExpertOverlap

_SETTING = re.compile(r"(\w+)=(\w+)")
_DISPATCHERS = re.compile(
    r"\b(deepep|hybridep)\b|\b(alltoall|allgather) dispatcher|dispatcher (\w+)"
)
_OVERLAP = re.compile(r"\bep (?:a2a )?overlap\b(?: (on|off))?")
_GRAPHS = re.compile(r"cuda graph(?: (\w+))?")
_SCOPE = re.compile(r"(?:cuda_graph_scope=|cuda graph \w+ ?|'scopes': )\[([^\]]*)\]")
_IMPLEMENTATION = re.compile(r"'implementation': '(\w+)'")


@dataclass(frozen=True)
class ExpertWords:
    """What is said; None: nothing."""

    dispatcher: Dispatcher | None = None
    overlap_experts: ExpertOverlap | None = None
    cuda_graphs: CudaGraphs | None = None


def expert_words(text: str) -> ExpertWords:
    """What a text says of the exchange of tokens with experts, and of CUDA graphs."""
    text = text.lower()
    settings = dict(_SETTING.findall(text))
    return ExpertWords(_dispatcher(text, settings), _overlap(text, settings), _graphs(text))


def _dispatcher(text: str, settings: dict[str, str]) -> Dispatcher | None:
    kind = settings.get("moe_token_dispatcher_type")
    backend = settings.get("moe_flex_dispatcher_backend", settings.get("moe_dispatcher", ""))
    if kind is not None or backend not in ("", "none"):
        return dispatcher_of(kind or FLEX, backend)
    found = _DISPATCHERS.search(text)
    if found is None:
        return None
    name = next(each for each in found.groups() if each)
    return dispatcher_of(name, "")


def _overlap(text: str, settings: dict[str, str]) -> ExpertOverlap | None:
    stated, words = settings.get("overlap_moe_expert_parallel_comm"), _OVERLAP.search(text)
    delayed = settings.get("delay_wgrad_compute") == "true" or "delayed wgrad" in text
    if stated is not None:
        return overlap_of(batches=stated == "true", delayed=delayed, shared=False)
    if words is None and "dualpipe" not in text:
        return None
    batches = words is None or words[1] != "off"
    return overlap_of(batches=batches, delayed=delayed, shared=False)


def _graphs(text: str) -> CudaGraphs | None:
    scope = _SCOPE.search(text)
    parts = re.findall(r"\w+", scope[1]) if scope else []
    chosen = dict(_SETTING.findall(text)).get("cuda_graph_impl")
    chosen = found[1] if (found := _IMPLEMENTATION.search(text)) else chosen
    words = _GRAPHS.search(text)
    if chosen is None and words is None:
        return None
    if re.search(r"full[- ]?(iteration )?cuda graph|full_iteration", text):
        return CudaGraphs.ITERATION
    if chosen is not None:
        return graphs_of(chosen, parts) if parts or chosen in ("none", ITERATION) else None
    return graphs_of("transformer_engine", parts or ["attn", "moe_router"])
