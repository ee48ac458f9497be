"""Layouts asked for by name: what is searched, what comes out, and what is refused."""

import json
from pathlib import Path

import pytest

import phaze
from Common.choices import KeyExchange, LayoutName, TensorLayout
from Common.errors import InputError
from Studies.annotations import Mode
from Studies.evaluation import evaluated
from Studies.explain.alternatives import _unsearched
from Studies.explain.constraints import read_constraint
from Studies.layouts import other_layouts
from Studies.plan_files import evaluate_request
from Studies.problem import plan_space, single_plan
from Studies.resolve import resolve

SMALL = {"model": "gpt3-125m", "device": "a100_80gb", "devices": 4, "sequence_length": 128, "global_batch_size": 8}


def test_an_optimum_over_all_layouts_is_proven_and_prices_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "run_solver --model gpt3-125m --device a100_80gb --devices 4 --sequence-length 128 --global-batch-size 8 --layout auto"
    )
    words += " --tp 1 --tp2 2 --cp 2 --exchange ring --micro-batch-size 2 --recompute none --csv --quiet"
    assert phaze.main([*words.split(), "--output", str(tmp_path / "run")]) == 0
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert best["optimal"] is True
    (plan,) = best["models"].values()
    again = evaluated(evaluate_request(tmp_path / "run" / "best.json", {})).iteration
    assert again.iteration_s == pytest.approx(plan["time_per_batch_s"], rel=1e-9)
    header, *rows = (tmp_path / "run" / "plans.csv").read_text().splitlines()
    layouts = {row.split(",")[header.split(",").index("layout")] for row in rows}
    assert layouts == {"1d", "2d", "sequence"}
    axes = {axis["axis"]: {value["value"] for value in axis["values"]} for axis in best["axes"]}
    assert axes["layout"] == layouts and axes["exchange"] == {"gather", "ring"}


def test_layouts_of_chips_to_design_are_searched_over_fewer_devices_unless_told() -> None:
    asked = {key: value for key, value in SMALL.items() if key not in ("device", "devices")} | {"layout": "auto"}
    chips, told, device = (
        resolve({}, each) for each in (asked, asked | {"tp2": 16, "cp": 4}, SMALL | {"devices": 64, "layout": "auto"})
    )
    assert (chips.tp2, chips.cp, chips.exchange) == ((2, 4, 8), (2, 4, 8), tuple(KeyExchange))
    assert (told.tp2, told.cp) == ((16,), (4,))
    assert device.tp2 == device.cp == (2, 4, 8, 16, 32, 64)


def test_only_what_a_model_can_have_is_searched() -> None:
    request = resolve({}, SMALL | {"layout": ["2d", "sequence"], "tp": [1, 4], "tp2": [2, 5], "cp": [2, 3], "exchange": "all"})
    found = other_layouts(request, "gpt3-125m")
    assert {(each.tp, each.tp2) for each in found if each.kind is TensorLayout.TWO_D} == {(1, 2)}  # 5 divides no 768 columns
    assert {each.cp for each in found if each.kind is TensorLayout.ONE_D} == {2}  # 3 divides no 128 tokens
    assert {each.exchange for each in found} == set(KeyExchange)
    shapes = list(plan_space(request, "gpt3-125m").shapes())
    assert {shape.layout_name for shape in shapes} == {LayoutName.TWO_D, LayoutName.SEQUENCE}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "2d", "tp2": 7, "tp": 1, "devices": 7}, "2d layout of 1 x 7 devices does not divide the 768 hidden columns"),
        ({"layout": "sequence", "cp": 3, "tp": 1, "devices": 6}, "context parallel degree 3 does not divide the 128 tokens"),
        ({"layout": "2d", "model": "bertbase"}, "2d layout does not divide bertbase: it is there for dense transformers"),
    ],
)
def test_layouts_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve({}, SMALL | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp2": 2}, "a 1d layout has one"),
        ({"exchange": "ring"}, "no devices share a sequence; give a cp above 1"),
        ({"layout": "2d", "sequence_parallel": True, "tp": 2}, "leave sequence parallelism out"),
        (
            {"layout": "sequence", "cp": 24, "exchange": "ulysses", "sequence_length": 192},
            "ulysses divides the 12 attention heads",
        ),
    ],
)
def test_plans_whose_layout_contradicts_itself_are_refused(settings: dict[str, object], message: str) -> None:
    asked = {key: value for key, value in SMALL.items() if key not in ("devices", "global_batch_size")}
    with pytest.raises(InputError, match=message):
        resolve({}, asked | settings, Mode.EVALUATE)


def test_a_plan_of_a_layout_is_read_by_its_name() -> None:
    one = {"model": "gpt3-125m", "device": "a100_80gb", "sequence_length": 128}
    plan = single_plan(resolve({}, one | {"layout": "2d", "tp": 2, "tp2": 2, "exchange": "ring"}, Mode.EVALUATE))
    assert (plan.layout, plan.tp2, plan.exchange, plan.devices) == (TensorLayout.TWO_D, 2, KeyExchange.RING, 4)
    plan = single_plan(resolve({}, one | {"layout": "sequence", "cp": 4}, Mode.EVALUATE))
    assert (plan.layout, plan.cp, plan.layout_name) == (TensorLayout.ONE_D, 4, LayoutName.SEQUENCE)


def test_what_a_search_of_everything_looked_at_is_not_called_left_out() -> None:
    request = resolve({}, SMALL | {"layout": "auto"})
    for asked in ("layout=2d", "layout=sequence", "exchange=ring"):
        assert _unsearched(request, read_constraint(asked, on_device=True)) == []
    assert _unsearched(resolve({}, SMALL), read_constraint("layout=2d", on_device=True)) == ["layout 2d"]


def test_an_exchange_that_is_asked_for_needs_a_sequence_that_is_cut() -> None:
    assert read_constraint("exchange=ring", on_device=True).settings == {"exchange": ["ring"], "layout": ["sequence"]}
    assert read_constraint("exchange=gather", on_device=True).settings == {"exchange": ["gather"]}
