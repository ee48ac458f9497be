"""The original's operator graphs through the bridge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phaze_common.errors import InputError
from third_party.phaze_icml24.schedule import schedule_case

REPOSITORY = Path(__file__).resolve().parents[3]


def case(**changes):
    nodes = [
        {"id": 7, "core_type": "TC", "latency": 4.0, "intra_op_latency": 2.0},
        {"id": 8, "core_type": "Nop", "latency": 0, "intra_op_latency": 0},
        {"id": 9, "core_type": "VC", "latency": 3.0, "intra_op_latency": 3.0},
    ]
    return {
        "num_tc": 2,
        "num_vc": 1,
        "graph": {"nodes": nodes, "edges": [[7, 8], [8, 9]]},
        "note": "ignored",
    } | changes


@pytest.mark.parametrize("name", ["schedule_bertlarge_layers.json", "schedule_random.json"])
def test_shared_cases(shared_data, name):
    for given in json.loads((shared_data / "phaze" / name).read_text()):
        answer = schedule_case(given)
        assert answer["optimal"]
        assert answer["makespan"] == pytest.approx(given["T"], rel=1e-6)
        assert {one["id"] for one in answer["schedule"]} == {
            node["id"] for node in given["graph"]["nodes"]
        }


def test_ids_modes_and_times_are_those_of_the_graph():
    answer = schedule_case(case())
    assert answer["makespan"] == pytest.approx(5.0)
    assert [(one["id"], one["mode"]) for one in answer["schedule"]] == [
        (7, "all"),
        (8, "single"),
        (9, "single"),
    ]
    assert answer["schedule"][2]["start"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"num_tc": "two"}, "num_tc"),
        ({"graph": {"nodes": []}}, "edges"),
        (
            {
                "graph": {
                    "nodes": [{"id": 0, "core_type": "GPU", "latency": 1, "intra_op_latency": 1}],
                    "edges": [],
                }
            },
            "TC, VC, TCandVC",
        ),
        (
            {"graph": {"nodes": [{"id": 0, "core_type": "TC", "latency": 1}], "edges": []}},
            "intra_op_latency",
        ),
        ({"graph": {"nodes": [], "edges": [[1, 2]]}}, "does not name two nodes"),
        (
            {"graph": {"nodes": [{"id": {"value": 1}, "core_type": "Nop"}], "edges": []}},
            "'id' of a node",
        ),
    ],
)
def test_wrong_cases_are_refused(wrong, complaint):
    with pytest.raises(InputError, match=complaint):
        schedule_case(case(**wrong))


def test_no_core_of_a_needed_type_is_infeasible():
    answer = schedule_case(case(num_tc=0))
    assert (answer["status"], answer["optimal"], answer["makespan"]) == ("infeasible", False, None)


def test_command_line_prints_json_only(tmp_path):
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case()))
    done = subprocess.run(
        [sys.executable, "-m", "third_party.phaze_icml24", "schedule", path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["makespan"] == pytest.approx(5.0)
