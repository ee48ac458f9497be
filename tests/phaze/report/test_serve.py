"""The page from a local server: who is let in, what is answered, and what is refused."""

from __future__ import annotations

import re
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE
from typing import Any

import pytest

import phaze
from phaze.library import explain
from phaze.runs.finished_run import FinishedRun
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.points_read import read_points
from tests.builders.processes import started

REPOSITORY = Path(phaze.__file__).resolve().parents[1]
TOKEN = "a-token-of-the-test"
pytest.importorskip("starlette", reason="starlette is not installed (pip install 'phaze[serve]')")


@pytest.fixture(scope="module")
def of_sweep(swept_plans: Sweep) -> Any:
    return client_of([swept_plans.folder], alone=False)


@pytest.fixture(scope="module")
def of_run(finished_plans: FinishedRun) -> Any:
    return client_of([finished_plans.folder], alone=True)


def client_of(folders: list[Path], *, alone: bool) -> Any:
    try:
        from starlette.testclient import TestClient
    except (ModuleNotFoundError, RuntimeError) as error:
        pytest.skip(f"starlette's test client cannot be used: {error}")
    from phaze.report.serve.answers import Answers
    from phaze.report.serve.app import application

    return TestClient(
        application(Answers(read_points(folders), alone), TOKEN), raise_server_exceptions=False
    )


WITHOUT = {
    "nothing": "/",
    "another": "/another/",
    "a part of it": f"/{TOKEN[:-1]}/",
    "more than it": f"/{TOKEN}x/",
    "no slash behind it": f"/{TOKEN}",
    "behind something": f"/points/{TOKEN}/",
    "as a parameter": f"/?token={TOKEN}",
    "a point": "/points/1/",
    "a plan": "/points/1/plan",
    "other letters": "/\u00e4\u20ac/",
    "twice a slash": f"//{TOKEN}/",
}


@pytest.mark.parametrize("path", WITHOUT.values(), ids=WITHOUT)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
def test_without_the_token_everything_is_refused_alike(
    of_sweep: Any, path: str, method: str
) -> None:
    reply = of_sweep.request(method, path, follow_redirects=False)
    assert reply.status_code == 403
    assert "points" not in reply.text and TOKEN not in str(reply.headers)


NOWHERE = (
    "x",
    "../",
    "..%2f..%2fetc%2fpasswd",
    "points/1/../../../../etc/passwd",
    "points/%2e%2e/%2e%2e/study.yaml",
    "points/999/",
    "points/-1/",
    "points/0/plan",
    "points/1",
    "points/1/best.json",
    "points/99999999999999999999999999/plan",
    "sweep.yaml",
    "points/",
)


@pytest.mark.parametrize("path", NOWHERE)
def test_no_file_can_be_named(of_sweep: Any, path: str) -> None:
    reply = of_sweep.get(f"/{TOKEN}/{path}", follow_redirects=False)
    assert reply.status_code in {403, 404}
    assert "model" not in reply.text and "root:" not in reply.text


def test_the_page_may_ask_its_server_and_nobody_else(of_sweep: Any) -> None:
    reply = of_sweep.get(f"/{TOKEN}/")
    assert reply.status_code == 200
    policy = reply.headers["content-security-policy"]
    assert (
        "default-src 'none'" in policy
        and "connect-src 'self'" in policy
        and "frame-ancestors 'none'" in policy
    )
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert TOKEN not in reply.text  # addresses in it are relative
    links = re.findall(r'class="to-point" href="([^"]+)"', reply.text)
    assert len(links) == 12
    assert (
        "The best plan for" in of_sweep.get(f"/{TOKEN}/points/2/").text
        or "No plan fits" in of_sweep.get(f"/{TOKEN}/points/2/").text
    )


def test_a_point_shows_its_plan_or_why_it_has_none(of_sweep: Any, swept_plans: Sweep) -> None:
    for point in read_points([swept_plans.folder]).points:
        answer = of_sweep.get(f"/{TOKEN}/points/{point.number}/plan").json()
        said = " ".join(answer["sentences"])
        assert answer["can_ask"] is point.feasible
        if point.result is not None and point.feasible:
            (plan,) = point.result.plans
            assert f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}" in said
        else:
            assert "There is no plan" in said


def test_an_alternative_is_what_the_library_says(of_run: Any, finished_plans: FinishedRun) -> None:
    reply = of_run.post(f"/{TOKEN}/points/1/explain", json={"instead": "pp=2"})
    assert reply.status_code == 200
    (expected,) = explain(finished_plans, "pp=2").alternatives
    answer = reply.json()
    assert tuple(answer["sentences"]) == expected.sentences
    assert answer["rows"][-1][1] == "iteration"
    total = 1e3 * sum(term.other_s for term in expected.terms)
    assert float(answer["rows"][-1][3].replace(",", "")) == pytest.approx(total, abs=1e-3)


ASKED_WRONGLY = {
    "no JSON": (b"pp=2", "JSON"),
    "a list": (b"[1]", "names what to have instead"),
    "no text": (b'{"instead": 3}', "names what to have instead"),
    "nothing": (b'{"instead": "  "}', "1 to 400 characters"),
    "too long": (b'{"instead": "' + b"x" * 500 + b'"}', "1 to 400 characters"),
    "an unknown key": (b'{"instead": "colour=3"}', "unknown key 'colour'"),
    "a chip": (b'{"instead": "num_tc=4"}', "was given its device"),
    "megabytes": (b" " * 100_000, "at most 4096 bytes"),
    "deep": (b"[" * 4000, "JSON"),
}


@pytest.mark.parametrize(("body", "said"), ASKED_WRONGLY.values(), ids=ASKED_WRONGLY)
def test_a_question_that_cannot_be_is_refused_with_a_sentence(
    of_run: Any, body: bytes, said: str
) -> None:
    reply = of_run.post(f"/{TOKEN}/points/1/explain", content=body)
    assert reply.status_code == 422
    assert said in reply.json()["problem"]


def test_points_without_a_plan_cannot_be_asked(of_sweep: Any, swept_plans: Sweep) -> None:
    without = next(
        point for point in read_points([swept_plans.folder]).points if not point.feasible
    )
    assert (
        of_sweep.post(
            f"/{TOKEN}/points/{without.number}/explain", json={"instead": "pp=2"}
        ).status_code
        == 404
    )


def test_of_one_run_the_page_is_its_report(of_run: Any) -> None:
    text = of_run.get(f"/{TOKEN}/").text
    assert "The best plan for" in text and "What would another plan cost?" in text


def test_the_command_prints_an_address_that_answers_and_ends_when_interrupted(
    finished_plans: FinishedRun,
) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'phaze[serve]')")
    words = [sys.executable, REPOSITORY / "phaze.py", "serve", finished_plans.folder]
    with started(words, stdout=PIPE, stderr=PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[A-Za-z0-9_-]{32,}/", address)
        with urllib.request.urlopen(address, timeout=60) as reply:
            assert "The best plan for" in reply.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address.rpartition("/")[0].rpartition("/")[0] + "/", timeout=60)
        assert refused.value.code == 403
        refused.value.close()
        process.send_signal(SIGINT)
        assert process.wait(60) == 0


REFUSED: dict[str, tuple[list[str], str]] = {
    "no such run": (["nowhere"], "there is no folder"),
    "not a run": (["."], "has no best.json"),
    "a port that is none": (["RUN", "--port", "70000"], "--port 70000 is no port"),
    "a host that is none": (["RUN", "--host", "no such host"], "is no address of this machine"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_served_is_refused_with_a_sentence(
    finished_plans: FinishedRun, words: list[str], said: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'phaze[serve]')")
    monkeypatch.chdir(tmp_path)
    given = [str(finished_plans.folder) if word == "RUN" else word for word in words]
    assert phaze.main(["serve", *given]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1


def test_a_port_in_use_is_refused_with_a_sentence(finished_plans: FinishedRun, capsys) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'phaze[serve]')")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert phaze.main(["serve", str(finished_plans.folder), "--port", str(port)]) == 2
    assert (
        f"127.0.0.1:{port} cannot be listened on (address already in use); give another --port"
        in capsys.readouterr().err
    )
