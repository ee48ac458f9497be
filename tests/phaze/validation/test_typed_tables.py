"""Typed tables of runs: what they refuse, what ``--typed`` writes, and runs that are predicted not
to fit."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

import phaze
from GraphExtractor.graph import Recompute
from phaze.cli.validate import TYPED_COLUMNS
from phaze.validation.records import ValidationReport
from phaze.validation.run import validate
from phaze.validation.runs import PUBLISHED_RUNS
from phaze.validation.typed_run import COLUMNS, TypedRun, read_typed, write_typed
from phaze_common.errors import InputError

ROW = {
    "source": "mine",
    "model": "megatron-1.7b",
    "device": "a100_80gb",
    "devices": "8",
    "software": "megatron_2022",
    "tp": "1",
    "pp": "1",
    "dp": "8",
    "micro_batch_size": "4",
    "global_batch_samples": "32",
    "precision": "fp16",
    "iteration_s": "1.5",
}


def written(path: Path, **changes: str) -> Path:
    row = ROW | changes
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tpp": "1"}, "line 1 names column 'tpp'"),
        (
            {"devices": "eight"},
            "line 2, column devices is 'eight'; give a whole number above 0, or null",
        ),
        ({"tp": "0"}, "column tp is '0'; give a whole number above 0"),
        ({"iteration_s": "-1"}, "column iteration_s is '-1'; give a number above 0"),
        ({"mfu": "42"}, "column mfu is '42'; give a fraction, at most 1"),
        (
            {"recompute": "none (mostly)"},
            r"column recompute is 'none \(mostly\)'; give one of none, selective, full",
        ),
        ({"sequence_parallel": "yes"}, "column sequence_parallel is 'yes'; give true or false"),
        ({"zero_stage": "4"}, "column zero_stage is '4'; give one of 0, 1, 2, 3"),
        ({"year": "21"}, "column year is '21'; give a year from 2012 on"),
        ({"gradient_bytes": "3"}, "column gradient_bytes is '3'; give one of 2, 4"),
        ({"attention": "triton"}, "column attention is 'triton'; give one of"),
        ({"device": "../mine.yaml"}, "column device is '../mine.yaml'; give a name that is listed"),
        ({"flops_convention": "mine"}, "column flops_convention is 'mine'; give one of"),
    ],
)
def test_what_is_no_typed_value_is_refused_with_line_and_column(
    changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        read_typed(written(tmp_path / "runs.csv", **changes))


@pytest.mark.parametrize("lacking", ["device", "iteration_s"])
def test_a_typed_header_that_lacks_what_is_needed_is_refused(lacking: str, tmp_path: Path) -> None:
    row = {name: value for name, value in ROW.items() if name != lacking}
    (tmp_path / "runs.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    with pytest.raises(InputError, match=f"lacks column {lacking}"):
        read_typed(tmp_path / "runs.csv")


def test_null_and_nothing_are_not_known_and_what_is_written_reads_back(tmp_path: Path) -> None:
    (run,) = read_typed(
        written(tmp_path / "runs.csv", heads="null", cp="", blocking_launches="true")
    )
    assert (
        run.heads is None
        and run.degrees.cp is None
        and run.blocking_launches is True
        and run.line == 2
    )
    every = replace(
        run, mfu=0.4, recompute=Recompute.SELECTIVE, sequence_parallel=False, notes='with, "commas"'
    )
    write_typed([every], tmp_path / "again.csv")
    assert read_typed(tmp_path / "again.csv") == (every,)


def test_the_help_lists_the_columns_in_their_order() -> None:
    places = [TYPED_COLUMNS.find(name) for name in COLUMNS]
    assert -1 not in places and set(COLUMNS) > {field.name for field in fields(TypedRun)} - {
        "line",
        "degrees",
    }
    assert [
        name
        for name in COLUMNS
        if f"{name}," in TYPED_COLUMNS or f"{name} (" in TYPED_COLUMNS or name in TYPED_COLUMNS
    ]


@pytest.mark.parametrize("table", [None, PUBLISHED_RUNS])
def test_what_typed_writes_is_predicted_alike(
    table: Path | None, tmp_path: Path, graphs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.csv"
    foreign.write_text(
        "model,layers,hidden,heads,seq,vocab,gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,recompute,precision,framework,source,"
        "measured_iter_time_s\n"
        "GPT,24,2304,24,2048,51200,NVIDIA A100,8,1,1,8,4,32,none (mostly),fp16,Megatron-LM,a "
        "paper of 2021,1.5\n"
    )
    words = [str(foreign)] if table is None else [str(table)]
    answers = []
    for asked in ([*words, "--typed", str(tmp_path / "typed.csv")], [str(tmp_path / "typed.csv")]):
        assert phaze.main(["validate", *asked, "--format", "json", "--quiet"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    first, second = (
        [(run["predicted_s"], run["predicted_memory_bytes"]) for run in answer["runs"]]
        for answer in answers
    )
    assert first == second and len(first) >= 1
    assert phaze.main(["validate", str(foreign), "--typed", str(foreign), "--quiet"]) == 2
    assert "is the table that is read" in capsys.readouterr().err


def report_of(path: Path, graphs: Path) -> ValidationReport:
    from phaze_common.progress import SilentProgress

    return validate(path, None, None, None, graphs, SilentProgress(), None)  # type: ignore[arg-type]


def test_a_stated_plan_that_does_not_fit_is_priced_as_stated_and_counted(
    tmp_path: Path, graphs: Path
) -> None:
    large = {"model": "megatron-18.4b", "attention": "eager", "recompute": "none"}
    report = report_of(written(tmp_path / "runs.csv", **large), graphs)
    (run,) = report.runs
    assert (
        run.fits is False
        and report.not_fitting == 1
        and run.plan is not None
        and run.plan.degrees.recompute == "none"
    )
    fitting = report_of(written(tmp_path / "runs.csv", recompute="full", attention="eager"), graphs)
    assert (
        fitting.not_fitting == 0
        and fitting.runs[0].plan is not None
        and fitting.runs[0].plan.degrees.recompute == "full"
    )


def test_recomputation_that_is_not_stated_is_the_least_within_the_margin_and_is_told(
    tmp_path: Path, graphs: Path
) -> None:
    modes = {}
    for sequences in ("1", "4", "16"):
        batch = str(8 * int(sequences))
        stated = written(
            tmp_path / "runs.csv",
            attention="eager",
            micro_batch_size=sequences,
            global_batch_samples=batch,
        )
        (run,) = report_of(stated, graphs).runs
        assert run.plan is not None and run.predicted_memory_bytes is not None
        modes[sequences] = run.plan.degrees.recompute
        assert any(
            each.rule == "recompute" and each.value.startswith(run.plan.degrees.recompute)
            for each in run.assumptions
        )
    order = ["none", "selective", "full"]
    assert (
        order.index(modes["1"]) <= order.index(modes["4"]) <= order.index(modes["16"])
        and modes["1"] != modes["16"]
    )
