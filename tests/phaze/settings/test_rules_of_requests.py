"""Each rule about what fits together holds in every mode: what one refuses, no other answers
without a word."""

from typing import Any

import pytest

from phaze.settings.resolve import resolve
from phaze.studies.training_time.request import training_request
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

DENSE = {
    "model": "gpt2",
    "device": "a100_80gb",
    "devices": 8,
    "global_batch_size": 64,
    "micro_batch_size": 1,
    "tp": 1,
    "pp": 1,
}
SPARSE = {**DENSE, "model": "mixtral-8x7b"}
TWO_D = {
    **DENSE,
    "model": "gpt:layers=4,hidden=256,heads=8",
    "layout": "2d",
    "tp": 2,
    "tp2": 2,
    "dp": 2,
}
RULES: dict[str, dict[str, Any]] = {
    "replicas need a micro-batch each": {**DENSE, "dp": 8, "micro_batch_size": 16},
    "replicas need whole micro-batches": {**DENSE, "dp": 8, "micro_batch_size": 3},
    "the degrees are the devices": {**DENSE, "dp": 4},
    "there are devices enough": {**DENSE, "dp": 8, "pp": 2},
    "a width is at most the devices": {**DENSE, "tp": 12, "dp": 1},
    "a width divides the heads": {
        **DENSE,
        "tp": 8,
        "dp": 1,
        "model": "gpt:layers=4,hidden=252,heads=12",
    },
    "stages are at most the layers": {**DENSE, "devices": 64, "pp": 64, "dp": 1},
    "chunks divide the blocks": {**DENSE, "pp": 2, "dp": 4, "interleave": 5},
    "chunks need several stages": {**DENSE, "dp": 8, "interleave": 2},
    "interleaving takes multiples of the stages": {
        **DENSE,
        "pp": 4,
        "dp": 2,
        "interleave": 3,
        "global_batch_size": 12,
    },
    "experts are divided by a divisor": {**SPARSE, "dp": 8, "ep": 3},
    "experts lie over copies": {**SPARSE, "tp": 4, "dp": 2, "ep": 8},
    "panels are of two axes": {**DENSE, "dp": 8, "panels": 4},
    "panels divide the model": {**TWO_D, "panels": 7},
    "a second width is of two axes": {**DENSE, "tp2": 2, "dp": 4},
    "an exchange needs parts of sequences": {**DENSE, "dp": 8, "exchange": "ring"},
    "a layout of sequences cuts them": {**DENSE, "dp": 8, "layout": "sequence", "cp": 1},
    "two axes divide tokens anyway": {**TWO_D, "sequence_parallel": True},
    "an assignment is of the degrees": {**DENSE, "tp": 2, "dp": 4, "group_order": "tp4.dp2"},
    "an assignment overfills no tier": {**DENSE, "devices": 16, "dp": 16, "group_order": "dp16"},
    "a format is one of the device": {**DENSE, "dp": 8, "precision": "fp8"},
}
SAID = {  # by an evaluation, whose plan is priced as it stands
    "replicas need whole micro-batches": "is not a multiple of micro-batch size x dp = 24",
    "chunks divide the blocks": "pp x interleave = 10 does not divide the 48 blocks of the model",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_in_every_mode(rule: str) -> None:
    asked = RULES[rule]
    with pytest.raises(InputError):
        resolve({}, asked, Mode.SEARCH)
    with pytest.raises(InputError):
        training_request(None, {**asked, "tokens": 1e9, "best": True})
    if rule in SAID:
        (note,) = resolve({}, asked, Mode.EVALUATE).notes
        assert SAID[rule] in note
        assert training_request(None, {**asked, "tokens": 1e9}).request.notes == (note,)
        return
    with pytest.raises(InputError):
        resolve({}, asked, Mode.EVALUATE)
    with pytest.raises(InputError):
        training_request(None, {**asked, "tokens": 1e9})


@pytest.mark.parametrize(
    "asked",
    [{**DENSE, "dp": 8}, {**SPARSE, "dp": 8, "ep": 8}, TWO_D],
    ids=["dense", "sparse", "2d"],
)
def test_what_breaks_no_rule_is_taken_by_every_mode(asked: dict[str, Any]) -> None:
    for mode in Mode:
        assert resolve({}, asked, mode).notes == ()


def test_a_search_on_devices_takes_plans_that_frameworks_start_unless_told_otherwise() -> None:
    """24 devices, a batch of 512 and micro-batches of 4: 24 replicas would have 5.33 of them
    each."""
    from phaze.settings.problem import plan_space

    asked = {
        "model": "bertlarge",
        "device": "a100_80gb",
        "devices": 24,
        "global_batch_size": 512,
        "micro_batch_size": 4,
    }

    def degrees(**more: Any) -> set[int]:
        request = resolve({}, {**asked, **more}, Mode.SEARCH)
        space = plan_space(request, "bertlarge")
        cluster = request.records.cluster
        return {
            dp for shape in space.shapes() for dp in space.plans(shape, 26, cluster).dp.tolist()
        }

    whole = degrees()
    assert whole and all(512 % (4 * dp) == 0 for dp in whole)
    assert 24 in degrees(whole_micro_batches=False) > whole
    with pytest.raises(
        InputError,
        match=r"must be a multiple of micro-batch size x dp.*--whole-micro-batches false",
    ):
        resolve({}, {**asked, "dp": 24}, Mode.SEARCH)
    assert resolve({}, {**asked, "dp": 24, "whole_micro_batches": False}, Mode.SEARCH).notes == ()
    chips = {"model": "bertlarge", "global_batch_size": 512}
    assert not resolve(
        {}, chips, Mode.SEARCH
    ).search.whole_micro_batches  # the published setting searches all
