"""NEST's placement: its published cases, brute force on small ones, an evaluator of its own, and
what it refuses."""

from __future__ import annotations

import copy
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_common.errors import InputError
from third_party.nest import main, place

REPOSITORY = Path(__file__).resolve().parents[2]
FIELDS = {"time_per_batch", "tp", "dp", "stages", "max_load", "sync"}


def test_shared_cases_reach_their_optimum(shared_data: Path) -> None:
    paths = sorted((shared_data / "nest").glob("*.json"))
    assert paths
    for path in paths:
        case = json.loads(path.read_text())
        answer = place(case)
        expected = (case["exact"] or {}).get("time_per_batch")  # none where nothing fits
        assert (answer["time_per_batch"] is None) == (expected is None), path.name
        assert expected is None or answer["time_per_batch"] == pytest.approx(expected, rel=1e-9), (
            path.name
        )
        check_plan(case["problem"], answer)


def test_the_evaluator_agrees_with_published_plans(shared_data: Path) -> None:
    """What NEST's plans cost by its own formula, recomputed by others: the plans differ from the
    optimal ones in many cases."""
    checked = 0
    for path in sorted((shared_data / "nest").glob("*.json")):
        case = json.loads(path.read_text())
        plan = case["nest"]
        if plan.get("recomputed_time_per_batch") is None:
            continue
        seconds = price(case["problem"], plan["tp"], plan["dp"], plan["stages"])
        assert seconds == pytest.approx(plan["recomputed_time_per_batch"], rel=1e-12), path.name
        checked += 1
    assert checked > 10


def check_plan(problem: dict[str, Any], answer: dict[str, Any]) -> None:
    """The plan places every layer once, in order, is feasible and takes what it says."""
    if answer["time_per_batch"] is None:
        assert set(answer.values()) == {None}
        return
    layers = [layer for stage in answer["stages"] for layer in stage]
    assert layers == problem["graphs"][str(answer["tp"])]["layer_ids"]
    assert all(answer["stages"])
    seconds = price(problem, answer["tp"], answer["dp"], answer["stages"])
    assert seconds == pytest.approx(answer["time_per_batch"], rel=1e-9)


def price(problem: dict[str, Any], tp: int, dp: int, stages: list[list[int]]) -> float | None:
    """Time per batch of a plan, walking every stage layer by layer; None where it does not fit."""
    graph = problem["graphs"][str(tp)]
    width, total, recompute = (
        graph["devices_per_stage"],
        len(stages),
        problem["activation_recomputation"],
    )
    micro_batches = math.floor(problem["microbatches_per_batch"])
    if total * width * dp > problem["total_devices"] or dp > micro_batches:
        return None
    row = {layer: index for index, layer in enumerate(graph["layer_ids"])}
    loads: list[float] = []
    first_parameters = 0.0
    for index, stage in enumerate(stages):
        position = total - index
        upstream = switch_level(problem, position * width - 1, position * width) if index else 0
        downstream = (
            switch_level(problem, (position - 1) * width - 1, (position - 1) * width)
            if position > 1
            else 0
        )
        again = (
            walk(problem, graph, "bw_s", stage, 0.0, None) if recompute and position > 1 else 0.0
        )
        load = walk(problem, graph, "fw_s", stage, 0.0, upstream)
        mirrored = graph | {"edges": [(to, source, size) for source, to, size in graph["edges"]]}
        loads.append(load + walk(problem, mirrored, "bw_s", stage[::-1], again, downstream))
        parameters = sum(graph["parameter_bytes"][row[layer]] for layer in stage)
        activations = sum(graph["activation_bytes"][row[layer]] for layer in stage)
        stash = sum(
            size for source, to, size in graph["edges"] if to in stage and source not in stage
        )
        copies = {"SGD": 2, "Adam": 2 + 6}[problem["optimizer"]]
        held = (
            copies * parameters
            + activations
            + (position - 1) * (stash if recompute else activations)
        )
        if held > problem["memory_limit_bytes"]:
            return None
        first_parameters = first_parameters if index else parameters
    rounds: int = -(-micro_batches // dp) + total - 1
    return max(loads) * rounds + synchronise(problem, dp, total * width, first_parameters)


def walk(
    problem: dict[str, Any],
    graph: dict[str, Any],
    times: str,
    stage: list[int],
    released: float,
    level: int | None,
) -> float:
    """When the last of ``stage``'s layers ends; those from outside arrive over ``level``, or at
    once where it is None."""
    ends: dict[int, float] = {}
    for layer in stage:
        start = released
        for source, to, size in graph["edges"]:
            if to == layer and source in ends:
                start = max(start, ends[source])
            elif to == layer and level is not None:
                bandwidth = min(problem["bandwidth_per_level_bytes_s"][: level + 1])
                start = max(
                    start,
                    (size / bandwidth + problem["latency_per_level_s"][level])
                    * (2 if level else 1),
                )
        ends[layer] = start + graph[times][graph["layer_ids"].index(layer)]
    return max(ends.values())


def switch_level(problem: dict[str, Any], one: int, other: int) -> int:
    for level, size in enumerate(problem["devices_per_level"]):
        one, other = one // size, other // size
        if one == other:
            return level
    raise AssertionError("the devices are not connected")


def synchronise(problem: dict[str, Any], dp: int, stride: int, parameters: float) -> float:
    bandwidths, latencies = problem["bandwidth_per_level_bytes_s"], problem["latency_per_level_s"]
    total, amount, replicas = 0.0, parameters, dp
    while replicas > 1:
        total += latencies[0] + amount / bandwidths[0]
        amount, replicas = amount / 2, replicas // 2
    low = 0.0
    for level in range(1, switch_level(problem, 0, (dp - 1) * stride) + 1):
        total += 2 * (latencies[level] + parameters / bandwidths[level]) + low
        low += total
    return total


def brute_force(problem: dict[str, Any]) -> float | None:
    """The least time over every width, cut and degree."""
    least = math.inf
    for width, graph in problem["graphs"].items():
        ids = graph["layer_ids"]
        for count in range(len(ids)):
            for cuts in itertools.combinations(range(1, len(ids)), count):
                stages = [
                    ids[first:last] for first, last in itertools.pairwise([0, *cuts, len(ids)])
                ]
                for dp in range(1, problem["total_devices"] + 1):
                    seconds = price(problem, int(width), dp, stages)
                    least = min(least, math.inf if seconds is None else seconds)
    return least if least < math.inf else None


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Small problems in which network, computation and memory all matter; chains, chains with skip
    edges, and branches."""

    def amounts(count: int, most: float) -> list[float]:
        return draw(st.lists(st.floats(0.01, most), min_size=count, max_size=count))

    levels = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=levels, max_size=levels))
    layers = draw(st.integers(1, 6))
    ids = draw(st.permutations(range(-1, layers - 1)))
    pairs = list(itertools.combinations(ids, 2))
    shape = draw(st.sampled_from(["chain", "skips", "branches"]))
    edges = list(itertools.pairwise(ids)) if shape != "branches" else []
    if shape != "chain" and pairs:
        edges += draw(st.lists(st.sampled_from(pairs), max_size=6))
    graphs = {}
    for width in draw(st.sampled_from([(1,), (2,), (1, 2), (1, 2, 4)])):
        graphs[str(width)] = {
            "devices_per_stage": draw(st.sampled_from([width, width, 3])),
            "layer_ids": list(ids),
            "parameter_bytes": amounts(layers, 4.0),
            "activation_bytes": amounts(layers, 4.0),
            "fw_s": amounts(layers, 1.0),
            "bw_s": amounts(layers, 2.0),
            "edges": [
                [source, to, size]
                for (source, to), size in zip(edges, amounts(len(edges), 3.0), strict=True)
            ],
        }
    return {
        "total_devices": draw(st.integers(1, math.prod(sizes[:3]))),
        "devices_per_level": sizes,
        "bandwidth_per_level_bytes_s": amounts(levels, 30.0),
        "latency_per_level_s": amounts(levels, 0.2),
        "memory_limit_bytes": draw(st.sampled_from([10.0, 30.0, 100.0, 1000.0])),
        "microbatches_per_batch": draw(st.sampled_from([1, 2.9, 7, 16, 64])),
        "activation_recomputation": draw(st.booleans()),
        "optimizer": draw(st.sampled_from(["SGD", "Adam"])),
        "graphs": graphs,
    }


@settings(max_examples=300)
@given(problem=problems())
def test_equals_brute_force(problem: dict[str, Any]) -> None:
    answer = place({"problem": problem})
    least = brute_force(problem)
    if least is None:
        assert answer == dict.fromkeys(FIELDS)
    else:
        assert answer["time_per_batch"] == pytest.approx(least, rel=1e-9)
        check_plan(problem, answer)


def small_problem() -> dict[str, Any]:
    """Two layers of 1 s and 2 s forward and backward on two devices."""
    return {
        "total_devices": 2,
        "devices_per_level": [2],
        "bandwidth_per_level_bytes_s": [4.0],
        "latency_per_level_s": [0.5],
        "memory_limit_bytes": 9.0,
        "microbatches_per_batch": 3,
        "activation_recomputation": False,
        "optimizer": "SGD",
        "graphs": {
            "1": {
                "devices_per_stage": 1,
                "layer_ids": [7, 3],
                "parameter_bytes": [2.0, 2.0],
                "activation_bytes": [1.0, 1.0],
                "fw_s": [1.0, 2.0],
                "bw_s": [1.0, 2.0],
                "edges": [[7, 3, 2.0]],
            }
        },
    }


def test_a_case_by_hand() -> None:
    """One stage would need 2·4 + 2 bytes; of two stages, the last takes 2/4 + 0.5 s of transfer, 2
    and 2, in 3 + 1 rounds."""
    expected = {
        "time_per_batch": 20.0,
        "tp": 1,
        "dp": 1,
        "stages": [[7], [3]],
        "max_load": 5.0,
        "sync": 0.0,
    }
    assert place(small_problem()) == expected


def test_two_replicas_by_hand() -> None:
    """With memory for both layers: 6 s in ceil(3/2) rounds, and 0.5 + 4/4 s of synchronisation of 4
    bytes."""
    expected = {
        "time_per_batch": 13.5,
        "tp": 1,
        "dp": 2,
        "stages": [[7, 3]],
        "max_load": 6.0,
        "sync": 1.5,
    }
    assert place(small_problem() | {"memory_limit_bytes": 10.0}) == expected


def test_as_many_replicas_as_a_switch_holds() -> None:
    """Four of eight devices: 6 s in 8/4 rounds, 0.5 + 4/4 s and 0.5 + 2/4 s; with more, the slow
    level would cost over 200 s."""
    tree = {"total_devices": 8, "devices_per_level": [4, 2], "latency_per_level_s": [0.5, 100.0]}
    links = {
        "bandwidth_per_level_bytes_s": [4.0, 4.0],
        "microbatches_per_batch": 8,
        "memory_limit_bytes": 10.0,
    }
    expected = {
        "time_per_batch": 14.5,
        "tp": 1,
        "dp": 4,
        "stages": [[7, 3]],
        "max_load": 6.0,
        "sync": 2.5,
    }
    assert place(small_problem() | tree | links) == expected


def test_nothing_fits() -> None:
    assert place(small_problem() | {"memory_limit_bytes": 1.0}) == dict.fromkeys(FIELDS)
    assert place(small_problem() | {"total_devices": 1}) == dict.fromkeys(FIELDS)


def test_command_line_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"case": "small", "problem": small_problem()}))
    command = [sys.executable, "-m", "third_party.nest", "place", str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == place(small_problem())
    path.write_text(json.dumps([small_problem(), small_problem() | {"memory_limit_bytes": 1.0}]))
    assert main(["place", str(path)]) == 0
    assert [answer["dp"] for answer in json.loads(capsys.readouterr().out)] == [1, None]


WRONG: list[Any] = [None, True, "many", -1, math.nan, math.inf, 10**400, [], {}]


@pytest.mark.parametrize("field", sorted(small_problem()))
def test_wrong_fields_are_refused(field: str) -> None:
    problem = small_problem()
    del problem[field]
    for value in [
        value for value in WRONG if not (field == "activation_recomputation" and value is True)
    ]:
        with pytest.raises(InputError, match=field) as refused:
            place(problem | {field: value})
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 200
    with pytest.raises(InputError, match=field):
        place(problem)


@pytest.mark.parametrize("field", sorted(small_problem()["graphs"]["1"]))
def test_wrong_fields_of_a_graph_are_refused(field: str) -> None:
    right = small_problem()["graphs"]["1"][field]
    bent = (
        [[right[0]], [right[0], None], [right[0], "1"], [*right, right[0]]]
        if field != "devices_per_stage"
        else [0, 1.5, [1]]
    )
    for value in [value for value in WRONG if value != [] or field != "edges"] + (
        bent if field != "edges" else [["7", 3, 1.0]]
    ):
        problem = small_problem()
        problem["graphs"]["1"][field] = value
        with pytest.raises(InputError, match="width '1'"):
            place(problem)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"devices_per_level": [1, 1]}, "connects fewer than the 2 total_devices"),
        ({"bandwidth_per_level_bytes_s": [0.0]}, "bandwidth_per_level_bytes_s"),
        ({"bandwidth_per_level_bytes_s": [1.0, 1.0]}, "2 entries; it needs 1"),
        ({"latency_per_level_s": [math.nan]}, "latency_per_level_s"),
        ({"microbatches_per_batch": 0.5}, "microbatches_per_batch"),
        ({"total_devices": 1.5}, "must be an integer"),
        ({"problem": 3}, "must be an object"),
        ({"graphs": {"0": {}}}, "must be positive integers"),
        ({"graphs": {"1": []}}, "must be an object"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        place(small_problem() | changes)


@pytest.mark.parametrize(
    ("edge", "said"),
    [
        ([3, 7, 1.0], "topological order"),
        ([7, 7, 1.0], "topological order"),
        ([7, 4, 1.0], "between its layers"),
        ([7, True, 1.0], "between its layers"),
        ([7, 3], "between its layers"),
        ([7, 3, -1.0], "the size of edge"),
        ([[], 3, 1.0], "between its layers"),
    ],
)
def test_wrong_edges_are_refused(edge: list[Any], said: str) -> None:
    problem = copy.deepcopy(small_problem())
    problem["graphs"]["1"]["edges"] = [edge]
    with pytest.raises(InputError, match=said):
        place(problem)


def test_a_file_with_the_bandwidth_of_real_links_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(
        json.dumps({"problem": small_problem() | {"bandwidth_per_level_bytes_s": [9.7e11]}})
    )
    assert main(["place", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["time_per_batch"] == pytest.approx(18.0, rel=1e-9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "total_devices"),
        ("3", "list"),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(content)
    assert main(["place", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
