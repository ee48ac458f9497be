"""The same question is the same run through the command line, a file, the original's flags and the library."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from Studies.adapters import chip_study, evaluation, graph_keys, plan_search

import phaze
from Common.errors import InputError
from FrontDoor.arguments import parse
from FrontDoor.modes import _request
from Solver import search
from Studies.annotations import Mode
from Studies.plan_files import evaluate_request
from Studies.request import Request, request_fields, settings_for
from Studies.resolve import resolve

QUESTIONS = {
    "chips": (
        "--phaze_model bertlarge --phaze_micro_batch_size 1 2 --phaze_max_tmp_width 2 --phaze_hbm_size 32 80",
        "--model bertlarge --micro-batch-size 1 2 --tp 1 2 --hbm-size 32 80 --cluster phaze_icml24 --csv",
        {"model": "bertlarge", "micro_batch_size": [1, 2], "tp": [1, 2], "hbm_size": [32, 80]},
    ),
    "devices": (
        "--phaze_model bertlarge --device a100_80gb --devices 16 --pp 2 --global-batch-size 64",
        "--model bertlarge --device a100_80gb --cluster dgx_a100 --software megatron_2022 --devices 16 --set pp=[2] "
        "--set micro_batch_size=[1,2,4,8,16] --global-batch-size 64 --interleave all --precision bf16",
        {"model": {"bertlarge": 1}, "device": "a100_80gb", "devices": 16, "pp": 2, "global_batch_size": 64},
    ),
}


@pytest.mark.parametrize(("first", "second", "asked"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_same_question_is_the_same_run(first: str, second: str, asked: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(asked))
    requests = [
        _request(parse(first.split())),
        _request(parse(second.split())),
        _request(parse(["run_solver", "--config", str(tmp_path / "study.yaml")])),
        search.study(**asked),
    ]
    (tmp_path / "recorded.yaml").write_text(requests[0].to_yaml())
    requests.append(_request(parse(["--config", str(tmp_path / "recorded.yaml")])))
    assert {replace(request, csv=False) for request in map(_hashable, requests)} == {_hashable(requests[0])}
    assert len({request.folders.run for request in requests}) == 1


def _hashable(request: Request) -> Request:
    """The request without the records, which hold mappings."""
    return replace(request, hardware=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "table"), [("run_solver", Mode.SEARCH), ("evaluate", Mode.EVALUATE)])
def test_help_says_every_setting_once(mode: str, table: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main([mode, "--help"]) == 0
    described = capsys.readouterr().out.partition("options:")[2]
    for setting in settings_for(table).settings:
        assert len(re.findall(rf"^  {setting.flags[0]}\b(?!-)", described, re.MULTILINE)) == 1
        assert " ".join(setting.help.split()) in " ".join(described.split())
    texts = [field.about.help for field in request_fields()]
    assert len(set(texts)) == len(texts)


UNABLE = {
    "pipeline stages": ({"pp": 8}, "a search of accelerators does not know pp 8 yet"),
    "replicas": ({"dp": [4, 8]}, "does not know dp 4 8 yet"),
    "context": ({"cp": 2}, "does not know cp 2 yet"),
    "experts": ({"model": "mixtral-8x7b", "ep": 2}, "does not know ep 2 yet"),
    "chunks": ({"interleave": "all"}, "does not know interleave all yet"),
    "overlap": ({"overlap_tensor": True}, "does not know overlap_tensor true yet"),
    "ZeRO stages": ({"zero_stage": [0, 1]}, "does not know zero_stage 0 1 yet"),
    "order": ({"cluster": "dgx_a100", "group_order": "tensor-pipeline-data"}, "does not know group_order tensor-pipeline-data"),
    "format": ({"precision": "fp16"}, "does not know precision fp16 yet"),
    "all devices": ({"use_all_devices": True}, "does not know use_all_devices true yet"),
}


@pytest.mark.parametrize(("asked", "said"), UNABLE.values(), ids=UNABLE)
def test_what_the_search_of_accelerators_cannot_do_yet_is_said(asked: dict[str, object], said: str) -> None:
    request = resolve({"model": "bertlarge"}, asked)
    with pytest.raises(InputError, match=said):
        chip_study(request)


@pytest.mark.parametrize("asked", [{"cp": [1, 2]}, {"overlap_gradients": "all"}, {"use_all_devices": False}], ids=str)
def test_what_the_search_on_devices_cannot_do_yet_is_said(asked: dict[str, object]) -> None:
    request = resolve({"model": "bertlarge", "device": "a100_80gb", "devices": 8}, asked)
    with pytest.raises(InputError, match=f"a search on devices that exist does not know {next(iter(asked))}"):
        plan_search(request)


def test_degrees_that_are_given_are_the_only_ones_searched() -> None:
    asked = {"model": "bertlarge", "device": "a100_80gb", "devices": 16, "global_batch_size": 64}
    every = plan_search(resolve({}, asked))
    fixed = plan_search(resolve({}, asked | {"pp": 2, "dp": [4, 8], "group_order": "tensor-pipeline-data"}))
    plans = [plan for shape in fixed.space.shapes() for plan in fixed.space.plans(shape, 24, fixed.cluster)]
    whole = [plan for shape in every.space.shapes() for plan in every.space.plans(shape, 24, every.cluster)]
    kept = [plan for plan in whole if plan.pp == 2 and plan.dp in {4, 8} and plan.group_order.value == "tensor-pipeline-data"]
    assert plans == kept and plans
    assert all(plan.cp == 2 for plan in plan_search(resolve({}, asked | {"cp": 2})).space.shapes())


def test_one_plan_of_a_chip_cannot_be_priced_yet() -> None:
    with pytest.raises(InputError, match="devices that exist as yet"):
        evaluation(evaluate_request(None, {"model": "bertlarge", "chip": "tpuv4_like"}))


def test_graphs_of_a_request_are_those_that_its_plans_need() -> None:
    chips = graph_keys(resolve({}, {"model": ["bertlarge", "bertbase"], "micro_batch_size": [1, 2], "tp": [1, 2]}))
    assert [(keys[0].model, keys[0].micro_batch_size, [key.tp for key in keys]) for keys in chips] == [
        (model, size, [1, 2]) for model in ("bertlarge", "bertbase") for size in (1, 2)
    ]
    (keys,) = graph_keys(resolve({}, {"model": "bertlarge", "device": "a100_80gb", "tp": 2, "micro_batch_size": 4}))
    assert {(key.tp, key.micro_batch_size, key.sequence_parallel) for key in keys} == {(2, 4, False), (2, 4, True)}
    assert len(keys) == 2
