"""Searches of chips with memory as it is sold: what is best, what limits allow, and what is said of
a chip."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import small_study, solved, write_hardware

import phaze
from Estimator.chips.axes import SIZES
from Estimator.chips.chip_limits import ChipLimits
from Estimator.chips.limit_refusals import refuse_none_left
from Estimator.chips.whole_chip import WholeChips
from phaze.report.sentences.known_chips import absence
from phaze.report.tables.search_tables import print_result
from phaze.runs.design_tables import axis_column
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.designed_chips import designed_accelerators
from phaze.settings.problem import hardware_of
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze.studies.context import search_context
from phaze_common.choices import FrontAxis, Objective
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.progress import SilentProgress
from Solver.chip_records import ChipPart
from Solver.designs.re_solve import priced
from Solver.hardware import DesignedChips
from Solver.results import SearchResult

SPACE: dict[str, Any] = {
    "name": "whole",
    "technology": "foundry_7nm",
    "platform": "phaze_hbm2",
    "vector_functions": "phaze",
    "axes": {
        "num_tc": [1, 8],
        "num_vc": [2, 8],
        "width": [64, 128],
        "depth": [64],
        "width_vc": [128],
        "glb_mib": [4, 32],
        "memory": ["gddr6:2", "hbm2e:1", "hbm3:2"],
    },
    "budget": {"area_mm2": 600.0},
    "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
    "references": [
        {
            "name": "other_memory",
            "source": "made up for the test",
            "accelerator": {
                "num_tc": 2,
                "num_vc": 2,
                "width": 64,
                "depth": 64,
                "width_vc": 64,
                "glb_mib": 16,
                "memory": "hbm2:4",
            },
        }
    ],
}


def study(folder: Path, **changes: object) -> Request:
    settings: dict[str, object] = {
        "model": "bertbase",
        "micro_batch_size": [1, 4],
        "sequence_length": 128,
        "global_batch_size": 64,
    }
    return resolve(
        {}, settings | write_hardware(folder, SPACE) | {"output": str(folder / "out")} | changes
    )


@pytest.fixture(scope="module")
def cheapest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchResult]:
    folder = tmp_path_factory.mktemp("cheapest")
    return folder, solved(study(folder, objective="cost_per_token"))


@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(Objective.THROUGHPUT, marks=pytest.mark.thorough),
        Objective.THROUGHPUT_PER_DOLLAR,
        Objective.CARBON_PER_TOKEN,
    ],
)
def test_the_best_is_the_best_of_all_chips_one_by_one(objective: Objective, tmp_path: Path) -> None:
    request = study(tmp_path, objective=objective.value, tp=[1, 2], recompute="none")
    result, run = solved(request), search_context(request, SilentProgress())
    hardware = hardware_of(request)
    assert isinstance(hardware, DesignedChips) and result.best is not None and result.best.optimal
    values = []
    for row in range(0, len(hardware.accelerators), 5):
        alone = priced(run, hardware.only([hardware.accelerators.accelerator(row)])).best_optimum()
        values.append(alone.value if alone is not None else 0.0)
    best = (
        priced(run, hardware.only([result.best.accelerator])).best_optimum()
        if result.best.accelerator
        else None
    )
    assert best is not None and best.value == pytest.approx(result.best.value, rel=1e-9)
    assert max(values) <= result.best.value * (1 + 1e-9)


def told_as_it_is(run: FinishedRun, columns: list[str]) -> None:
    """The chips that the result tells of the front are some of those of the table, the fastest
    first, at most twelve."""
    assert len(run.result.fronts) == bool(columns)
    for front in run.result.fronts:
        on_front = run.designs[run.designs["on_front"]]
        chips = on_front.groupby([*SIZES, "memory_system"])
        fastest = sorted(chips["throughput_samples_per_s"].max(), reverse=True)
        shown = [chip.throughput_samples_per_s for chip in front.chips]
        assert front.chips_there_are == len(fastest) and len(shown) == min(len(fastest), 12)
        assert shown == sorted(shown, reverse=True) and [shown[0], shown[-1]] == [
            fastest[0],
            fastest[-1],
        ]
        for chip in front.chips:
            sizes = [getattr(chip.accelerator, name) for name in SIZES]
            rows = chips.get_group((*sizes, chip.accelerator.memory_system))
            amounts = rows[columns].to_numpy().tolist()
            assert [chip.throughput_samples_per_s, *chip.amounts.values()] in amounts
            assert {*chip.hbm_bytes} <= {*rows["hbm_bytes"]}


def test_the_front_is_the_one_that_was_asked_for_and_the_optimum_is_the_same(
    cheapest: tuple[Path, SearchResult], tmp_path: Path
) -> None:
    usual = open_run(next((cheapest[0] / "out").rglob("best.json")).parent)
    fronts = {
        (FrontAxis.THROUGHPUT, FrontAxis.COST): usual,
        (FrontAxis.THROUGHPUT, FrontAxis.POWER, FrontAxis.CARBON): None,
        (): None,
    }
    for front, known in fronts.items():
        run = known
        if run is None:
            folder = tmp_path / "-".join(("out", *front))
            solved(
                study(
                    tmp_path,
                    objective="cost_per_token",
                    front=[*front[1:]] or "none",
                    output=str(folder),
                )
            )
            run = open_run(next(folder.rglob("best.json")).parent)
        assert run.manifest.front == front
        assert run.result.best is not None and cheapest[1].best is not None
        assert (run.result.best.value, run.result.best.accelerator) == (
            cheapest[1].best.value,
            cheapest[1].best.accelerator,
        )
        on_front, evaluated = run.designs["on_front"], run.designs["status"] == "evaluated"
        assert run.manifest.pareto_front_points == on_front.sum() and (
            on_front.any() == bool(front)
        )
        columns = [axis_column(run.designs, axis) for axis in front]
        told_as_it_is(run, columns)
        values = run.designs.loc[evaluated, columns].to_numpy() * (
            [1, *[-1] * len(front[1:])] if front else []
        )
        for kept in values[on_front[evaluated]]:
            assert not ((values >= kept).all(axis=1) & (values > kept).any(axis=1)).any()
        assert phaze.main(["report", str(run.folder)]) == 0
        page = (run.folder / "report.html").read_text()
        assert ("No Pareto front was asked for" in page) == (not front)
        assert ("Pareto front only" in page) == bool(front)
    assert (
        "Pareto front of throughput and cost, fastest first"
        in (usual.folder / "report.html").read_text()
    )


def test_of_many_chips_no_front_is_certified_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("phaze.settings.problem.MOST_WITH_FRONT", 10)
    with caplog.at_level("INFO"):
        assert search_context(study(tmp_path), SilentProgress()).problem.front == ()
    assert "no Pareto front of" in caplog.text and "--front cost" in caplog.text
    asked = search_context(
        study(tmp_path, front=["carbon", "area"]), SilentProgress()
    ).problem.front
    assert asked == (FrontAxis.THROUGHPUT, FrontAxis.AREA, FrontAxis.CARBON)


def test_the_report_of_a_chip_adds_up(cheapest: tuple[Path, SearchResult]) -> None:
    best = cheapest[1].best
    assert best is not None and best.chip is not None and best.accelerator is not None
    report, (plan,), (use,) = best.chip, best.models.values(), best.chip.uses.values()

    def total(parts: tuple[ChipPart, ...]) -> float:
        return sum(part.amount for part in parts)

    assert total(report.area_mm2) == pytest.approx(best.accelerator.area_mm2)
    assert use.average_w < total(report.peak_w) and total(report.cost_usd) < report.owning_usd
    assert best.value == pytest.approx(1e6 / use.usd_per_million_tokens)
    assert use.sample_j > (plan.energy_per_sample_j or 0.0)


def test_the_run_reads_back_and_its_plan_is_priced_alike(
    cheapest: tuple[Path, SearchResult], capsys: pytest.CaptureFixture[str]
) -> None:
    best = cheapest[1].best
    folder = next((cheapest[0] / "out").rglob("best.json")).parent
    assert open_run(folder).result == cheapest[1] and best is not None
    assert phaze.main(["evaluate", "--plan", str(folder / "best.json"), "--format", "json"]) == 0
    (plan,) = best.models.values()
    assert f'"iteration_s":{plan.time_per_batch_s:.6}'[:20] in capsys.readouterr().out.replace(
        " ", ""
    )
    assert phaze.main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Power of the chip at its peak" in page and "Price of the chip" in page
    assert phaze.main(["explain", str(folder), "--instead", "num_tc=1"]) == 0


def test_a_reference_with_other_memory_is_priced_with_its_own(
    cheapest: tuple[Path, SearchResult],
) -> None:
    (reference,) = cheapest[1].references
    assert reference.hbm_bytes == 4 * 8 * 2**30 and reference.value > 0.0
    assert reference.accelerator.memory_system == "hbm2:4"


def test_limits_hold_and_the_clock_falls_where_power_binds(tmp_path: Path) -> None:
    space = study(tmp_path).records.space
    assert space is not None
    every = space.generate()
    whole = space.whole(every)
    limits = {
        "max_power": float(whole.peak_w.mean()),
        "max_area": float(whole.area_mm2.mean()),
        "max_chip_cost": 500.0,
    }
    limited = study(tmp_path, **limits).records.space
    assert limited is not None
    chips = limited.generate()
    found = limited.whole(chips)
    assert (found.peak_w <= limits["max_power"]).all() and (
        found.area_mm2 <= limits["max_area"]
    ).all()
    assert (found.cost_usd <= 500.0).all()
    slowed = [clock for clock in chips.frequency_hz if clock is not None]
    assert slowed and all(clock < space.platform.frequency_hz for clock in slowed)
    fitting = (whole.area_mm2 <= limits["max_area"]) & (whole.cost_usd <= 500.0)
    assert len(chips) == fitting.sum()  # a lower clock saves every chip that is too hot at its own


NARROW = {
    "num_tc": [1],
    "num_vc": [2],
    "width": [64],
    "depth": [64],
    "width_vc": [128],
    "glb_mib": [4],
    "memory": ["gddr6:2"],
}


def test_a_known_chip_beyond_the_space_that_is_better_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (known,) = SPACE["references"]
    other = known | {"accelerator": known["accelerator"] | {"memory": "hbm2e:1"}}
    files = write_hardware(tmp_path / "narrow", SPACE | {"axes": NARROW, "references": [other]})
    small = {"micro_batch_size": [1], "recompute": "none", "output": str(tmp_path / "out")} | files
    found = solved(study(tmp_path, **small))
    (reference,) = found.references
    assert (
        found.best is not None and found.best.optimal and reference.value > 1.1 * found.best.value
    )
    foreign = "2 tensor cores, 64 vector lanes, 16 MiB of GLB and hbm2e:1"
    ratio = number(reference.value / found.best.value, 3)
    said = (
        f"other_memory, which is not in this space ({foreign} are not on its axes), reaches "
        f"{ratio} times what the best found "
        "here does; what is proven is about the chips of the space whole alone"
    )
    print_result(found, sys.stdout)
    assert said in capsys.readouterr().out.splitlines()
    assert phaze.main(["report", str(tmp_path / "out")]) == 0
    assert f"O{said[1:]}." in (tmp_path / "out" / "report.html").read_text()
    space = found.hardware.records.space
    assert space is not None
    for chip, budget, why in (
        (
            replace(reference.accelerator, memory_system="gddr6:2"),
            space,
            "2 tensor cores, 64 vector lanes and 16 MiB",
        ),
        (space.generate().accelerator(0), space, ""),
        (
            space.generate().accelerator(0),
            replace(space, budget_mm2=1.0),
            "mm2 are beyond the budget of 1 mm2",
        ),
    ):
        assert why in absence(chip, budget) and bool(why) == bool(absence(chip, budget))
    least = reference.accelerator.area_mm2 * 0.999
    limited = solved(
        study(tmp_path, **small | {"max_area": least, "output": str(tmp_path / "limited")})
    )
    assert limited.best is not None and limited.references[0].value > 1.1 * limited.best.value
    print_result(limited, sys.stdout)
    assert "which is not in this space" not in capsys.readouterr().out


def test_memory_sizes_that_bounds_close_are_told_below_the_table(
    cheapest: tuple[Path, SearchResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("Solver.designs.large_spaces.MANY_POINTS", 1)
    found = solved(study(tmp_path, front="none", output=str(tmp_path / "out")))
    told = {point.hbm_bytes for point in found.per_hbm}
    space = found.hardware.records.space
    assert space is not None
    lacking = [
        label
        for label in SPACE["axes"]["memory"]
        if space.platform.memory(label).capacity_bytes not in told
    ]
    assert lacking
    print_result(found, sys.stdout)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [
        place for place, line in enumerate(lines) if line.startswith("not in these tables: ")
    ]
    assert lines[line].endswith(
        f"a search of that memory alone tells it (--memory {' '.join(lacking)})"
    )
    assert line < lines.index("per HBM and micro-batch size")
    assert phaze.main(["report", str(tmp_path / "out")]) == 0
    assert "Not in these tables: " in (tmp_path / "out" / "report.html").read_text()
    print_result(cheapest[1], sys.stdout)
    assert "not in these tables" not in capsys.readouterr().out


@pytest.mark.parametrize("limit", ["max_area", "max_power", "max_chip_cost", "max_cluster_cost"])
def test_the_least_that_a_refusal_names_leaves_a_chip(limit: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        hardware_of(study(tmp_path, **{limit: 0.5}))
    found = re.search(r"its chips \w+ ([0-9.]+) \w+ or more", str(refused.value))
    assert found is not None
    least = float(found[1])
    assert len(designed_accelerators(study(tmp_path, **{limit: least})))
    with pytest.raises(InputError, match="leaves no chip"):
        hardware_of(study(tmp_path, **{limit: 0.999 * least}))


def test_limits_that_leave_chips_each_but_none_together_are_refused_as_that() -> None:
    """A small hot chip and a large cool one; a third limit that only the large one keeps."""
    area, power, cost, nothing = np.array(
        [[100.0, 200.0], [300.00011, 100.0], [50.0, 40.0], [0.0, 0.0]]
    )
    chips = WholeChips(area, nothing, power, cost, cost, nothing, np.ones(2, dtype=bool))
    for limits, said in (
        (
            ChipLimits(area_mm2=150.0, power_w=150.0),
            "--max-area 150 and --max-power 150 together leave no chip of mine: chips within the "
            "other take 200.0 mm2 or more or "
            "draw 300.1 W or more; raise one of them, or leave it out",
        ),
        (
            ChipLimits(area_mm2=150.0, power_w=150.0, cost_usd=45.0),
            "--max-area 150, --max-power 150 and --max-chip-cost 45 together leave no chip of "
            "mine: chips within the others take "
            "200.0 mm2 or more; raise one of them, or leave it out",
        ),
    ):
        with pytest.raises(InputError) as refused:
            refuse_none_left(limits, "mine", chips)
        assert str(refused.value) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"max_cluster_cost": 10},
            "--max-cluster-cost 10 leaves no chip of whole: its chips cost [0-9]+ USD or more "
            "with their",
        ),
        ({"hbm_size": 32}, "hbm_size is given, but memory as it is sold says how much there is"),
        ({"memory": ["hbm2e:99"]}, "memory is 'hbm2e:99'; give a generation and 1 to 64 stacks"),
        ({"memory": ["hbm9:1"]}, "no memory named 'hbm9'"),
        (
            {"memory": ["hbm3:40"]},
            "mm of the die's edge, and a chip of 600 mm2 has .* at most 5 stacks",
        ),
        ({"technology": "phaze_22nm"}, "does not describe memory interfaces"),
        (
            {"max_power": 1},
            "--max-power 1 leaves no chip of whole: its chips draw [0-9.]+ W or more; raise it",
        ),
        (
            {"max_area": 2, "max_chip_cost": 3},
            "--max-area 2 and --max-chip-cost 3 leave no chip of whole: .* take .* and cost",
        ),
        (
            {"chip": "other_memory", "max_power": 5},
            "--max-power 5 does not allow the chip other_memory, .* would draw [0-9.]+ W",
        ),
        ({"prices": "nowhere"}, "no price named 'nowhere'; known: datacenter_2025 "),
        ({"prices": "datacenter_2024"}, "did you mean 'datacenter_2025'.* known: datacenter_2025 "),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        hardware_of(study(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "cost_per_token"}, "needs to know what chips cost"),
        ({"front": ["power"]}, "a front of power needs to know what chips draw and cost"),
        (
            {"front": ["area", "cost", "carbon"]},
            "a front of cost and carbon needs .* or leave them out of --front",
        ),
        ({"front": ["none", "area"]}, "front is none and area too; give none alone"),
        ({"technology": "foundry_7nm"}, "carry memory as it is sold, and none is given"),
        ({"memory": ["hbm3:4"]}, "does not describe memory interfaces"),
        ({"prices": "datacenter_2025"}, "prices are of whole dies"),
        (
            {"max_area": 100},
            "--max-area 100 needs whole dies, which the technology phaze_22nm of the design space "
            "small",
        ),
        ({"max_area": 9, "max_power": 8}, "--max-area 9 and --max-power 8 need whole dies"),
    ],
)
def test_the_published_setting_has_no_whole_chips(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        small_study(tmp_path, **changes)
