"""transformer-perf-estimates: its published results, whole spaces against one configuration at a
time, and what always holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_cases import CASE, SYSTEM, TWO_D, random_question, small_space
from transformer_iterations_by_hand import price

from third_party.transformer_perf_estimates import (
    AS_PUBLISHED,
    CORRECTED,
    Configurations,
    Correction,
    Strategy,
    Training,
    best_of,
    estimate,
    estimate_at,
    published_model,
    published_models,
    published_system,
    search,
    space,
)
from third_party.transformer_perf_estimates.answers import evaluated, searched
from third_party.transformer_perf_estimates.case_files import read_configuration, read_training

HERE = Path()
GOLDEN = "layouts/transformer_perf_estimates_golden.json"
# Candidates for 512, 1024, 4096 and 16384 GPUs, as its own search prints them at commit 54278b0,
# global batch 4096.
CANDIDATES = {
    ("1d", "gpt3_1T", 4): (1730, 1818, 1712, 1310),
    ("1d", "gpt3_1T", 8): (2324, 2554, None, 2027),
    ("seqp", "gpt3_1T", 4): (10066, 11859, 13806, 13090),
    ("seqp", "gpt3_1T", 8): (14636, 18114, 22712, 22696),
    ("seqp", "gpt3_1T", 64): (14636, 22924, 40003, 49897),
    ("seqp", "vit_era5", 8): (14484, 17815, 21936, 21191),
    ("2d", "gpt3_1T", 4): (30755, 34495, 36594, 32011),
    ("2d", "gpt3_1T", 8): (44177, 51992, 59390, 54662),
    ("2d", "gpt3_1T", 64): (44177, 64960, 101572, 115938),
    ("2d", "vit_era5", 8): (26823, 30391, 34572, 33929),
}


@pytest.fixture(scope="module")
def golden(shared_data: Path) -> list[dict[str, Any]]:
    if not (shared_data / GOLDEN).exists():
        pytest.skip(f"{GOLDEN} is not there")
    return json.loads((shared_data / GOLDEN).read_text())["cases"]


def assert_same(answer: Any, expected: Any, where: str) -> None:
    """Every key and number of ``expected`` is in the answer."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert_same(answer[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(answer) == len(expected)
        for place, value in enumerate(expected):
            assert_same(answer[place], value, f"{where}[{place}]")
    elif isinstance(expected, float):
        assert answer == pytest.approx(expected, rel=1e-9, abs=0), where
    elif expected is not None:
        assert answer == expected, where


def test_golden_configurations_are_priced_to_the_last_operator(
    golden: list[dict[str, Any]],
) -> None:
    for case in golden:
        assert_same(
            evaluated(case, HERE, as_published=True), case, f"{case['strategy']} {case['n_gpus']}"
        )


def test_golden_configurations_are_the_best_of_their_spaces(golden: list[dict[str, Any]]) -> None:
    for case in golden:
        question = {key: value for key, value in case.items() if key not in ("config", "nv")}
        assert searched(question, HERE, as_published=True, top=1)["t"] == pytest.approx(
            case["t"], rel=1e-9, abs=0
        )


def test_the_published_results_are_found() -> None:
    """arXiv 2410.00273, outputs of its repository at global batch 4096: seconds, GB, degrees."""
    for strategy, model, system, size, gpus, seconds, memory_gb, degrees in (
        ("1d", "gpt3_1T", "A100", 4, 512, 614.202, 73.42, (16, 1, 32, 1)),
        ("1d", "gpt3_1T", "A100", 4, 4096, 70.996, 75.74, (8, 1, 32, 16)),
        ("1d", "gpt3_1T", "H200", 8, 512, 143.071, 126.6, (4, 1, 64, 2)),
        ("1d", "gpt3_1T", "B200", 8, 4096, 9.039, 98.1, (4, 1, 128, 8)),
        ("seqp", "gpt3_1T", "B200", 8, 512, 56.418, 189.4, (1, 2, 128, 2)),
        ("seqp", "vit_era5", "B200", 8, 512, 388.721, 184.6, (1, 16, 4, 8)),
        ("2d", "gpt3_1T", "B200", 8, 512, 55.394, 161.3, (2, 1, 128, 2)),
        ("2d", "gpt3_1T", "B200", 8, 4096, 8.544, 71.8, (4, 1, 128, 8)),
    ):
        found = search(training(strategy, model, system, size, gpus), corrections=AS_PUBLISHED)
        best = estimate_at(found.estimates, int(found.best[0]))
        assert best.seconds == pytest.approx(seconds, abs=5e-4)
        assert best.memory_gb == pytest.approx(memory_gb, abs=0.06)
        each = best.configuration
        assert (each.tp1, each.tp2, each.pp, each.dp) == degrees


def test_the_vision_transformer_fits_nowhere_under_1d() -> None:
    """Section 1.7 of the facts: its 64,800 tokens are why there are other strategies."""
    for system in ("A100", "H200", "B200"):
        found = search(training("1d", "vit_era5", system, 8, 4096))
        assert found.candidates > 0 and found.feasible == 0 and len(found.best) == 0


@pytest.mark.parametrize("key", CANDIDATES, ids=lambda key: "-".join(map(str, key)))
def test_spaces_have_the_published_number_of_candidates(key: tuple[str, str, int]) -> None:
    strategy, model, size = key
    for gpus, candidates in zip((512, 1024, 4096, 16384), CANDIDATES[key], strict=True):
        assert (
            candidates is None
            or len(space(training(strategy, model, "B200", size, gpus))) == candidates
        )


def training(strategy: str, model: str, system: str, nvlink_size: int, gpus: int) -> Training:
    return Training(
        Strategy(strategy),
        published_model(model),
        published_system(system),
        nvlink_size,
        gpus,
        4096,
    )


questions = st.builds(
    lambda seed, strategy: random_question(Random(seed), strategy),
    st.integers(0, 2**32),
    st.sampled_from(Strategy),
)
some_corrections = st.frozensets(st.sampled_from(Correction))


@settings(max_examples=100)
@given(questions, some_corrections)
def test_a_whole_space_is_every_configuration_priced_by_itself(
    question: dict[str, Any], corrections: frozenset[Correction]
) -> None:
    asked, listed = read_training(question, HERE), small_space(question).configurations
    configurations = space(asked)
    estimates = estimate(asked, configurations, corrections)
    by_configuration = {read_configuration(case, asked): case for case in listed}
    places = {configurations.at(place): place for place in range(len(configurations))}
    assert (
        len(listed) == len(by_configuration) == len(configurations)
        and places.keys() == by_configuration.keys()
    )
    shortest = math.inf
    for configuration, case in by_configuration.items():
        expected = price(case, question["model"], question["system"], corrections)
        place = places[configuration]
        assert estimates.seconds[place] == pytest.approx(expected.seconds, rel=1e-12, abs=0)
        assert estimates.memory_gb[place] == pytest.approx(expected.memory_gb, rel=1e-12, abs=0)
        if expected.memory_gb <= question["system"]["hbm_capacity"]:
            shortest = min(shortest, expected.seconds)
    best = best_of(estimates, 3).best
    assert (len(best) > 0) == (shortest < math.inf)
    assert len(best) == 0 or estimates.seconds[best[0]] == pytest.approx(shortest, rel=1e-12)


@settings(max_examples=100)
@given(questions, some_corrections)
def test_parts_add_up_and_more_of_anything_is_never_slower(
    question: dict[str, Any], corrections: frozenset[Correction]
) -> None:
    asked = read_training(question, HERE)
    configurations = space(asked)
    estimates = estimate(asked, configurations, corrections)
    for place in range(min(len(configurations), 5)):
        each = estimate_at(estimates, place)
        parts = (
            each.arithmetic_s,
            each.exposed_memory_s,
            each.tensor_parallel_s,
            each.data_parallel_s,
            each.pipeline_s,
            each.bubble_s,
        )
        assert sum(parts) == pytest.approx(each.seconds, rel=1e-12)
        memory = (each.weights_gb, each.gradients_gb, each.optimizer_gb, each.kept_gb)
        assert sum(memory) == pytest.approx(each.memory_gb, rel=1e-12)
        assert min(parts) >= 0 < min(memory)
    for key in (
        "matrix_flops_fp16",
        "hbm_bandwidth",
        "nvlink_bandwidth",
        "ib_bandwidth",
        "nic_factor",
    ):
        # Attention counts vector operations as so many of the tensor cores, so both peaks grow
        # together.
        more = {key: 2 * question["system"][key]}
        if key == "matrix_flops_fp16":
            more["vector_flops_fp16"] = 2 * question["system"]["vector_flops_fp16"]
        better = read_training(question | {"system": question["system"] | more}, HERE)
        faster = estimate(better, configurations, corrections)
        assert (faster.seconds <= estimates.seconds * (1 + 1e-12)).all()
        assert faster.memory_gb.tolist() == estimates.memory_gb.tolist()


@settings(max_examples=30)
@given(questions)
def test_the_best_are_in_order_and_none_that_fits_is_better(question: dict[str, Any]) -> None:
    found = search(read_training(question, HERE), top=4)
    seconds, feasible = found.estimates.seconds, found.estimates.feasible
    assert feasible[found.best].all() and len(found.best) == min(4, found.feasible)
    assert seconds[found.best].tolist() == sorted(seconds[feasible].tolist())[:4]


def test_an_answer_says_which_correction_changed_it() -> None:
    for case, at_work in ((CASE, {"bias-shards"}), (TWO_D, {"all-reduce", "norm-width"})):
        answer = evaluated(case, HERE, as_published=False)
        published = evaluated(case, HERE, as_published=True)
        assert (answer["as_published"]["t"], answer["as_published"]["mem"]) == (
            published["t"],
            published["mem"],
        )
        assert answer["t"] != published["t"] and "as_published" not in published
        assert answer["as_published"]["corrections"].keys() == at_work
    spread = TWO_D | {
        "config": TWO_D["config"] | {"pp": 32, "dp": 16},
        "nv": {"nv_tp1": 4, "nv_tp2": 1, "nv_dp": 1, "nv_pp": 2},
    }
    assert (
        "pipeline-links"
        in evaluated(spread, HERE, as_published=False)["as_published"]["corrections"]
    )


def test_corrections_do_what_they_say() -> None:
    """By hand, one at a time, on two stages in each domain."""
    case = TWO_D | {
        "config": TWO_D["config"] | {"pp": 32, "dp": 16},
        "nv": {"nv_tp1": 4, "nv_tp2": 1, "nv_dp": 1, "nv_pp": 2},
    }
    asked = read_training(case, HERE)
    configurations = Configurations.of([read_configuration(case, asked)])

    def one(*corrections: Correction):
        return estimate_at(estimate(asked, configurations, frozenset(corrections)), 0)

    published = one()
    norm, wide = (
        next(op for op in each.operators if op.name == "ln1")
        for each in (published, one(Correction.NORM_WIDTH))
    )
    assert wide.kept_gb / norm.kept_gb == pytest.approx(25600 / 2048)
    assert one(Correction.PIPELINE_LINKS).pipeline_s > published.pipeline_s
    assert one(Correction.BIAS_SHARDS) == one(Correction.EXACT_SHARDS) == published
    summed, twice = (
        next(op for op in each.operators if op.name == "ln2")
        for each in (published, one(Correction.ALL_REDUCE))
    )
    assert twice.forward_messages_s > summed.forward_messages_s
    assert one(*CORRECTED).seconds > published.seconds


def test_a_search_says_what_the_published_formulas_would_have_found() -> None:
    case = {
        key: TWO_D[key]
        for key in (
            "strategy",
            "model_name",
            "system_name",
            "nvlink_size",
            "n_gpus",
            "global_batch_size",
        )
    }
    answer, published = (
        searched(case, HERE, as_published, top=3) for as_published in (False, True)
    )
    assert answer["candidates"] == published["candidates"]
    assert (
        answer["as_published"]["t"] == published["t"]
        and answer["as_published"]["config"] == published["config"]
    )
    assert (
        answer["best"][0]["as_published"]["t"] < answer["t"]
        and answer["best"][0]["t"] == answer["t"]
    )
    assert [each["t"] for each in answer["best"]] == sorted(each["t"] for each in answer["best"])
    again = evaluated(
        case | {key: answer[key] for key in ("config", "nv")}, HERE, as_published=False
    )
    assert (
        again["t"] == pytest.approx(answer["t"], rel=1e-12)
        and again["stats"].keys() == answer["stats"].keys()
    )


def test_where_nothing_fits_the_answer_is_empty() -> None:
    case = {key: CASE[key] for key in CASE if key not in ("config", "nv", "system_name")}
    answer = searched(
        case | {"system": SYSTEM | {"hbm_capacity": 1e-3}}, HERE, as_published=False, top=2
    )
    assert answer["candidates"] == 1730 and answer["feasible_candidates"] == 0
    assert answer["best"] == [] and answer["t"] is None and answer["as_published"]["config"] is None


def test_published_models_and_systems_are_there() -> None:
    assert {name: (model.layers, model.ffn) for name, model in published_models().items()} == {
        "gpt3": (96, 4 * 12288),
        "gpt3_1T": (128, 4 * 25600),
        "vit_era5": (48, 4 * 12288),
    }
    assert published_system("B200-next").hbm_capacity_gb == 384
    case = CASE | {"system": SYSTEM}
    assert (
        evaluated(case, HERE, as_published=True)["t"]
        == evaluated(CASE, HERE, as_published=True)["t"]
    )
