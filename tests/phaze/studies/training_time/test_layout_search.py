"""Layouts asked for by name: what is searched, what comes out, and what is refused."""

import json
import re
from pathlib import Path

import pytest

import phaze
from phaze.runs.plan_files import evaluate_request
from phaze.settings.layouts import other_layouts
from phaze.settings.problem import plan_space, single_plan
from phaze.settings.resolve import resolve
from phaze.studies.evaluation import evaluated
from phaze.studies.explain.alternatives import _unsearched
from phaze.studies.explain.constraints import read_constraint
from phaze_common.choices import KeyExchange, LayoutName, TensorLayout
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

SMALL = {
    "model": "gpt3-125m",
    "device": "a100_80gb",
    "devices": 4,
    "sequence_length": 128,
    "global_batch_size": 8,
}


def test_an_optimum_over_all_layouts_is_proven_and_prices_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "run_solver --model gpt3-125m --device a100_80gb --devices 4 --sequence-length 128 "
        "--global-batch-size 8 --layout auto"
    )
    words += (
        " --tp 1 --tp2 2 --panels 2 8 --cp 2 --exchange ring --micro-batch-size 2 "
        "--recompute none --csv --quiet"
    )
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
    assert axes["panels"] == {"1", "2", "8"}  # one where nothing is multiplied in panels
    panels = {
        (
            row.split(",")[header.split(",").index("layout")],
            row.split(",")[header.split(",").index("panels")],
        )
        for row in rows
    }
    assert panels == {("1d", "1"), ("sequence", "1"), ("2d", "2"), ("2d", "8")}


def test_layouts_of_chips_to_design_are_searched_over_fewer_devices_unless_told() -> None:
    asked = {key: value for key, value in SMALL.items() if key not in ("device", "devices")} | {
        "layout": "auto"
    }
    chips, told, device = (
        resolve({}, each)
        for each in (asked, asked | {"tp2": 16, "cp": 4}, SMALL | {"devices": 64, "layout": "auto"})
    )
    assert (chips.plan.tp2, chips.plan.cp, chips.plan.exchange) == (
        (2, 4, 8),
        (2, 4, 8),
        tuple(KeyExchange),
    )
    assert (told.plan.tp2, told.plan.cp) == ((16,), (4,))
    assert device.plan.tp2 == device.plan.cp == (2, 4, 8, 16, 32, 64)


def test_only_what_a_model_can_have_is_searched() -> None:
    request = resolve(
        {},
        SMALL
        | {
            "layout": ["2d", "sequence"],
            "tp": [1, 4],
            "tp2": [2, 5],
            "cp": [2, 3],
            "exchange": "all",
        },
    )
    found = other_layouts(request, "gpt3-125m")
    assert {(each.tp, each.tp2) for each in found if each.layout is TensorLayout.TWO_D} == {
        (1, 2)
    }  # 5 divides no 768 columns
    assert {each.cp for each in found if each.layout is TensorLayout.ONE_D} == {
        2
    }  # 3 divides no 128 tokens
    assert {each.exchange for each in found} == set(KeyExchange)
    shapes = list(plan_space(request, "gpt3-125m").shapes())
    assert {shape.layout_name for shape in shapes} == {LayoutName.TWO_D, LayoutName.SEQUENCE}


def test_experts_are_divided_in_every_layout_that_cuts_sequences() -> None:
    asked = {
        "model": "mixtral",
        "device": "h100",
        "devices": 16,
        "sequence_length": 256,
        "layout": "sequence",
        "tp": [1, 2],
        "cp": 2,
    }
    request = resolve({}, asked | {"ep": [2, 4]})
    assert {(each.tp, each.ep) for each in other_layouts(request, "mixtral-8x7b")} == {
        (1, 2),
        (2, 2),
        (1, 4),
        (2, 4),
    }
    shapes = list(plan_space(request, "mixtral-8x7b").shapes())
    assert {(shape.cp, shape.ep) for shape in shapes} == {(2, 2), (2, 4)}
    few = resolve({}, asked | {"ep": [2, 4], "devices": 4})
    assert {(each.tp, each.ep) for each in other_layouts(few, "mixtral-8x7b")} == {
        (1, 2),
        (2, 2),
        (1, 4),
    }


def test_panels_are_searched_where_a_layout_has_them() -> None:
    request = resolve(
        {}, SMALL | {"layout": "auto", "tp": [1, 2], "tp2": [1, 2], "exchange": "gather"}
    )
    assert request.plan.panels == (1, 2, 4, 8, 16, 32)
    twice = [
        each for each in other_layouts(request, "gpt3-125m") if each.layout is TensorLayout.TWO_D
    ]
    assert len(set(twice)) == len(twice)
    of_grid = {
        grid: {each.panels for each in twice if (each.tp, each.tp2) == grid}
        for grid in ((1, 1), (2, 1), (2, 2))
    }
    assert of_grid == {(1, 1): {1}, (2, 1): {*request.plan.panels}, (2, 2): {*request.plan.panels}}
    assert all(
        shape.panels == 1
        for shape in plan_space(request, "gpt3-125m").shapes()
        if shape.layout_name is not LayoutName.TWO_D
    )
    assert resolve(
        {}, SMALL | {"model": "gpt:layers=2,hidden=192,heads=12", "layout": "2d"}
    ).plan.panels == (1, 2, 4, 8, 16, 32)
    assert resolve(
        {}, SMALL | {"model": "gpt:layers=2,hidden=132,heads=12", "layout": "2d"}
    ).plan.panels == (1, 2, 4)
    assert resolve({}, SMALL).plan.panels == (1,)


@pytest.mark.parametrize(
    ("settings", "panels"),
    [
        ({"layout": "2d", "tp": 2, "tp2": 2}, 4),
        ({"layout": "2d", "tp": 2, "tp2": 2, "panels": 6}, 6),
        ({"layout": "2d", "tp": 2, "model": "gpt:layers=2,hidden=54,heads=6"}, 3),
        ({"layout": "2d"}, 1),
        ({"tp": 2}, 1),
    ],
)
def test_a_plan_has_four_panels_where_nobody_says_how_many(
    settings: dict[str, object], panels: int
) -> None:
    one = {"model": "gpt3-125m", "device": "a100_80gb", "sequence_length": 128}
    assert single_plan(resolve({}, one | settings, Mode.EVALUATE)).panels == panels


@pytest.mark.parametrize(
    ("order", "settings", "message"),
    [
        ("tp4.tp2/dp2", {}, "tier 1 of 'tp4.tp2/dp2' names tp twice"),
        ("tp4//dp2", {}, "tier 2 of 'tp4//dp2' is empty"),
        (
            "tp4.dp2",
            {},
            "^tp4.dp2 assigns 8 devices, but a plan is to use all 16 of dgx_a100; assign as many, "
            "or give --devices 8$",
        ),
        (
            "tp4.dp4/dp2",
            {},
            "^tp4.dp4/dp2 puts 16 devices into each nvswitch, which holds 8; assign fewer there$",
        ),
        (
            "tp4.dp2/dp2",
            {"tp": [1, 2]},
            "^tp4.dp2/dp2 assigns 4 of tp, but tp 1, 2 is searched; .*, or give --tp 4$",
        ),
        (
            "tp2.row2.dp2/dp2",
            {},
            "assigns 2 of tp2, but tp2 1 is searched; assign one of these, or give --tp2 2",
        ),
        ("tp4.dp2/dp2", {"pp": 2, "dp": 2}, "assigns 4 of dp, but dp 2 is searched"),
        (
            "tp4.dp2/dp2",
            {"devices": 8},
            "to 2 tiers, but the 8 devices of dgx_a100 lie in 1: nvswitch; assign them to one tier",
        ),
        (
            "tp2.dp2",
            {"device": None, "hbm_size": 32, "tp": 1},
            "assigns 2 of tp, but tp 1 is searched",
        ),
    ],
)
def test_assignments_that_no_plan_of_a_search_can_have_are_refused(
    order: str, settings: dict[str, object], message: str
) -> None:
    asked = SMALL | {"devices": 16, "global_batch_size": 64, "group_order": order} | settings
    with pytest.raises(InputError, match=message):
        resolve({}, {key: value for key, value in asked.items() if value is not None})


@pytest.mark.parametrize("mode", [Mode.SEARCH, Mode.EVALUATE])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"panels": 4},
            "panels is 4, but only products of a 2d layout run in panels, given layout 1d",
        ),
        (
            {"layout": "sequence", "cp": 2, "panels": 4},
            "run in panels, given layout sequence; leave panels out",
        ),
        (
            {"layout": "2d", "tp": 2, "tp2": 2, "panels": 5},
            "panels is 5, which does not divide the 768 hidden columns of gpt3-125m",
        ),
        (
            {"layout": "2d", "tp": 2, "tp2": 2, "panels": 1536},
            "use one of 1, 2, 3, 4, 6, 8, .*, 768",
        ),
        (
            {"layout": "2d", "tp": 2, "tp2": 2, "panels": 0},
            "panels is 0, but must be a whole number from 1 to 4096",
        ),
    ],
)
def test_panels_that_cannot_be_are_refused(
    settings: dict[str, object], message: str, mode: Mode
) -> None:
    asked = (
        SMALL
        if mode is Mode.SEARCH
        else {"model": "gpt3-125m", "device": "a100_80gb", "sequence_length": 128}
    )
    with pytest.raises(InputError, match=message):
        resolve({}, asked | settings, mode)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"layout": "2d", "tp2": 7, "tp": 1, "devices": 7},
            "2d layout of 1 x 7 devices does not divide the 768 hidden columns",
        ),
        (
            {"layout": "sequence", "cp": 3, "tp": 1, "devices": 6},
            "context parallel degree 3 does not divide the 128 tokens",
        ),
        (
            {"cp": 2, "exchange": "ulysses"},
            "exchange is ulysses, but a search of layout 1d gathers keys and values; .*--layout "
            "sequence",
        ),
        (
            {"tp2": 2},
            "tp2 is 2, but only 2d layouts have two tensor axes, given layout 1d; leave tp2 out, "
            "or add 2d",
        ),
        ({"layout": ["1d", "sequence"], "tp2": [1, 2]}, "given layout 1d, sequence"),
        ({"layout": "2d", "sequence_parallel": True}, "a 2d layout divides the tokens anyway"),
        ({"layout": "sequence", "cp": 1}, "cp is 1, but layout sequence cuts sequences"),
        (
            {"layout": "2d", "model": "bertbase"},
            "2d layout does not divide bertbase: it is there for dense transformers",
        ),
        ({"layout": "auto", "tp2": 2, "model": "bertbase"}, "2d layout does not divide bertbase"),
    ],
)
def test_layouts_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve({}, SMALL | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp2": 2}, "a 1d layout has one"),
        (
            {"layout": "2d", "tp2": 2, "sequence_parallel": True},
            "a 2d layout divides the tokens anyway",
        ),
        ({"layout": "sequence"}, "cp is 1, but layout sequence cuts sequences"),
        ({"exchange": "ring"}, "no devices share a sequence; give a cp above 1"),
        ({"layout": "2d", "sequence_parallel": True, "tp": 2}, "leave sequence parallelism out"),
        (
            {"layout": "sequence", "cp": 24, "exchange": "ulysses", "sequence_length": 192},
            "ulysses divides the 12 attention heads",
        ),
    ],
)
def test_plans_whose_layout_contradicts_itself_are_refused(
    settings: dict[str, object], message: str
) -> None:
    asked = {
        key: value for key, value in SMALL.items() if key not in ("devices", "global_batch_size")
    }
    with pytest.raises(InputError, match=message):
        resolve({}, asked | settings, Mode.EVALUATE)


def test_a_plan_of_a_layout_is_read_by_its_name() -> None:
    one = {"model": "gpt3-125m", "device": "a100_80gb", "sequence_length": 128}
    plan = single_plan(
        resolve({}, one | {"layout": "2d", "tp": 2, "tp2": 2, "exchange": "ring"}, Mode.EVALUATE)
    )
    assert (plan.layout, plan.tp2, plan.exchange, plan.devices) == (
        TensorLayout.TWO_D,
        2,
        KeyExchange.RING,
        4,
    )
    plan = single_plan(resolve({}, one | {"layout": "sequence", "cp": 4}, Mode.EVALUATE))
    assert (plan.layout, plan.cp, plan.layout_name) == (TensorLayout.ONE_D, 4, LayoutName.SEQUENCE)


def test_what_a_search_of_everything_looked_at_is_not_called_left_out() -> None:
    request = resolve({}, SMALL | {"layout": "auto"})
    for asked in ("layout=2d", "layout=sequence", "exchange=ring"):
        assert _unsearched(request, read_constraint(asked, on_device=True)) == []
    assert _unsearched(resolve({}, SMALL), read_constraint("layout=2d", on_device=True)) == [
        "layout 2d"
    ]


def within(asked: str, *searched: LayoutName) -> dict[str, object]:
    return read_constraint(asked, on_device=True).within(searched)


def test_an_exchange_that_is_asked_for_needs_a_sequence_that_is_cut() -> None:
    asked = within("exchange=ring", LayoutName.ONE_D)
    assert (asked["layout"], asked["exchange"], asked["cp"]) == (["sequence"], ["ring"], None)
    asked = within("exchange=ring", LayoutName.AUTO)
    assert (asked["layout"], asked["exchange"]) == (
        ["2d", "sequence"],
        ["ring"],
    ) and "cp" not in asked
    assert within("exchange=gather", LayoutName.AUTO) == {"exchange": ["gather"]}


def test_a_degree_that_is_asked_for_leaves_out_layouts_without_it() -> None:
    assert within("cp=4", LayoutName.ONE_D) == {"cp": [4]}
    assert within("cp=4", LayoutName.TWO_D) == {"cp": [4]}
    assert within("cp=4", LayoutName.AUTO)["layout"] == ["sequence"]
    assert within("cp=1", LayoutName.AUTO)["layout"] == ["1d", "2d"]
    assert within("layout=1d", LayoutName.AUTO) | {"cp": [1], "tp2": [1], "panels": [1]} == within(
        "layout=1d", LayoutName.AUTO
    )


def test_devices_are_counted_with_both_axes_of_a_layout() -> None:
    asked = SMALL | {"layout": "2d", "tp": 1, "tp2": 2, "pp": 1, "dp": 2}
    assert resolve({}, asked).hardware.devices == 4
    with pytest.raises(InputError, match="no plan with tp2 2 x dp 4 uses all 4 devices"):
        resolve({}, asked | {"dp": 4})
    assert resolve({}, asked | {"layout": "auto", "dp": 4}).plan.dp == (
        4,
    )  # one axis has such a plan
    with pytest.raises(InputError, match="no plan with dp 2 uses all 4 devices"):
        resolve({}, asked | {"layout": "1d"})


def test_panels_that_are_asked_for_need_a_layout_that_has_them() -> None:
    for searched, axes in ((LayoutName.ONE_D, {"exchange": None}), (LayoutName.AUTO, {})):
        found = within("panels=8", searched)
        assert found == {"panels": [8], "layout": ["2d"], "cp": [1]} | (
            {"tp2": None} | axes if axes else {}
        )
        assert within("tp2=2", searched)["layout"] == ["2d"]
    assert within("panels=1", LayoutName.AUTO) == {"panels": [1]}


@pytest.mark.thorough
def test_a_long_sequence_has_no_plan_on_one_axis_where_it_has_one_when_it_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is recomputed and sharded: status 3 and what the leanest plan needs; with sequences
    cut, a proven plan."""
    words = (
        "run_solver --model llama:layers=2,hidden=256,heads=4,kv_heads=2,vocabulary=2048 "
        "--sequence-length 131072 --devices 8"
    )
    words += (
        " --device a100_80gb --global-batch-size 8 --micro-batch-size 1 --zero-stage 1 3 "
        "--recompute none full"
    )

    def asked(layout: str, memory: str) -> tuple[int, str]:
        more = f" --layout {layout} --memory-size {memory} --quiet --output {tmp_path}"
        more += " --cp 8 --exchange gather" if layout == "sequence" else ""
        status = phaze.main([*words.split(), *more.split()])
        return status, " ".join(capsys.readouterr().out.split())

    def leanest_gib(layout: str) -> float:
        status, text = asked(layout, "0.5")
        (found,) = re.findall(r"; the leanest needs ([0-9.]+) GiB", text)
        assert status == 3
        return float(found)

    whole, cut = leanest_gib("1d"), leanest_gib("sequence")
    assert cut < 0.8 * whole
    between = f"{(whole + cut) / 2:.4f}"
    status, text = asked("1d", between)
    assert status == 3 and f"the leanest needs {whole:g} GiB" in text
    status, text = asked("sequence", between)
    assert status == 0 and "proven optimal over the whole space" in text
    assert asked("1d", f"{1.01 * whole:.4f}")[0] == 0
