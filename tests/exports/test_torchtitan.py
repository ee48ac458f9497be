"""Plans for torchtitan: 1,000 random ones judged by torchtitan itself, stages and refusals by hand, and read again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from Common.choices import Attention, GroupOrder, KeyExchange, Precision, Recompute, StageCuts, TensorLayout
from Common.errors import InputError
from Plans.assignment import Assignment
from Plans.offload import Offload
from Plans.plan import UniformPlan
from tests.exports.titan_launches import SMALL, launch_of, random_launch
from tests.exports.titan_target import Titan
from third_party.exports.refusals import ON_HOST
from third_party.exports.torchtitan import EXPORTER, REFUSALS
from third_party.exports.torchtitan_reading import settings_of

STRICTER = {  # reasons why torchtitan would run something, but not the plan
    *("two_axes", "cut_layers", "other_order", "serial_gradients", "_training", "_offload", "_sharding"),
    "_model",  # of families that it lacks, and widths that tensor parallelism would cut unequally
    "_experts",  # over devices of tensor parallelism
    "_sequences",  # another exchange of keys and values; blocks of masks are met only by data
    "_pipeline",  # schedules are built with data
}
PLAIN = UniformPlan(micro_batch_size=1, global_batch_size=16, dp=2, zero_stage=2)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Titan]:
    """torchtitan, where it is installed."""
    pytest.importorskip("torchtitan", reason="torchtitan 0.3.0 is not installed")
    pytest.importorskip("triton", reason="torchtitan 0.3.0 imports triton")
    import logging

    yield Titan(monkeypatch, tmp_path)
    logging.disable(logging.NOTSET)


def reason(launch: object) -> str | None:
    return next((refusal.__name__ for refusal in REFUSALS if refusal(launch) is not None), None)  # type: ignore[arg-type]


def test_torchtitan_agrees_on_random_launches(target: Titan) -> None:
    seen, stricter, wrong = Counter[bool](), Counter[str](), []
    for seed in range(1000):
        launch = random_launch(random.Random(seed), strange=0.05)
        refused, own = reason(launch), target.refuses(launch)
        seen[refused is None] += 1
        if refused is None and own is not None:
            wrong.append((seed, own))
        elif refused is not None and own is None:
            stricter[refused] += 1
    assert not wrong, f"accepted, but torchtitan refuses: {wrong[:5]}"
    assert seen[True] > 200
    assert set(stricter) <= STRICTER, stricter
    print(f"accepted {seen[True]}, refused {seen[False]}, of which only here: {dict(stricter.most_common())}")
