"""Explanations read from a run, and what they rest on."""

import dataclasses
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phaze.report.sentences.designs import part_text, times_what
from phaze.report.sentences.explanation import explain
from phaze.report.sentences.operators import blame_s
from phaze.runs.accelerator_values import accelerator_values
from phaze.runs.finished_run import open_run
from phaze.studies.explain.repeat import repeat_search
from phaze_common.errors import InputError
from phaze_common.numbers import number, percent, size_text, time_text
from phaze_common.progress import SilentProgress
from Solver.designs.schedule_records import ScheduledOperator
from tests.Solver.designs.small_study import small_study, solved


def test_the_answer_names_the_chip_the_plan_and_the_proof(finished):
    best = finished.result.best
    explanation = explain(finished)
    (plan,) = best.models.values()
    for word in (
        "bertbase",
        f"{best.accelerator.num_tc} TC",
        f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}",
        "16 devices",
    ):
        assert word in explanation.answer
    assert (
        f"proven optimal over {finished.result.counts.space:,} design points" in explanation.answer
    )
    assert explanation.alternatives == ()


def test_every_text_is_a_sentence(finished, finished_plans):
    for run in (finished, finished_plans):
        explanation = explain(run)
        sentences = [
            explanation.answer,
            *explanation.lead,
            *explanation.limits_in_words,
            *explanation.time_in_words,
        ]
        assert all(
            each.endswith(".") and ".." not in each and "  " not in each for each in sentences
        )
        assert len(set(sentences)) == len(sentences) > 5
        assert not any(
            word in " ".join(sentences) for word in ("None", "nan", "_s ", "Status", "{", "}")
        )


def test_the_limits_come_by_importance_with_their_words(finished):
    explanation = explain(finished)
    gains = [limit.unlimited_gain for limit in explanation.limits]
    assert gains == sorted(gains, reverse=True)
    assert explanation.limits_in_words == tuple(limit.words for limit in explanation.limits)


def test_the_lead_is_over_the_next_best_chip_of_the_table(finished):
    best = finished.result.best
    designs = finished.designs
    designs = designs[(designs["hbm_bytes"] == best.hbm_bytes) & (designs["status"] == "evaluated")]
    axes = ["num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes"]
    others = designs.groupby(axes)["throughput_samples_per_s"].max().sort_values(ascending=False)
    others = others[others < best.value * (1 - 1e-9)]
    sentence = next(
        each for each in explain(finished).lead if each.startswith("The next-best accelerator")
    )
    assert f"{number(float(others.iloc[0]))} samples/s" in sentence
    assert f"{others.index[0][0]} TC {others.index[0][3]}x{others.index[0][2]}" in sentence


def test_values_by_accelerator_are_those_of_the_table(finished):
    best = finished.result.best
    values = accelerator_values(
        finished, finished.designs[finished.designs["hbm_bytes"] == best.hbm_bytes]
    )
    row = values.accelerators.find(best.accelerator)
    assert values.found[row] == values.reach[row] == best.value
    assert (values.found <= values.reach * (1 + 1e-12)).all()
    assert len(values.accelerators) == finished.result.counts.space // (2 * 2 * 3)


def test_reading_takes_no_search(finished, monkeypatch):
    for searching in (
        "Solver.designs.re_solve.priced",
        "Solver.designs.search.search",
        "Solver.designs.model_shapes.model_shapes",
    ):
        monkeypatch.setattr(searching, None)
    assert explain(finished).lead


@pytest.mark.parametrize("batch", [1, 2])
def test_a_study_that_was_edited_into_another_is_not_compared_with_the_answer(
    finished, tmp_path, batch
):
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, ignore=shutil.ignore_patterns("points"))
    study = yaml.safe_load((copy / "study.yaml").read_text())
    study["global_batch_size"] *= batch
    (copy / "study.yaml").write_text(yaml.safe_dump(study))
    search = repeat_search(open_run(copy), SilentProgress())
    if batch == 1:  # the same in another form
        assert search.unchanged
        return
    with pytest.raises(
        InputError,
        match=r"study\.yaml was edited since the run and asks another question than it answered",
    ):
        _ = search.best


@pytest.mark.thorough
def test_two_models_share_a_chip_and_a_mean(finished, tmp_path):
    result = solved(
        small_study(tmp_path, model=["bertbase=1", "opt=3"], micro_batch_size=[1], hbm_size=[16]),
        limits=True,
    )
    explanation = explain(open_run(Path(result.run_directory)))
    assert "For bertbase and opt, build" in explanation.answer
    assert f"{number(result.best.value)} of own bests (geometric mean)" in explanation.answer
    assert explanation.answer.count("% of its own best") == 2
    for model in result.best.models:
        assert any(
            f"An iteration of {model} takes" in sentence for sentence in explanation.time_in_words
        )


def test_what_does_not_fit_is_explained_too(finished):
    nothing = dataclasses.replace(
        finished,
        result=dataclasses.replace(
            finished.result, best=None, reason="no plan fits 1.00 GiB per device"
        ),
    )
    assert explain(nothing).answer == "Nothing fits: no plan fits 1.00 GiB per device."


def test_a_run_without_limits_says_so(finished):
    bare = dataclasses.replace(finished.result.best, limits=())
    explanation = explain(
        dataclasses.replace(finished, result=dataclasses.replace(finished.result, best=bare))
    )
    assert explanation.limits_in_words == (
        "This run does not state what limits its chip, nor what other values of every axis allow: "
        f"'phaze explain {finished.folder} --limits' searches both and keeps them.",
    )


def test_plans_on_devices_are_explained_by_axis(finished_plans):
    explanation = explain(finished_plans)
    (plan,) = finished_plans.result.best.models.values()
    assert f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}" in explanation.answer
    assert "8 x NVIDIA A100 SXM 80 GB" in explanation.answer
    assert f"proven optimal over {finished_plans.result.counts.plans:,} plans" in explanation.answer
    assert any(
        sentence.startswith(f"Pipeline depth {plan.pp} is best") for sentence in explanation.lead
    )


def test_other_values_of_an_axis_take_what_the_table_says(finished_plans):
    (plan,) = finished_plans.result.best.models.values()
    plans = finished_plans.plans
    for width in plans["tp"].unique():
        mine = plans[plans["tp"] == width]
        least = mine["time_per_batch_bound_s"].min() / plan.time_per_batch_s - 1
        sentence = next(
            each
            for each in explain(finished_plans).lead
            if each.startswith("Tensor parallel width")
        )
        assert width == plan.tp or f"{width} takes {percent(least)} longer" in sentence


def test_the_parts_of_an_iteration_are_named_as_everywhere(finished, finished_plans):
    for run in (finished, finished_plans):
        (plan,) = run.result.best.models.values()
        sentence = next(
            each for each in explain(run).time_in_words if each.startswith("An iteration")
        )
        for name, seconds in vars(plan.breakdown_s).items():
            if not name.startswith("hidden_") and seconds > 0.006 * plan.time_per_batch_s:
                assert f"{part_text(name)} {percent(seconds / plan.time_per_batch_s)}" in sentence


def operator(start_s, end_s):
    return ScheduledOperator("op", "gemm", "TC", "single", 0, None, start_s, end_s)


def test_operators_that_run_together_share_the_time():
    operators = [operator(0.0, 2.0), operator(1.0, 3.0), operator(4.0, 5.0)]
    assert blame_s(operators).tolist() == [1.5, 1.5, 1.0]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 5)), min_size=1, max_size=12))
def test_the_blame_adds_up_to_the_time_in_which_anything_runs(spans):
    operators = [operator(start, start + length) for start, length in spans]
    moments = sorted({moment for each in operators for moment in (each.start_s, each.end_s)})
    busy = sum(
        two - one
        for one, two in itertools.pairwise(moments)
        if any(each.start_s <= one and each.end_s >= two for each in operators)
    )
    shares = blame_s(operators)
    assert shares.sum() == pytest.approx(busy)
    assert (shares <= np.array([each.end_s - each.start_s for each in operators]) + 1e-12).all()


def test_numbers_in_words():
    assert [number(each) for each in (41848.4, 0.0978771, 5.0, 14.342)] == [
        "41,848",
        "0.09788",
        "5",
        "14.34",
    ]
    assert [percent(each) for each in (0.18, 0.0421, 0.00126, 1e-7, 0.0)] == [
        "18%",
        "4.2%",
        "0.13%",
        "less than 0.01%",
        "0%",
    ]
    assert [size_text(each) for each in (3.1 * 2**30, 577 * 2**20, 6 * 2**10)] == [
        "3.1 GiB",
        "577 MiB",
        "6 KiB",
    ]
    assert [time_text(each) for each in (285.6, 0.09788, 2e-6, -0.001)] == [
        "285.6 s",
        "97.88 ms",
        "2 µs",
        "-1 ms",
    ]
    assert [times_what(each) for each in (2.231, 1.087, 1.0)] == [
        "2.23 times what",
        "8.7% more than",
        "just what",
    ]


def test_ratios_below_one_are_less():
    assert times_what(0.54) == "46% less than"
    assert times_what(1.0) == "just what"
    assert times_what(1.05) == "5.0% more than"
    assert times_what(2.0) == "2 times what"
