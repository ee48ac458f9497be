"""Plans of runs: what they say, and the rules for what they do not."""

from dataclasses import replace

import pytest
from complete_run import row_with, run_with

from Estimator.devices.files import load_device, load_software
from GraphExtractor.graph import Attention, Recompute
from phaze.validation.assumptions import Notes, load_assumptions
from phaze.validation.pricing import AS_DESCRIBED, SoftwareOverrides
from phaze.validation.run_plan import degrees_of, possible_plans
from phaze.validation.stages import equal_chunks, fewest_chunks
from phaze.validation.translation import translated
from phaze_common.choices import Precision
from phaze_common.errors import InputError

RULES = load_assumptions()


def plans_of(run, modes=tuple(Recompute)):
    notes = Notes()
    candidates = possible_plans(run, degrees_of(run, notes), run.layers, modes, RULES, notes)
    return candidates, {each.rule: each.value for each in notes.made()}


def plan_of(run):
    (candidate,), _ = plans_of(run)
    return candidate.plan


def read(device=None, **changes):
    """A published row in typed fields."""
    return translated(row_with(**changes), RULES, Notes(), device)


def test_a_run_that_says_everything_has_one_plan_and_no_assumption():
    (candidate,), notes = plans_of(run_with())
    plan = candidate.plan
    assert (plan.tp, plan.pp, plan.dp, plan.cp, plan.micro_batch_size, plan.global_batch_size) == (
        2,
        1,
        32,
        1,
        16,
        512,
    )
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
        ({"tp": None, "pp": None, "dp": None, "zero_stage": 3}, (1, 1, 64, 1)),
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
        ({"global_batch_samples": None}, "its global batch"),
    ],
)
def test_degrees_that_cannot_be_are_refused(given, words):
    with pytest.raises(InputError, match=words):
        plans_of(run_with(**given))


@pytest.mark.parametrize(
    ("tokens", "sequence_length", "samples"),
    [
        (4194304.0, 2048, 2048),
        (4e6, 4096, 1024),
        (16e6, 8192, 2048),
        (3e6, 2000, 1500),
        (5e6, 3000, 1667),
    ],
)
def test_a_batch_in_tokens_is_divided_by_the_sequence(tokens, sequence_length, samples):
    notes = Notes()
    row = row_with(
        global_batch=tokens, global_batch_in_tokens=True, sequence_length=sequence_length
    )
    assert translated(row, RULES, notes).global_batch_samples == samples
    assert ("batch", str(samples)) in [(each.rule, each.value) for each in notes.made()]


@pytest.mark.parametrize(
    ("batch", "micro_batch", "whole"),
    [(512, 16, 512), (1000, 16, 1024), (500, 16, 512), (700, 16, 700), (450, 16, 450)],
)
def test_batches_are_of_whole_micro_batches(batch, micro_batch, whole):
    """Multiples of 16 x 32 replicas; 450 and 700 are further than a tenth from any."""
    (candidate,), _ = plans_of(run_with(global_batch_samples=batch, micro_batch_size=micro_batch))
    assert candidate.plan.global_batch_size == whole
    assert bool(candidate.choices) == (whole != batch)


def test_micro_batches_divide_a_replicas_share():
    candidates, _ = plans_of(run_with(micro_batch_size=None, global_batch_samples=384))
    assert [each.plan.micro_batch_size for each in candidates] == [1, 2, 4]
    assert all(each.choices[0].rule == "micro_batch" for each in candidates)
    (odd,), _ = plans_of(run_with(micro_batch_size=None, global_batch_samples=100))
    assert odd.plan.micro_batch_size == 1


@pytest.mark.parametrize(
    ("layers", "pp", "chunks"),
    [(60, 4, 3), (80, 8, 2), (96, 16, 2), (105, 35, 3), (126, 16, 2), (30, 2, 3), (35, 35, 1)],
)
def test_interleaving_without_a_number_takes_the_fewest_equal_chunks(layers, pp, chunks):
    """The first four are those of SC'21's scripts, the fifth is Llama 3."""
    changes = {
        "layers": layers,
        "pp": pp,
        "tp": 1,
        "dp": 1,
        "devices": pp,
        "micro_batch_size": 1,
        "parameters": None,
    }
    run = read(interleave="yes(v unknown)", global_batch=2.0 * pp, **changes)
    assert run.interleave == fewest_chunks(layers, pp) == chunks
    (candidate,), _ = plans_of(run)
    assert candidate.plan.interleave == chunks


def test_interleaving_needs_micro_batches_in_multiples_of_the_stages():
    changes = {
        "layers": 32,
        "pp": 4,
        "tp": 1,
        "dp": 1,
        "devices": 4,
        "micro_batch_size": 1,
        "parameters": None,
    }
    assert read(interleave="yes", global_batch=6.0, **changes).interleave == 1


@pytest.mark.parametrize("layers", range(1, 40))
@pytest.mark.parametrize("stages", range(1, 9))
def test_embedding_and_head_count_in_one_way(layers, stages):
    """What is chosen for a schedule is what its chunks are then cut by."""
    chunks = fewest_chunks(layers, stages)
    assert chunks == 1 or equal_chunks(layers, stages * chunks) is not None
    cut = equal_chunks(layers, stages * chunks)
    assert not cut or (sum(cut) == layers + 2 and len(set(cut)) == 1)


@pytest.mark.parametrize(
    ("words", "chunks"),
    [
        ("3", 3),
        ("", None),
        ("-", None),
        ("no", 1),
        ("none (mostly)", 1),
        ("1", 1),
        ("yes (v=5)", 5),
        ("6 chunks", 6),
    ],
)
def test_interleaving_as_stated(words, chunks):
    run = read(pp=2, tp=1, dp=1, devices=2, interleave=words, global_batch=8.0, micro_batch_size=1)
    assert run.interleave == chunks
    (candidate,), _ = plans_of(replace(run, layers=60))
    assert candidate.plan.interleave == (chunks or 1)
    assert ("interleave" in [each.rule for each in candidate.choices]) == (chunks is None)


@pytest.mark.parametrize(
    ("layers", "pp", "interleave", "stages"),
    [(70, 12, 1, (6,) * 12), (126, 16, 1, (8,) * 16), (126, 16, 2, (4,) * 32)],
)
def test_embedding_and_head_count_as_blocks_where_only_so_stages_are_equal(
    layers, pp, interleave, stages
):
    changes = {
        "layers": layers,
        "pp": pp,
        "tp": 1,
        "dp": 1,
        "devices": pp,
        "interleave": interleave,
    }
    (candidate,), _ = plans_of(run_with(global_batch_samples=64, micro_batch_size=1, **changes))
    assert candidate.plan.stage_layers == stages
    assert [each.rule for each in candidate.choices] == ["stages"]


@pytest.mark.parametrize(("layers", "pp"), [(96, 8), (78, 12), (30, 1), (2, 4)])
def test_other_stages_are_left_to_the_framework(layers, pp):
    run = run_with(
        layers=layers, pp=pp, tp=1, dp=1, devices=pp, global_batch_samples=64, micro_batch_size=1
    )
    assert plan_of(run).stage_layers is None


@pytest.mark.parametrize(
    ("words", "modes"),
    [
        ("full", ["full"]),
        ("selective", ["selective"]),
        ("partial", ["selective"]),
        ("selective (attention only)", ["selective"]),
        ("full (every layer)", ["full"]),
        ("uniform, 1 layer", ["full"]),
        ("block, 2 of 4 layers", ["full"]),
        ("none", ["none"]),
        ("none (mostly)", ["none"]),
        ("no recomputation", ["none"]),
        ("without", ["none"]),
        ("not reported", ["none", "selective", "full"]),
        ("-", ["none", "selective", "full"]),
        ("no", ["none"]),
        ("yes", ["full"]),
        ("activation checkpointing", ["full"]),
        ("", ["none", "selective", "full"]),
        ("unknown", ["none", "selective", "full"]),
    ],
)
def test_recomputation(words, modes):
    candidates, _ = plans_of(read(recompute=words))
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
        ("none (mostly)", 1, 0),
        ("-", 1, 0),
        ("", 1, 0),
        ("fsdp", 2, 1),
        ("3", 2, 1),
    ],
)
def test_zero_stages(words, pp, stage):
    (candidate,), notes = plans_of(read(zero=words, pp=pp, dp=32 // pp))
    assert candidate.plan.zero_stage == stage
    assert ("zero" in notes) == (pp == 2)


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({"precision": "fp16"}, Precision.FP16),
        ({"precision": "bf16 mixed"}, Precision.BF16),
        ({"precision": "fp8 (e4m3)"}, Precision.FP8),
        ({"precision": "fp16 (bf16 later)"}, Precision.FP16),
        ({"precision": ""}, Precision.FP16),
        ({"precision": "", "framework": "NeMo"}, Precision.BF16),
    ],
)
def test_precision(changes, precision):
    assert read(**changes).precision is precision


def test_a_device_without_the_usual_precision_uses_another():
    device = load_device("v100_32gb")
    assert read(device, precision="", framework="NeMo").precision is Precision.FP16


@pytest.mark.parametrize(
    ("changes", "attention", "sequence_parallel"),
    [
        ({"framework": "Megatron-LM"}, Attention.EAGER, False),
        ({"framework": "Megatron-LM with FlashAttention"}, Attention.FLASH, False),
        ({"notes": "without flash attention", "framework": "NeMo"}, Attention.EAGER, True),
        ({"framework": "NeMo"}, Attention.FLASH, True),
        ({"framework": "Megatron-LM", "gpu": "H100-80GB-SXM"}, Attention.EAGER, False),
        (
            {
                "framework": "Megatron-LM",
                "source": "MegaScale (Jiang et al., NSDI'24, arXiv 2402.15627)",
            },
            Attention.EAGER,
            False,
        ),
        (
            {"framework": "Megatron-LM", "source": "NSDI'24, with FlashAttention-2"},
            Attention.FLASH,
            False,
        ),
        (
            {"framework": "Megatron-LM", "source": "a paper of 2023", "notes": "--use-flash-attn"},
            Attention.FLASH,
            False,
        ),
        ({"framework": "NeMo", "source": "no flash attention before 24.01"}, Attention.EAGER, True),
        (
            {"framework": "Megatron-DeepSpeed", "source": "vTrain (MICRO'24)"},
            Attention.EAGER,
            False,
        ),
        ({"framework": "", "source": "Korthikanti et al. 2022"}, Attention.EAGER, False),
        ({"framework": "llm-foundry"}, Attention.FLASH, False),
    ],
)
def test_what_frameworks_do_by_their_time(changes, attention, sequence_parallel):
    run = read(sequence_parallel="", **changes)
    assert (run.attention, run.sequence_parallel) == (attention, sequence_parallel)
    assert read(sequence_parallel="yes", **changes).sequence_parallel
    assert not read(sequence_parallel="none (mostly)", **changes).sequence_parallel


def test_megatron_of_2024_overlaps_nothing_that_it_does_not_say():
    notes = Notes()
    run = translated(row_with(source="NSDI'24", precision="bf16", zero=""), RULES, notes)
    assert (run.software, run.overlap_gradients, run.overlap_tensor, run.zero_stage) == (
        "megatron_core_2024",
        False,
        False,
        0,
    )
    assumed = {each.rule: each.value for each in notes.made()}
    assert (
        "attention eager" in assumed["defaults"] and "overlap_gradients off" in assumed["defaults"]
    )


@pytest.mark.parametrize(
    ("changes", "gradient_bytes"),
    [
        ({"framework": "NeMo", "precision": "fp16"}, 2),
        ({"framework": "NeMo", "precision": "bf16"}, 4),
        ({"framework": "NeMo", "precision": "fp16, fp32 gradients"}, 4),
        ({"framework": "Megatron-LM", "source": "a paper of 2022", "precision": "bf16"}, 4),
        ({"framework": "Megatron-LM", "source": "a paper of 2022", "precision": "fp16"}, 2),
    ],
)
def test_gradients_go_by_the_number_format(changes, gradient_bytes):
    run = read(**changes)
    software = SoftwareOverrides(gradient_bytes=run.gradient_bytes).of(load_software(run.software))
    assert software.gradient_bytes_in(run.precision) == gradient_bytes


@pytest.mark.parametrize(
    ("notes", "kernel", "blocking"),
    [
        ("Triton flash attention", "triton", None),
        ("attn_impl: triton", "triton", None),
        ("with FlashAttention-2", "flash_2", None),
        ("FA3 kernels", "flash_3", None),
        ("cuDNN fused attention", "cudnn", None),
        ("CUDA_LAUNCH_BLOCKING=1 as a work-around", None, True),
        ("flash attention", None, None),
    ],
)
def test_kernels_of_attention_and_launches_that_block_are_read_from_notes(notes, kernel, blocking):
    run = read(notes=notes)
    assert (run.attention_kernel, run.blocking_launches) == (kernel, blocking)


def test_what_a_run_says_of_software_changes_it():
    software = load_software("llm_foundry_2023")
    assert AS_DESCRIBED.of(software) is software
    said = SoftwareOverrides(
        gradient_bytes=4, attention_kernel="flash_2", blocking_launches=True
    ).of(software)
    assert (
        said.gradient_bytes.value == 4.0
        and said.attention.name == "flash_2"
        and said.blocks
        and software.attention.name == "triton"
    )
    assert SoftwareOverrides(attention_kernel="cudnn").of(software).attention.name == "cudnn"
    with pytest.raises(InputError, match="no attention named 'nonsense'"):
        SoftwareOverrides(attention_kernel="nonsense").of(software)
