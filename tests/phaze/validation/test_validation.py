"""Whole validations: the runs that ship, those beside the repository, and files full of holes."""

import csv
import json
import re
import sys
from contextlib import contextmanager
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unpriced import no_plan_of_ours

import phaze
from phaze.report.tables.search_tables import print_tables
from phaze.report.tables.validation_tables import report_json, report_tables
from phaze.report.validation_plot import draw
from phaze.validation.assumptions import load_assumptions
from phaze.validation.published_runs import COLUMNS
from phaze.validation.run import validate
from phaze.validation.runs import PUBLISHED_RUNS, read_runs
from phaze_common.errors import InputError, PhazeError
from phaze_common.progress import SilentProgress

STATISTICS = {"rows", "skipped", "time_mape", "time_bias", "spearman", "memory_mape", "fitted"}
SMALL = {
    "model": "GPT 1B",
    "layers": "4",
    "hidden": "1024",
    "heads": "16",
    "ffn": "4096",
    "seq": "512",
    "vocab": "5120",
    "gpu": "A100-80GB-SXM",
    "n_gpus": "8",
    "tp": "2",
    "pp": "2",
    "dp": "2",
    "micro_batch": "1",
    "global_batch": "16",
    "recompute": "none",
    "measured_iter_time_s": "0.1",
    "framework": "Megatron-LM",
    "source": "made up in 2021",
}


def validated(path, graphs, device=None, cluster=None, software=None):
    return validate(path, device, cluster, software, graphs, SilentProgress(), no_plan_of_ours)


def written(tmp_path, *changes):
    lines = [",".join(COLUMNS)]
    lines += [
        ",".join({**SMALL, **change}.get(column, "") for column in COLUMNS) for change in changes
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def by_source(report, words):
    (found,) = [each for each in report.sources if words in each.source]
    return found


def traced_once_each(path, traced, source, step):
    """Of each source of a table the runs of every ``step``-th model, width and micro-batch size,
    which are traced one by one.

    The header, and rows with whether they are among those.
    """
    with path.open(encoding="utf-8-sig", newline="") as stream:
        header, *rows = csv.reader(stream)
    runs = [dict(zip(header, row, strict=True)) for row in rows]
    keys = [
        (run[source] if source else "", tuple(run[column] for column in traced)) for run in runs
    ]
    of_each = groupby(sorted(set(keys)), key=lambda key: key[0])
    kept = {key for _, group in of_each for key in list(group)[::step]}
    return header, [(row, key in kept) for row, key in zip(rows, keys, strict=True)]


def rewritten(path, header, rows):
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


TRACED = ("hidden", "sequence_length", "tp", "micro_batch_size")


@pytest.fixture(scope="module")
def shipped(request, graphs, tmp_path_factory):
    """Of each source some of the runs that ship, and all of them in a thorough session."""
    step = 1 if request.config.getoption("--thorough") else 4
    header, rows = traced_once_each(PUBLISHED_RUNS, TRACED, "source", step)
    kept = [row for row, is_kept in rows if is_kept]
    path = rewritten(tmp_path_factory.mktemp("shipped") / "runs.csv", header, kept)
    report = validated(None if step == 1 else path, graphs)
    assert report.overall.rows == len(kept)
    return report


def test_the_runs_that_ship_are_all_predicted(shipped):
    assert shipped.overall.skipped == 0
    assert {each.source for each in shipped.sources} == {
        each.run.source for each in read_runs(None, load_assumptions())
    }
    assert len(shipped.sources) >= 6


def test_published_runs_that_ship_are_met(shipped):
    korthikanti, sc21 = by_source(shipped, "Korthikanti"), by_source(shipped, "SC'21")
    assert 2 <= korthikanti.rows <= 8
    assert korthikanti.time_mape <= 0.04
    assert 3 <= sc21.rows <= 10
    assert sc21.time_mape <= 0.07


def test_derived_times_are_those_of_the_papers_formula(graphs, tmp_path):
    """SC'21's equation 3 for the 145.6B model: 96 B s l h^2 (1 + s/6h + V/16lh) over 148 TFLOP/s on
    1,536 devices."""
    header, rows = traced_once_each(PUBLISHED_RUNS, TRACED, "source", 1)
    (row,) = [row for row, _ in rows if row[1] == "Megatron 145.6B"]
    (run,) = validated(rewritten(tmp_path / "runs.csv", header, [row]), graphs).runs
    flops = 96 * 2304 * 2048 * 80 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 80 * 12288))
    assert run.measured_s == pytest.approx(flops / (148e12 * 1536))
    assert [each.value for each in run.assumptions if each.rule == "iteration_time"] == [
        "from 148 TFLOP/s per device, hardware FLOPs"
    ]


@pytest.fixture
def some_of(request, tmp_path):
    """Some of the runs of a table, and how many these are; a thorough session has all."""

    def some(path, traced, source=None):
        step = 1 if request.config.getoption("--thorough") else 3
        header, rows = traced_once_each(path, traced, source, step)
        kept = [row for row, is_kept in rows if is_kept]
        return rewritten(tmp_path / path.name, header, kept), len(kept)

    return some


def test_shared_runs_are_met(shared_data, graphs, some_of):
    path, rows = some_of(
        shared_data / "measured" / "training_runs.csv", ("hidden", "tp", "micro_batch"), "source"
    )
    report = validated(path, graphs)
    assert (report.overall.rows, report.overall.skipped) == (rows, 0) and rows > 25
    assert by_source(report, "Table 5").time_mape <= 0.04
    assert by_source(report, "SC'21").time_mape <= 0.07
    assert by_source(report, "ground_truth_multi").time_mape <= 0.10


@pytest.mark.thorough
def test_shared_single_node_runs_are_met(shared_data, graphs, some_of):
    traced = ("hidden size", "sequence length", "tensor parallelism", "micro batch")
    path, rows = some_of(shared_data / "measured" / "single_node_8xA100.csv", traced)
    report = validated(path, graphs)
    assert report.overall.rows == rows > 200
    assert report.overall.time_mape <= 0.10
    assert report.overall.spearman >= 0.9


def test_runs_that_cannot_be_predicted_are_skipped_with_their_reason(tmp_path, graphs):
    holes = [
        ({}, ""),
        ({"model": "Mixtral-8x7B"}, "experts"),
        ({"gpu": "Ascend 910"}, "no device is known as 'Ascend 910'"),
        ({"global_batch": ""}, "global batch"),
        ({"tp": "", "pp": "", "dp": ""}, "tp and pp and dp"),
        ({"measured_iter_time_s": ""}, "neither its iteration time"),
        ({"seq": ""}, "sequence length"),
        ({"tp": "32", "n_gpus": "128"}, "tensor parallel width 32 does not divide"),
        ({"pp": "8", "n_gpus": "32"}, "pp x interleave is 8, for 4 blocks"),
        ({"precision": "fp8"}, "float8"),
        ({"params_B": "70"}, "70.0B"),
        (
            {
                "micro_batch": "auto",
                "interleave": "yes(v unknown)",
                "recompute": "?",
                "zero": "FSDP",
                "global_batch": "0.016k",
            },
            "",
        ),
    ]
    report = validated(written(tmp_path, *(changes for changes, _ in holes)), graphs)
    for run, (changes, words) in zip(report.runs, holes, strict=True):
        assert run.skipped == bool(words), (changes, run.reason)
        assert words in run.reason
    assert (report.overall.rows, report.overall.skipped) == (2, 10)
    assumed = {each.rule: each.value for each in report.runs[-1].assumptions}
    assert assumed["unclear"] == "micro_batch"
    assert {"micro_batch", "interleave", "recompute", "words"} <= assumed.keys()
    rules = {each.name: each.runs for each in report.rules}
    assert rules["micro_batch"] == 1
    assert rules["framework"] >= 2


def test_the_micro_batch_that_is_not_said_is_the_fastest_that_fits(tmp_path, graphs):
    sizes = ("1", "2", "4", "8", "")
    *said, unsaid = validated(
        written(tmp_path, *({"micro_batch": size, "pp": "1", "n_gpus": "4"} for size in sizes)),
        graphs,
    ).runs
    fastest = min(said, key=lambda run: run.predicted_s)
    assert unsaid.predicted_s == fastest.predicted_s
    assert unsaid.plan == fastest.plan


def test_utilisation_and_flops_give_the_same_time(tmp_path, graphs):
    told = [
        {"achieved_tflops_per_gpu": "31.2", "tflops_convention": "MFU"},
        {"mfu_pct": "10"},
        {"mfu_pct": "0.1", "tflops_convention": "MFU"},
    ]
    first, *others = validated(
        written(tmp_path, *({"measured_iter_time_s": "", **each} for each in told)), graphs
    ).runs
    assert first.measured_s > 0
    assert [run.measured_s for run in others] == pytest.approx([first.measured_s] * 2)


def test_devices_clusters_and_software_may_be_replaced(tmp_path, graphs):
    path = written(tmp_path, {}, {"gpu": "no device at all"})
    (usual, unknown) = validated(path, graphs).runs
    assert (usual.plan.device, usual.plan.cluster, usual.plan.software) == (
        "a100_80gb",
        "dgx_a100",
        "megatron_2021",
    )
    assert unknown.skipped
    (given, also) = validated(path, graphs, "h100", "dgx_h100", "megatron_core").runs
    assert (given.plan.device, given.plan.cluster, given.plan.software) == (
        "h100",
        "dgx_h100",
        "megatron_core",
    )
    assert given.predicted_s < usual.predicted_s
    assert also.predicted_s == given.predicted_s
    for names in (("no_such",), (None, "no_such"), (None, None, "no_such")):
        with pytest.raises(InputError, match="no_such"):
            validated(path, graphs, *names)


def test_progress_is_told_of_every_run(tmp_path, graphs):
    counted = []

    class Counting:
        @contextmanager
        def phase(self, name, total):
            counted.append((name, total))
            yield counted.append

    validate(
        written(tmp_path, {}, {"gpu": ""}), None, None, None, graphs, Counting(), no_plan_of_ours
    )
    assert counted == [("measured runs", 2), 1, 1]


def test_memory_is_compared_where_it_was_measured(tmp_path, graphs):
    without, with_memory = validated(written(tmp_path, {}, {"mem_GB_measured": "10"}), graphs).runs
    assert without.memory_error is None
    assert with_memory.memory_error == pytest.approx(with_memory.predicted_memory_bytes / 10e9 - 1)


def test_json_holds_the_statistics_and_every_run(tmp_path, graphs):
    report = validated(written(tmp_path, {}, {"gpu": ""}), graphs)
    whole = json.loads(report_json(report))
    assert whole["overall"].keys() == STATISTICS
    (source,) = whole["sources"]
    assert source.keys() == STATISTICS | {"source"}
    assert source["source"] == "made up in 2021"
    assert (whole["overall"]["rows"], whole["overall"]["skipped"]) == (1, 1)
    assert whole["overall"]["spearman"] is None
    assert whole["overall"]["time_mape"] == pytest.approx(abs(report.runs[0].error))
    assert [run["skipped"] for run in whole["runs"]] == [False, True]
    assert whole["runs"][0]["breakdown_s"]["arithmetic_s"] > 0
    assert whole["rules"]


def test_tables_say_it_in_words(tmp_path, graphs, capsys):
    print_tables(report_tables(validated(written(tmp_path, {}, {"gpu": ""}), graphs)), sys.stdout)
    printed = capsys.readouterr().out
    for words in (
        "made up in 2021",
        "predicted worst",
        "arithmetic",
        "it does not say on which device it ran",
        "overall",
    ):
        assert words in printed
    print_tables(report_tables(validated(written(tmp_path, {"gpu": ""}), graphs)), sys.stdout)
    assert "predicted worst" not in capsys.readouterr().out


def test_worst_runs_come_first(shipped):
    worst = shipped.worst(5)
    errors = [abs(run.error) for run in shipped.runs]
    assert [abs(run.error) for run in worst] == sorted(errors, reverse=True)[:5]


def test_a_picture_is_drawn(tmp_path, graphs):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    report = validated(written(tmp_path, {}, {"gpu": ""}, {"source": "another"}), graphs)
    draw(report, tmp_path / "runs.png")
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")
    draw(report, tmp_path / "runs.pdf")
    assert (tmp_path / "runs.pdf").read_bytes().startswith(b"%PDF")
    draw(report, tmp_path / "runs.svg")
    drawn = (tmp_path / "runs.svg").read_text(encoding="utf-8")
    assert "<svg" in drawn
    assert "made up in 2021" in drawn and "another" in drawn and "measured iteration time" in drawn
    with pytest.raises(InputError, match=r"\.svg, \.png or \.pdf"):
        draw(report, tmp_path / "runs.docx")
    with pytest.raises(InputError, match="nothing to draw"):
        draw(validated(written(tmp_path, {"gpu": ""}), graphs), tmp_path / "none.png")


def test_a_picture_without_its_library_says_what_to_install(tmp_path, graphs, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    report = validated(written(tmp_path, {}), graphs)
    with pytest.raises(PhazeError, match=r"setup\.sh"):
        draw(report, tmp_path / "runs.png")


@settings(max_examples=300)
@given(
    cells=st.dictionaries(
        st.sampled_from(COLUMNS),
        st.one_of(
            st.sampled_from(
                [
                    "",
                    "0",
                    "1",
                    "3",
                    "7",
                    "64",
                    "1.5k",
                    "auto",
                    "yes",
                    "FSDP",
                    "full",
                    "partial",
                    "fp8",
                    "H100",
                    "2 nodes of 4",
                    "0.5",
                ]
            ),
            st.text(max_size=12),
            st.integers(0, 10**7).map(str),
        ),
    )
)
def test_any_cells_give_a_plan_or_a_reason(cells, tmp_path_factory):
    """Only a number that cannot be is an error of the file; everything else is a reason to skip the
    run, never a crash."""
    path = tmp_path_factory.mktemp("cells") / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(
            [COLUMNS, [{**SMALL, **cells}.get(column, "") for column in COLUMNS]]
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("phaze.validation.pricing.RunPricer.best", _unpriced)
        try:
            report = validated(path, path.parent)
        except InputError as error:
            line = re.search(
                r"\bline (\d+)\b", str(error)
            )  # a cell of several lines moves those behind it
            assert "no runs" in str(error) or (
                line and 2 <= int(line[1]) <= len(path.read_text(encoding="utf-8").splitlines())
            )
            return
    assert report.runs[0].reason


def test_typed_files_give_the_same_predictions(tmp_path, graphs):
    changes = [
        {},
        {"precision": "bf16", "source": "NSDI'24"},
        {"micro_batch": "", "recompute": "none (mostly)"},
        {"recompute": ""},
    ]
    table, typed = written(tmp_path, *changes), tmp_path / "typed.csv"
    read = validate(table, None, None, None, graphs, SilentProgress(), no_plan_of_ours, typed)
    again = validated(typed, graphs)
    assert [run.reason for run in read.runs] == [""] * len(changes)
    assert [(run.predicted_s, run.plan) for run in again.runs] == [
        (run.predicted_s, run.plan) for run in read.runs
    ]


def test_a_micro_batch_that_cannot_be_interleaved_is_left_out(tmp_path, graphs):
    """Of 6 micro-batches of 1 sequence and 3 of 2 on each replica only the first go over 2 stages
    in turn."""
    change = {"micro_batch": "", "interleave": "2", "global_batch": "12"}
    (run,) = validated(written(tmp_path, change), graphs).runs
    assert (run.reason, run.plan.degrees.micro_batch_size, run.plan.degrees.interleave) == (
        "",
        1,
        2,
    )
    (none,) = validated(written(tmp_path, {**change, "global_batch": "6"}), graphs).runs
    assert "multiples of pp 2" in none.reason


def test_a_value_that_typed_runs_have_not_is_refused_by_line_and_column(tmp_path, graphs):
    path = tmp_path / "typed.csv"
    path.write_text(
        "device,devices,global_batch_samples,iteration_s,recompute\na100_80gb,8,64,1.5,mostly\n"
    )
    with pytest.raises(
        InputError,
        match="line 2, column recompute is 'mostly'; give one of none, selective, full, or modules",
    ):
        validated(path, graphs)


def _unpriced(self, dimensions, candidates, *hardware):
    assert candidates
    for candidate in candidates:
        assert candidate.plan.devices >= 1
        assert candidate.plan.micro_batches >= 1
    raise InputError("not priced")


@pytest.mark.parametrize(("holes", "status"), [(1, 0), (2, 0), (3, 1), (5, 1)])
def test_a_table_of_which_most_is_not_priced_fails(holes, status, tmp_path, capsys):
    lines = [{}, {}, *({"gpu": "Ascend 910"} for _ in range(holes))]
    path = written(tmp_path, *lines)
    words = ["validate", str(path), "--output", str(tmp_path / "out"), "--format", "json"]
    assert phaze.main(words) == status
    told = f"2 of {2 + holes} lines were priced" in capsys.readouterr().err
    assert told is bool(status)
