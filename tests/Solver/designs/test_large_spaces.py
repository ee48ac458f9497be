"""Spaces of very many chips: bounds are bounds, and what they leave holds the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import solved, write_hardware

from Estimator.chips.latency_table import populate_estimates
from Estimator.chips.least_prices import least_table
from Estimator.plans.results import Status
from phaze.runs.finished_run import open_run
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze.studies.context import search_context
from phaze_common.choices import Objective
from phaze_common.progress import SilentProgress
from Solver.designs import large_spaces, pruning_bounds
from Solver.designs.large_spaces import pruned_space
from Solver.designs.model_shapes import model_shapes
from Solver.designs.plan_values import plan_values
from Solver.designs.points import PointGroup
from Solver.designs.proofs import proven_shapes
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.shape_bounds_on_chips import at_peak_rates, priced
from Solver.hardware import DesignedChips
from tests.builders.samples import sampled

SPACE: dict[str, Any] = {
    "name": "grid",
    "technology": "foundry_7nm",
    "platform": "phaze_hbm2",
    "vector_functions": "phaze",
    "axes": {
        "num_tc": [1, 2, 8],
        "num_vc": [1, 4],
        "width": [32, 128],
        "depth": [64],
        "width_vc": [64],
        "glb_mib": [4, 32],
        "memory": ["gddr6:2", "hbm2e:1", "hbm3:2"],
        "frequency_ghz": [0.8, 1.05],
    },
    "budget": {"area_mm2": 600.0},
    "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
}


MIXTURE = {
    "model_type": "mixtral",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 1000,
}
LINKED = {"links": ["8x25GB/s", "8x100GB/s"], "cluster": "dgx_h100", "tp": [1, 4], "devices": 32}
OVERLAPPING = {"software": "megatron_2022", "sequence_parallel": "all", "interleave": "all"}


def study(folder: Path, **changes: object) -> Request:
    settings: dict[str, object] = {
        "model": "bertbase",
        "micro_batch_size": [1, 4],
        "sequence_length": 128,
        "global_batch_size": 64,
        "tp": [1, 2],
        "front": "none",
    }
    return resolve(
        {}, settings | write_hardware(folder, SPACE) | {"output": str(folder / "out")} | changes
    )


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces count as large, few of whose chips are looked at together."""
    few = {"SAMPLE": 6, "AT_ONCE": 16, "TRIED": 2, "EVALUATED": 2, "SEARCHED": 4}
    monkeypatch.setattr(large_spaces, "MANY_POINTS", 0)
    for name, value in {"FEW_PAIRS": 0, **few}.items():
        monkeypatch.setattr(pruning_bounds, name, value)


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        (Objective.THROUGHPUT, {"sequence_parallel": "all", "zero_stage": [0, 1]}),
        pytest.param(
            Objective.CARBON_PER_TOKEN,
            {"model": "gpt:layers=3,hidden=256,heads=4,vocabulary=1000", "layout": "auto"},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            Objective.THROUGHPUT_PER_JOULE, {"interleave": "all"}, marks=pytest.mark.thorough
        ),
        pytest.param(
            Objective.COST_PER_TOKEN,
            {"overlap_gradients": True, "cluster": "dgx_a100"},
            marks=pytest.mark.thorough,
        ),
        (Objective.THROUGHPUT, LINKED),
        pytest.param(Objective.COST_PER_TOKEN, LINKED | OVERLAPPING, marks=pytest.mark.thorough),
    ],
)
def test_no_design_exceeds_its_bounds(
    objective: Objective, changes: dict[str, Any], tmp_path: Path
) -> None:
    """At every level, on every chip, for every shape of plans."""
    run = search_context(study(tmp_path, objective=objective.value, **changes), SilentProgress())
    hardware, (model,) = run.hardware, run.problem.models
    assert isinstance(hardware, DesignedChips)
    true = np.full(hardware.configurations, -np.inf)
    for each in (proven_shapes(run, shapes) for shapes in model_shapes(run, model)):
        for size in run.problem.memory_bytes:
            group = PointGroup.of(run, each, size)
            places = np.sort(np.random.default_rng(size).permutation(len(group.status))[:150])
            group.evaluate(places)
            np.maximum.at(true, group.rows(places), group.objective(objective)[places])
    rows, pruning = np.arange(hardware.configurations), PruningBounds(run, hardware, model)
    pruning._bound_by_cores()
    levels = [pruning.upper]
    levels += [
        pruning.bounded(rows, range(len(pruning.shapes)), level).upper
        for level in (at_peak_rates, priced)
    ]
    assert np.isfinite(true).sum() > 20
    for most in levels:
        assert (true <= most * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        (
            Objective.THROUGHPUT,
            {"ep": [1, 2, 4], "cluster": "dgx_a100", "devices": 16, "overlap_gradients": True},
        ),
        pytest.param(Objective.COST_PER_TOKEN, LINKED, marks=pytest.mark.thorough),
    ],
)
def test_searches_that_stop_early_lose_nothing(
    objective: Objective, changes: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIXTURE))
    given = changes | ({"model": str(tmp_path / "config.json")} if "ep" in changes else {})
    run = search_context(study(tmp_path, objective=objective.value, **given), SilentProgress())
    hardware, (model,) = run.hardware, run.problem.models
    assert isinstance(hardware, DesignedChips)
    pruning, rows = PruningBounds(run, hardware, model), np.arange(0, hardware.configurations, 3)
    few, closed, ways = run.on(hardware.some(rows)), 0, 0
    for number, shape in list(enumerate(pruning.shapes))[::10]:
        true = np.full(len(rows), -np.inf)
        for each in model_shapes(few, model, [shape]):
            for size in run.problem.memory_bytes:
                group = PointGroup.of(few, each, size)
                group.evaluate(np.arange(len(group.status)))
                np.maximum.at(true, group.rows(np.arange(len(true))), group.objective(objective))
        if not np.isfinite(true).any():
            continue
        least = float(np.quantile(true[np.isfinite(true)], 0.6))
        placements, most = pruning._placements(rows, number)
        assert (true <= most * (1 + 1e-9)).all()
        ways = max(ways, len(placements))
        found = plan_values(few, model, pruning.graphs, shape, placements, least)
        good = true >= least
        assert found.found[good] == pytest.approx(true[good], rel=1e-9)
        assert (found.upper >= np.minimum(true, least) * (1 - 1e-6)).all() and (
            found.found <= found.upper * (1 + 1e-9)
        ).all()
        closed += int((found.upper < least * (1 + 1e-6)).sum())
        pruning.incumbent = least
        kept, _ = pruning._placements(rows, number)
        again = plan_values(few, model, pruning.graphs, shape, kept, least)
        assert again.found[good] == pytest.approx(true[good], rel=1e-9)
        pruning.incumbent = 0.0
    assert closed > 20 and (ways > 1 or "ep" not in changes)


def test_least_prices_are_below_prices(tmp_path: Path) -> None:
    run = search_context(study(tmp_path, tp=[2], sequence_parallel=True), SilentProgress())
    (model,), hardware = run.problem.models, run.hardware
    assert isinstance(hardware, DesignedChips)
    for graph in {
        id(each.graph): each.graph for every in model_shapes(run, model) for each in every.shapes
    }.values():
        least = least_table(graph, hardware.accelerators, hardware.platform).tensor
        found = populate_estimates((graph,), hardware.accelerators, hardware.platform).tensor
        for name in ("single_s", "all_s", "single_j", "all_j"):
            assert (getattr(least, name) <= getattr(found, name) * (1 + 1e-12)).all(), name
            assert (getattr(least, name) > 0.05 * getattr(found, name)).mean() > 0.9, name


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        pytest.param(Objective.THROUGHPUT, LINKED, marks=pytest.mark.thorough),
        (Objective.COST_PER_TOKEN, {}),
        *(
            pytest.param(each, {}, marks=pytest.mark.thorough)
            for each in Objective
            if each is not Objective.COST_PER_TOKEN
        ),
        pytest.param(Objective.CARBON_PER_TOKEN, LINKED, marks=pytest.mark.thorough),
    ],
)
def test_the_best_of_what_bounds_leave_is_the_best_of_all(
    objective: Objective, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = solved(
        study(tmp_path, objective=objective.value, output=str(tmp_path / "bounds"), **changes)
    )
    with monkeypatch.context() as whole:
        whole.setattr(large_spaces, "pruned_space", lambda run: run)
        whole.setattr("Solver.designs.search.pruned_space", lambda run: run)
        every = solved(
            study(tmp_path, objective=objective.value, output=str(tmp_path / "every"), **changes)
        )
    assert found.best is not None and every.best is not None
    assert (found.best.value, found.best.accelerator) == (
        pytest.approx(every.best.value, rel=1e-9),
        every.best.accelerator,
    )
    assert found.best.optimal and every.best.optimal
    assert found.counts.complete and found.counts.space == every.counts.space
    assert found.counts.unlisted > found.counts.space / 2, "most is closed without being listed"
    ceilings = {point.hbm_bytes: point for point in every.per_hbm}
    for (
        point
    ) in found.per_hbm:  # what is not the best of all is not said to be the best of its memory
        least = ceilings[point.hbm_bytes].value
        assert point.value <= least * (1 + 1e-9)
        assert point.optimal or (
            point.certificate and (point.certificate.best_open_bound or 0) >= least * (1 - 1e-9)
        )
    for axis in found.best.axes:
        for value in axis.values:
            assert value.bound >= value.reached > 0 and (value.status is Status.OPTIMAL) <= (
                value.bound <= value.reached * 1.001
            )


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("combine", sampled(("relative", "worst", "mean"), ("relative",)))
def test_the_best_for_two_models_is_left_too(
    combine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {
        "model": ["bertbase", "gpt:layers=3,hidden=256,heads=4,vocabulary=1000"],
        "combine": combine,
        "micro_batch_size": 1,
        "recompute": "none",
    }
    found = solved(study(tmp_path, **models, output=str(tmp_path / "bounds")))
    with monkeypatch.context() as whole:
        whole.setattr("Solver.designs.search.pruned_space", lambda run: run)
        every = solved(study(tmp_path, **models, output=str(tmp_path / "every")))
    assert found.best is not None and every.best is not None
    assert (
        found.best.value == pytest.approx(every.best.value, rel=1e-9)
        and found.best.accelerator == every.best.accelerator
    )
    assert found.own_best == pytest.approx(every.own_best, rel=1e-9)


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.COST_PER_TOKEN])
def test_where_nothing_reaches_what_is_of_interest_nothing_is_left(
    objective: Objective, tmp_path: Path
) -> None:
    run = search_context(study(tmp_path, objective=objective.value), SilentProgress())
    (model,) = run.problem.models
    assert isinstance(run.hardware, DesignedChips)
    pruning = PruningBounds(run, run.hardware, model, least=1e30)
    rows, numbers = pruning.remaining()
    assert not len(rows) and not numbers and pruning.none_exceeds < 1e30
    rows, numbers = pruning.narrowed(
        rows, [0], priced
    )  # bounds of all shapes may close all chips, and those of each shape none
    assert not len(rows) and not numbers


@pytest.mark.usefixtures("many")
def test_a_front_is_searched_without_bounds_of_the_whole_space(tmp_path: Path) -> None:
    run = search_context(study(tmp_path, front="cost"), SilentProgress())
    assert pruned_space(run) is run


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.COST_PER_TOKEN])
def test_what_money_buys_is_searched_without_bounds_of_the_whole_space(
    objective: Objective, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {
        "objective": objective.value,
        "max_cluster_cost": 3e4,
        "micro_batch_size": 1,
    }
    run = search_context(study(tmp_path, **asked), SilentProgress())
    assert pruned_space(run) is run
    found = solved(study(tmp_path, **asked))
    with monkeypatch.context() as whole:
        whole.setattr("Solver.designs.search.pruned_space", lambda run: run)
        every = solved(
            study(
                tmp_path,
                **asked,
                front=["cost", "carbon", "energy"],
                output=str(tmp_path / "every"),
            )
        )
    assert (
        found.best is not None
        and every.best is not None
        and found.best.optimal
        and found.best.chip is not None
    )
    assert found.best.value == pytest.approx(every.best.value, rel=1e-9)
    assert found.best.accelerator == every.best.accelerator and found.counts.complete
    bought = found.best.chip.uses["bertbase"].bought
    assert bought is not None and bought.cluster_usd <= 3e4


@pytest.mark.usefixtures("many")
def test_a_run_of_a_large_space_is_explained_and_reported(tmp_path: Path) -> None:
    import phaze

    folder = str(tmp_path / "out")
    solved(study(tmp_path, output=folder, micro_batch_size=1, recompute="none"))
    run = open_run(next(Path(folder).rglob("best.json")).parent)
    assert phaze.main(["explain", str(run.folder)]) == 0
    assert phaze.main(["explain", str(run.folder), "--what-if", "hbm_bandwidth=2x"]) == 0
    assert phaze.main(["report", str(run.folder)]) == 0


def test_a_memory_that_no_chip_is_left_with_closes_no_other(tmp_path: Path) -> None:
    two = ["hbm2e:1", "hbm3:2"]
    run = search_context(study(tmp_path, memory=two), SilentProgress())
    metrics = run.hardware.metrics
    largest = metrics.holding(max(run.problem.memory_bytes))
    most = float(metrics.area_mm2[largest].min()) * 0.999
    assert (metrics.area_mm2 <= most).any()
    found = solved(study(tmp_path, memory=two, max_area=most, output=str(tmp_path / "limited")))
    assert found.best is not None and found.best.optimal
