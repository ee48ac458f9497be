"""Case files of transformer-perf-estimates and its command line: what is read, and what is refused
in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformer_cases import CASE, SYSTEM, TWO_D

from third_party.transformer_perf_estimates import System, published_system
from third_party.transformer_perf_estimates.collectives import neighbour_s, ring
from third_party.transformer_perf_estimates.command_line import main
from third_party.transformer_perf_estimates.corrections import AS_PUBLISHED, CORRECTED

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = {"l": 2048, "e": 25600, "h": 160, "depth": 128}


def ask(tmp_path: Path, document: Any, *words: str) -> int:
    path = tmp_path / "case.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return main([words[0] if words else "evaluate", str(path), *words[1:]])


def answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any, *words: str
) -> list[dict[str, Any]]:
    assert ask(tmp_path, document, *words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    cases: list[dict[str, Any]] = json.loads(out)["cases"]
    return cases


def test_cases_come_one_by_one_as_a_list_or_under_their_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = answers(tmp_path, capsys, CASE, "evaluate", "--as-published")
    assert one[0]["t"] == pytest.approx(614.2018866732147, rel=1e-12)  # as published
    assert one == answers(tmp_path, capsys, [CASE], "evaluate", "--as-published")
    assert one * 2 == answers(
        tmp_path, capsys, {"note": "two", "cases": [CASE, CASE]}, "evaluate", "--as-published"
    )


def test_models_and_systems_are_objects_names_or_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(MODEL))
    (tmp_path / "config-A100.json").write_text(json.dumps(SYSTEM))
    (expected,) = answers(tmp_path, capsys, CASE)
    nameless = {key: value for key, value in CASE.items() if not key.endswith("_name")}
    for model, system in (
        (MODEL, SYSTEM),
        ("gpt3_1T", "A100"),
        ("mine.json", "config-A100.json"),
        (MODEL | {"f": 102400}, SYSTEM),
    ):
        (answer,) = answers(tmp_path, capsys, nameless | {"model": model, "system": system})
        assert answer["stats"] == expected["stats"] and answer["layers"] == expected["layers"]
    (labelled,) = answers(tmp_path, capsys, CASE | {"model_name": "mine", "model": MODEL})
    assert labelled["t"] == expected["t"] and labelled["model_name"] == "mine"


def test_the_fast_domain_of_the_system_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = {key: value for key, value in CASE.items() if key != "nvlink_size"}
    assert answers(tmp_path, capsys, without)[0]["t"] == answers(tmp_path, capsys, CASE)[0]["t"]


def test_a_cluster_of_one_fast_domain_is_shared_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = TWO_D | {
        "n_gpus": 64,
        "nvlink_size": 64,
        "config": {"dp": 1, "tp1": 8, "tp2": 2, "pp": 4, "mbs": 1, "nb": 8},
        "nv": {"nv_tp1": 8, "nv_tp2": 2, "nv_dp": 1, "nv_pp": 4},
    }
    (answer,) = answers(tmp_path, capsys, case)
    assert not answer["feasible"] and answer["config"]["tp"] == 16


def test_a_search_prints_as_many_as_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = answers(tmp_path, capsys, CASE, "search", "--as-published", "--top", "3")
    assert (found["candidates"], len(found["best"])) == (1730, 3)
    assert found["t"] == found["best"][0]["t"] == pytest.approx(614.2018866732147, rel=1e-12)
    (again,) = answers(
        tmp_path,
        capsys,
        CASE | {key: found["best"][2][key] for key in ("config", "nv")},
        "evaluate",
        "--as-published",
    )
    assert again["t"] == pytest.approx(found["best"][2]["t"], rel=1e-12)


def test_a_search_without_an_answer_says_why_with_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, CASE | {"n_gpus": 513}, "search") == 3
    out, err = capsys.readouterr()
    assert (
        json.loads(out)["cases"][0]["candidates"] == 0
        and "no configuration is possible: degrees multiply to n_gpus" in err
    )
    assert ask(tmp_path, CASE | {"n_gpus": 1, "nvlink_size": 1}, "search") == 3
    assert "configurations fits in memory" in capsys.readouterr().err


def with_config(case: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return case | {"config": case["config"] | changes}


def with_nv(case: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return case | {"nv": case["nv"] | changes}


REFUSED = {
    "an unknown strategy": (CASE | {"strategy": "3d"}, "strategy is '3d'; give '1d', 'seqp', '2d'"),
    "a strategy in capitals": (CASE | {"strategy": "2D"}, "strategy is '2D'; did you mean '2d'?"),
    "a strategy that is no text": (CASE | {"strategy": ["1d"]}, "strategy is ['1d']"),
    "an unknown model": (
        CASE | {"model_name": "gpt3_1t7"},
        "model 'gpt3_1t7' is not known; did you mean 'gpt3_1T'?",
    ),
    "an unknown system": (
        CASE | {"system_name": "TPU"},
        "system 'TPU' is not known; known are A100, H200, B200, B200-next",
    ),
    "a misspelt key of a case": (
        CASE | {"nvlink_sise": 8},
        "a case has no key 'nvlink_sise'; did you mean 'nvlink_size'?",
    ),
    "no model": (
        {key: value for key, value in CASE.items() if key != "model_name"},
        "model_name is missing",
    ),
    "no strategy": ({"config": {}}, "strategy is null"),
    "no GPUs": (CASE | {"n_gpus": 0}, "n_gpus is 0; it must be a whole number from 1"),
    "absurdly many GPUs": (
        CASE | {"n_gpus": 10**15},
        "n_gpus is 1000000000000000; it must be a whole number",
    ),
    "a text as batch": (CASE | {"global_batch_size": "4096"}, "global_batch_size is '4096'"),
    "half a fast domain": (CASE | {"nvlink_size": 0.5}, "nvlink_size is 0.5"),
    "degrees for another cluster": (
        with_config(CASE, dp=2),
        "tp x pp x dp is 1024, but n_gpus is 512",
    ),
    "a pipeline deeper than the model": (
        CASE | {"n_gpus": 6, "config": {"dp": 1, "tp": 2, "pp": 3, "mbs": 1}},
        "pp is 3; it must divide",
    ),
    "more replicas than divide the batch": (
        CASE | {"n_gpus": 3, "config": {"dp": 3, "tp": 1, "pp": 1, "mbs": 1}},
        "dp is 3; it must",
    ),
    "a width that does not divide the heads": (
        CASE | {"n_gpus": 64, "config": {"dp": 1, "tp": 64, "pp": 1, "mbs": 1}},
        "tp is 64; it must divide the heads, 160",
    ),
    "a micro-batch that does not divide": (
        with_config(CASE, mbs=3),
        "mbs is 3; it must divide the batch of a replica, 4096",
    ),
    "tokens that do not divide": (
        with_config(CASE | {"model": MODEL | {"l": 100}}, mbs=1),
        "tp is 16; it must divide the tokens of a micro-batch, 100",
    ),
    "panels that do not divide": (
        with_config(TWO_D, nb=24),
        "nb is 24; it must divide the width e, 25600",
    ),
    "panels wider than a device's block": (with_config(TWO_D, nb=4), "nb is 4; give at least 8"),
    "no panels": (
        TWO_D | {"config": {key: each for key, each in TWO_D["config"].items() if key != "nb"}},
        "config: nb is missing",
    ),
    "panels in 1D": (with_config(CASE, nb=8), "config: 'nb' is not a known key"),
    "tp that is not tp1 x tp2": (with_config(TWO_D, tp=16), "tp is 16, but tp1 x tp2 is 8"),
    "an overfilled fast domain": (
        with_nv(CASE, nv_pp=2),
        "the shares multiply to 8, which overfills the fast domain",
    ),
    "a fast domain with room left": (
        with_nv(CASE, nv_tp=2),
        "multiply to 2, which does not fill the fast domain",
    ),
    "a share that does not divide": (with_nv(CASE, nv_tp=3), "nv_tp is 3; it must divide tp, 16"),
    "a negative share": (with_nv(CASE, nv_tp=-4), "nv_tp is -4; it must be a whole number"),
    "shares of another strategy": (CASE | {"nv": TWO_D["nv"]}, "nv: 'nv_tp1' is not a known key"),
    "no configuration": (
        {key: value for key, value in CASE.items() if key != "config"},
        "config is null; it must be an object",
    ),
    "a list as shares": (CASE | {"nv": [4, 1, 1]}, "nv is [4, 1, 1]; it must be an object"),
    "a model without heads": (
        CASE | {"model": {"l": 8, "e": 8, "depth": 2}},
        "model: h is missing",
    ),
    "heads that do not divide": (
        CASE | {"model": MODEL | {"h": 7}},
        "h is 7; heads must divide the width e = 25600",
    ),
    "a misspelt key": (
        CASE | {"system": SYSTEM | {"nic_factr": 1}},
        "'nic_factr' is not a known key; did you mean 'nic_factor'?",
    ),
    "a system without memory": (
        CASE | {"system": SYSTEM | {"hbm_capacity": 0}},
        "hbm_capacity is 0; it must be a number above 0",
    ),
    "an efficiency above one": (
        CASE | {"system": SYSTEM | {"ib_eff": 1.5}},
        "ib_eff is 1.5; it must be a share",
    ),
    "an endless bandwidth": (
        CASE | {"system": SYSTEM | {"ib_bandwidth": 1e400}},
        "ib_bandwidth is Infinity in line 1",
    ),
    "a bandwidth without range": (
        CASE | {"system": SYSTEM | {"ib_bandwidth": 1e300}},
        "ib_bandwidth is 1e+300",
    ),
    "measurements nobody has": (
        CASE | {"system": SYSTEM | {"empirical": True}},
        "empirical is true; it must be false",
    ),
    "a file that is not there": (CASE | {"model": "missing.json"}, "missing.json"),
    "a number as model": (CASE | {"model": 175}, "model is 175; it must be an object"),
}


@pytest.mark.parametrize(("case", "words"), REFUSED.values(), ids=REFUSED)
def test_a_case_that_cannot_be_names_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: dict[str, Any], words: str
) -> None:
    assert ask(tmp_path, [CASE, case]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(str(tmp_path)) and words in err and len(err.splitlines()) == 1 and not out
    assert ask(tmp_path, CASE) == 0


@pytest.mark.parametrize(
    "document", [{"case": [CASE]}, {"Cases": [CASE]}, {"cases": {"a": 1}}, [{}]]
)
def test_what_is_no_case_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any
) -> None:
    assert ask(tmp_path, document, "search") == 2
    assert 'does not hold cases; give {"cases": [...]}' in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[]",
        "{}",
        "3",
        '{"cases": []}',
        '{"cases": {"strategy": 3}}',
        "[{}, 1]",
        "[" * 10**5,
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "search"])
def test_a_file_without_cases_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: str
) -> None:
    assert ask(tmp_path, content, command) == 2
    err = capsys.readouterr().err
    assert str(tmp_path) in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"n_gpus": 55440, "global_batch_size": 14414400, "nvlink_size": 16},
            "configurations, at most 10,000,000 are searched",
        ),
        (
            {"n_gpus": 55440, "global_batch_size": 720720, "nvlink_size": 720},
            "combinations of degrees and shares",
        ),
    ],
)
def test_a_space_beyond_memory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    model = {"l": 2**24, "e": 128 * 55440, "h": 55440, "depth": 55440}
    assert ask(tmp_path, CASE | {"strategy": "2d", "model": model} | changes, "search") == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("top", ["0", "-1", "many", "1e3", "²"])
def test_how_many_to_show_is_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], top: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        ask(tmp_path, CASE, "search", f"--top={top}")
    assert "is not a whole number from 1" in capsys.readouterr().err


def test_the_module_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"cases": [CASE | {"strategy": "4d"}]}))
    words = [sys.executable, "-m", "third_party.transformer_perf_estimates", "evaluate", str(path)]
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == "" and "strategy is '4d'" in ended.stderr


groups = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(
    lambda powers: (2.0 ** sum(powers), 2.0 ** powers[1])
)


@given(groups, st.floats(1e-9, 100), st.sampled_from([AS_PUBLISHED, CORRECTED]))
def test_collectives_take_what_their_kind_must(
    group: tuple[float, float], volume_gb: float, corrections: frozenset
) -> None:
    import numpy as np

    system: System = published_system("H200")
    devices, inside, volume = (np.array([each]) for each in (*group, volume_gb))
    one, twice = (
        ring(system, devices, inside, corrections),
        ring(system, devices, inside, CORRECTED),
    )
    if devices == 1:
        assert one.gather_s(volume) == one.broadcast_s(volume) == one.all_reduce_s(volume) == 0
        return
    assert one.gather_s(volume) < one.broadcast_s(volume)
    assert one.gather_s(volume) <= one.all_reduce_s(volume) <= twice.all_reduce_s(volume)
    assert twice.all_reduce_s(volume) == pytest.approx(2 * twice.gather_s(volume))
    slower = ring(system, devices, np.ones(1), corrections)
    assert one.gather_s(volume) <= slower.gather_s(volume)
    wire = (devices - 1) / devices * volume / system.nvlink_reached_gb_per_s
    assert one.gather_s(volume) > wire


def test_a_neighbour_in_the_fast_domain_is_nearer() -> None:
    import numpy as np

    system = published_system("A100")
    near, far = (neighbour_s(system, np.array([1.0]), fast) for fast in (True, False))
    assert near == pytest.approx(2.5e-6 + 1 / 210) and far == pytest.approx(5e-6 + 1 / 17.5)
