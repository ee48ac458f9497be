"""The same question is the same run through the command line, a file, the original's flags and the
library."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import phaze
from Estimator.plans.degrees import UniformPlan
from phaze.cli.arguments import parse
from phaze.cli.mode import Command
from phaze.cli.study import StudyCommand, request_of
from phaze.settings.problem import graph_keys, plan_space
from phaze.settings.request import Request, request_fields, settings_for
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

QUESTIONS = {
    "chips": (
        "--phaze_model bertlarge --phaze_micro_batch_size 1 2 --phaze_max_tmp_width 2 "
        "--phaze_hbm_size 32 80",
        "--model bertlarge --micro-batch-size 1 2 --tp 1 2 --hbm-size 32 80 --cluster "
        "phaze_icml24 --csv",
        {"model": "bertlarge", "micro_batch_size": [1, 2], "tp": [1, 2], "hbm_size": [32, 80]},
    ),
    "devices": (
        "--phaze_model bertlarge --device a100_80gb --devices 16 --pp 2 --global-batch-size 64",
        "--model bertlarge --device a100_80gb --cluster dgx_a100 --software megatron_2022 "
        "--devices 16 --set pp=[2] --set micro_batch_size=[1,2,4,8,16] --global-batch-size 64 "
        "--interleave all --precision bf16",
        {
            "model": {"bertlarge": 1},
            "device": "a100_80gb",
            "devices": 16,
            "pp": 2,
            "global_batch_size": 64,
        },
    ),
}


def _asked(command: Command) -> Request:
    assert isinstance(command, StudyCommand)
    return request_of(command)


@pytest.mark.parametrize(("first", "second", "asked"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_same_question_is_the_same_run(
    first: str, second: str, asked: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(asked))
    requests = [
        _asked(parse(first.split())),
        _asked(parse(second.split())),
        _asked(parse(["run_solver", "--config", str(tmp_path / "study.yaml")])),
        phaze.study(**asked),
    ]
    (tmp_path / "recorded.yaml").write_text(requests[0].to_yaml())
    requests.append(_asked(parse(["--config", str(tmp_path / "recorded.yaml")])))
    assert {request.with_settings(csv=False) for request in map(_hashable, requests)} == {
        _hashable(requests[0])
    }
    assert len({request.folders.run for request in requests}) == 1


def _hashable(request: Request) -> Request:
    """The request without the records, which hold mappings."""
    return replace(request, records=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "table"), [("run_solver", Mode.SEARCH), ("evaluate", Mode.EVALUATE)]
)
def test_help_says_every_setting_once(
    mode: str, table: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main([mode, "--help"]) == 0
    described = capsys.readouterr().out.partition("options:")[2]
    for setting in settings_for(table).settings:
        assert len(re.findall(rf"^  {setting.flags[0]}\b(?!-)", described, re.MULTILINE)) == 1
        assert " ".join(setting.help.split()) in " ".join(described.split())
    texts = [field.about.help for field in request_fields()]
    assert len(set(texts)) == len(texts)


UNABLE = {
    "overlap": ({"overlap_tensor": True}, "overlap_tensor is true, but .* designed"),
    "format": ({"precision": "fp8"}, "precision is fp8, but .* designed"),
}


@pytest.mark.parametrize(("asked", "said"), UNABLE.values(), ids=UNABLE)
def test_what_means_nothing_on_designed_chips_is_said(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve({"model": "bertlarge"}, asked)


def plans_of(asked: dict[str, object]) -> list[UniformPlan]:
    request = resolve({}, asked)
    space = plan_space(request, request.workload.models[0].name)
    tables = [space.plans(shape, 26, request.records.cluster) for shape in space.shapes()]
    return [table.plan(index) for table in tables for index in range(len(table))]


def test_degrees_that_are_given_are_the_only_ones_searched() -> None:
    asked: dict[str, object] = {
        "model": "bertlarge",
        "device": "a100_80gb",
        "devices": 16,
        "global_batch_size": 64,
    }
    plans = plans_of(asked | {"pp": 2, "dp": [4, 8], "group_order": "tensor-pipeline-data"})
    whole = plans_of(asked)
    kept = [
        plan
        for plan in whole
        if plan.pp == 2 and plan.dp in {4, 8} and str(plan.group_order) == "tensor-pipeline-data"
    ]
    assert plans == kept and plans
    assert all(plan.cp == 2 for plan in plans_of(asked | {"cp": 2}))


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("pp", [8]),
        ("dp", [4, 8]),
        ("cp", [1, 2]),
        ("interleave", [1, 2]),
        ("zero_stage", [0, 1, 2, 3]),
        ("overlap_gradients", [False, True]),
    ],
)
def test_designed_chips_are_searched_with_every_axis_of_plans(axis: str, values: list[int]) -> None:
    plans = plans_of({"model": "bertlarge", "global_batch_size": 64, axis: values})
    assert {getattr(plan, axis) for plan in plans} == set(values)


def test_experts_are_divided_by_default() -> None:
    assert {plan.ep for plan in plans_of({"model": "mixtral-8x7b", "tp": 8})} == {1, 2, 4, 8}
    assert {plan.ep for plan in plans_of({"model": "mixtral-8x7b", "tp": 8, "ep": 1})} == {1}


def test_graphs_of_a_request_are_those_that_its_plans_need() -> None:
    chips = graph_keys(
        resolve({}, {"model": ["bertlarge", "bertbase"], "micro_batch_size": [1, 2], "tp": [1, 2]})
    )
    found = {(key.model, key.micro_batch_size, key.tp) for keys in chips for key in keys}
    assert found == {
        (model, size, tp) for model in ("bertlarge", "bertbase") for size in (1, 2) for tp in (1, 2)
    }
    (keys,) = graph_keys(
        resolve({}, {"model": "bertlarge", "device": "a100_80gb", "tp": 2, "micro_batch_size": 4})
    )
    assert {(key.tp, key.micro_batch_size, key.sequence_parallel) for key in keys} == {
        (2, 4, False),
        (2, 4, True),
    }
    assert len(keys) == 2
