"""``phaze report`` through the front door: files, what is printed, and refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

import phaze
from phaze.report.pages import page
from phaze.runs.finished_run import FinishedRun
from phaze.studies.sweep.axes import Sweep


def test_the_page_lies_in_the_run_and_its_path_is_printed(
    finished_plans: FinishedRun, capsys
) -> None:
    assert phaze.main(["report", str(finished_plans.folder), "--quiet"]) == 0
    path = finished_plans.folder / "report.html"
    captured = capsys.readouterr()
    assert captured.out == f"{path}\n"
    assert captured.err == ""
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_script_of_pages_is_bundled_once_and_only_read_where_nobody_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scripts = iter(("first", "second", "third"))
    monkeypatch.setattr(page, "_bundled", lambda: next(scripts))
    assert [page._bundle() for _ in range(2)] == ["first", "first"]
    (kept,) = (tmp_path / "phaze").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"first", b"other"))
    assert [page._bundle() for _ in range(2)] == ["second", "second"]
    kept.parent.chmod(0o777)
    assert page._bundle() == "third"


@pytest.mark.thorough
def test_figures_are_pictures_for_a_paper(
    finished_plans: FinishedRun, tmp_path: Path, capsys
) -> None:
    words = [
        "report",
        str(finished_plans.folder),
        "--output",
        str(tmp_path / "page.html"),
        "--figures",
        str(tmp_path / "figures"),
    ]
    assert phaze.main([*words, "--format", "json", "--quiet"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["report"] == str(tmp_path / "page.html")
    written = [Path(name) for name in answer["figures"]]
    assert sorted(written) == sorted((tmp_path / "figures").iterdir())
    assert {path.suffix for path in written} == {".svg", ".png", ".pdf", ".parquet"}
    assert {"throughput-memory", "stage-memory", "pipeline"} <= {path.stem for path in written}
    for path in written:
        if path.suffix == ".parquet":
            assert len(pd.read_parquet(path)) > 0, path.name
            continue
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            continue
        if path.suffix == ".pdf":
            content = path.read_bytes()
            assert content.startswith(b"%PDF-")
            assert b"/Subtype/Image" not in content.replace(
                b" ", b""
            )  # lines and letters, which a printer draws sharp
            continue
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert root.get("role") == "img"
        assert root[0].tag.endswith("title")
        assert (root[0].text or "").startswith("Chart: ")
        shapes = [
            each for each in root.iter() if each.tag.rpartition("}")[2] in {"path", "line", "text"}
        ]
        assert len(shapes) > 10, path.name
        assert "colour:" not in path.read_text(encoding="utf-8")


def test_two_runs_are_compared(
    finished: FinishedRun, finished_pair: FinishedRun, tmp_path: Path, capsys
) -> None:
    output = tmp_path / "both.html"
    assert (
        phaze.main(
            [
                "report",
                str(finished.folder),
                str(finished_pair.folder),
                "--output",
                str(output),
                "--quiet",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == f"{output}\n"
    assert "What changed between two runs" in output.read_text(encoding="utf-8")


REFUSED = {
    "no such run": (["nowhere"], "there is no folder"),
    "not a run": (["."], "has no best.json"),
    "three of which the first is none": (["a", "b", "c"], "there is no folder /"),
    "points of one run": (["RUN", "--points", "none"], "--points is about the points of a sweep"),
    "page is a folder": (["RUN", "--output", "."], "is a folder"),
    "figures are a file": (["RUN", "--figures", "taken"], "is a file"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence(
    finished_plans: FinishedRun, words: list[str], said: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    given = [str(finished_plans.folder) if word == "RUN" else word for word in words]
    assert phaze.main(["report", *given, "--quiet"]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("library", ["altair", "vl_convert"])
def test_without_the_plotting_library_it_says_what_to_install(
    finished_plans: FinishedRun, library: str, monkeypatch, capsys
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert phaze.main(["report", str(finished_plans.folder), "--quiet"]) == 1
    assert "run ./setup.sh" in capsys.readouterr().err


def test_a_figure_s_file_stays_in_its_folder_whatever_the_layers_are_called(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from phaze.report.pages import export

    monkeypatch.setattr(export, "write_chart", lambda spec, path, *_: path.write_bytes(b""))
    (tmp_path / "figures").mkdir()
    report = SimpleNamespace(
        figures=[SimpleNamespace(name="schedule-../../above/x", spec={}, abreast=1, alt="")]
    )
    assert {path.parent for path in export.write_figures(report, tmp_path / "figures")} == {
        tmp_path / "figures"
    }
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]


def test_a_sweep_s_page_leads_to_the_reports_of_its_points(swept_plans: Sweep, capsys) -> None:
    folder = swept_plans.folder
    assert phaze.main(["report", str(folder), "--quiet"]) == 0
    path = folder / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    links = re.findall(r'class="to-point" href="([^"]+)"', path.read_text(encoding="utf-8"))
    assert len(links) == 12  # of the points that have a run: the impossible ones have none
    for link in links:
        assert (
            "No plan fits" in (text := (folder / link).read_text(encoding="utf-8"))
            or "The best plan for" in text
        )


def test_reports_of_points_are_left_out_or_written_for_the_best_alone(
    swept_plans: Sweep, tmp_path: Path, capsys
) -> None:
    found = {}
    for which in ("none", "best"):
        path = tmp_path / which / "page.html"
        assert (
            phaze.main(
                [
                    "report",
                    str(swept_plans.folder),
                    "--points",
                    which,
                    "--output",
                    str(path),
                    "--quiet",
                ]
            )
            == 0
        )
        found[which] = re.findall(
            r'class="to-point" href="([^"]+)"', path.read_text(encoding="utf-8")
        )
        assert all((path.parent / link).is_file() for link in found[which])
    assert found["none"] == []
    assert 0 < len(found["best"]) < 12


def test_three_runs_are_points_of_one_page(
    finished: FinishedRun,
    finished_plans: FinishedRun,
    nothing_fits: FinishedRun,
    tmp_path: Path,
    capsys,
) -> None:
    path = tmp_path / "page.html"
    runs = [str(run.folder) for run in (finished, finished_plans, nothing_fits)]
    assert phaze.main(["report", *runs, "--output", str(path), "--points", "none", "--quiet"]) == 0
    assert "3 points of" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_without_the_server_s_libraries_it_says_what_to_install(
    finished_plans: FinishedRun, library: str, monkeypatch, capsys
) -> None:
    for each in ("starlette", "uvicorn"):  # whether they are there or not
        monkeypatch.setitem(sys.modules, each, None if each == library else sys)
    assert phaze.main(["serve", str(finished_plans.folder)]) == 1
    said = capsys.readouterr().err
    assert (
        f"serve needs {library}, which is not installed: python -m pip install 'phaze[serve]'"
        in said
    )
