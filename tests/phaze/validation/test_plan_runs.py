"""Runs whose plan is a file and whose device is a profiled database: predicted by one set of rules,
or refused in a sentence."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from unpriced import no_plan_of_ours

import phaze
from phaze.report.tables.validation_tables import report_json, report_tables
from phaze.validation.explained import explain_errors
from phaze.validation.plan_rows import MemoryKind, has_plans, read_plan_rows
from phaze.validation.records import ValidationReport
from phaze.validation.run import validate
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from third_party.aceso.corrected import corrected
from third_party.aceso.database import OPERATOR_COLUMNS, read_database
from third_party.aceso.models import find_model
from third_party.aceso.plans import Plan, StagePlan, plan_text, read_plan
from third_party.aceso.resharding import Choice

COLUMNS = (
    "model",
    "gpus",
    "seq",
    "global_batch",
    "micro_batch",
    "stages",
    "measured_s",
    "plan",
    "database",
)
# microseconds forward and backward, MiB of input, output, weights, activations, and reserved in
# both passes
OPERATORS = (
    "conv1,50,90,4,8,1,8,0,0",
    "bn1,10,20,8,8,0,8,0,0",
    "block-0-0-conv1,100,160,8,8,2,8,3,0",
    "block-0-0-bn3,10,20,8,8,0,8,0,0",
)
Write = Callable[..., Path]


def validated(path: Path, **hardware: str) -> ValidationReport:
    given = [hardware.get(key) for key in ("device", "cluster", "software")]
    return validate(path, *given, path.parent, SilentProgress(), no_plan_of_ours)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A table with one run of a plan of two stages in ``plans``, on a database in ``operators``,
    with some cells changed."""
    (tmp_path / "operators" / "db").mkdir(parents=True)
    (tmp_path / "plans").mkdir()
    operators = "\n".join([",".join(OPERATOR_COLUMNS), *OPERATORS, ""])
    (tmp_path / "operators" / "db" / "resnet_tiny_mbs2_tp1_algo0.csv").write_text(operators)
    speeds = ",".join(["4"] * 11)
    (tmp_path / "operators" / "db" / "p2p_intra_node.csv").write_text(f"{speeds}\n{speeds}\n")
    database = read_database(tmp_path / "operators" / "db", find_model("resnet", "tiny"))
    one = Choice(1, 1, 0)
    stage = StagePlan(1, (one,) * 2, (False,) * 2)
    plan = Plan(database.model, 8, 2, (stage, stage))
    (tmp_path / "plans" / "two.json").write_text(
        plan_text(plan).replace('"model_size"', '"num_layers": [1], "model_size"')
    )

    def make(**changes: str) -> Path:
        cells = (
            dict.fromkeys(COLUMNS, "")
            | {"measured_s": "0.01", "plan": "two.json", "database": "db"}
            | changes
        )
        path = tmp_path / "runs.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(cells))
            writer.writeheader()
            writer.writerow(cells)
        return path

    return make


def test_a_run_is_predicted_as_its_plan_is_priced(write: Write) -> None:
    cells = {
        "model": "resnet",
        "gpus": "2",
        "global_batch": "8",
        "micro_batch": "2",
        "stages": "2",
        "gpus_per_node": "1",
    }
    path = write(**cells, dtype="fp32", measured_max_alloc_mb_node0="100")
    assert has_plans(path)
    report = validated(path)
    (run,) = report.runs
    plan_path = path.parent / "plans" / "two.json"
    plan = read_plan(plan_path)
    priced = corrected(plan, read_database(path.parent / "operators" / "db", plan.model), 1)
    assert run.predicted_s == priced.iteration_s
    assert (
        run.predicted_memory_bytes == priced.stages[0].memory.allocated_mib * 2**20
    )  # the first node has the first stage
    assert run.error == pytest.approx(priced.iteration_s / 0.01 - 1)
    assert run.breakdown_s.total_s == pytest.approx(priced.iteration_s)
    assert {rule.runs for rule in report.rules} == {1} and "memory" in {
        rule.name for rule in report.rules
    }
    document = json.loads(report_json(report))
    assert document["runs"][0]["plan_file"] == "two.json" and document["overall"]["rows"] == 1
    assert [table.title for table in report_tables(report)][
        1
    ] == "runs of plans whose stages differ"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("measured_max_alloc_mb_node0", MemoryKind.ALLOCATED_FIRST_NODE),
        ("measured_max_alloc_mb", MemoryKind.ALLOCATED),
        ("measured_max_reserved_mb", MemoryKind.RESERVED),
        ("peak_memory_mb", MemoryKind.RESERVED),
    ],
)
def test_memory_is_compared_with_the_figure_that_was_published(
    write: Write, column: str, kind: MemoryKind
) -> None:
    path = write(**{column: "1000"})
    (row,) = read_plan_rows(path)
    assert (row.memory_mib, row.memory_kind) == (1000, kind)
    (run,) = validated(path).runs
    assert run.memory_error == pytest.approx(run.predicted_memory_bytes / (1000 * 2**20) - 1)


def test_a_column_of_predictions_is_no_measurement_and_the_device_may_be_the_database(
    write: Write,
) -> None:
    path = write(peer_predicted_memory_mb="5", memory_gb="2")
    path.write_text(path.read_text().replace("database", "device"))
    (row,) = read_plan_rows(path)
    assert (row.memory_mib, row.database.name) == (2048, "db")


REFUSED = {
    "no plan": (
        {"plan": "three.json"},
        "column plan is 'three.json', which is no file beside the table",
    ),
    "no database": (
        {"database": "elsewhere"},
        "column database is 'elsewhere', which is no folder",
    ),
    "no name": ({"plan": ""}, "column plan is ''"),
    "another family": (
        {"model": "gpt"},
        "column model is 'gpt', but two.json is of resnet tiny in fp32",
    ),
    "another size": ({"size": "2B"}, "column size is '2B'"),
    "another number format": (
        {"dtype": "fp16"},
        "give the plan and database of one model and number format",
    ),
    "another batch": ({"global_batch": "16"}, "says global_batch 16, but two.json has 8"),
    "more devices": ({"gpus": "4"}, "says gpus 4, but two.json has 2"),
    "no time": ({"measured_s": ""}, "has no measured time"),
    "a time that is none": ({"measured_s": "-1"}, "column measured_s is '-1'"),
    "a long name": ({"plan": "x" * 5000}, "which is no file beside the table"),
}


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED)
def test_rows_that_contradict_their_files_start_nothing(
    write: Write, capsys: pytest.CaptureFixture[str], changes: dict[str, str], said: str
) -> None:
    assert phaze.main(["validate", str(write(**changes)), "--quiet"]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and "line 2" in captured.err
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)


def test_one_bad_row_refuses_no_other(write: Write) -> None:
    path = write()
    good = path.read_text().splitlines()
    bad = [
        "resnet,2,,8,2,2,-1,two.json,db",
        "resnet,2,,16,2,2,1,two.json,db",
        "resnet,2,,8,2,2,1,three.json,db",
        'a,"b',
    ]
    path.write_text("\n".join([good[0], *bad, good[1], ""]))
    report = validated(path)
    assert [bool(run.reason) for run in report.runs] == [True] * 4 + [False]
    said = (
        "line 2, column measured_s is '-1'",
        "says global_batch 16",
        "three.json",
        "line 5 is not CSV",
    )
    assert all(words in run.reason for words, run in zip(said, report.runs, strict=False))
    assert (report.overall.rows, report.overall.skipped) == (1, 4)
    tables = report_tables(report, explain_errors(report.runs))
    assert all(table.rows for table in tables)


def test_the_sequence_length_is_that_of_the_plans_own_file(write: Write) -> None:
    """A table of sizes says what models of a size usually have; the plan says what it was made
    for."""
    path = write(seq="4096")
    plan = path.parent / "plans" / "two.json"
    plan.write_text(plan.read_text().replace('"model_size"', '"seq_length": 4096, "model_size"'))
    assert validated(path).overall.rows == 1
    with pytest.raises(InputError, match=r"says seq 1024, but two.json has 4096"):
        validated(write(seq="1024"))
    plan.write_text(
        plan.read_text().replace(
            '"seq_length": 4096', '"encoder_seq_length": 2048, "decoder_seq_length": 512'
        )
    )
    for length in ("2048", "512"):
        assert validated(write(seq=length)).overall.rows == 1


def test_a_database_of_another_model_is_refused_with_the_row(write: Write) -> None:
    path = write()
    for file in (path.parent / "operators" / "db").glob("resnet_tiny_*_algo*.csv"):
        file.rename(file.with_name(file.name.replace("tiny", "other")))
    with pytest.raises(
        InputError, match=r"runs.csv, line 2: .* holds no measurements of resnet_tiny"
    ):
        validated(path)


def test_hardware_and_incomplete_tables_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match="--cluster 'perlmutter' is given for runs whose devices are profiled databases",
    ):
        validated(write(), cluster="perlmutter")
    path = tmp_path / "short.csv"
    for text, said in (
        ("plan,measured_s\ntwo.json,1\n", "lacks column database"),
        ("plan,database\ntwo.json,db\n", "lacks column measured_s or"),
        ("plan,database,measured_s\n", "has a header but no runs"),
        ("plan,plan,database,measured_s\n", "names column plan twice"),
        ("plan,database,measured_s\ntwo.json,db,1,2\n", "has 4 cells for 3 columns"),
        ('plan,database,measured_s\n"two.json,db,1\n', "is not CSV"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            validated(path)


def test_other_tables_are_not_those_of_plans(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    for text in ("", "model,gpu\n", "x" * 200_000, "planes,database\n"):
        path.write_text(text)
        assert not has_plans(path)
    path.write_text("Plan , Database\n")
    assert has_plans(path)


def test_runs_of_plans_on_l4_are_met(shared_data: Path) -> None:
    """The goals: time within 6 %, memory within 10 % in the mean; Aceso's own cost model is off by
    9.2 % in time."""
    report = validated(shared_data / "mist" / "runs.csv")
    assert (report.overall.rows, report.overall.skipped) == (14, 0)
    assert report.overall.time_mape <= 0.06
    assert report.overall.memory_mape <= 0.10
    assert report.overall.spearman > 0.95
