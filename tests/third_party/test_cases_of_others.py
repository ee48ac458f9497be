"""Cases that cannot be: one sentence that names the file, exit status 2."""

import json

import pytest

from third_party import nest, phaze_icml24

NODE = {"id": 4, "core_type": "TC", "latency": 1.0, "intra_op_latency": 1.0}
SCHEDULE = {"num_tc": 1, "num_vc": 1, "graph": {"nodes": [NODE], "edges": []}}


def schedule(**changes):
    graph = {key: changes.pop(key) for key in ("nodes", "edges") if key in changes}
    return {**SCHEDULE, **changes, "graph": {**SCHEDULE["graph"], **graph}}


CASES = {
    "an edge to a list": (schedule(edges=[[4, []]]), "edge [4, []]"),
    "an edge to a mapping": (schedule(edges=[[{}, 4]]), "edge [{}, 4]"),
    "a text as edge": (schedule(edges=["44"]), "edge '44'"),
    "a list as id": (schedule(nodes=[{**NODE, "id": []}]), "'id' of a node is []"),
    "a latency without range": (schedule(nodes=[{**NODE, "latency": 1e300}]), "latency is 1e+300"),
    "a long list as id": (schedule(nodes=[{**NODE, "id": ["a" * 900] * 9}]), "… see the head"),
    "a negative latency": (schedule(nodes=[{**NODE, "latency": -1}]), "'latency' of node 4 is -1"),
    "too many cores": (schedule(num_tc=10**9), "num_tc is 1000000000"),
    "a number as graph": ({**SCHEDULE, "graph": 3}, "'graph' of the schedule case is 3"),
}


@pytest.mark.parametrize(("case", "words"), CASES.values(), ids=CASES)
def test_a_schedule_that_cannot_be_names_its_file(tmp_path, capsys, case, words):
    path = tmp_path / "case.json"
    for content, place in ((case, ": "), ([SCHEDULE, case], "")):
        path.write_text(json.dumps(content))
        assert phaze_icml24.main(["schedule", str(path)]) == 2
        out, err = capsys.readouterr()
        assert (
            err.startswith(f"{path}{place}")
            and words in err
            and len(err.splitlines()) == 1
            and not out
        )
    path.write_text(json.dumps(SCHEDULE))
    assert phaze_icml24.main(["schedule", str(path)]) == 0


@pytest.mark.parametrize("program", [phaze_icml24, nest])
@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "9" * 5000,
        '{"graph": {"nodes": [{"latency": 1e400}]}}',
        "{}",
        "[]",
        "[{}, 1]",
        '{"maxDevices": 1e15}',
        '{"nodes": {"²": []}}',
        '{"graphs": {"²": 1}}',
    ],
)
def test_a_placement_that_cannot_be_names_its_file(tmp_path, capsys, program, content):
    path = tmp_path / "case.json"
    path.write_text(content)
    assert program.main(["place", str(path)]) == 2
    err = capsys.readouterr().err
    assert str(path) in err and len(err.splitlines()) == 1
