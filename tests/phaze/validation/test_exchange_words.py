"""What texts of runs say of the exchange with experts, in the words that published tables have."""

from __future__ import annotations

import pytest

from phaze.validation.exchange_words import dispatch_fp8_in, dispatcher_in, expert_overlap_in
from phaze_common.choices import Dispatcher, ExpertOverlap


@pytest.mark.parametrize(
    ("text", "dispatcher", "overlap"),
    [
        ("", None, None),
        ("TP comm overlap; CUDA graph none", None, None),
        ("dispatcher hybridep; EP a2a overlap off", Dispatcher.HYBRIDEP, ExpertOverlap.NONE),
        ("EP a2a overlap on + delayed wgrad (helper)", None, ExpertOverlap.DELAYED),
        ("EP overlap on (repeat); HybridEP; no delayed wgrad", "hybridep", ExpertOverlap.BATCHES),
        ("DeepEP + 1F1B EP overlap", Dispatcher.DEEPEP, ExpertOverlap.BATCHES),
        ("A2A overlap", None, ExpertOverlap.BATCHES),
        ("EP overlap off", None, ExpertOverlap.NONE),
        (
            "moe_token_dispatcher_type=flex; moe_flex_dispatcher_backend=hybridep; "
            "overlap_moe_expert_parallel_comm=True; delay_wgrad_compute=False",
            Dispatcher.HYBRIDEP,
            ExpertOverlap.BATCHES,
        ),
        (
            "moe_token_dispatcher_type=alltoall; moe_flex_dispatcher_backend=deepep; "
            "overlap_moe_expert_parallel_comm=False",
            Dispatcher.ALLTOALL,
            ExpertOverlap.NONE,
        ),
        ("alltoall dispatcher; moe_shared_expert_overlap", "alltoall", ExpertOverlap.SHARED),
        ("moe_shared_expert_overlap=False", None, None),
    ],
)
def test_words_of_tables(
    text: str, dispatcher: Dispatcher | None, overlap: ExpertOverlap | None
) -> None:
    assert dispatcher_in("", text) == dispatcher
    assert expert_overlap_in(text, "") == overlap


def test_dispatch_in_fp8_is_said_or_not_known() -> None:
    assert dispatch_fp8_in("FP8 dispatch, bf16 combine") is True
    assert dispatch_fp8_in("fp8 mixed precision; DeepEP") is None
