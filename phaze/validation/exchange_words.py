"""What texts of runs say of the exchange of tokens with experts: the dispatcher, and what runs
beside it."""

from __future__ import annotations

import re

from phaze_common.choices import Dispatcher, ExpertOverlap

_ALL_TO_ALL = (
    r"\ball[-_ ]?to[-_ ]?all (?:token )?dispatcher|dispatcher(?:_type)?[= ]all[-_ ]?to[-_ ]?all"
)
_DISPATCHERS = {
    # a type that is named counts before a backend of the flexible one
    Dispatcher.ALLTOALL: re.compile(_ALL_TO_ALL, re.IGNORECASE),
    Dispatcher.ALLGATHER: re.compile(r"dispatcher(?:_type)?[= ]all[-_ ]?gather", re.IGNORECASE),
    Dispatcher.HYBRIDEP: re.compile(r"hybrid[-_ ]?ep", re.IGNORECASE),
    Dispatcher.DEEPEP: re.compile(r"deep[-_ ]?ep", re.IGNORECASE),
}
_OFF = re.compile(
    r"\b(?:ep|a2a)(?: a2a)? overlap off|overlap_moe_expert_parallel_comm=false", re.IGNORECASE
)
_BATCHES = re.compile(
    r"\b(?:ep|a2a)(?: a2a)? overlap\b|overlap_moe_expert_parallel_comm=true|dualpipe",
    re.IGNORECASE,
)
# Megatron-Bridge's moe_a2a_overlap sets both (scripts/performance/utils/overrides.py)
_DELAYED = re.compile(
    r"(?<!no )delayed wgrad|delay_wgrad_compute=true|a2a overlap on", re.IGNORECASE
)
# graphs of whole iterations, by what recipes of Megatron-Bridge call them or print of them: their
# helpers set both too, whatever stood there before (perf_recipes/qwen/common.py,
# _enable_hybridep_full_iteration_mxfp8; as gpt_oss and deepseek, at 067f987)
_WHOLE_ITERATION = re.compile(
    r"full_iter\w*_(?:fp8mx|mxfp8)\w*|hybridep\b.*\bcuda_graph_impl=full_iteration", re.IGNORECASE
)
_SHARED = re.compile(r"shared[-_ ]expert[-_ ]overlap(?!=false| off)", re.IGNORECASE)
_FP8 = re.compile(r"\bfp8 dispatch|\bdispatch(?:ed|es)?(?: of tokens)? in fp8", re.IGNORECASE)


def dispatcher_in(*texts: str) -> Dispatcher | None:
    """The dispatcher that is named first in this order of dispatchers; None where none is."""
    said = "; ".join(texts)
    named = (each for each, words in _DISPATCHERS.items() if words.search(said))
    return next(named, Dispatcher.HYBRIDEP if _WHOLE_ITERATION.search(said) else None)


def expert_overlap_in(*texts: str) -> ExpertOverlap | None:
    """What runs beside the exchange; None where nothing is said of it."""
    said = "; ".join(texts)
    off = _OFF.search(said) is not None
    if (
        _WHOLE_ITERATION.search(said)
        and "overlap_moe_expert_parallel_comm=false" not in said.lower()
    ):
        return ExpertOverlap.DELAYED
    if _BATCHES.search(_OFF.sub("", said)):
        return ExpertOverlap.DELAYED if _DELAYED.search(said) else ExpertOverlap.BATCHES
    if _SHARED.search(said):
        return ExpertOverlap.SHARED
    return ExpertOverlap.NONE if off else None


def dispatch_fp8_in(*texts: str) -> bool | None:
    """Whether tokens go to experts in fp8; None where nothing is said of it."""
    return True if _FP8.search("; ".join(texts)) else None
