"""Questions of transformer-perf-estimates under both physics: what is translated, what is compared,
what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformer_cases import SYSTEM

from GraphExtractor.models.registry import find_model
from phaze.settings.problem import single_plan
from phaze_common.units import GIB
from third_party.transformer_perf_estimates import (
    Configuration,
    Configurations,
    Strategy,
    Training,
    TransformerModel,
    estimate,
    published_model,
    published_models,
    published_system,
    published_systems,
    space,
)
from third_party.transformer_perf_estimates.command_line import main
from third_party.transformer_perf_estimates.comparison import Comparison, Price, compare
from third_party.transformer_perf_estimates.comparison_report import PARTS, comparison_lines
from third_party.transformer_perf_estimates.own_hardware import own_hardware, stands_for
from third_party.transformer_perf_estimates.own_parts import Parts
from third_party.transformer_perf_estimates.own_requests import OwnQuestion

SMALL = TransformerModel(sequence_length=256, hidden=2048, heads=2, layers=4, ffn=8192)
SHORT_OF_MEMORY = replace(
    published_system("A100"), hbm_capacity_gb=4.5
)  # 3 of which our framework reserves
SIZES = {
    Strategy.ONE_D: (1, 2),
    Strategy.SEQUENCE: (2,),
    Strategy.TWO_D: (2,),
}  # of micro-batches: each a graph per layout
CASE: dict[str, Any] = {
    "strategy": "1d",
    "model": {"l": 256, "e": 2048, "h": 2, "depth": 4},
    "system_name": "A100",
    "nvlink_size": 4,
    "n_gpus": 8,
    "global_batch_size": 4,
}


@pytest.fixture(scope="module", autouse=True)
def folder_of_graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Training graphs go below the current folder, which all tests here share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("graphs"))
        yield


def small(strategy: Strategy, **changes: Any) -> Training:
    return replace(
        Training(strategy, SMALL, SHORT_OF_MEMORY, nvlink_size=4, gpus=8, global_batch=4), **changes
    )


@cache
def compared(strategy: Strategy) -> Comparison:
    return compare(OwnQuestion.of(small(strategy), device="a100_80gb"), SIZES[strategy])


def prices(comparison: Comparison) -> Iterator[Price]:
    for best in (comparison.published_best, comparison.own_best):
        assert (
            best is not None
            and best.published is not None
            and best.own is not None
            and best.refused == ""
        )
        yield from (best.published, best.own)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", Strategy)
def test_parts_add_up_to_the_iteration_and_the_memory_of_each_physics(strategy: Strategy) -> None:
    for price in prices(compared(strategy)):
        parts = price.parts
        assert parts.seconds == pytest.approx(price.seconds, rel=1e-9)
        assert parts.held_bytes == pytest.approx(price.memory_bytes, rel=1e-9)
        assert all(part >= 0 for part in vars(parts).values())
        assert min(parts.products_s, parts.attention_s) > 0


@pytest.mark.some(1)
@pytest.mark.parametrize("strategy", Strategy)
def test_each_best_plan_is_the_better_one_under_its_own_physics(strategy: Strategy) -> None:
    comparison = compared(strategy)
    theirs, ours = comparison.published_best, comparison.own_best
    assert comparison.proven and theirs is not None and ours is not None
    assert (
        theirs.own is not None
        and ours.own is not None
        and theirs.published is not None
        and ours.published is not None
    )
    assert theirs.published.feasible and ours.own.feasible
    if (
        theirs.own.feasible
        and theirs.configuration is not None
        and theirs.configuration.micro_batch in SIZES[strategy]
    ):
        assert ours.own.seconds <= theirs.own.seconds * (1 + 1e-9)
    if ours.published.feasible:
        assert theirs.published.seconds <= ours.published.seconds * (1 + 1e-9)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_configuration_is_the_same_plan_and_back(strategy: Strategy) -> None:
    random, seen = Random(3), 0
    for nvlink_size in (1, 2, 8):
        question = OwnQuestion.of(small(strategy, nvlink_size=nvlink_size), device="a100_80gb")
        every = space(question.training)
        for place in random.sample(range(len(every)), 6):
            configuration = every.at(place)
            plan = single_plan(question.request_of(configuration))
            assert (plan.devices, plan.zero_stage, plan.global_batch_size) == (8, 1, 4)
            panels = (
                configuration.panels if configuration.tp > 1 else 1
            )  # a product of one GPU has none
            assert question.configuration_of(plan) == replace(configuration, panels=panels)
            seen += configuration.tp2 > 1
    assert seen or strategy is Strategy.ONE_D


def test_what_the_system_says_is_the_hardware() -> None:
    training = replace(
        small(Strategy.ONE_D), system=published_system("B200"), gpus=64, nvlink_size=8
    )
    hardware = own_hardware(training)
    assert (hardware.device, hardware.peak_tflop_per_s, hardware.memory_bandwidth_gb_per_s) == (
        "b200",
        2500,
        8000,
    )
    assert hardware.memory_size_gib * GIB == pytest.approx(192e9)
    fast, slow = hardware.cluster.tiers
    assert (fast.group_size, fast.bandwidth_bytes_per_s, fast.efficiency, fast.latency_s) == (
        8,
        900e9,
        0.7,
        2.5e-6,
    )
    assert (slow.group_size, slow.bandwidth_bytes_per_s, slow.efficiency, slow.latency_s) == (
        64,
        100e9,
        0.7,
        5e-6,
    )
    (alone,) = own_hardware(replace(training, gpus=8)).cluster.tiers
    assert alone.bandwidth_bytes_per_s == 900e9
    (alone,) = own_hardware(replace(training, nvlink_size=1)).cluster.tiers
    assert alone.bandwidth_bytes_per_s == 100e9
    cards = replace(training, system=replace(training.system, nics_per_gpu=0.5))
    assert own_hardware(cards, "b200").cluster.tiers[1].bandwidth_bytes_per_s == 50e9


def test_every_published_model_and_system_has_one_of_ours() -> None:
    assert stands_for()["models"].keys() == published_models().keys()
    assert stands_for()["devices"].keys() == published_systems().keys()
    for name in published_models():
        training = replace(
            small(Strategy.ONE_D), model=published_model(name), system=published_system("H200")
        )
        ours = find_model(OwnQuestion.of(training).model)
        assert ours.sequence_length == published_model(name).sequence_length


def test_nothing_that_fits_is_an_answer_of_either() -> None:
    tiny = small(Strategy.ONE_D, system=replace(SHORT_OF_MEMORY, hbm_capacity_gb=0.01))
    comparison = compare(OwnQuestion.of(tiny, device="a100_80gb"), (1,))
    assert (
        comparison.published_best is None and comparison.own_best is None and not comparison.proven
    )
    assert "fits 9.54 MiB per device; the leanest needs " in comparison.searched.reason


def ask(tmp_path: Path, case: dict[str, Any], *words: str) -> int:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    return main(["compare", str(path), *words])


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, CASE, "--micro-batch-size", "2", "--format", "json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["cases"]
    assert (
        answer["n_gpus"] == 8
        and answer["own"]["proven"]
        and answer["own"]["micro_batch_sizes"] == [2]
    )
    own = answer["own_best"]["own"]
    assert own["feasible"] and answer["own_best"]["plan"]["micro_batch_size"] == 2
    assert ask(tmp_path, CASE, "--micro-batch-size", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "gpt:layers=4,hidden=2048,heads=2,ffn=8192,sequence_length=256, 1d: 8 x A100, 4 in a "
        "fast domain, global batch 4"
    )
    assert any(line.split()[:1] == ["ours"] and "micro-batch 2" in line for line in lines)
    assert any(line.split()[:3] == ["embedding,", "head,", "loss"] for line in lines)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a system of nobody": (
        {"system": SYSTEM | {"matrix_flops_fp16": 313}, "system_name": "mine"},
        (),
        "none of our devices stands for this system",
    ),
    "numbers of one byte": (
        {"system": SYSTEM | {"element_size": 1e-9}},
        ("--device", "a100_80gb"),
        "numbers have two bytes",
    ),
    "a model of other sizes": (
        {},
        ("--model", "bertbase"),
        "its layers is 12, that of the case (depth) is 4",
    ),
    "an unknown device": ({}, ("--device", "a1000"), "no device named 'a1000'"),
    "a device without an NVLink": (
        {},
        ("--device", "tpu_v4"),
        "is not one of fast domains under a switch",
    ),
    "a broken fast domain": (
        {"n_gpus": 12, "nvlink_size": 8},
        (),
        "n_gpus is 12, no whole number of fast domains of 8",
    ),
    "micro-batches of no configuration": (
        {},
        ("--micro-batch-size", "3"),
        "no configuration of the case has a micro-batch of 3",
    ),
    "a micro-batch that is none": ({"n_gpus": 0}, (), "n_gpus is 0"),
}


@pytest.mark.parametrize(("changes", "words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_translated_is_refused_in_a_sentence(
    changes: dict[str, Any],
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ask(tmp_path, CASE | changes, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len(err.splitlines()) == 1


def test_each_physics_prices_a_plan_with_the_panels_it_has() -> None:
    question = OwnQuestion.of(small(Strategy.TWO_D), device="a100_80gb")
    first = next(each for each in configurations(question) if each.tp1 == 2 and each.panels == 4)
    assert {
        question.request_of(replace(first, panels=panels)).plan.panels for panels in (2, 4, 8)
    } == {
        (2,),
        (4,),
        (8,),
    }
    comparison = compared(Strategy.TWO_D)
    for best in (comparison.published_best, comparison.own_best):
        assert (
            best is not None
            and best.configuration is not None
            and best.plan is not None
            and best.published is not None
        )
        assert {stage.degrees.panels for stage in best.plan.stages} == {best.configuration.panels}
        (own,) = estimate(question.training, Configurations.of([best.configuration])).seconds
        assert best.published.seconds == own
    ours = comparison.own_best
    assert ours is not None and ours.configuration is not None and ours.published is not None
    fewer_and_more = [replace(ours.configuration, panels=panels) for panels in (2, 4)]
    assert (
        min(estimate(question.training, Configurations.of(fewer_and_more)).seconds)
        < ours.published.seconds
    )


def configurations(question: OwnQuestion) -> Iterator[Configuration]:
    every = space(question.training)
    return (every.at(place) for place in range(len(every)))


def test_the_search_compares_the_numbers_of_panels_that_are_tried() -> None:
    question = OwnQuestion.of(small(Strategy.TWO_D), device="a100_80gb")
    tried = {each.panels for each in configurations(question)}
    assert set(question.search_request(SIZES[Strategy.TWO_D]).plan.panels) == tried == {1, 2, 4}


def test_the_table_has_panels_and_says_which_were_not_tried() -> None:
    comparison = compared(Strategy.TWO_D)
    ours = comparison.own_best
    assert ours is not None and ours.configuration is not None
    tried = "\n".join(comparison_lines(comparison, "title"))
    assert (
        f"micro-batch 2, {ours.configuration.panels} panels " in tried
        and "all the same" not in tried
    )
    one = replace(
        comparison, own_best=replace(ours, configuration=replace(ours.configuration, panels=1))
    )
    lines = comparison_lines(one, "title")
    assert (
        "ours: transformer-perf-estimates tries 2, 4 panels on 2 x 2 GPUs; its formulas price 1 "
        "all the same" in lines
    )


def test_what_is_zero_but_for_rounding_is_no_part() -> None:
    price = next(prices(compared(Strategy.ONE_D)))
    some = replace(price.parts, context_s=1e-9 * price.seconds)
    cleared = replace(
        some, hidden_data_s=1e-14 * price.seconds, pipeline_s=-1e-16, workspace_bytes=1e-5
    ).without_residues()
    assert cleared == replace(some, hidden_data_s=0.0, pipeline_s=0.0, workspace_bytes=0.0)


@pytest.mark.parametrize("strategy", Strategy)
def test_parts_add_up_to_the_difference_of_the_iterations(strategy: Strategy) -> None:
    there_and_here = list(prices(compared(strategy)))
    for there, here in zip(there_and_here[::2], there_and_here[1::2], strict=True):
        differences = [getattr(here.parts, name) - getattr(there.parts, name) for name in PARTS]
        assert sum(differences) == pytest.approx(
            here.seconds - there.seconds, abs=1e-9 * here.seconds
        )


def test_parts_that_are_alike_differ_by_nothing_and_those_that_neither_has_are_no_rows() -> None:
    comparison = compared(Strategy.ONE_D)
    ours = comparison.own_best
    assert (
        ours is not None
        and ours.own is not None
        and ours.own.parts.context_s == 0 < ours.own.parts.bubble_s
    )
    nearly = {name: value * (1 + 1e-15) for name, value in vars(ours.own.parts).items()}
    alike = replace(ours, published=replace(ours.own, parts=Parts(**nearly)))
    lines = comparison_lines(replace(comparison, published_best=None, own_best=alike), "title")
    rows = lines[next(place for place, line in enumerate(lines) if "here - there" in line) + 1 : -3]
    told = [line for line in rows if line.split()[-1:] not in ([], ["GB"])]
    assert {line.split()[-1] for line in told} == {"0"}
    assert any("bubble" in line for line in told) and not any(
        "keys and values" in line for line in told
    )
