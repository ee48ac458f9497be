"""One annotated field is an axis of plans everywhere: a run of a house that has one more."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from Estimator.plans.axes import COMPARED, PLAN_AXES, plan_axis
from Estimator.plans.degrees import UniformPlan
from phaze.settings.request import request_fields
from phaze_common.choices import KeyExchange, LayoutName, TensorLayout

REPOSITORY = Path(__file__).resolve().parents[3]
HOME = "Estimator/plans/degrees.py"
FIELD = """    flavour: Annotated[
        int,
        Axis(
            "flavour of the layers",
            "1",
            title="flavour",
            glossary="which nothing depends on",
            decides_first=Decides.LAYER_COSTS,
            compared=True,
            usual=(1,),
        ),
    ] = 1
"""
BEFORE = "    zero_stage: Annotated["
HOUSE = """
import importlib.abc, importlib.util, pathlib, sys
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        found = name == "Estimator.plans.degrees"
        return importlib.util.spec_from_loader(name, self, origin=HOME) if found else None
    def exec_module(self, module):
        source = pathlib.Path(HOME).read_text()
        exec(compile(source.replace(BEFORE, FIELD + BEFORE), HOME, "exec"), module.__dict__)
sys.meta_path.insert(0, Finder())
import phaze
sys.exit(phaze.main())
"""


def run(*words: object) -> str:
    """What a house with the axis says."""
    values = {"HOME": str(REPOSITORY / HOME), "BEFORE": BEFORE, "FIELD": FIELD}
    code = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + HOUSE
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that searched two flavours."""
    folder = tmp_path_factory.mktemp("flavours") / "run"
    hardware = ("--device", "a100_80gb", "--devices", 2, "--global-batch-size", 8)
    plan = ("--flavour", 1, 3, "--micro-batch-size", 1, "--tp", 1, "--recompute", "none")
    model = ("run_solver", "--model", "bertbase", "--sequence-length", 64)
    run(*model, *hardware, *plan, "--quiet", "--output", folder)
    return folder


def test_an_axis_of_ones_own_is_in_help() -> None:
    assert "--flavour N ..." in run("run_solver", "--help")
    assert "--flavour N " in run("evaluate", "--help")


def test_an_axis_of_ones_own_is_recorded(found: Path) -> None:
    assert yaml.safe_load((found / "study.yaml").read_text())["flavour"] == [1, 3]
    for file in ("designs", "plans"):
        assert set(pd.read_parquet(found / f"{file}.parquet")["flavour"]) == {1, 3}
    best = json.loads((found / "best.json").read_text())
    assert best["models"]["bertbase"]["flavour"] == 1
    (axis,) = (each for each in best["axes"] if each["axis"] == "flavour")
    assert [each["value"] for each in axis["values"]] == ["1", "3"]


def test_an_axis_of_ones_own_can_be_asked_for_and_is_drawn(found: Path, tmp_path: Path) -> None:
    explained = run("explain", found, "--instead", "flavour=3")
    assert "flavour 1 is best" in explained.lower() and "flavour=3" in explained
    pytest.importorskip("altair")
    run("report", found, "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "flavour" in page and "which nothing depends on" in page


def test_a_plan_that_was_found_is_priced_again(found: Path) -> None:
    told = run("evaluate", "--plan", found / "best.json", "--flavour", 3, "--format", "json")
    assert json.loads(told)["plan"]["flavour"] == 3


def test_every_axis_is_a_setting_with_a_title() -> None:
    keys = [each.key for each in PLAN_AXES]
    assert len(keys) == len(set(keys)) and {*keys} < {each.key for each in request_fields()}
    assert all(each.axis.title and each.axis.help for each in PLAN_AXES)
    assert {each.key for each in COMPARED} < {*keys}


def test_values_are_those_that_people_write() -> None:
    plan = UniformPlan(tp=8, layout=TensorLayout.TWO_D, tp2=2, exchange=KeyExchange.RING, cp=2)
    asked = {"tp": 8, "layout": LayoutName.TWO_D.value, "exchange": "ring", "schedule": "1f1b"}
    assert {key: plan_axis(key).of(plan) for key in asked} == asked
    assert plan_axis("gradient_dtype").of(plan) is None
    assert plan_axis("tp").label == "tensor parallel width tp"
    assert plan_axis("recompute").label == "recomputation"
