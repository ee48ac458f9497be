"""The benchmark of scripts/: its rows ask what the command line takes, figures are those of a run,
and two versions are measured in turn."""

import sys
from pathlib import Path

import pytest

from phaze.cli.arguments import parse
from scripts import benchmark
from scripts.benchmark_rows import LAUNCH, OWN_MODEL, ROWS, Figure, Row


def test_rows_ask_what_is_there() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        asked = [] if row.program else [row.asked]
        for words in [*asked, *([row.prepared] if row.prepared else [])]:
            parse(words.format(folder="folder").split())
    assert LAUNCH.exists() and OWN_MODEL.exists()


def test_figures_are_those_of_the_run(tmp_path: Path) -> None:
    code = "print('price', flush=True); print(7.5)"
    assert benchmark.run(["-c", code], tmp_path, str(tmp_path), Figure.STATED) == 7.5
    for figure in set(Figure) - {Figure.STATED}:
        assert benchmark.run(["-c", code], tmp_path, str(tmp_path), figure) > 0.0
    with pytest.raises(RuntimeError, match=r"exit status 3: no$"):
        benchmark.run(
            ["-c", "import sys; print('no', file=sys.stderr); sys.exit(3)"], tmp_path, str(tmp_path)
        )


def test_versions_take_turns_and_the_best_run_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, values = list[str](), iter([3.0, 30.0, 2.0, 40.0])

    def measure(row: Row, tree: Path) -> float:
        if row in (benchmark.IMPORT, benchmark.IMPORT_WALL):
            return 0.5
        ran.append(tree.name)
        return next(values)

    monkeypatch.setattr(benchmark, "measure", measure)
    before, now = benchmark.results(ROWS[0], (Path("before"), Path("now")), 2)
    assert ran == ["before", "now", "before", "now"]
    assert before == benchmark.Result(2.0, 0.5) and now == benchmark.Result(30.0, 0.5)
    assert now.multiple(ROWS[0]) == "60.00"
    monkeypatch.setattr(benchmark, "HISTORY", tmp_path / "history.jsonl")
    assert benchmark.last_recorded()[1] == {}
    benchmark.record({ROWS[0].name: now})
    assert benchmark.last_recorded()[1] == {ROWS[0].name: now}
    assert sys.version.split()[0] in (tmp_path / "history.jsonl").read_text()
