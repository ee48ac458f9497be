"""``phaze explain`` as it is typed."""

import json

import pytest

import phaze
from phaze.report.sentences.records import Explanation
from phaze_common.records import from_json
from tests.Solver.designs.small_study import small_study, solved


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a finished run."""
    study = small_study(tmp_path_factory.mktemp("explain"), micro_batch_size=[1], hbm_size=[16])
    return solved(study, limits=True).run_directory


def test_a_flag_that_is_gone_is_refused_with_the_reason(run, capsys):
    assert phaze.main(["explain", run, "--moldable"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("phaze: --moldable is gone: ") and "leave it out" in error
    assert phaze.main(["explain", "--help"]) == 0
    assert "--moldable" not in capsys.readouterr().out


def test_a_run_is_explained_in_words(run, capsys):
    assert phaze.main(["explain", run]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("For bertbase, build ")
    for heading in ("how far it leads", "what limits it", "where time and memory go", "words"):
        assert f"\n{heading}\n" in out
    assert "TC: tensor core" in out and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 120
    assert not err


def test_an_alternative_is_a_table_and_reasons(run, capsys):
    assert phaze.main(["explain", run, "--instead", "num_tc=1", "--instead", "pp=2"]) == 0
    out = capsys.readouterr().out
    assert "instead: num_tc=1" in out and "instead: pp=2" in out and "term by term" in out
    assert "share of it" in out and "100%" in out


def test_json_is_the_record(run, capsys):
    assert phaze.main(["explain", run, "--instead", "pp=2", "--format", "json"]) == 0
    out = capsys.readouterr().out
    explanation = from_json(Explanation, out, "stdout")
    assert json.loads(out)["alternatives"][0]["asked"] == "pp=2"
    assert explanation.alternatives[0].slower > 1.0


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--instead", "hbm_size=0.125"], 3, ""),
        (["--instead", "pp=14,dp=16"], 2, "pp 14 x dp 16 needs 224 devices, sixteen has 16"),
        (
            ["--instead", "num_tc=3"],
            2,
            "no accelerator of the design space has num_tc 3; it has 1, 4, 16",
        ),
        (["--instead", "pp"], 2, "is not KEY=VALUE"),
        (["--instead"], 2, "expected one argument"),
    ],
)
def test_what_cannot_be_is_one_sentence(run, capsys, words, status, message):
    assert phaze.main(["explain", run, *words]) == status
    out, err = capsys.readouterr()
    assert message in err
    assert status != 3 or "Nothing with that fits" in out
    assert status != 2 or (not out and len(err.splitlines()) <= 2)


def test_no_run_is_one_sentence(tmp_path, capsys):
    assert phaze.main(["explain", str(tmp_path)]) == 2
    assert "has no best.json" in capsys.readouterr().err
