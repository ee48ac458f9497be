"""``phaze list``: what can be named, with a line each, and the same names wherever a name is
refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import phaze
from Estimator.hardware_files import HARDWARE
from GraphExtractor.models.registry import listed_models
from phaze.cli.listed_kinds import LISTED

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDERS = {kind: kind.replace("-", "_") for kind in LISTED if kind not in {"models", "chips"}}


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert phaze.main(["list", *words, "--format", "json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


def test_alone_it_counts_what_each_kind_lists(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {row["kind"]: row["names"] for row in listed(capsys)}
    assert kinds == {kind: len(listed(capsys, kind)) for kind in LISTED}
    assert kinds["models"] == len(listed_models())


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_that_ships_is_listed_with_what_it_is(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {row["name"]: row for row in listed(capsys, kind)}
    assert set(rows) == {file.stem for file in (HARDWARE / FOLDERS[kind]).glob("*.yaml")}
    assert all(
        str(row["what"]).strip(" .") and Path(str(row["file"])).is_file() for row in rows.values()
    )
    assert phaze.main(["list", kind]) == 0
    table = capsys.readouterr().out
    assert (
        all(f"\n  {name} " in table for name in rows)
        and f"named with {LISTED[kind].flags[0]} NAME" in table
    )


def test_key_figures_are_those_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    (h100,) = (row for row in listed(capsys, "devices") if row["name"] == "h100")
    assert (h100["TFLOP/s"], h100["in"], h100["memory_GiB"], h100["GB/s"]) == (
        989.4,
        "bf16",
        79.1,
        3350,
    )
    known = {row["name"]: row["known"] for row in listed(capsys, "devices")}
    assert (known["mi210"], known["h100"], known["mi300x"], known["tpu_v5e"]) == (
        "measured",
    ) * 2 + ("data_sheet",) * 2
    (flat,) = (row for row in listed(capsys, "clusters") if row["name"] == "phaze_icml24")
    assert (flat["devices"], flat["groups_at_GB/s"], flat["topology"]) == (
        1024,
        "1,024 at 4.295",
        "switch",
    )
    topologies = {row["name"]: row["topology"] for row in listed(capsys, "clusters")}
    assert topologies["torus_3d"] == "3D torus" and topologies["fully_connected"] == "mesh, switch"
    assert topologies["rail_optimised"] == "switch, rail"
    (space,) = (row for row in listed(capsys, "design_spaces") if row["name"] == "phaze_icml24")
    assert (space["accelerators"], space["technology"]) == (29360, "phaze_22nm")


def test_models_are_those_of_the_models_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["models", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed(capsys, "models")


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["list", "device"]) == 2
    assert (
        capsys.readouterr().err == "phaze: nothing is listed as 'device'; did you mean 'devices'?\n"
    )
    assert phaze.main(["list", "fridges"]) == 2
    assert "the kinds are models, devices, clusters" in capsys.readouterr().err


def test_listing_and_completing_need_no_torch() -> None:
    modes = ["list", *(f"list {kind}" for kind in LISTED), "completion bash"]
    code = (
        "import sys, phaze\n"
        "for words in sys.argv[1:]:\n"
        "    assert phaze.main(words.split()) == 0, words\n"
        "    assert not {'torch', 'transformers'} & set(sys.modules), words\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *modes],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
