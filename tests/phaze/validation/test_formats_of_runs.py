"""Recipes, scripts and sites as tables of runs say them."""

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device
from phaze.validation.assumptions import Assumptions, Notes, load_assumptions
from phaze.validation.intervals import Predicted, interval, load_residuals
from phaze.validation.published_runs import PublishedRow
from phaze.validation.published_words import precision_in
from phaze.validation.translation import translated
from phaze.validation.typed_run import NO_DEGREES
from phaze_common.choices import Precision, Recompute
from phaze_common.recompute_modules import BETWEEN_PRODUCTS


@pytest.fixture(scope="module")
def rules() -> Assumptions:
    return load_assumptions()


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("fp8", Precision.FP8),
        ("fp8_full", Precision.FP8),
        ("fp8 (table does not say; 25.09 first number)", Precision.FP8),
        ("fp8-cs", Precision.FP8_CURRENT),
        ("fp8 tensorwise", Precision.FP8_CURRENT),
        ("fp8 blockwise", Precision.FP8_BLOCK),
        ("fp8-sc", Precision.FP8_BLOCK),
        ("fp8-mx", Precision.MXFP8),
        ("mxfp8", Precision.MXFP8),
        ("nvfp4", Precision.NVFP4),
        ("bf16", Precision.BF16),
        ("int8", None),
        ("mxfp4", None),
    ],
)
def test_recipes_in_words(words: str, precision: Precision | None) -> None:
    assert precision_in(words) is precision


def test_formats_below_16_bits_share_their_framework(rules: Assumptions) -> None:
    row = PublishedRow(1, framework="NeMo / dgxc v25.02", source="dgxc v25.02", model="a model")
    names = {rules.framework_of(row, each).name for each in Precision if each.is_reduced}
    assert len(names) == 1


SCRIPTED = PublishedRow(
    1,
    source="MaxText configs README (v5p)",
    url="github.com/AI-Hypercomputer/maxtext src/maxtext/configs/tpu/v5p/README.md; 32b.sh",
    model="GPT-like 32B",
    gpu="TPU v5p",
    devices=64,
    tflops_per_device=328.0,
)


def test_a_script_says_the_plan_of_a_run(rules: Assumptions) -> None:
    run = translated(SCRIPTED, rules, Notes())
    assert (run.degrees.tp, run.degrees.dp, run.micro_batch_size) == (4, 16, 28)
    assert run.global_batch_samples == 7 * 64 and run.recompute == BETWEEN_PRODUCTS
    assert not run.offloaded_activations
    url = SCRIPTED.url.replace("v5p", "v5e").replace("32b", "128b")
    wider = replace(SCRIPTED, model="GPT-like 128B", url=url, gpu="TPU v5e", devices=256)
    offloaded = translated(wider, rules, Notes())
    assert offloaded.recompute == BETWEEN_PRODUCTS and offloaded.offloaded_activations == 1.0
    assert (run.layers, run.hidden, run.heads, run.ffn) == (32, 8192, 64, 28672)
    own = translated(replace(SCRIPTED, global_batch=64.0), rules, Notes())
    assert own.global_batch_samples == 64 and own.degrees.tp is None


def test_a_width_in_cores_is_one_in_chips(rules: Assumptions) -> None:
    row = PublishedRow(
        1,
        model="GPT3-175B",
        gpu="Trainium1",
        devices=512,
        degrees=replace(NO_DEGREES, tp=32, pp=8, dp=4),
        notes="12.7 sequences/s as printed; tp/pp/dp count cores; devices are chips",
    )
    assert translated(row, rules, Notes()).degrees.tp == 16
    assert translated(replace(row, notes=""), rules, Notes()).degrees.tp == 32
    assert translated(replace(row, devices=1024), rules, Notes()).degrees.tp == 32


def test_heads_of_their_own_width_are_kept(rules: Assumptions) -> None:
    wide = replace(SCRIPTED, model="GPT-like 1024B", url=SCRIPTED.url.replace("32b", "1024b"))
    run = translated(wide, rules, Notes())
    assert "head_width128" in run.model and run.sequence_length == 2048
    assert run.recompute is Recompute.FULL


def test_sites_that_differ_widen_intervals_and_say_so() -> None:
    device = load_device("b200")
    alike = Predicted(device.name, "megatron_core", 64, measured=True)
    one, many = (
        interval(load_residuals(), each, 0.8)
        for each in (alike, replace(alike, sites=device.spread))
    )
    assert one is not None and many is not None and many.width > 1.2 * one.width
    assert "sites with b200 differ by 12%" in many.reasons
    assert load_device("h100").spread == 0.0  # of whose sites there are published runs


def test_samples_a_second_are_the_time_of_an_iteration(rules: Assumptions) -> None:
    row = PublishedRow(
        1,
        model="llama3-8b",
        gpu="MI355X",
        devices=8,
        global_batch=32.0,
        micro_batch_size=2,
        framework="Primus/PyTorch",
        source="MLPerf Training v5.1",
        notes="throughput 30.657 samples/s as logged; accumulation 2",
    )
    run = translated(row, rules, Notes())
    assert run.iteration_s == pytest.approx(32 / 30.657)
    assert run.precision is Precision.FP8  # what AMD's submissions train in
    assert translated(replace(row, notes="samples/s"), rules, Notes()).iteration_s is None


def test_tokens_a_second_of_replicas_that_nobody_counts(rules: Assumptions) -> None:
    row = PublishedRow(
        1,
        model="llama3-70b",
        sequence_length=8192,
        gpu="MI325X",
        devices=64,
        micro_batch_size=4,
        overlap="FSDP: yes",
        precision="fp8",
        framework="Primus + Megatron-LM",
        tokens_per_s_per_device=1726.0,
    )
    run = translated(row, rules, Notes())
    assert run.zero_stage == 3 and run.global_batch_samples == 4 * 64
    assert run.iteration_s == pytest.approx(4 * 8192 / 1726.0)
