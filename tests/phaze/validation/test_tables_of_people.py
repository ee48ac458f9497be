"""Tables as people write them: their columns, names of models, devices and software; what they
leave open; one bad row alone."""

import csv
import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from complete_run import row_with, run_with
from unpriced import no_plan_of_ours

from Estimator.devices.files import device_of_run
from Estimator.plans.results import TimeInterval
from GraphExtractor.models.registry import canonical_name
from phaze.report.tables.validation_tables import report_json, report_tables
from phaze.report.terminal import print_tables
from phaze.validation.alike import filled_from_others
from phaze.validation.assumptions import Assumptions, Notes
from phaze.validation.csv_table import LONGEST_RECORD, RefusedRow, csv_lines
from phaze.validation.intervals import Predicted, load_residuals, run_intervals
from phaze.validation.published_runs import PublishedRow, read_rows, unread_columns
from phaze.validation.published_words import precision_in, recompute_in, stated_stage_in
from phaze.validation.records import Unstated, ValidationReport
from phaze.validation.run import validate
from phaze.validation.runs import PUBLISHED_RUNS, read_runs
from phaze.validation.translation import translated
from phaze.validation.typed_run import read_typed, write_typed
from phaze_common.choices import Precision, Recompute
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from phaze_common.recompute_modules import Recomputation, recompute_of

QWEN = "qwen3-layers28-hidden1024-heads16-ffn3072-kv_heads8-sequence_length1024-tied1"  # Qwen3-0.6B

BRIDGE = {  # columns of a table of today, and a run of a small model
    "source": "a table of 2025",
    "date": "2025-11",
    "model": "Qwen3_0.6B",
    "seq_len": "1024",
    "device": "DGX-H100",
    "n_devices": "8",
    "tp": "1",
    "pp": "1",
    "vpp": "1",
    "ep": "1",
    "cp": "1",
    "dp": "8",
    "micro_batch": "2",
    "global_batch": "64",
    "precision": "BF16",
    "recompute": "none set in recipe",
    "framework_version": "NeMo 25.11 container / Megatron-Bridge v0.2.1",
    "step_time_s": "0.5",
    "tokens_per_s_per_gpu": "",
    "memory_gb": "40",
    "colour of the rack": "blue",
}


def written(path: Path, *changes: dict[str, str], columns: dict[str, str] = BRIDGE) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows([columns | change for change in changes])
    return path


def validated(path: Path, graphs: Path) -> ValidationReport:
    return validate(path, None, None, None, graphs, SilentProgress(), no_plan_of_ours)


def read(rules: Assumptions, made: Notes, /, **changes: object) -> object:
    return translated(row_with(**changes), rules, made)


def test_a_table_of_today_is_read_and_what_nothing_reads_is_said(
    tmp_path: Path, graphs: Path
) -> None:
    path = written(tmp_path / "runs.csv", {}, {"step_time_s": "", "tokens_per_s_per_gpu": "16384"})
    report = validated(path, graphs)
    by_time, by_tokens = report.runs
    assert (
        by_time.plan is not None
        and by_tokens.plan == by_time.plan
        and by_tokens.predicted_s == by_time.predicted_s
    )
    assert (by_time.plan.device, by_time.plan.model, by_time.plan.degrees.recompute) == (
        "h100",
        QWEN,
        "none",
    )
    assert (by_time.measured_memory_bytes, by_time.measured_s) == (40e9, 0.5)
    assert by_tokens.measured_s == pytest.approx(64 * 1024 / (16384 * 8))
    assert report.unread == unread_columns(path) == ("colour of the rack",)
    assert json.loads(report_json(report))["unread_columns"] == ["colour of the rack"]
    assert "columns that are not read" in [table.title for table in report_tables(report)]


BAD = {
    "step_time_s": ("0", "-1", "nan", "1e9", "inf"),
    "tokens_per_s_per_gpu": ("0", "-3", "NaN"),
    "memory_gb": ("0", "-2", "1e9"),
    "n_devices": ("-8",),
    "micro_batch": ("-1",),
}


@pytest.mark.parametrize(
    ("column", "text"), [(column, text) for column, texts in BAD.items() for text in texts]
)
def test_one_bad_value_refuses_its_row_alone_with_line_and_column(
    column: str, text: str, tmp_path: Path, graphs: Path
) -> None:
    report = validated(written(tmp_path / "runs.csv", {}, {column: text}, {}), graphs)
    assert [run.skipped for run in report.runs] == [False, True, False]
    assert f"line 3, column {column} is {text!r}" in report.runs[1].reason


@pytest.mark.parametrize("line", ['a,"b', "x" + "," * 40, '"a"b,c'])
def test_a_line_that_is_no_record_refuses_no_other(line: str, tmp_path: Path, graphs: Path) -> None:
    path = written(tmp_path / "runs.csv", {}, {})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, lines[2], ""]))
    reasons = {run.line: run.reason for run in validated(path, graphs).runs}
    assert not reasons[2] and reasons[3] and not reasons[4]


def test_a_table_without_a_row_that_can_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"line 2, column step_time_s is '-1'.* \(and so it is with 1 other lines\)",
    ):
        read_rows(written(tmp_path / "runs.csv", {"step_time_s": "-1"}, {"step_time_s": "nan"}))


def test_odd_quotes_swallow_no_table() -> None:
    """A record ends where none is as long, so that each line is looked at a bounded number of
    times."""
    text = "\n".join(f'a{place},"b' if place % 2 else f"a{place},b" for place in range(5000))
    found = list(csv_lines(text))
    assert {each.number for each in found if not each.wrong} and max(
        each.number for each in found
    ) >= 5000 - LONGEST_RECORD
    assert [each.cells for each in csv_lines('a,"b\nc"\n\nd,e\n')] == [("a", "b\nc"), ("d", "e")]


def test_a_typed_row_refuses_no_other_and_neither_does_one_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "typed.csv"
    write_typed([run_with(), run_with(tp=4)], path)
    path.write_text(path.read_text().replace("full", "mostly", 1))
    first, second = read_typed(path)
    assert isinstance(first, RefusedRow) and "line 2, column recompute is 'mostly'" in first.reason
    assert not isinstance(second, RefusedRow) and second.degrees.tp == 4


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("LLAMA3_8B", "llama3-8b"),
        ("Llama 3.1 405b BF16", "llama3-405b"),
        ("LLAMA3.1_405B", "llama3-405b"),
        ("Llama-3.3 70B", "llama3-70b"),
        ("Llama2-7B", "llama2-7b"),
        ("Mixtral 8x22B", "mixtral-8x22b"),
        ("Qwen3_30B_a3B (tokendrop)", "qwen3-30b-a3b"),
        ("Qwen3 MoE 30B", "qwen3-30b-a3b"),
        ("qwen3_235b_a22b", "qwen3-235b-a22b"),
        ("qwen3_8b", "qwen3-8b"),
        ("DeepSeekV3 (w/ MTP)", "deepseek-v3"),
        ("DeepSeek-V3 671B", "deepseek-v3"),
        ("GPT3-175B", "gpt3-175b"),
        ("NeMo Megatron 24.11 BF16", "gpt3-175b"),
        ("DeepSeek-V3.2", None),
        ("DeepSeek-V3 proxy (14 layers)", None),
        ("deepseek_v4_flash", None),
        ("Llama 3.2 1B", None),
        ("Qwen2.5 7B", None),
        ("Kimi-K2", "kimi-k2"),
        ("moonlight_16b_a3b", "moonlight-16b-a3b"),
        ("Kimi-K2.5", None),
        ("Nemotron-H 56B", None),
    ],
)
def test_names_of_models_as_tables_write_them(
    rules: Assumptions, said: str, meant: str | None
) -> None:
    assert rules.published_name(said) == meant
    assert meant is None or canonical_name(meant)


@pytest.mark.parametrize(
    ("said", "device"),
    [
        ("DGX-GB200", "gb200"),
        ("DGX-H100", "h100"),
        ("HGX B200", "b200"),
        ("H100 96GB HBM2e 2.4 TB/s, 500 W", "h100_96gb"),
        ("H200 (a3ultra)", "h200"),
        ("TPU v6e", "tpu_v6e"),
    ],
)
def test_names_of_devices_as_tables_write_them(said: str, device: str) -> None:
    assert device_of_run(said).name == device


# what a row says, the framework that is meant, the year of its software, and the ZeRO stage
SOFTWARE = [
    (
        {"framework": "FSDP zero-2 style", "source": "Grattafiori et al. 2024, Table 4"},
        "Llama 3 training",
        2024,
        2,
    ),
    (
        {"framework": "FSDP zero-2 style", "source": "a talk", "model": "Llama 3 405B"},
        "Llama 3 training",
        2024,
        2,
    ),
    (
        {"framework": "PyTorch FSDP", "source": "The Llama 3 herd of models (2024)"},
        "Llama 3 training",
        2024,
        None,
    ),
    (
        {
            "framework": "PyTorch FSDP, Megatron-style tensor parallelism",
            "source": "a paper of 2024",
        },
        "FSDP",
        2024,
        None,
    ),
    (
        {"framework": "Megatron-like, in torchtitan", "source": "a paper of 2025"},
        "torchtitan",
        2025,
        None,
    ),
    (
        {"framework": "NeMo, MLPerf 4.0", "gpu": "H100", "source": "MLCommons"},
        "NeMo of 2024",
        2024,
        None,
    ),
    (
        {
            "framework": "NeMo",
            "gpu": "H100",
            "source": "MLPerf Training v4.1",
            "notes": "NGC 24.04",
        },
        "NeMo of 2024",
        2024,
        None,
    ),
    ({"framework": "NeMo", "gpu": "H100", "source": "MLPerf 3.1"}, "NeMo of 2023", 2023, None),
    (
        {
            "framework": "NeMo",
            "source": "MLPerf Training v5.0",
            "notes": "nvcr.io/nvidia/nemo:24.12",
        },
        "NeMo of 2024",
        2024,
        None,
    ),
    (
        {"framework": "NeMo", "notes": "MFU 24.10%", "source": "MLPerf Training 5.1"},
        "NeMo",
        2025,
        None,
    ),
    (
        {"framework": "NeMo / dgxc v24.11.1", "source": "dgxc-benchmarking"},
        "NeMo, recipes of DGX Cloud of 2024",
        2024,
        None,
    ),
    (
        {"framework": "NeMo / dgxc v25.02", "source": "dgxc-benchmarking"},
        "NeMo, recipes of DGX Cloud",
        2025,
        None,
    ),
    (
        {"framework": "NeMo / dgxc v24.11.1", "source": "dgxc", "model": "Maxtext LLama2 70b FP8"},
        "MaxText",
        2024,
        None,
    ),
    (
        {"framework": "Megatron-Bridge 0e6c1837ed", "source": "a card", "date": "2026-07-20"},
        "NeMo",
        2026,
        None,
    ),
    (
        {"framework": "Megatron-LM", "source": "a page", "model": "Qwen3-30B-A3B"},
        "Megatron-LM of 2025 on",
        2025,
        None,
    ),
    (
        {"framework": "DeepSpeed ZeRO-3", "source": "a paper of 2021", "precision": "fp16"},
        "DeepSpeed up to 2022",
        2021,
        3,
    ),
    (
        {
            "framework": "",
            "source": "InternEvo",
            "date": "tag v0.2.1dev20231121",
            "notes": "zero1=-1",
        },
        "InternEvo",
        2023,
        1,
    ),
    ({"framework": "NeMo 25.09", "source": "a table", "overlap": "megatron fsdp"}, "NeMo", 2025, 3),
]


@pytest.mark.parametrize(("changes", "name", "year", "stage"), SOFTWARE)
def test_software_by_its_words(
    rules: Assumptions, changes: dict[str, str], name: str, year: int, stage: int | None
) -> None:
    row = row_with(**({"model": "a model"} | changes))
    assert (rules.framework_of(row, precision_in(row.precision)).name, rules.year_of(row)) == (
        name,
        year,
    )
    assert stated_stage_in(row.framework, row.notes, row.overlap) == stage


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("none set in recipe", Recompute.NONE),
        ("none (list of modules empty)", Recompute.NONE),
        ("selective: []", Recompute.NONE),
        ("selective: ['moe_act', 'layernorm']", recompute_of("moe_act+layernorm")),
        ("norm, act", Recompute.SELECTIVE),
        ("core_attn", Recompute.SELECTIVE),
        ("full None None", Recompute.FULL),
        ("full, block, 5 layers", Recompute.FULL),
        ("remat_policy=full", Recompute.FULL),
        ("remat_policy=custom; decoder_layer_input=offload", Recompute.FULL),
        ("remat_policy=custom; decoder_layer_input=device; query_proj=device", None),
        ("remat_policy=", None),
    ],
)
def test_recomputation_in_words_of_today(words: str, mode: Recomputation | None) -> None:
    assert recompute_in(words.lower()) == mode


def test_trainings_and_formats_that_are_not_predicted_say_so(rules: Assumptions) -> None:
    for changes, said in (
        ({"notes": "LoRA; recipe LLAMA3_8B_LORA"}, "adapters are trained"),
        ({"model": "Llama3 8B LoRA"}, "adapters are trained"),
        (
            {"precision": "mxfp6"},
            r"number format 'mxfp6' is none that is predicted \(fp16, bf16, fp8, fp32, .*nvfp4\)",
        ),
        ({"precision": "int8"}, "number format 'int8'"),
        ({"model": "deepseek_v4_flash"}, "experts that is not listed"),
        (
            {"model": "qwen3-30b-a3b-x", "layers": 24, "experts": 128},
            "says 24 layers, but qwen3-30b-a3b has 48",
        ),
        (
            {"model": "Mixtral 8x7B", "layers": None, "experts": 16},
            "says 16 experts, but mixtral-8x7b has 8",
        ),
    ):
        with pytest.raises(InputError, match=said):
            read(rules, Notes(), **{"parameters": None, **changes})


def test_what_no_plan_expresses_is_said(rules: Assumptions) -> None:
    notes = Notes()
    read(rules, notes, notes="activation offload 20 layers", overlap="partial CUDA graph")
    said = {each.rule: each.value for each in notes.made()}
    assert said["not_priced"] == "offload to the host; CUDA graphs of a part that is not told"
    quiet = Notes()
    read(rules, quiet, overlap="cuda_graph_impl=none")
    read(rules, quiet, overlap="CUDA graph full_iteration")
    assert "not_priced" not in {each.rule for each in quiet.made()}


def test_every_wording_of_the_shared_tables_is_understood(
    rules: Assumptions, shared_data: Path
) -> None:
    """Formats that are priced, software by name, and models with a reason where they are not known:
    nothing falls through."""
    other, formats = Counter[str](), Counter[str]()
    for name in ("dense_runs.csv", "moe_runs.csv"):
        for row in read_rows(shared_data / "runs_2026" / name):
            assert isinstance(row, PublishedRow), row
            framework = rules.framework_of(row, precision_in(row.precision))
            other[row.framework or row.source] += framework is rules.other_framework
            assert (rules.year_of(row) or 2024) >= 2021
            formats[row.precision] += precision_in(row.precision) is None
    unknown = {words for words, count in other.items() if count}
    named = (
        "Neuron",
        "zero-bubble",
        "marin",
        "prime-rl",
        "trl",
    )  # programs that nothing here describes
    assert all(any(each in words for each in named) for words in unknown)
    assert {words for words, count in formats.items() if count} <= {""}
    for each in read_runs(PUBLISHED_RUNS, rules):
        assert not each.refused and each.run.software and isinstance(each.run.precision, Precision)


def test_shared_tables_are_read_as_they_stand(
    shared_data: Path, graphs: Path, tmp_path: Path
) -> None:
    """Some rows of each, in a few sources: priced, or skipped with a reason of their own."""
    for name, kept in (("dense_runs.csv", ("SimuMax",)), ("moe_runs.csv", ("ModelZoo",))):
        with (shared_data / "runs_2026" / name).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        chosen = [row for row in rows if any(word in row[0] for word in kept)][:8] + rows[:3]
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *chosen])
        report = validated(path, graphs)
        assert len(report.runs) == len(chosen) and report.overall.rows >= 3
        assert all(bool(run.predicted_s) != bool(run.reason) for run in report.runs)
        assert not report.unread


def test_a_listed_mixture_is_priced_and_its_interval_is_wide(tmp_path: Path, graphs: Path) -> None:
    mixture = {
        "model": "Qwen3_30B_a3B",
        "ep": "8",
        "micro_batch": "1",
        "global_batch": "8",
        "step_time_s": "2",
    }
    dense, experts, folded, other = validated(
        written(
            tmp_path / "runs.csv",
            {},
            mixture,
            mixture | {"ep": "16"},
            mixture | {"model": "deepseek_v4_flash"},
        ),
        graphs,
    ).runs
    assert (
        experts.plan is not None
        and experts.plan.experts
        and experts.plan.degrees.ep == 8
        and experts.breakdown_s is not None
    )
    assert experts.breakdown_s.expert_communication_s > 0
    assert "does not divide" in folded.reason and "not listed" in other.reason

    def width(interval: TimeInterval) -> float:
        return interval.high_s / interval.low_s

    assert width(experts.time_intervals[0]) > 1.2 * width(dense.time_intervals[0])
    assert any("experts" in reason for reason in experts.time_intervals[0].reasons)


def test_what_is_left_open_is_what_other_rows_of_the_source_say() -> None:
    stated = run_with(micro_batch_size=4, recompute=Recompute.SELECTIVE, global_batch_samples=512)
    blank = replace(stated, micro_batch_size=None, recompute=None, line=3)

    def filled(*others: object) -> tuple[object, object]:
        runs = [blank, *others]
        notes = [Notes() for _ in runs]
        first, *_ = filled_from_others(runs, notes, [False] * len(runs))
        assert {each.rule for each in notes[0].made()} == {
            rule
            for rule, value in (
                ("micro_batch", first.micro_batch_size),
                ("recompute", first.recompute),
            )
            if value is not None
        }
        return first.micro_batch_size, first.recompute

    assert filled(stated) == (4, Recompute.SELECTIVE)
    assert filled(stated, replace(stated, micro_batch_size=8)) == (
        None,
        Recompute.SELECTIVE,
    )  # they differ
    assert filled(replace(stated, model="another")) == (
        None,
        Recompute.SELECTIVE,
    )  # a size is of its model
    assert filled(replace(stated, source="another")) == (None, None)
    assert filled(replace(stated, micro_batch_size=3)) == (
        None,
        Recompute.SELECTIVE,
    )  # divides no replica's batch
    described = filled_from_others([blank, stated], [Notes(), Notes()], [True, True])
    assert described[0].recompute is None  # it says something that is no mode


def test_the_fastest_plan_that_fits_is_taken_said_and_widens_the_interval(
    tmp_path: Path, graphs: Path
) -> None:
    modes = ("none", "full", "")
    rows = [{"recompute": mode, "source": f"source {place}"} for place, mode in enumerate(modes)]
    report = validated(written(tmp_path / "runs.csv", *rows), graphs)
    none, full, open_ = report.runs
    assert (
        open_.plan == none.plan and open_.predicted_s == none.predicted_s and none.unstated is None
    )
    assert open_.unstated is not None and open_.unstated.settings == ("recompute",)
    assert open_.unstated.fastest == 1.0
    assert open_.unstated.slowest == pytest.approx(
        (full.predicted_s or 0) / (none.predicted_s or 1)
    )
    assert any("recomputation not stated" in each for each in open_.time_intervals[0].reasons)
    assert open_.time_intervals[0].high_s > none.time_intervals[0].high_s
    assert json.loads(report_json(report))["runs"][2]["unstated"]["settings"] == ["recompute"]
    (table,) = [
        each for each in report_tables(report) if "do not state all of their plan" in each.title
    ]
    assert table.rows[0][2] == "recomputation none"


def test_an_interval_widens_by_the_spread_of_the_choices() -> None:
    known = Predicted("h100", "megatron_core", 8, measured=True)

    def high(unstated: Unstated | None) -> float:
        return run_intervals(load_residuals(), "a source", known, 1.0, unstated)[0].high_s

    spreads = [high(Unstated(("recompute",), 2, 1.0, slowest)) for slowest in (1.0, 1.2, 1.5, 2.0)]
    assert (
        spreads[0] == high(None) and spreads == sorted(spreads) and spreads[-1] > 1.15 * spreads[0]
    )


def test_a_run_that_does_not_fit_says_what_fills_its_memory(
    tmp_path: Path, graphs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = {"micro_batch": "64", "global_batch": "512", "seq_len": "8192"}
    report = validated(written(tmp_path / "runs.csv", {}, large | {"step_time_s": "20"}), graphs)
    small, over = report.runs
    assert small.fits and over.fits is False and report.not_fitting_of("a table of 2025") == 1
    for run in (small, over):
        assert run.memory is not None and run.predicted_memory_bytes is not None
        parts = run.memory.state_bytes + run.memory.activation_bytes + run.memory.buffer_bytes
        assert parts == pytest.approx(run.predicted_memory_bytes)
        assert run.memory.over_bytes == pytest.approx(
            max(run.predicted_memory_bytes - run.memory.capacity_bytes, 0.0)
        )
    from phaze.validation.explained import explain_errors

    print_tables(report_tables(report, explain_errors(report.runs)), sys.stdout)
    shown = capsys.readouterr().out
    assert "what fills the memory of 1 runs" in shown and "activations" in shown
    document = json.loads(report_json(report))
    assert document["not_fitting_by_source"] == {"a table of 2025": 1}
    assert document["runs"][1]["memory"]["over_bytes"] > 0


def test_a_time_that_no_device_could_need_is_refused(tmp_path: Path, graphs: Path) -> None:
    fast, slow, right = validated(
        written(tmp_path / "runs.csv", {"step_time_s": "1e-3"}, {"step_time_s": "900000"}, {}),
        graphs,
    ).runs
    assert "of the device's peak; correct the measured value" in fast.reason
    assert "of the device's peak; correct the measured value" in slow.reason
    assert not right.reason and math.isfinite(right.error or math.nan)
