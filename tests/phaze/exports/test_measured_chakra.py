"""Chakra traces of measured runs: what we export shows our own iteration, what others write is
read, what is damaged refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import phaze
from phaze.exports.chakra import wire
from phaze.exports.chakra.exporter import EXPORTER
from phaze.exports.chakra.ranks import Ranks
from phaze.exports.chakra.trace import NodeType
from phaze.exports.launch import Launch
from phaze.studies.exported_plan import launch_of
from phaze.validation.chakra_trace import MeasuredKernels, measured_kernels
from phaze.validation.kernel_trace import read_trace
from phaze.validation.traced_kernels import (
    BACKWARD,
    COMMUNICATION,
    FORWARD,
    HOST,
    MESSAGES,
    MICRO,
    OPTIMIZER,
    ProductShape,
)
from phaze_common.errors import InputError

MODEL = "gpt:layers=8,hidden=1024,heads=16,vocabulary=8192,sequence_length=1024"
SIZES = {"model": MODEL, "device": "a100_80gb", "micro_batch_size": 2}
PLANS: dict[str, dict[str, Any]] = {
    "alone": {"tp": 2, "pp": 1, "dp": 2, "global_batch_size": 16},
    "1f1b": {"tp": 2, "pp": 2, "dp": 2, "global_batch_size": 32},
    "gpipe": {"pp": 4, "dp": 2, "global_batch_size": 32, "schedule": "gpipe", "recompute": "full"},
    "interleaved": {"pp": 2, "dp": 2, "global_batch_size": 32, "interleave": 2, "zero_stage": 1},
    "zero3": {
        "pp": 2,
        "dp": 2,
        "global_batch_size": 16,
        "zero_stage": 3,
        "overlap_gradients": True,
    },
    "tiers": {"tp": 2, "pp": 2, "dp": 4, "global_batch_size": 32, "group_order": "tp2.dp4/pp2"},
}


@pytest.fixture(scope="module", params=PLANS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Launch]:
    """A folder with a plan and its traces."""
    folder = tmp_path_factory.mktemp("exported")
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(SIZES | PLANS[request.param]))
    launch = launch_of(file, {"output": str(folder / "out")})
    (folder / "traces").mkdir()
    for each in EXPORTER.files(launch):
        if isinstance(each.content, bytes):
            (folder / each.path).write_bytes(each.content)
    return folder, launch


def test_our_own_traces_show_our_own_iteration(exported: tuple[Path, Launch]) -> None:
    folder, launch = exported
    pipeline, ranks = launch.pipeline, Ranks(launch.degrees)
    assert pipeline is not None and launch.iteration_s is not None
    for path in sorted((folder / "traces").glob("*.et")):
        found, stage = read_trace(path), ranks.stage_of(int(path.name.split(".")[1]))
        nodes = len(measured_kernels(path.read_bytes()).kernels)
        assert found.iteration_s == pytest.approx(launch.iteration_s, abs=1.1 * MICRO)
        assert found.parts_s[OPTIMIZER] == pytest.approx(pipeline.optimizer_s, abs=1.1 * MICRO)
        passes_s = pipeline.micro_batches * sum(
            sum(each[stage :: pipeline.pp]) for each in (pipeline.forward_s, pipeline.backward_s)
        )
        within_s = found.parts_s[FORWARD] + found.parts_s[BACKWARD]
        assert within_s <= passes_s + nodes * MICRO  # what they communicate apart
        shown_s = (
            within_s
            + found.parts_s[OPTIMIZER]
            + found.parts_s[HOST]
            + found.exposed_s
            + found.messages_s
            + found.idle_s
        )
        assert shown_s == pytest.approx(found.iteration_s, abs=nodes * MICRO)
        assert within_s + found.exposed_s >= passes_s - nodes * MICRO


def test_compared_with_their_plan_they_agree_by_part_and_stage(
    exported: tuple[Path, Launch], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, launch = exported
    paths = sorted((folder / "traces").glob("*.et"))
    assert phaze.main(
        ["compare", *map(str, paths), "--plan", str(folder / "plan.yaml"), "--format", "json", "--quiet"]
    ) == 0  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    plan = launch.degrees
    assert [each["stage"] for each in found["stages"]] == list(range(1, plan.pp + 1))
    assert [len(each["traces"]) for each in found["stages"]] == [plan.devices // plan.pp] * plan.pp
    for stage in found["stages"]:
        parts = {each["name"]: (each["measured_s"], each["predicted_s"]) for each in stage["parts"]}
        rounding_s = MICRO * (4 * plan.micro_batches * plan.interleave + 10)
        waiting = next(name for name in parts if "no kernel runs" in name)
        for name in (FORWARD, BACKWARD, OPTIMIZER, "iteration"):
            assert parts[name][0] == pytest.approx(parts[name][1], abs=rounding_s), name
        # What is hidden of gathers runs beside the first passes, on later stages in time in which
        # they wait for these.
        shown = [sum(parts[each][way] for each in ("of it exposed", waiting)) for way in (0, 1)]
        assert shown[0] == pytest.approx(shown[1], abs=rounding_s)
        if not launch.overlap_gradients:
            assert parts[COMMUNICATION][0] == pytest.approx(parts[COMMUNICATION][1], abs=rounding_s)
            assert parts["of it exposed"][0] == pytest.approx(
                parts["of it exposed"][1], abs=rounding_s
            )
        assert {
            each["remedy"] for each in stage["parts"] if each["name"] in (FORWARD, BACKWARD)
        } == {""}


METADATA = wire.framed(
    wire.content(2, wire.text(1, "schema") + wire.text(29, "1.1.1-chakra.0.0.4"))
)
VERSION = wire.framed(wire.text(1, "0.0.4"))


def node(
    number: int,
    kind: int,
    name: str,
    micros: int,
    needs: tuple[int, ...] = (),
    *,
    begin: int = 0,
    host: bool = False,
    stream: int = 7,
    shapes: str = "",
) -> bytes:
    """A node as mlcommons' converter writes it."""
    attributes = [
        wire.text(1, "is_cpu_op") + wire.whole(27, int(host)),
        wire.text(1, "tid" if host else "stream") + wire.whole(9, stream),
    ]
    inputs = wire.content(8, wire.text(1, "[]") + wire.text(2, shapes)) if shapes else b""
    return wire.framed(
        wire.whole(1, number)
        + wire.text(2, name)
        + wire.whole(3, kind)
        + wire.packed(5, needs)
        + wire.whole(6, begin)
        + wire.whole(7, micros)
        + inputs
        + b"".join(wire.content(10, each) for each in attributes)
    )


RUN = (
    METADATA,
    node(1, NodeType.COMPUTE, "ProfilerStep#4", 0, host=True, stream=1),
    node(2, NodeType.COMPUTE, "aten::mm", 5, (1,), host=True, stream=1),
    node(3, NodeType.COMPUTE, "ampere_bf16_s16816gemm", 10, (2,), shapes="[[64, 32], [32, 16]]"),
    node(4, NodeType.COMPUTE, "aten::gelu", 2, (2,), host=True, stream=1),
    node(5, NodeType.COMPUTE, "void vectorized_elementwise_kernel", 3, (4,)),
    node(6, NodeType.COLLECTIVE, "ncclDevKernel_AllReduce_Sum_bf16", 9, (4,), stream=20),
    node(7, NodeType.SEND, "ncclDevKernel_SendRecv", 4, (5, 6), stream=21),
    node(8, 1, "Process Group", 3, (4,)),  # of metadata
)


def test_kernels_of_another_program_start_when_what_they_need_is_finished() -> None:
    found = measured_kernels(b"".join(RUN))
    # aten::mm until 5, its kernel until 15, aten::gelu until 7; its kernel waits on the same
    # stream, the all-reduce on another.
    assert [(each.part, each.begin_us, each.end_us) for each in found.kernels] == [
        ("products", 5, 15),
        ("element-wise", 15, 18),
        (COMMUNICATION, 7, 16),
        (MESSAGES, 18, 22),
    ]
    assert found.kernels[0].product == ProductShape(1, 16, 64, 32) and found.steps == 1


def test_nodes_that_say_when_they_start_are_believed() -> None:
    content = (
        VERSION
        + node(0, NodeType.COMPUTE, "gemm", 4, begin=100)
        + node(1, NodeType.COMPUTE, "gemm", 4, begin=90)
    )
    assert [each.begin_us for each in measured_kernels(content).kernels] == [100, 90]


def test_the_order_of_nodes_in_a_file_is_of_no_matter() -> None:
    def times(found: MeasuredKernels) -> set[tuple[str, float, float]]:
        return {(each.name, each.begin_us, each.end_us) for each in found.kernels}

    expected = times(measured_kernels(b"".join(RUN)))
    for order in itertools.islice(itertools.permutations(RUN[1:]), 0, 5040, 97):
        assert times(measured_kernels(b"".join((RUN[0], *order)))) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "its first message is no metadata"),
        (b"what somebody wrote", "it is no Chakra execution trace, or damaged"),
        (
            wire.framed(wire.text(1, "0.0.9")) + RUN[2],
            "says version '0.0.9', and schema 0.0.4 is read",
        ),
        (METADATA, "no node of a device"),
        (METADATA + RUN[1] + RUN[2], "no node of a device"),
        (
            VERSION + node(0, NodeType.COMPUTE, "gemm", 0) + node(1, NodeType.COLLECTIVE, "all", 0),
            "it is one for a simulator",
        ),
        (b"".join((*RUN, RUN[3])), "1 of its nodes have the number of another one"),
        (
            VERSION
            + node(0, NodeType.COMPUTE, "a", 4, (1,))
            + node(1, NodeType.COMPUTE, "b", 4, (0,)),
            "depend on each other",
        ),
        (VERSION + node(0, NodeType.COMPUTE, "a", 1 << 62), "ends after"),
        (b"".join(RUN)[:-3], "cut off or damaged"),
    ],
)
def test_what_is_no_trace_of_a_run_is_refused_in_a_sentence(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rank0.et"
    path.write_bytes(content)
    assert (
        phaze.main(["compare", str(path), "--model", MODEL, "--device", "a100_80gb", "--tp", "2"])
        == 2
    )
    told = capsys.readouterr()
    assert said in told.err and str(path) in told.err
    assert told.out == "" and len(told.err.strip().splitlines()) == 1


@given(st.data())
def test_damaged_traces_are_read_or_refused(data: st.DataObject) -> None:
    whole = b"".join(RUN)
    cut = data.draw(st.integers(0, len(whole)))
    place, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    for content in (
        whole[:cut],
        whole[:place] + bytes([value]) + whole[place + 1 :],
        data.draw(st.binary(max_size=60)),
    ):
        try:
            found = measured_kernels(content)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert found.kernels and all(
                0.0 <= each.begin_us <= each.end_us for each in found.kernels
            )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1000), st.lists(st.integers(0, 30), max_size=3), st.integers(0, 3)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_replayed_streams_run_one_at_a_time_behind_what_they_need(
    drawn: list[tuple[int, list[int], int]],
) -> None:
    nodes = [
        (number, micros, tuple({each for each in needs if each < number}), stream)
        for number, (micros, needs, stream) in enumerate(drawn)
    ]
    nodes[0] = (0, nodes[0][1] + 1, (), nodes[0][3])  # so that something takes time
    content = VERSION + b"".join(
        node(number, NodeType.COMPUTE, str(number), us, needs, stream=at)
        for number, us, needs, at in nodes
    )
    ran = {int(each.name): each for each in measured_kernels(content).kernels}
    for number, micros, needs, _ in nodes:
        assert ran[number].end_us - ran[number].begin_us == micros
        assert all(ran[each].end_us <= ran[number].begin_us for each in needs)
    for stream in range(4):
        own = sorted(
            (ran[number].begin_us, ran[number].end_us) for number, *_, at in nodes if at == stream
        )
        assert all(before[1] <= behind[0] for before, behind in itertools.pairwise(own))
    # Nothing waits without a reason: it starts at 0, when what it needs ends, or when its stream is
    # free.
    for number, _, needs, stream in nodes:
        reasons = {0.0, *(ran[each].end_us for each in needs)}
        reasons |= {
            ran[other].end_us for other, *_, at in nodes if at == stream and other != number
        }
        assert ran[number].begin_us in reasons
