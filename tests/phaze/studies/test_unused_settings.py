"""Settings that change nothing are told by evaluate, and what bounds a plan is too."""

from __future__ import annotations

import re
from typing import Any

import pytest

from phaze.report.tables.feature_tables import features_tables
from phaze.report.tables.training_tables import evaluation_mapping, summary_table
from phaze.runs.plan_files import evaluate_request
from phaze.studies.evaluation import Evaluation, evaluated
from phaze.studies.explain.features import plan_features
from phaze_common.errors import InputError

SMALL = "gpt:layers=2,hidden=256,heads=4,vocabulary=1000,sequence_length=128"
EXPERTS = (
    "mixtral:layers=2,hidden=512,heads=8,kv_heads=2,ffn=256,experts=8,chosen=2,vocabulary=1024,"
    "sequence_length=256"
)


def of(**given: Any) -> Evaluation:
    usual = {"model": SMALL, "device": "h100", "global_batch_size": 64}
    return evaluated(evaluate_request(None, usual | given))


def rows(found: Evaluation) -> dict[str, str]:
    return {row[0]: row[1] for row in summary_table(found).rows}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ()),
        ({"dispatcher": "deepep"}, ("dispatcher deepep (ep is 1)",)),
        ({"dispatcher": "alltoall"}, ()),  # as it is by itself
        ({"expert_load": 2.0}, ("expert_load 2.0 (ep is 1)",)),
        ({"overlap_experts": "batches"}, ("overlap_experts batches (ep is 1)",)),
        ({"etp": "1"}, ("etp 1 (tp is 1)",)),
        (
            {"tp": 2, "etp": "1", "sequence_parallel": True},
            ("etp 1 (the model has no experts)",),
        ),
        (
            {"recompute": "mla_up_proj+mlp"},
            ("recompute mla_up_proj (no layer of the model has it)",),
        ),
        ({"recompute": "mlp"}, ()),
        ({"outer_steps": 4}, ("outer_steps 4 (sites is 1)",)),
        ({"outer_dtype": "fp8"}, ("outer_dtype fp8 (sites is 1)",)),
        ({"site_gbit_per_s": 3.0}, ("site_gbit_per_s 3.0 (sites is 1)",)),
        ({"sites": 2, "outer_steps": 4, "outer_dtype": "fp8", "site_gbit_per_s": 3.0}, ()),
        ({"model": EXPERTS, "dp": 2, "ep": 2, "dispatcher": "deepep", "expert_load": 2.0}, ()),
    ],
)
def test_settings_without_effect_are_told(given: dict[str, Any], told: tuple[str, ...]) -> None:
    found = of(**given)
    assert found.without_effect == told
    assert rows(found).get("without effect", "") == "; ".join(told)
    assert tuple(evaluation_mapping(found).get("without_effect", ())) == told
    unused = {key for key in given if any(text.startswith(f"{key} ") for text in told)}
    if unused and "recompute" not in unused and "etp" not in unused:
        plain = of(**{key: value for key, value in given.items() if key not in unused})
        assert plain.iteration == found.iteration


def test_a_load_that_no_device_can_get_is_refused() -> None:
    with pytest.raises(InputError, match="the busiest gets 2 times the mean at most"):
        of(model=EXPERTS, dp=2, ep=2, expert_load=2.5)


def test_precision_and_recomputation_are_shown() -> None:
    shown = rows(of(recompute="full", micro_batch_size=2, precision="fp8"))["each pass"]
    assert shown == "fp8, micro-batch 2, recomputation full"


def test_throughput_and_devices_are_those_of_all_sites() -> None:
    alone, found = of(dp=2), of(dp=2, sites=4, outer_steps=2**20)
    one, whole = evaluation_mapping(alone), evaluation_mapping(found)
    assert (one["devices"], whole["devices"]) == (2, 8)
    for key in ("samples_per_s", "tokens_per_s"):
        assert whole[key] == pytest.approx(4 * one[key], rel=1e-3)
    shown = rows(found)
    assert shown["devices"].startswith("8 x NVIDIA H100 SXM 80 GB of 4 sites on ")
    assert shown["samples/s"].endswith(" of 4 sites") and shown["tokens/s"].endswith(" of 4 sites")
    assert not rows(alone)["samples/s"].endswith("sites")
    assert found.time_intervals[0].reasons == alone.time_intervals[0].reasons


def test_a_plan_that_waits_for_the_host_says_so() -> None:
    slow, fast = of(), of(cuda_graphs="iteration")
    share = slow.iteration.breakdown.launch_s / slow.iteration.iteration_s
    number = re.match(r"[0-9.]+", rows(slow)["limited by the host"])
    assert number is not None and float(number[0]) == pytest.approx(100 * share, rel=0.05)
    assert fast.iteration.breakdown.launch_s < slow.iteration.breakdown.launch_s
    large = of(model="llama3-8b", tp=8, sequence_parallel=True, global_batch_size=8)
    assert "limited by the host" not in rows(large)


def test_a_plan_that_no_single_change_makes_fit_is_told_what_else_may() -> None:
    asked = {"model": "llama3-70b", "device": "h100", "global_batch_size": 8, "dp": 2}
    found = plan_features(evaluate_request(None, asked))
    assert not found.together and not any(each.fits for each in found.changes)
    table = features_tables(found)[0]
    told = {row[0]: row[1] for row in table.rows}["what helps"]
    least = min(found.changes, key=lambda each: each.memory_bytes or 0.0)
    assert f"{least.title} {least.instead} comes nearest" in told and "--best" in told
