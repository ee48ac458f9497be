"""The file of stated rules."""

import re
from pathlib import Path

import pytest
from complete_run import row_with

import phaze.validation
from Estimator.devices.files import load_software
from Estimator.hardware_files import load_cluster
from GraphExtractor.graph import Attention
from GraphExtractor.models.dimensions import parse_dimensions
from phaze.validation.assumptions import Notes
from phaze.validation.records import Assumption
from phaze_common.choices import Precision
from phaze_common.recompute_modules import recompute_of

SOURCES = Path(phaze.validation.__file__).parent
NOTED = re.compile(r"(?:assume|Assumption)\(\s*\"(\w+)\"")


def test_every_rule_is_stated_and_every_stated_rule_is_used(rules):
    used = {
        name
        for file in SOURCES.glob("*.py")
        for name in NOTED.findall(file.read_text(encoding="utf-8"))
    }
    assert used == set(rules.rules)


def test_everything_named_exists(rules):
    for framework in (*rules.frameworks, rules.other_framework):
        assert (
            framework.software is None
            or load_software(framework.software).name == framework.software
        )
        assert Attention(framework.attention)
        assert Precision(framework.precision)
        assert framework.reason
        assert framework.model is None or re.compile(framework.model)
        assert all(Precision(each) for each in (*framework.formats, *framework.gradient_bytes))
        assert framework.recompute and all(recompute_of(each) for each in framework.recompute)
    for cluster in rules.clusters:
        assert load_cluster(cluster.cluster).name == cluster.cluster
    for model in rules.models:
        assert model.family is None or parse_dimensions(
            f"{model.family}:layers=2,hidden=256,heads=2"
        )
    for entry in (
        *rules.frameworks,
        rules.recent_devices,
        *rules.models,
        *rules.clusters,
        *rules.conventions,
    ):
        assert re.compile(entry.pattern)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"framework": "Megatron-LM", "source": "SC'21"}, "Megatron-LM 2.x"),
        ({"framework": "Megatron-LM", "source": "Korthikanti et al. 2022"}, "Megatron-LM"),
        ({"framework": "Megatron-LM", "source": "NSDI'24"}, "Megatron-LM of 2024"),
        (
            {"framework": "Megatron-LM", "source": "a paper (arXiv 2402.15627)"},
            "Megatron-LM of 2024",
        ),
        ({"framework": "Megatron-LM", "source": "a paper of 2025"}, "Megatron-LM of 2025 on"),
        ({"framework": "Megatron-LM", "source": "MegaScale (NSDI'24)"}, "Megatron-LM of 2024"),
        ({"framework": "Megatron", "source": "NeMo 24.07 performance"}, "NeMo of 2024"),
        (
            {
                "framework": "Megatron-LM",
                "source": "vTrain (MICRO'24)",
                "notes": "Megatron-DeepSpeed",
            },
            "Megatron-DeepSpeed",
        ),
        (
            {"framework": "DeepSpeed ZeRO-3", "source": "Narayanan et al. SC'21"},
            "DeepSpeed up to 2022",
        ),
        ({"framework": "DeepSpeed ZeRO-3", "source": "a paper of 2024"}, "DeepSpeed"),
        ({"framework": "Megatron-LM", "source": "a paper of 2023"}, "Megatron-LM of 2023"),
        ({"framework": "my own", "source": "Korthikanti et al. 2022"}, "Megatron-LM"),
        ({"framework": "", "source": "MosaicML llm-foundry benchmarks"}, "llm-foundry"),
        ({"framework": "", "source": "Table 4", "model": "Llama 3 405B"}, "Llama 3 training"),
        ({"framework": "Megatron-DeepSpeed", "source": "MICRO'24"}, "Megatron-DeepSpeed"),
        (
            {"framework": "Megatron-DeepSpeed", "source": "a paper of 2022", "model": "BLOOM 176B"},
            "Megatron-DeepSpeed in bf16",
        ),
        (
            {"framework": "", "source": "Smith et al. 2022, DeepSpeed", "model": "MT-NLG 530B"},
            "Megatron-DeepSpeed in bf16",
        ),
        ({"framework": "MLPerf 3.1, NeMo", "source": "MLCommons"}, "NeMo of 2023"),
        ({"framework": "NeMo", "source": "a paper of 2025"}, "NeMo"),
        ({"framework": "llm-foundry", "source": "a paper of 2024"}, "llm-foundry, later"),
        ({"framework": "MegaScale", "source": "2024"}, "MegaScale"),
        ({"framework": "PyTorch FSDP", "source": ""}, "FSDP of 2023"),
        ({"framework": "PyTorch FSDP", "source": "a paper of 2024"}, "FSDP"),
        ({"framework": "JAX", "source": "a paper", "model": "a model"}, "any other"),
    ],
)
def test_frameworks_are_recognised(rules, changes, name):
    assert rules.framework_of(row_with(**changes)).name == name


@pytest.mark.parametrize(
    ("source", "framework", "year"),
    [
        ("SC'21 (arXiv 2104.04473)", "Megatron-LM", 2021),
        ("a benchmark", "NeMo 24.07", 2024),
        ("ISCA’23", "", 2023),
        ("a page", "Megatron-LM", None),
        ("Table 2022.1, 8,192 GPUs", "", 2022),
    ],
)
def test_the_year_is_that_of_source_and_version(rules, source, framework, year):
    assert rules.year_of(row_with(source=source, framework=framework)) == year


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (
            "Megatron-Bridge 26.06 performance summary",
            2,
        ),  # scripts/performance/configs: grad_reduce_in_fp32 is False
        ("Megatron-Bridge 25.11 performance summary, pre-training", 2),
        (
            "Megatron-Bridge model verification card",
            None,
        ),  # of its other recipes, as the software has it
        ("NeMo 24.07 performance summary", None),
    ],
)
def test_performance_recipes_of_megatron_bridge_keep_gradients_in_two_bytes(rules, source, kept):
    row = row_with(source=source, framework="NeMo 26.06 container / Megatron-Bridge v0.5.0")
    found = rules.framework_of(row, "fp8")
    assert (found.software, found.gradient_bytes.get("fp8")) == ("megatron_core", kept)
    assert (
        rules.framework_with("megatron_core", 2026, "fp8").gradient_bytes.get("fp8") is None
    )  # nothing else is taken for them


def test_bf16_defaults_are_not_those_of_fp16_runs(rules):
    bloom = {"framework": "Megatron-DeepSpeed", "source": "a paper of 2022", "model": "BLOOM 176B"}
    assert rules.framework_of(row_with(**bloom), "bf16").software == "megatron_deepspeed_bf16"
    assert rules.framework_of(row_with(**bloom), "fp16").software == "megatron_2021"


def test_notes_join_what_one_rule_filled_in():
    notes = Notes()
    notes.assume("dimensions", "24 heads")
    notes.assume("zero", "1")
    notes.assume("dimensions", "ffn 4096")
    assert notes.made() == (Assumption("dimensions", "24 heads; ffn 4096"), Assumption("zero", "1"))


def test_used_rules_count_runs(rules):
    runs = [(Assumption("zero", "1"),), (Assumption("zero", "1"), Assumption("batch", "7")), ()]
    assert {each.name: each.runs for each in rules.used(runs)} == {"zero": 2, "batch": 1}
    assert all(each.says and each.reason for each in rules.used(runs))
