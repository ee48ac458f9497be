"""Plans of runs: what they say, and the rules for what they do not."""

import pytest
from complete_run import run_with

from Common.errors import InputError
from Estimator.devices.files import load_device
from GraphExtractor.graph import Attention, Recompute
from Plans.plan import Precision
from Validation.assumptions import Notes, load_assumptions
from Validation.run_plan import degrees_of, possible_plans, samples_of

RULES = load_assumptions()
DEVICE = load_device("a100_80gb")


def plans_of(run, device=DEVICE):
    notes = Notes()
    framework = RULES.framework_of(run)
    samples = samples_of(run, run.sequence_length, notes)
    degrees = degrees_of(run, framework, notes)
    candidates = possible_plans(run, degrees, samples, run.layers, device, framework, RULES, notes)
    return candidates, {each.rule: each.value for each in notes.made()}


def plan_of(run, device=DEVICE):
    (candidate,), _ = plans_of(run, device)
    return candidate.plan


def test_a_run_that_says_everything_has_one_plan_and_no_assumption():
    (candidate,), notes = plans_of(run_with())
    plan = candidate.plan
    assert (plan.tp, plan.pp, plan.dp, plan.cp, plan.micro_batch_size, plan.global_batch_size) == (2, 1, 32, 1, 16, 512)
    assert (plan.recompute, plan.zero_stage, plan.precision, plan.attention) == (
        Recompute.FULL,
        0,
        Precision.FP16,
        Attention.EAGER,
    )
    assert not plan.sequence_parallel
    assert not notes
    assert not candidate.choices


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dp": None}, (2, 1, 32, 1)),
        ({"dp": None, "cp": None}, (2, 1, 32, 1)),
        ({"cp": None}, (2, 1, 32, 1)),
        ({"cp": 2, "dp": None}, (2, 1, 16, 2)),
        ({"tp": None}, (2, 1, 32, 1)),
        ({"tp": None, "pp": None, "dp": 64}, (1, 1, 64, 1)),
        ({"tp": None, "pp": None, "dp": None, "zero": "fsdp"}, (1, 1, 64, 1)),
        ({"devices": None}, (2, 1, 32, 1)),
    ],
)
def test_degrees_that_are_missing_follow_from_the_devices(given, expected):
    plan = plan_of(run_with(micro_batch_size=1, **given))
    assert (plan.tp, plan.pp, plan.dp, plan.cp) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tp": None, "pp": None, "dp": None}, "it does not say tp and pp"),
        ({"pp": None, "dp": None}, "it does not say pp"),
        ({"tp": 4}, "tp 4 x pp 1 x dp 32 x cp 1 are not the 64 devices"),
        ({"cp": None, "dp": 16}, "tp 2 x pp 1 x dp 16 x cp 1 are not the 64 devices"),
        ({"tp": 3, "dp": None}, "tp 3 x pp 1 x dp 21 x cp 1 are not the 64 devices"),
        ({"devices": None, "dp": None}, "on how many devices"),
        ({"global_batch": None}, "its global batch"),
    ],
)
def test_degrees_that_cannot_be_are_refused(given, words):
    with pytest.raises(InputError, match=words):
        plans_of(run_with(**given))


@pytest.mark.parametrize(
    ("tokens", "sequence_length", "samples"),
    [(4194304.0, 2048, 2048), (4e6, 4096, 1024), (16e6, 8192, 2048), (3e6, 2000, 1500), (5e6, 3000, 1667)],
)
def test_a_batch_in_tokens_is_divided_by_the_sequence(tokens, sequence_length, samples):
    notes = Notes()
    assert samples_of(run_with(global_batch=tokens, global_batch_in_tokens=True), sequence_length, notes) == samples
    assert [(each.rule, each.value) for each in notes.made()] == [("batch", str(samples))]


@pytest.mark.parametrize(
    ("batch", "micro_batch", "whole"),
    [(512.0, 16, 512), (1000.0, 16, 1024), (500.0, 16, 512), (700.0, 16, 700), (450.0, 16, 450)],
)
def test_batches_are_of_whole_micro_batches(batch, micro_batch, whole):
    """Multiples of 16 x 32 replicas; 450 and 700 are further than a tenth from any."""
    (candidate,), _ = plans_of(run_with(global_batch=batch, micro_batch_size=micro_batch))
    assert candidate.plan.global_batch_size == whole
    assert bool(candidate.choices) == (whole != batch)


def test_micro_batches_divide_a_replicas_share():
    candidates, _ = plans_of(run_with(micro_batch_size=None, global_batch=384.0))
    assert [each.plan.micro_batch_size for each in candidates] == [1, 2, 4]
    assert all(each.choices[0].rule == "micro_batch" for each in candidates)
    (odd,), _ = plans_of(run_with(micro_batch_size=None, global_batch=100.0))
    assert odd.plan.micro_batch_size == 1


@pytest.mark.parametrize(
    ("layers", "pp", "chunks"),
    [(60, 4, 3), (80, 8, 2), (96, 16, 2), (105, 35, 3), (126, 16, 2), (30, 2, 3), (35, 35, 1)],
)
def test_interleaving_without_a_number_takes_the_fewest_equal_chunks(layers, pp, chunks):
    """The first four are those of SC'21's scripts, the fifth is Llama 3."""
    run = run_with(
        layers=layers, pp=pp, tp=1, dp=1, devices=pp, interleave="yes(v unknown)", global_batch=2.0 * pp, micro_batch_size=1
    )
    (candidate,), _ = plans_of(run)
    assert candidate.plan.interleave == chunks
    assert ("interleave", str(chunks)) in [(each.rule, each.value) for each in candidate.choices]


def test_interleaving_needs_micro_batches_in_multiples_of_the_stages():
    run = run_with(layers=32, pp=4, tp=1, dp=1, devices=4, interleave="yes", global_batch=6.0, micro_batch_size=1)
    assert plan_of(run).interleave == 1


@pytest.mark.parametrize(("words", "chunks"), [("3", 3), ("", 1), ("no", 1), ("1", 1), ("yes (v=5)", 5), ("6 chunks", 6)])
def test_interleaving_as_stated(words, chunks):
    run = run_with(pp=2, tp=1, dp=1, devices=2, layers=60, interleave=words, global_batch=8.0, micro_batch_size=1)
    assert plan_of(run).interleave == chunks


@pytest.mark.parametrize(
    ("layers", "pp", "interleave", "stages"), [(70, 12, "1", (6,) * 12), (126, 16, "1", (8,) * 16), (126, 16, "2", (4,) * 32)]
)
def test_embedding_and_head_count_as_blocks_where_only_so_stages_are_equal(layers, pp, interleave, stages):
    run = run_with(layers=layers, pp=pp, tp=1, dp=1, devices=pp, interleave=interleave, global_batch=64.0, micro_batch_size=1)
    (candidate,), _ = plans_of(run)
    assert candidate.plan.stage_layers == stages
    assert [each.rule for each in candidate.choices] == ["stages"]


@pytest.mark.parametrize(("layers", "pp"), [(96, 8), (78, 12), (30, 1), (2, 4)])
def test_other_stages_are_left_to_the_framework(layers, pp):
    run = run_with(layers=layers, pp=pp, tp=1, dp=1, devices=pp, global_batch=64.0, micro_batch_size=1)
    assert plan_of(run).stage_layers is None


@pytest.mark.parametrize(
    ("words", "modes"),
    [
        ("full", ["full"]),
        ("selective", ["selective"]),
        ("partial", ["selective"]),
        ("none", ["none"]),
        ("no", ["none"]),
        ("yes", ["full"]),
        ("activation checkpointing", ["full"]),
        ("", ["none", "selective", "full"]),
        ("unknown", ["none", "selective", "full"]),
    ],
)
def test_recomputation(words, modes):
    candidates, _ = plans_of(run_with(recompute=words))
    assert [each.plan.recompute.value for each in candidates] == modes
    assert all(bool(each.choices) == (len(modes) > 1) for each in candidates)


@pytest.mark.parametrize(
    ("words", "pp", "stage"),
    [
        ("0", 1, 0),
        ("1", 1, 1),
        ("1.0", 1, 1),
        ("3", 1, 3),
        ("fsdp", 1, 3),
        ("zero-2", 1, 2),
        ("distributed optimizer", 1, 1),
        ("none", 1, 0),
        ("", 1, 0),
        ("fsdp", 2, 1),
        ("3", 2, 1),
    ],
)
def test_zero_stages(words, pp, stage):
    (candidate,), notes = plans_of(run_with(zero=words, pp=pp, dp=32 // pp))
    assert candidate.plan.zero_stage == stage
    assert ("zero" in notes) == (pp == 2)


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({"precision": "fp16"}, Precision.FP16),
        ({"precision": "bf16 mixed"}, Precision.BF16),
        ({"precision": "fp8 (e4m3)"}, Precision.FP8),
        ({"precision": ""}, Precision.FP16),
        ({"precision": "", "framework": "NeMo"}, Precision.BF16),
    ],
)
def test_precision(changes, precision):
    assert plan_of(run_with(**changes)).precision is precision


def test_a_device_without_the_usual_precision_uses_another():
    assert plan_of(run_with(precision="", framework="NeMo"), load_device("v100_32gb")).precision is Precision.FP16


@pytest.mark.parametrize(
    ("changes", "attention", "sequence_parallel"),
    [
        ({"framework": "Megatron-LM"}, Attention.EAGER, False),
        ({"framework": "Megatron-LM with FlashAttention"}, Attention.FLASH, False),
        ({"notes": "without flash attention", "framework": "NeMo"}, Attention.EAGER, True),
        ({"framework": "NeMo"}, Attention.FLASH, True),
        ({"framework": "Megatron-LM", "gpu": "H100-80GB-SXM"}, Attention.FLASH, True),
        ({"framework": "Megatron-LM", "source": "MegaScale (Jiang et al., NSDI'24, arXiv 2402.15627)"}, Attention.FLASH, True),
        ({"framework": "Megatron-DeepSpeed", "source": "vTrain (MICRO'24)"}, Attention.EAGER, False),
        ({"framework": "", "source": "Korthikanti et al. 2022"}, Attention.EAGER, False),
        ({"framework": "llm-foundry"}, Attention.FLASH, False),
    ],
)
def test_what_frameworks_do_by_their_time(changes, attention, sequence_parallel):
    run = run_with(sequence_parallel="", **changes)
    plan = plans_of(run)[0][0].plan
    assert (plan.attention, plan.sequence_parallel) == (attention, sequence_parallel)
    assert plans_of(run_with(sequence_parallel="yes", **changes))[0][0].plan.sequence_parallel
