"""Questions of transformer-perf-estimates under both physics: what is translated, what is compared, what is refused."""

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

from Common.units import GIB
from GraphExtractor.models.registry import find_model
from Studies.problem import single_plan
from third_party.transformer_perf_estimates import (
    Configurations,
    Strategy,
    Training,
    TransformerModel,
    published_model,
    published_models,
    published_system,
    published_systems,
    space,
)
from third_party.transformer_perf_estimates.command_line import main
from third_party.transformer_perf_estimates.comparison import Comparison, Price, compare
from third_party.transformer_perf_estimates.own_hardware import own_hardware, stands_for
from third_party.transformer_perf_estimates.own_requests import OwnQuestion

SMALL = TransformerModel(sequence_length=512, hidden=512, heads=4, layers=4, ffn=2048)
SHORT_OF_MEMORY = replace(published_system("A100"), hbm_capacity_gb=4.2)  # 3 of which our framework reserves
CASE: dict[str, Any] = {
    "strategy": "1d",
    "model": {"l": 512, "e": 512, "h": 4, "depth": 4},
    "system_name": "A100",
    "nvlink_size": 4,
    "n_gpus": 8,
    "global_batch_size": 16,
}


@pytest.fixture(scope="module", autouse=True)
def folder_of_graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Training graphs go below the current folder, which all tests here share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("graphs"))
        yield


def small(strategy: Strategy, **changes: Any) -> Training:
    return replace(Training(strategy, SMALL, SHORT_OF_MEMORY, nvlink_size=4, gpus=8, global_batch=16), **changes)


@cache
def compared(strategy: Strategy) -> Comparison:
    return compare(OwnQuestion.of(small(strategy), device="a100_80gb"), (1, 2))


def prices(comparison: Comparison) -> Iterator[Price]:
    for best in (comparison.published_best, comparison.own_best):
        assert best is not None and best.published is not None and best.own is not None and best.refused == ""
        yield from (best.published, best.own)


@pytest.mark.parametrize("strategy", Strategy)
def test_parts_add_up_to_the_iteration_and_the_memory_of_each_physics(strategy: Strategy) -> None:
    for price in prices(compared(strategy)):
        parts = price.parts
        assert parts.seconds == pytest.approx(price.seconds, rel=1e-9)
        held = parts.state_bytes + parts.kept_bytes + parts.workspace_bytes + parts.reserved_bytes
        assert held == pytest.approx(price.memory_bytes, rel=1e-9)
        assert all(getattr(parts, name) >= -1e-9 * price.seconds for name in vars(parts))
        assert min(parts.products_s, parts.attention_s) > 0


@pytest.mark.parametrize("strategy", Strategy)
def test_each_best_plan_is_the_better_one_under_its_own_physics(strategy: Strategy) -> None:
    comparison = compared(strategy)
    theirs, ours = comparison.published_best, comparison.own_best
    assert comparison.proven and theirs is not None and ours is not None
    assert theirs.own is not None and ours.own is not None and theirs.published is not None and ours.published is not None
    assert theirs.published.feasible and ours.own.feasible
    if theirs.own.feasible and theirs.configuration is not None and theirs.configuration.micro_batch in (1, 2):
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
            assert (plan.devices, plan.zero_stage, plan.global_batch_size) == (8, 1, 16)
            assert configuration in question.configurations_of(plan)
            seen += configuration.tp2 > 1
    assert seen or strategy is Strategy.ONE_D


def test_what_the_system_says_is_the_hardware() -> None:
    training = replace(small(Strategy.ONE_D), system=published_system("B200"), gpus=64, nvlink_size=8)
    hardware = own_hardware(training)
    assert (hardware.device, hardware.peak_tflop_per_s, hardware.memory_bandwidth_gb_per_s) == ("b200", 2500, 8000)
    assert hardware.memory_size_gib * GIB == pytest.approx(192e9)
    fast, slow = hardware.cluster.tiers
    assert (fast.group_size, fast.bandwidth_bytes_per_s, fast.efficiency, fast.latency_s) == (8, 900e9, 0.7, 2.5e-6)
    assert (slow.group_size, slow.bandwidth_bytes_per_s, slow.efficiency, slow.latency_s) == (64, 100e9, 0.7, 5e-6)
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
        training = replace(small(Strategy.ONE_D), model=published_model(name), system=published_system("H200"))
        ours = find_model(OwnQuestion.of(training).model)
        assert ours.sequence_length == published_model(name).sequence_length


def test_nothing_that_fits_is_an_answer_of_either() -> None:
    tiny = small(Strategy.ONE_D, system=replace(SHORT_OF_MEMORY, hbm_capacity_gb=0.01))
    comparison = compare(OwnQuestion.of(tiny, device="a100_80gb"), (1,))
    assert comparison.published_best is None and comparison.own_best is None and not comparison.proven
    assert "fits 9.54 MiB per device; the leanest needs " in comparison.own_reason


def ask(tmp_path: Path, case: dict[str, Any], *words: str) -> int:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    return main(["compare", str(path), *words])


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path, CASE, "--micro-batch-size", "2", "--format", "json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["cases"]
    assert answer["n_gpus"] == 8 and answer["own"]["proven"] and answer["own"]["micro_batch_sizes"] == [2]
    own = answer["own_best"]["own"]
    assert own["feasible"] and answer["own_best"]["plan"]["micro_batch_size"] == 2
    assert ask(tmp_path, CASE, "--micro-batch-size", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "gpt:layers=4,hidden=512,heads=4,ffn=2048,sequence_length=512, 1d: 8 x A100, 4 in a fast domain, global batch 16"
    )
    assert any(line.split()[:1] == ["ours"] and "micro-batch 2" in line for line in lines)
    assert any(line.split()[:3] == ["embedding,", "head,", "loss"] for line in lines)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a system of nobody": (
        {"system": SYSTEM | {"matrix_flops_fp16": 313}, "system_name": "mine"},
        (),
        "none of our devices stands for this system",
    ),
    "numbers of one byte": ({"system": SYSTEM | {"element_size": 1e-9}}, ("--device", "a100_80gb"), "numbers have two bytes"),
    "a model of other sizes": ({}, ("--model", "bertbase"), "its layers is 12, that of the case (depth) is 4"),
    "an unknown device": ({}, ("--device", "a1000"), "no device named 'a1000'"),
    "a device without an NVLink": ({}, ("--device", "tpu_v4"), "is not one of fast domains under a switch"),
    "a broken fast domain": ({"n_gpus": 12, "nvlink_size": 8}, (), "n_gpus is 12, no whole number of fast domains of 8"),
    "micro-batches of no configuration": ({}, ("--micro-batch-size", "3"), "no configuration of the case has a micro-batch of 3"),
    "a micro-batch that is none": ({"n_gpus": 0}, (), "n_gpus is 0"),
}


@pytest.mark.parametrize(("changes", "words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_translated_is_refused_in_a_sentence(
    changes: dict[str, Any], words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, CASE | changes, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len(err.splitlines()) == 1


def test_panels_that_a_plan_may_have_are_all_its_configurations() -> None:
    question = OwnQuestion.of(small(Strategy.TWO_D, model=replace(SMALL, hidden=2048, ffn=8192)), device="a100_80gb")
    every = space(question.training)
    configuration = next(every.at(place) for place in range(len(every)) if every.at(place).tp == 1)
    found = question.configurations_of(single_plan(question.request_of(configuration)))
    assert {each.panels for each in found} == {1, 2, 4}
    assert len(Configurations.of(found)) == 3
