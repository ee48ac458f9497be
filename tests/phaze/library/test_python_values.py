"""Odd values from Python: each is refused in a sentence, or taken for what it is; none is
changed."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import warnings
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import phaze
from Estimator.plans.assignment import Assignment
from phaze.library import _plain
from phaze.settings.plan_table import COLUMNS, plan_table
from phaze.settings.request import Request, request_fields, settings_for
from phaze.studies.training_time.settings import all_settings
from phaze_common.errors import PhazeError
from phaze_common.setting_fields import Mode
from phaze_common.setting_values import Kind


class Odd:
    """What nobody would give, and what cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Strange(Enum):
    ONE = 1


def looped() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


ODD: tuple[object, ...] = (
    *(
        0,
        -1,
        1,
        2,
        3,
        7,
        8,
        64,
        2**20,
        2**31,
        2**32,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        10**40,
        -(2**63),
        10**5000,
    ),
    *(0.0, -0.0, 0.5, 1.0, 2.7, 2.0, 1e-300, 1e300, math.inf, -math.inf, math.nan, 1j),
    *(
        True,
        False,
        "true",
        "false",
        "True",
        "yes",
        "no",
        "on",
        "",
        " ",
        "0",
        "1",
        "2.7",
        "-3",
        "1e3",
        "nan",
        "inf",
        "all",
        "auto",
    ),
    *(
        "none",
        "None",
        "tiers",
        "bogus",
        "a" * 5000,
        "tp2.dp2",
        "\n",
        "x\ny",
        "\0",
        "\ud800",
        "h\u2028i",
        "$(touch x)",
        "../../x",
        "--tp",
    ),
    *(
        b"8",
        bytearray(b"8"),
        memoryview(b"8"),
        [],
        [[]],
        [1, 1],
        [1, "2"],
        [None],
        [[1]],
        (1,),
        (),
        {},
        {"a": 1},
        {1: 2},
        set(),
        {1, 2},
    ),
    *(
        np.int64(2),
        np.int8(2),
        np.uint64(2**63),
        np.float32(0.1),
        np.float64(2.0),
        np.bool_(True),
        np.str_("none"),
    ),
    *(
        np.array(2),
        np.array([1, 2]),
        np.array([[1, 2]]),
        np.array(["a"]),
        np.datetime64("2024-01-01"),
        np.nan,
        range(1, 3),
    ),
    *(
        pd.NA,
        pd.NaT,
        pd.Timestamp("2024-01-01"),
        pd.Series([1, 2]),
        pd.DataFrame({"a": [1]}),
        decimal.Decimal("2.7"),
        decimal.Decimal(2),
    ),
    *(
        fractions.Fraction(1, 3),
        fractions.Fraction(2),
        datetime.date(2024, 1, 1),
        Path("x"),
        Path("/dev/null"),
        Path("/dev/zero"),
    ),
    *(
        Strange.ONE,
        object(),
        Odd(),
        int,
        len,
        lambda: 1,
        iter([1]),
        NotImplemented,
        ...,
        Exception("x"),
        looped(),
    ),
)
FIELDS = {field.key: field for field in request_fields()}
LIGHT = {
    "model": "gpt:layers=2,hidden=64,heads=2,vocabulary=128",
    "sequence_length": 32,
    "device": "a100_80gb",
    "devices": 2,
}


def refused_or(work: Callable[[], Any]) -> Any:
    """What comes out of ``work``; None where it is refused in a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except PhazeError as error:
            assert str(error).strip()
            return None


def is_same(read: object, given: object) -> bool:
    """Whether ``read`` is what ``given`` says: numbers equal, switches and names by their words."""
    given = _plain(given)
    many, listed = (
        list(each) if isinstance(each, tuple | list) else [each] for each in (read, given)
    )
    if isinstance(given, str) and len(many) != 1:
        return many == [type(many[0])(word) for word in given.replace(",", " ").split()]
    if len(many) != len(listed):
        return False
    return all(_says(one, other) for one, other in zip(many, listed, strict=True))


def _says(read: object, given: object) -> bool:
    if isinstance(read, bool):
        return str(given).strip().lower() in (
            {"true", "yes", "on", "1"} if read else {"false", "no", "off", "0"}
        )
    if isinstance(read, int | float):
        if isinstance(given, list) and len(given) == 1:
            given = given[0]
        return (
            not isinstance(given, bool)
            and _number(str(given)) == float(read)
            and (isinstance(given, str | fractions.Fraction) or given == read)
        )
    return str(read).strip().lower() == str(given).strip().lower()


def _number(text: str) -> float:
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(text)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("key", sorted(FIELDS))
def test_a_setting_is_read_as_it_was_given_or_refused(key: str, mode: Mode) -> None:
    table = settings_for(mode)
    if key not in table.keys:
        pytest.skip("no setting of this mode")
    kind = next(setting.kind for setting in table.settings if setting.key == key)
    for value in ODD:
        read = refused_or(lambda value=value: table.read({key: _plain(value)}, "phaze.study"))
        if (
            read is not None
            and read[key] is not None
            and read[key] != "all"
            and kind is not Kind.TEXT
            and not FIELDS[key].about.unit
        ):
            assert is_same(read[key], value), (key, value, read[key])


@pytest.mark.some(25)
@pytest.mark.parametrize("key", sorted(FIELDS))
def test_a_study_of_odd_values_is_a_study_or_a_refusal(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in ODD:
        found = refused_or(lambda value=value: phaze.study(**{**LIGHT, key: value}))
        assert found is None or isinstance(found, Request), (key, value)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("key", sorted(set(all_settings().keys) - set(FIELDS)))
def test_a_training_of_odd_values_is_read_or_refused(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from GraphExtractor.permission import EVERY_FILE
    from phaze.runs.plan_files import PlanFile
    from phaze.studies.training_time.request import training_of_file

    monkeypatch.chdir(tmp_path)
    for value in ODD:
        given = {**LIGHT, "tp": 1, "tokens": 1e6, key: _plain(value)}
        refused_or(
            lambda given=given: training_of_file(
                PlanFile(given), "phaze.training_time", run_code=EVERY_FILE
            )
        )


@pytest.mark.parametrize("key", COLUMNS)
@pytest.mark.parametrize("as_column", [True, False])
def test_a_cell_of_a_table_is_read_as_it_was_given_or_refused(key: str, as_column: bool) -> None:
    for value in ODD:
        table: Any = {key: value if as_column else [value]}
        found = refused_or(lambda table=table: plan_table(table))
        if found is None or not len(found):
            continue
        given = pd.DataFrame(table)[key].tolist()
        for read, cell in zip(found[key].tolist(), given, strict=True):
            if read is None:
                assert pd.isna(cell)
            elif not isinstance(read, Enum | Assignment):
                assert _says(read, cell), (key, value, read)
            elif key != "layout" and not isinstance(read, Assignment):
                assert str(read) == str(cell).strip().lower()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"pp": [2.7]}, "plan 0: pp is 2.7"),
        ({"pp": [1, 2.7]}, "plan 1: pp is 2.7"),
        ({"sequence_parallel": ["perhaps"]}, "true or false"),
        ({"group_order": ["tiers"]}, "group_order is 'tiers'"),
        ({"group_order": ["bogus"]}, "group_order is 'bogus'"),
        ({"dp": [2**63 - 1]}, "plan 0: dp is 9223372036854775807"),
        ({"dp": [2**70]}, "plan 0: dp is 1180591620717411303424"),
        ({"recompute": ["some"]}, "one of none, selective, full"),
        ({"layout": ["auto"]}, "layout is 'auto'"),
        ({"pp": [1, 2], "dp": [1]}, "no table"),
        ({"pp": [None]}, "plan 0: pp is missing"),
        ({"pp": [1, float("nan")]}, "plan 1: pp is"),
        ({"pp": [[1]]}, "one value for each plan"),
        (pd.DataFrame([[1, 2]], columns=["pp", "pp"]), "twice"),
        (5, "no table"),
    ],
)
def test_what_cannot_stand_in_a_table_is_refused_with_its_row(table: Any, said: str) -> None:
    with pytest.raises(PhazeError, match=said.replace("(", r"\(")):
        phaze.evaluate_many(table, **LIGHT | {"devices": None})


def test_a_text_that_says_false_is_false(tmp_path: Path) -> None:
    settings = {**LIGHT, "devices": None, "global_batch_size": 4, "output": tmp_path}
    found = phaze.evaluate_many(
        {"tp": 2, "sequence_parallel": ["false", False, "true", np.True_]}, **settings
    )
    seconds = found["iteration_s"].tolist()
    assert seconds[0] == seconds[1] != seconds[2] == seconds[3]
    assert found["sequence_parallel"].tolist() == ["false", False, "true", True]  # as it was given


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint16, np.int64])
def test_integers_of_numpy_are_integers(kind: type[np.integer[Any]], tmp_path: Path) -> None:
    plain = phaze.study(**LIGHT, tp=[1, 2], micro_batch_size=2, global_batch_size=8)
    assert (
        phaze.study(
            **LIGHT, tp=[kind(1), kind(2)], micro_batch_size=kind(2), global_batch_size=kind(8)
        )
        == plain
    )
    assert (
        phaze.study(**LIGHT, tp=np.array([1, 2], kind), micro_batch_size=2, global_batch_size=8)
        == plain
    )
    assert type(plain.plan.tp[0]) is int and {field.name for field in fields(plain)}
    table = pd.DataFrame(
        {"pp": np.array([1, 2], kind), "dp": pd.Series([kind(1), kind(1)], dtype=object)}
    )
    settings = {**LIGHT, "devices": None, "global_batch_size": 4, "output": tmp_path}
    assert phaze.evaluate_many(table, **settings).shape == (2, 7)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of a search that takes a second."""
    request = phaze.study(
        **LIGHT,
        tp=1,
        micro_batch_size=1,
        global_batch_size=4,
        output=tmp_path_factory.mktemp("odd") / "run",
    )
    return phaze.open_run(phaze.run_solver(request).run_directory)


def test_odd_arguments_of_every_entry_point_are_refused(
    finished: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: dict[str, Callable[[Any], Any]] = {
        "run_solver": phaze.run_solver,
        "space_size": phaze.space_size,
        "open_run": phaze.open_run,
        "open_run run_code": lambda value: phaze.open_run(finished.folder, value),
        "explain": phaze.explain,
        "explain instead": lambda value: phaze.explain(finished, value),
        "explain what_if": lambda value: phaze.explain(finished, what_if=value),
        "evaluate_many": lambda value: phaze.evaluate_many(value, **LIGHT | {"devices": None}),
        "evaluate_many devices": lambda value: phaze.evaluate_many(
            {"tp": [1]}, **LIGHT | {"devices": value}
        ),
        "training_time": lambda value: phaze.training_time(tokens=value, **LIGHT, tp=1),
    }
    assert {each.partition(" ")[0] for each in asked} | {"study"} == set(
        phaze._LIBRARY
    )  # those that come, too
    for work in asked.values():
        for value in ODD:
            refused_or(lambda work=work, value=value: work(value))
