"""Two runs compared: what differs, and the design of each under the other's question."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from phaze.runs.finished_run import open_run
from phaze.settings.resolve import resolve
from phaze.studies.explain.comparison import _changes, compare_runs
from tests.phaze.studies.explain.conftest import PLANS
from tests.Solver.designs.small_study import CLUSTER, SPACE, small_study, solved, write_hardware


def another(finished, folder, **changes):
    """A run of the small study with changes, over the same graphs."""
    shutil.copytree(finished.folder / "GraphExtractor", folder / "out" / "GraphExtractor")
    settings = {
        "cluster": finished.settings["cluster"],
        "design_space": finished.settings["design_space"],
    } | changes
    return open_run(Path(solved(small_study(folder, **settings)).run_directory))


def of_one_chip(folder, chip, cluster):
    axes = {
        name: [getattr(chip, name)] for name in ("num_tc", "num_vc", "width", "depth", "width_vc")
    }
    return write_hardware(
        folder,
        SPACE | {"axes": axes | {"glb_mib": [chip.glb_bytes // 2**20]}, "references": []},
        cluster,
    )


@pytest.fixture(scope="module")
def slower(finished, tmp_path_factory):
    """The same question on a slow network, with half the batch."""
    folder = tmp_path_factory.mktemp("slower")
    tiers = [CLUSTER["tiers"][0] | {"bandwidth_bytes_per_s": 5.0e8}]
    hardware = write_hardware(folder, SPACE, CLUSTER | {"tiers": tiers, "name": "slow"})
    return another(finished, folder, cluster=hardware["cluster"], global_batch_size=32)


@pytest.fixture(scope="module")
def comparison(finished, slower):
    return compare_runs(finished, slower)


def test_inputs_and_answers_that_differ_are_listed(comparison, finished, slower):
    keys = {
        change.key: change
        for change in comparison.changes
        if not change.key.startswith(("code", "version"))
    }
    assert set(keys) == {"cluster", "global_batch_size"}
    assert (keys["global_batch_size"].before, keys["global_batch_size"].after) == ("64", "32")
    answers = {change.key for change in comparison.answers}
    assert "throughput, samples/s" in answers
    same = finished.result.best.accelerator == slower.result.best.accelerator
    assert ("accelerator" in answers) != same


def test_samples_that_are_no_sequences_have_no_length(finished):
    image = dataclasses.replace(finished, settings=finished.settings | {"sequence_length": [1]})
    (change,) = (each for each in _changes(finished, image) if each.key == "sequence_length")
    assert change.before.isdecimal() and change.after == "-"


def test_each_chip_under_the_other_question_is_what_a_search_of_it_alone_finds(
    comparison, finished, slower, tmp_path
):
    moves = {move.what: move.value for move in comparison.exchanges}
    one, two = comparison.before, comparison.after
    cluster = Path(slower.settings["cluster"])
    here = of_one_chip(tmp_path, finished.result.best.accelerator, CLUSTER) | {
        "cluster": str(cluster)
    }
    across = another(finished, tmp_path / "across", global_batch_size=32, **here).result.best.value
    assert moves[f"accelerator of {one}, asked as {two}"] == pytest.approx(across, rel=1e-9)
    there = of_one_chip(tmp_path, slower.result.best.accelerator, CLUSTER)
    back = another(finished, tmp_path / "back", **there).result.best.value
    assert moves[f"accelerator of {two}, asked as {one}"] == pytest.approx(back, rel=1e-9)
    batch = of_one_chip(tmp_path, finished.result.best.accelerator, CLUSTER)
    alone = another(finished, tmp_path / "alone", global_batch_size=32, **batch).result.best.value
    assert moves[f"accelerator of {one}, global batch size as in {two}"] == pytest.approx(
        alone, rel=1e-9
    )
    assert moves[f"{one}, as found"] == finished.result.best.value
    assert moves[f"{two}, as found"] == slower.result.best.value


def test_no_other_design_beats_the_best_of_its_own_question(comparison, finished, slower):
    moves = {move.what: move.value for move in comparison.exchanges}
    one, two = comparison.before, comparison.after
    assert moves[f"accelerator of {one}, asked as {two}"] <= slower.result.best.value * (1 + 1e-9)
    assert moves[f"accelerator of {two}, asked as {one}"] <= finished.result.best.value * (1 + 1e-9)


def test_the_terms_are_those_of_both_answers(comparison, finished, slower):
    for run, field in ((finished, "best_s"), (slower, "other_s")):
        (plan,) = run.result.best.models.values()
        assert sum(getattr(term, field) for term in comparison.terms) == pytest.approx(
            plan.time_per_batch_s, rel=1e-9
        )


def test_the_sentences_say_what_changed_and_what_it_did(comparison):
    text = " ".join(comparison.sentences)
    assert "global batch size, from 64 to 32" in text and "Changed alone" in text
    assert all(sentence.endswith(".") for sentence in comparison.sentences)
    assert "None" not in text and "nan" not in text


def test_a_run_and_itself_differ_in_nothing(finished):
    same = compare_runs(finished, finished)
    assert same.changes == same.answers == same.exchanges == ()
    assert all(term.best_s == term.other_s for term in same.terms)
    assert "Both runs asked the same, of the same code." in same.sentences


def test_different_models_and_objectives_are_compared_only_where_they_can_be(finished, tmp_path):
    other = another(finished, tmp_path, model="opt", micro_batch_size=[1], hbm_size=[16])
    comparison = compare_runs(finished, other)
    assert "different models, bertbase and opt" in " ".join(comparison.sentences)
    assert comparison.terms == ()
    assert {move.what.split(", ")[1] for move in comparison.exchanges} == {
        f"asked as {comparison.after}",
        "as found",
    }
    assert len(comparison.exchanges) == 2


def test_a_search_and_a_plan_search_say_what_they_are(finished, finished_plans):
    comparison = compare_runs(finished, finished_plans)
    text = " ".join(comparison.sentences)
    assert "designs accelerators" in text and "places a model on devices that exist" in text
    assert comparison.exchanges == comparison.terms == ()


def test_a_designed_chip_is_compared_with_a_device_part_by_part(finished, tmp_path):
    settings = {
        key: finished.settings[key] for key in ("model", "sequence_length", "global_batch_size")
    }
    asked = settings | {
        "device": "a100_80gb",
        "devices": 16,
        "output": str(tmp_path / "out"),
        "interleave": [1],
        "tp": [1],
    }
    shutil.copytree(finished.folder / "GraphExtractor", tmp_path / "out" / "GraphExtractor")
    device = open_run(Path(solved(resolve(asked, {})).run_directory))
    comparison = compare_runs(finished, device)
    (plan,) = device.result.best.models.values()
    assert sum(term.other_s for term in comparison.terms) == pytest.approx(
        plan.time_per_batch_s, rel=1e-9
    )
    assert comparison.exchanges == ()
    assert any("An iteration of bertbase is" in sentence for sentence in comparison.sentences)


def test_a_run_that_found_nothing_is_compared_too(finished, tmp_path):
    nothing = another(finished, tmp_path, hbm_size=[0.125])
    comparison = compare_runs(finished, nothing)
    assert any("nothing fits" in sentence for sentence in comparison.sentences)
    assert comparison.exchanges == ()
    assert compare_runs(nothing, finished).answers


def test_files_that_are_gone_are_said_and_the_rest_is_compared(finished, slower):
    gone = dataclasses.replace(
        slower, settings=slower.settings | {"cluster": "/nowhere/cluster.yaml"}
    )
    comparison = compare_runs(finished, gone)
    assert comparison.exchanges == () and comparison.terms
    assert any("cannot be computed any more" in sentence for sentence in comparison.sentences)


def test_plans_on_devices_are_compared_under_each_others_questions(finished_plans, tmp_path):
    shutil.copytree(finished_plans.folder / "GraphExtractor", tmp_path / "out" / "GraphExtractor")
    changes = {"device": "h100", "devices": 16, "output": str(tmp_path / "out")}
    other = open_run(Path(solved(resolve(PLANS, changes)).run_directory))
    comparison = compare_runs(finished_plans, other)
    moves = {move.what: move.value for move in comparison.exchanges}
    names = comparison.before, comparison.after
    assert moves[f"plan of {names[0]}, asked as {names[1]}"] <= other.result.best.value * (1 + 1e-9)
    assert moves[f"plan of {names[1]}, asked as {names[0]}"] <= finished_plans.result.best.value * (
        1 + 1e-9
    )
    assert any(what.startswith(f"plan of {names[0]}, device as in") for what in moves)
    assert comparison.terms


def test_a_file_that_changed_under_its_name_is_an_input_that_changed(finished):
    contents = finished.manifest.contents | {"cluster": "another content"}
    edited = dataclasses.replace(
        finished, manifest=dataclasses.replace(finished.manifest, contents=contents)
    )
    comparison = compare_runs(finished, edited)
    assert [change.key for change in comparison.changes] == ["content of cluster"]
    assert any("content of cluster" in sentence for sentence in comparison.sentences)
    assert not any("asked the same" in sentence for sentence in comparison.sentences)


def test_a_length_that_is_the_models_own_is_no_difference(finished):
    stated = {key: value for key, value in finished.settings.items() if key != "sequence_length"}
    lengths = ({}, {"sequence_length": 512}, {"sequence_length": 256})
    runs = [
        dataclasses.replace(finished, settings=resolve(stated, each).as_mapping())
        for each in lengths
    ]
    assert not [
        change
        for change in compare_runs(runs[0], runs[1]).changes
        if change.key == "sequence_length"
    ]
    assert [change.key for change in _changes(runs[0], runs[2])] == ["sequence_length"]
