"""The original's device placement: its published cases, brute force on small ones, and what it
refuses."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phaze_common.errors import InputError
from third_party.phaze_icml24 import main
from third_party.phaze_icml24.placement import INFEASIBLE_S, place_case

REPOSITORY = Path(__file__).resolve().parents[2]


def test_shared_cases_reproduce_the_original(shared_data: Path) -> None:
    inputs = sorted((shared_data / "phaze" / "dp").glob("case_*.in.json"))
    assert inputs
    for path in inputs:
        expected = json.loads(path.with_name(path.name.replace(".in.", ".out.")).read_text())
        document = json.loads(path.read_text())
        answer = place_case(document)
        assert answer["finalTimePerBatch"] == pytest.approx(
            expected["finalTimePerBatch"], rel=1e-9
        ), path.name
        assert bool(answer["stages"]) == bool(expected["stages"]), path.name
        if answer["stages"]:
            check_plan(document, answer)


def check_plan(document: dict[str, Any], answer: dict[str, Any]) -> None:
    """The plan places every layer once, is feasible and takes what it says, priced without the
    solver's tables."""
    width = answer["tensorParallelDegree"]
    stages = [[int(node) for node in stage["nodes"]] for stage in answer["stages"]]
    assert [node for stage in stages for node in stage] == [
        layer["id"] for layer in document["nodes"][str(width)]
    ]
    devices = [stage["devicesForStage"] for stage in answer["stages"]]
    priced = price(document, width, answer["dataParallelDegree"], stages)
    assert priced is not None
    assert priced[1] == devices
    assert priced[0] == pytest.approx(answer["finalTimePerBatch"], rel=1e-9)


def price(
    document: dict[str, Any], width: int, dp: int, stages: list[list[int]]
) -> tuple[float, list[int]] | None:
    """Seconds and devices of a plan by walking every stage layer by layer; None where it does not
    fit."""
    layers = {layer["id"]: layer for layer in document["nodes"][str(width)]}
    edges = [
        (e["sourceId"], e["destId"], e["communicationCost"]) for e in document["edges"][str(width)]
    ]
    recompute, bandwidth = document["activationRecomputation"], document["bandwidth"]
    copies = 3 if document["optimizerAlgorithm"] == "Adam" else 2
    loads, devices = [], []
    for index, stage in enumerate(stages):
        position, inside = len(stages) - index, set(stage)
        forward = backward = again = 0.0
        for node in stage:
            arrivals = [
                size / bandwidth
                for source, to, size in edges
                if to == node and source not in inside
            ]
            forward = max([forward, *arrivals]) + layers[node]["optimalLatencyFw"]
        again = sum(layers[node]["optimalLatencyFw"] for node in stage)
        for node in reversed(stage):
            arrivals = [
                size / bandwidth
                for source, to, size in edges
                if source == node and to not in inside
            ]
            backward = max([backward, *arrivals]) + layers[node]["optimalLatencyBw"]
            again = max([again, *arrivals]) + layers[node]["optimalLatencyBw"]
        loads.append(forward + (again if recompute and position > 1 else backward))
        parameters = sum(layers[node]["parameterSize"] for node in stage)
        activations = sum(layers[node]["activationSize"] for node in stage)
        entering = sum(size for source, to, size in edges if to in inside and source not in inside)
        stash = entering if recompute else activations
        if (
            copies * parameters + activations + (position - 1) * stash
            > document["maxMemoryPerDevice"]
        ):
            return None
        devices.append(width if any(layers[node]["isTensorParallelized"] for node in stage) else 1)
    micro_batches = int(document["mbsInBatch"])
    if sum(devices) * dp > document["maxDevices"] or dp > micro_batches:
        return None
    first = sum(layers[node]["parameterSize"] for node in stages[0])
    seconds = (
        max(loads) * (-(-micro_batches // dp) + len(stages) - 1)
        + 4.0 * (dp - 1) / dp * first / bandwidth
    )
    return seconds, devices


def random_document(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    layers = draw.randint(1, 6)
    edges = [(node, node + 1, draw.uniform(0.0, 2.0)) for node in range(-1, layers - 2)]
    if layers > 2 and draw.random() < 0.5:
        edges += [(-1, node, draw.uniform(0.0, 1.0)) for node in range(1, layers - 1)]
    nodes = {}
    mixed = draw.random() < 0.5
    for width in draw.choice([[1], [2], [1, 2], [1, 2, 4]]):
        nodes[str(width)] = [
            {
                "id": node,
                "parameterSize": draw.uniform(0.5, 3.0) / width,
                "activationSize": draw.uniform(0.5, 3.0) / width,
                "optimalLatencyFw": draw.uniform(0.01, 1.0) / width,
                "optimalLatencyBw": draw.uniform(0.01, 2.0) / width,
                "isTensorParallelized": width > 1 and (not mixed or draw.random() < 0.6),
            }
            for node in range(-1, layers - 1)
        ]
    flows = [
        {"sourceId": source, "destId": to, "communicationCost": size} for source, to, size in edges
    ]
    return {
        "maxMemoryPerDevice": draw.choice([4.0, 8.0, 16.0, 64.0]),
        "maxDevices": draw.choice([1, 2, 3, 5, 8, 12]),
        "bandwidth": draw.choice([0.5, 3.0, 30.0]),
        "mbsInBatch": draw.choice([1, 2.9, 7, 16]),
        "activationRecomputation": draw.random() < 0.5,
        "optimizerAlgorithm": draw.choice(["SGD", "Adam"]),
        "nodes": nodes,
        "edges": dict.fromkeys(nodes, flows),
    }


@pytest.mark.parametrize("seed", range(60))
def test_equals_brute_force(seed: int) -> None:
    document = random_document(seed)
    least = INFEASIBLE_S
    for width, layers in document["nodes"].items():
        ids = [layer["id"] for layer in layers]
        for cuts in itertools.chain.from_iterable(
            itertools.combinations(range(1, len(ids)), k) for k in range(len(ids))
        ):
            bounds = [0, *cuts, len(ids)]
            stages = [ids[first:last] for first, last in itertools.pairwise(bounds)]
            for dp in range(1, min(int(document["mbsInBatch"]), document["maxDevices"]) + 1):
                priced = price(document, int(width), dp, stages)
                least = min(least, priced[0] if priced else INFEASIBLE_S)
    answer = place_case(document)
    assert answer["finalTimePerBatch"] == pytest.approx(least, rel=1e-9)
    if answer["stages"]:
        check_plan(document, answer)


def test_command_line_prints_json(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps(random_document(3)))
    done = subprocess.run(
        [sys.executable, "-m", "third_party.phaze_icml24", "place", str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) == {
        "finalTimePerBatch",
        "tensorParallelDegree",
        "dataParallelDegree",
        "stages",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "give one case, or a list of cases"),
        ("[1]", "give one case, or a list of cases"),
        ("{}", "bandwidth"),
        (
            '{"bandwidth": 0, "maxMemoryPerDevice": 1, "maxDevices": 1, "mbsInBatch": 1}',
            "must be positive",
        ),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.json"
    path.write_text(content)
    assert main(["place", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_branching_layers_are_refused() -> None:
    document = random_document(0)
    width = next(iter(document["nodes"]))
    document["edges"] = {width: []}
    document["nodes"] = {width: document["nodes"][width]}
    with pytest.raises(InputError, match="branch"):
        place_case(document)


def test_a_list_of_schedule_cases_gives_a_list_of_answers(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_data / "phaze" / "schedule_random.json"
    cases = json.loads(path.read_text())
    assert main(["schedule", str(path)]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["makespan"] for answer in answers] == pytest.approx(
        [case["T"] for case in cases], rel=1e-6
    )
    assert all(answer["optimal"] for answer in answers)
