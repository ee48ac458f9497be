"""Answers of others beside the curves of a sweep: read, matched, drawn, and refused in a
sentence."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

import phaze
from phaze.report.pages.figures import Section
from phaze.report.pages.points.scaling import Scaling, curves_of
from phaze.report.pages.points.side_by_side import (
    MOST_SOURCES,
    OURS,
    SideBySide,
    side_by_side,
    side_by_side_section,
)
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.other_answers import OtherAnswer, read_other_answers
from phaze.studies.sweep.points_read import PointSet, read_points
from phaze_common.errors import InputError

HEADER = "source,devices,seconds,memory_size,global_batch_size\n"
ROWS = f"{HEADER}one,4,2.5,40,16\none,2,4,40.0,16\ntwo,16,1,40,32\none,4,2,40,16\nthree,4,9,41,16\n"


@pytest.fixture(scope="module")
def plans(swept_plans: Sweep) -> PointSet:
    return read_points([swept_plans.folder])


@pytest.fixture(scope="module")
def found(plans: PointSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[SideBySide, ...]:
    path = tmp_path_factory.mktemp("beside") / "others.csv"
    path.write_text(ROWS)
    return side_by_side(plans, read_other_answers(path), "others.csv")


@pytest.fixture(scope="module")
def section(found: tuple[SideBySide, ...]) -> Section:
    return side_by_side_section(found, "others.csv")


def test_an_answer_stands_beside_the_curves_that_are_asked_the_same(
    found: tuple[SideBySide, ...], plans: PointSet
) -> None:
    asked = {
        curve.label: {(step.point.value("memory_size"), step.batch) for step in curve.steps}
        for curve in curves_of(plans, Scaling.STRONG)
    }
    expected = {
        label: "one" if (40, 16) in values else "two"
        for label, values in asked.items()
        if {40} == {m for m, _ in values}
    }
    assert {each.label: next(iter(each.others)) for each in found} == expected and set(
        expected.values()
    ) == {"one", "two"}
    for each in found:
        assert each.others in (
            {"one": {2: 4.0, 4: 2.0}},
            {"two": {16: 1.0}},
        )  # the fastest of several, devices ascending
        assert each.batch == (16 if "one" in each.others else 32)


def test_the_table_and_the_figures_have_the_seconds_of_both(
    section: Section, found: tuple[SideBySide, ...], swept_plans: Sweep
) -> None:
    own = pd.read_parquet(swept_plans.folder / "table.parquet")
    (part,) = section.parts
    for each, figure in zip(found, part.figures, strict=True):
        (text,) = figure.spec["datasets"].values()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {row["source"] for row in rows} == {*each.others, *([OURS] if each.ours else [])}
        alike = (
            (own["global_batch_size"] == each.batch)
            & (own["memory_size"] == 40)
            & (own["tp"] == int(each.label[3]))
        )
        swept = (
            own[alike]
            .dropna(subset="time_per_batch_s")
            .set_index("devices")["time_per_batch_s"]
            .to_dict()
        )
        assert each.ours == swept
        for row in rows:
            devices, seconds = int(row["devices"]), float(row["seconds"])
            assert float(row["throughput"]) == pytest.approx(each.batch / seconds / devices)
            assert (
                (float(row["ratio"]) == pytest.approx(seconds / swept[devices]))
                if row["ratio"]
                else devices not in swept
            )
            assert row["source"] != OURS or seconds == swept[devices]
    (shown,) = part.tables
    assert len(shown.rows) == sum(
        len({devices for _, times in each.sources for devices in times}) for each in found
    )
    counted = sum(len(each.others.get("one", {}).keys() & each.ours.keys()) for each in found)
    assert any(
        line.startswith("one: ") and f"over {counted} points that both have" in line
        for line in part.paragraphs
    )


def test_numbers_are_compared_as_numbers_and_what_is_not_named_may_be_anything() -> None:
    answer = OtherAnswer("one", 4, 1.0, {"memory_size": "40.0", "device": "h100"})
    assert (
        answer.agrees("memory_size", 40)
        and answer.agrees("device", "h100")
        and answer.agrees("fast_domain", 8)
    )
    assert (
        not answer.agrees("memory_size", 80)
        and not answer.agrees("device", "h200")
        and not answer.agrees("device", None)
    )


def test_sources_are_few_and_none_is_called_as_we_are(plans: PointSet) -> None:
    many = [OtherAnswer(f"source {place}", 4, 1.0, {}) for place in range(MOST_SOURCES + 1)]
    assert all(len(each.others) == MOST_SOURCES for each in side_by_side(plans, many[1:], "x"))
    (figure, *_) = side_by_side_section(side_by_side(plans, many[1:], "x"), "x").parts[0].figures
    coded = figure.spec["layer"][1]["encoding"]
    looks = list(
        zip(coded["color"]["scale"]["range"], coded["shape"]["scale"]["range"], strict=True)
    )
    assert len(set(looks)) == len(looks) == MOST_SOURCES + 1 and all(
        tint != looks[0][0] for tint, _ in looks[1:]
    )
    with pytest.raises(
        InputError, match=f"x has {MOST_SOURCES + 1} sources, at most {MOST_SOURCES} are drawn"
    ):
        side_by_side(plans, many, "x")
    with pytest.raises(InputError, match=f"x has the source {OURS}"):
        side_by_side(plans, [OtherAnswer(OURS, 4, 1.0, {})], "x")


def test_the_page_has_what_stands_beside(swept_plans: Sweep, tmp_path: Path, capsys) -> None:
    (tmp_path / "others.csv").write_text(ROWS.replace("one", "<b>one</b>"))
    words = [
        "report",
        str(swept_plans.folder),
        "--points",
        "none",
        "--quiet",
        "--output",
        str(tmp_path / "page.html"),
    ]
    assert phaze.main([*words, "--beside", str(tmp_path / "others.csv")]) == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="beside"' in text and "<b>one</b>" not in text


REFUSED = {
    "no such file": (None, "No such file"),
    "no rows": (HEADER, "holds no rows"),
    "a column that is missing": ("source,devices\none,4\n", "has no column seconds"),
    "a column of nobody": (
        "source,devices,seconds,memory_sise\none,4,1,40\n",
        "did you mean 'memory_size'?",
    ),
    "a cell that is missing": (
        f"{HEADER}one,4,1\n",
        "line 2 does not have as many cells as the header",
    ),
    "a cell too many": (
        f"{HEADER}one,4,1,40,16,3\n",
        "line 2 does not have as many cells as the header",
    ),
    "half a device": (
        f"{HEADER}one,0.5,1,40,16\n",
        "line 2: devices is 0.5; it must be a whole number",
    ),
    "no time at all": (
        f"{HEADER}one,4,0,40,16\n",
        "line 2: seconds is '0'; it must be a positive number",
    ),
    "of nobody": (f"{HEADER},4,1,40,16\n", "line 2 has no source"),
    "about something else": (
        f"{HEADER}one,4,1,41,16\n",
        "its rows name memory_size and global_batch_size (the first: memory_size 41",
    ),
    "an open quotation": (f'{HEADER}"one,4,1,40,16\n', "unexpected end of data"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_stand_beside_is_refused_with_a_sentence_and_nothing_is_written(
    swept_plans: Sweep, content: str | None, said: str, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "others.csv"
    if content is not None:
        path.write_text(content)
    words = [
        "report",
        str(swept_plans.folder),
        "--quiet",
        "--output",
        str(tmp_path / "page.html"),
        "--beside",
        str(path),
    ]
    assert phaze.main(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    assert not (tmp_path / "page.html").exists()


def test_points_without_a_curve_of_one_batch_have_nothing_beside_them(
    swept_plans: Sweep, swept_chips: Sweep, capsys
) -> None:
    with pytest.raises(InputError, match="has no curve that x could stand beside"):
        side_by_side(read_points([swept_chips.folder]), [OtherAnswer("one", 4, 1.0, {})], "x")
    run = next(
        point.folder
        for point in read_points([swept_plans.folder]).points
        if point.folder is not None
    )
    assert phaze.main(["report", str(run), "--quiet", "--beside", "others.csv"]) == 2
    assert "--beside is about the curves of a sweep" in capsys.readouterr().err
