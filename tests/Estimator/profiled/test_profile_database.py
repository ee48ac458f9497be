"""Databases of measured operators on disk: what is written is read, in both forms, and what is
damaged is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.profiled.database import append_operator, pack_tables, read_database
from Estimator.profiled.rows import Timing, anonymous, operator_columns, operator_row
from GraphExtractor.graph import Phase
from phaze_common.errors import InputError
from tests.builders.profiles_by_hand import (
    COLLECTIVES,
    MACHINE,
    OPERATORS,
    PASSES,
    product,
    row,
    stream,
    written,
)

SIZES = st.integers(1, 10**6)
PROFILED = st.builds(product, SIZES, SIZES, SIZES, st.sampled_from(Phase)) | st.builds(
    stream, st.sampled_from(["add", "gelu", "unheard_of"]), SIZES
)
TIMINGS = st.builds(Timing, st.floats(1e-9, 1e3), st.floats(0, 1e3), st.integers(1, 10**6))


@settings(max_examples=50)
@given(operator=PROFILED, timing=TIMINGS, tp=st.integers(1, 64))
def test_a_row_is_read_as_it_was_written(operator, timing, tp) -> None:
    kept = replace(row(operator), timing=timing, tp=tp)
    columns = operator_columns(kept)
    assert operator_row(columns, "here") == kept
    texts = {
        name: repr(value) if isinstance(value, float) else str(value)
        for name, value in columns.items()
    }
    assert operator_row(texts, "here") == kept


@pytest.mark.parametrize("packed", [False, True])
def test_a_database_is_read_as_it_was_written(packed: bool, tmp_path: Path) -> None:
    written(tmp_path, passes=PASSES)
    if packed:
        pack_tables(tmp_path)
    assert any(tmp_path.glob("*.csv")) != packed and any(tmp_path.glob("*.parquet")) == packed
    database = read_database(tmp_path / "machine.yaml")
    assert database.machine == MACHINE
    assert database.operators == tuple(map(row, OPERATORS))
    assert database.collectives == COLLECTIVES and database.passes == PASSES


def test_what_is_measured_after_packing_counts_too_and_the_last_row_of_an_operator_holds(
    tmp_path: Path,
) -> None:
    written(tmp_path)
    pack_tables(tmp_path)
    before = read_database(tmp_path)
    append_operator(tmp_path, row(product(1, 2, 3)))
    append_operator(tmp_path, row(OPERATORS[0], 7.0))
    database = read_database(tmp_path)
    assert database.digest != before.digest
    assert len(database.operators) == len(OPERATORS) + 1
    assert {each.operator: each.timing.seconds for each in database.operators}[
        anonymous(OPERATORS[0])
    ] == 7.0
    pack_tables(tmp_path)
    assert read_database(tmp_path).operators == database.operators


@pytest.mark.parametrize("left", [0, 1, 30, -1])
def test_a_line_that_a_killed_process_left_unfinished_is_passed_over_and_replaced(
    left: int, tmp_path: Path
) -> None:
    written(tmp_path)
    path = tmp_path / "operators.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    assert len(read_database(tmp_path).operators) == len(OPERATORS) - 1
    append_operator(tmp_path, row(OPERATORS[-1]))
    assert read_database(tmp_path).operators == tuple(map(row, OPERATORS))


def test_a_header_that_was_not_finished_is_written_again(tmp_path: Path) -> None:
    written(tmp_path, rows=())
    (tmp_path / "operators.csv").write_bytes(b"kind,pha")
    append_operator(tmp_path, row(OPERATORS[0]))
    assert read_database(tmp_path).operators == (row(OPERATORS[0]),)


def cell(name: str, value: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "operators.csv"
        header, first, *rest = path.read_text().splitlines()
        cells = first.split(",")
        cells[header.split(",").index(name)] = value
        path.write_text("\n".join([header, ",".join(cells), *rest]) + "\n")

    return damage


def text(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "machine.yaml").unlink(), "is no profiled database"),
        (text("machine.yaml", b"[1, 2]"), "machine.yaml"),
        (text("machine.yaml", b"name: x\n"), "machine.yaml"),
        (cell("seconds", "nan"), "seconds is 'nan'; it must be a finite number"),
        (cell("seconds", "0"), "seconds is 0.0; it must be positive"),
        (cell("spread_s", "-1"), "spread_s is -1.0"),
        (cell("repeats", "2.5"), "repeats is 2.5; it must be a whole number"),
        (cell("m", "17"), "m is 17.0, the operator of the row has 16"),
        (cell("kind", "scan"), "kind is 'scan', the operator of the row has 'gemm'"),
        (text("operators.csv", b"a,b\n1\n"), "line 2 has 1 cells, its header 2"),
        (text("operators.csv", b"a,b\n1,2\n"), "has no operator"),
        (text("operators.csv", b"\x00\n"), "control character"),
        (text("operators.parquet", b"PAR1 not really"), "operators.parquet is no table"),
        (
            text(
                "collectives.csv",
                b"op,size_bytes,num_nodes,gpus_per_node,seconds,spread_s,repeats\ngossip,8,1,2,1,0,1\n",
            ),
            "op is",
        ),
        (text("passes.csv", b"phase,operators\nsideways,3\n"), "phase is 'sideways'"),
    ],
)
def test_damaged_and_foreign_files_are_refused_in_a_sentence(
    damage, said: str, tmp_path: Path
) -> None:
    written(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match="(?s)" + said.replace("(", r"\(")) as refusal:
        read_database(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_another_version_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    file = tmp_path / "machine.yaml"
    file.write_text(file.read_text().replace("schema_version: 1", "schema_version: 99"))
    with pytest.raises(InputError, match=r"machine\.yaml is a profiled machine of version 99"):
        read_database(tmp_path)
