"""Controlled pairs: runs that differ in one choice."""

from dataclasses import replace

import pytest

from Estimator.plans.degrees import UniformPlan
from phaze.report.tables.validation_tables import pairs_table
from phaze.validation.pairs import AxisEffects, ControlledPair, controlled_pairs, effects
from phaze.validation.records import RunPlan, RunResult, Statistics, Unstated, ValidationReport
from phaze_common.choices import CudaGraphs, Recompute

PLAN = RunPlan("gpt", 2048, "h100", "megatron_core", "dgx_h100", UniformPlan(tp=2, dp=4))


def run(line: int, measured_s: float, predicted_s: float, **degrees: object) -> RunResult:
    plan = replace(PLAN, degrees=replace(PLAN.degrees, **degrees))  # type: ignore[arg-type]
    return RunResult(
        line, "a table", "gpt", 8, measured_s=measured_s, predicted_s=predicted_s, plan=plan
    )


def test_runs_that_differ_in_one_axis_are_a_pair() -> None:
    graphs = run(3, 8.0, 9.0, cuda_graphs=CudaGraphs.LAYER)
    both = run(4, 7.0, 7.0, cuda_graphs=CudaGraphs.LAYER, recompute=Recompute.FULL)
    wider = run(5, 12.0, 10.8, tp=4, dp=2)  # as many devices: the replicas follow
    longer = run(6, 5.0, 5.0, recompute=Recompute.FULL, global_batch_size=2)
    pairs = controlled_pairs([run(2, 10.0, 10.8), graphs, both, wider, longer])
    assert pairs == (
        ControlledPair(
            "a table", "gpt", "cuda_graphs", ("none", "layer"), (2, 3), 1.25, 10.8 / 9.0
        ),
        ControlledPair("a table", "gpt", "recompute", ("none", "full"), (3, 4), 8 / 7, 9 / 7),
        ControlledPair("a table", "gpt", "tp", ("4", "2"), (5, 2), 1.2, 1.0),
    )
    assert [each.sign_right for each in pairs] == [True, True, False]
    assert [each.close for each in pairs] == [True, False, False]
    assert effects(pairs)[0] == AxisEffects("cuda_graphs", "CUDA graphs", 1, 1, 1)


def test_nothing_is_learned_of_a_plan_that_was_chosen() -> None:
    chosen = replace(run(3, 8.0, 9.0, recompute=Recompute.FULL))
    chosen = replace(chosen, unstated=Unstated(("recompute",), 2, 0.9, 1.1))
    other = replace(run(4, 8.0, 9.0, recompute=Recompute.FULL), source="another table")
    refused = replace(run(5, 8.0, 9.0, recompute=Recompute.FULL), predicted_s=None)
    assert controlled_pairs([run(2, 10.0, 10.0), chosen, other, refused]) == ()


@pytest.mark.parametrize(
    ("measured", "predicted", "right"),
    [(1.01, 1.0, True), (1.01, 1.1, False), (1.3, 1.01, True), (1.3, 0.99, False)],
)
def test_an_effect_that_is_none_must_be_predicted_as_none(
    measured: float, predicted: float, right: bool
) -> None:
    pair = ControlledPair("", "", "tp", ("2", "4"), (2, 3), measured, predicted)
    assert pair.sign_right is right


def test_runs_that_repeat_a_plan_are_one_side_of_a_pair() -> None:
    repeats = [run(line, seconds, 10.8) for line, seconds in ((2, 10.0), (3, 11.0), (4, 30.0))]
    graphs = run(5, 8.0, 9.0, cuda_graphs=CudaGraphs.LAYER)
    (pair,) = controlled_pairs([*repeats, graphs])
    assert pair.lines == (3, 5) and pair.measured == 11.0 / 8.0


def test_pairs_are_listed_the_worst_first() -> None:
    runs = [
        run(2, 10.0, 10.0),
        run(3, 8.0, 8.1, cuda_graphs=CudaGraphs.LAYER),
        run(4, 9.0, 11.0, micro_batch_size=2),
    ]
    whole = Statistics("", 3, 0, None, None, None, None)
    table = pairs_table(ValidationReport("", whole, (), tuple(runs), ()))
    shown = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["direction"] for row in shown] == ["wrong", "right"]
    assert shown[0]["lines"] == "2, 4" and shown[0]["differing in"] == "micro_batch_size 1, 2"
    assert shown[1]["measured"] == "1.25x" and shown[1]["predicted"] == "1.23x"
