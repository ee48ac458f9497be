"""Execution traces: what is written is read again, whole and consistent, and takes as long as was
predicted."""

import json
import math
import os
import subprocess
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import simulate
from Estimator.plans.results import PipelineReport
from GraphExtractor.graph import CollectiveKind
from phaze.exports.chakra import wire
from phaze.exports.chakra.astra_sim import dimensions
from phaze.exports.chakra.exporter import EXPORTER, Traces
from phaze.exports.chakra.plan_work import plan_work
from phaze.exports.chakra.ranks import Communicators, Ranks
from phaze.exports.chakra.replay import replay
from phaze.exports.chakra.stage_nodes import Iteration, stage_nodes
from phaze.exports.chakra.trace import CollectiveType, Node, NodeType, read_trace
from phaze.exports.chakra.work import (
    ChunkWork,
    Members,
    Message,
    PassWork,
    PlanWork,
    StageWork,
    Traffic,
)
from phaze.exports.launch import Launch
from phaze.studies.exported_plan import launch_of
from phaze_common.choices import GroupOrder
from phaze_common.errors import InputError, PhazeError

pytestmark = pytest.mark.some(6)

MEGATRON = {"model": "megatron-1.7b", "device": "a100_80gb", "micro_batch_size": 1, "tp": 2}
ACROSS = "tensor-pipeline-data"
PLANS: dict[str, dict[str, Any]] = {
    "alone": {"pp": 1, "dp": 4, "global_batch_size": 16},
    "1f1b": {"pp": 2, "dp": 2, "global_batch_size": 15},
    "zero1": {"pp": 2, "dp": 2, "global_batch_size": 16, "zero_stage": 1, "overlap_gradients": True},
    "zero2": {"pp": 2, "dp": 2, "global_batch_size": 16, "zero_stage": 2, "overlap_gradients": True},
    "zero3": {"pp": 2, "dp": 2, "global_batch_size": 16, "zero_stage": 3, "overlap_gradients": True},
    "zero3 exposed": {"pp": 2, "dp": 2, "global_batch_size": 16, "zero_stage": 3, "overlap_gradients": False},
    "gpipe": {"pp": 4, "dp": 2, "global_batch_size": 16, "schedule": "gpipe", "group_order": ACROSS},
    "eight stages": {"pp": 8, "dp": 2, "global_batch_size": 32, "recompute": "full"},
    "interleaved": {"pp": 4, "dp": 2, "global_batch_size": 16, "interleave": 3, "zero_stage": 1},
    "overlapped": {"device": "h100_sxm", "pp": 4, "dp": 2, "global_batch_size": 32, "interleave": 3, "overlap_tensor": True,
                   "sequence_parallel": True, "overlap_gradients": True},
    "context": {"pp": 2, "dp": 2, "cp": 2, "global_batch_size": 16, "exchange": "ring"},
    "tiers": {"pp": 2, "dp": 4, "global_batch_size": 16, "group_order": "tp2.dp4/pp2"},
    "2d": {"pp": 2, "dp": 4, "layout": "2d", "tp2": 2, "panels": 2, "global_batch_size": 16},
    "experts": {"model": "qwen3-30b-a3b", "tp": 1, "pp": 2, "dp": 4, "cp": 2, "ep": 4, "global_batch_size": 16, "zero_stage": 2,
                "overlap_gradients": True, "group_order": ACROSS},
}  # fmt: skip

Ranked = dict[int, tuple[Node, ...]]


@pytest.fixture(scope="module")
def launch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    folder = tmp_path_factory.mktemp("plan")
    return launched(folder, **PLANS[request.param])


@pytest.fixture(scope="module")
def written(launch: Launch) -> dict[str, bytes]:
    """The files of a launch by their paths."""
    files = EXPORTER.files(launch)
    return {
        each.path: each.content.encode() if isinstance(each.content, str) else each.content
        for each in files
    }


@pytest.fixture(scope="module")
def ranked(launch: Launch, written: dict[str, bytes]) -> Ranked:
    """What is read of the traces of a launch, by rank."""
    return {
        rank: read_trace(written[f"traces/iteration.{rank}.et"])
        for rank in range(launch.degrees.devices)
    }


def launched(folder: Path, **settings: object) -> Launch:
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(MEGATRON | settings))
    return launch_of(file, {"output": str(folder / "out")})


every_plan = pytest.mark.parametrize("launch", PLANS, indirect=True)


@every_plan
def test_traces_replayed_take_the_predicted_iteration(launch: Launch, ranked: Ranked) -> None:
    assert EXPORTER.unsupported(launch) is None
    assert replay(ranked).iteration_s == pytest.approx(launch.iteration_s, rel=1e-9)


@every_plan
def test_whole_microseconds_of_a_rank_add_up(launch: Launch, ranked: Ranked) -> None:
    for nodes in ranked.values():
        compute = [node for node in nodes if node.type is NodeType.COMPUTE]
        micros, seconds = (
            sum(node.duration_micros for node in compute),
            sum(node.duration_s for node in compute),
        )
        assert micros == pytest.approx(seconds * 1e6, abs=0.51)
    rounded = {
        rank: tuple(replace(node, duration_s=node.duration_micros / 1e6) for node in nodes)
        for rank, nodes in ranked.items()
    }
    assert replay(rounded).iteration_s == pytest.approx(launch.iteration_s, rel=1e-3)


@every_plan
def test_what_is_read_is_what_was_to_be_written(launch: Launch, ranked: Ranked) -> None:
    traces = Traces.of(launch)
    assert {rank: tuple(traces.nodes(rank)) for rank in range(launch.degrees.devices)} == ranked
    assert traces.count == sum(map(len, ranked.values()))


@every_plan
def test_nodes_depend_on_nodes_before_them(ranked: Ranked) -> None:
    for nodes in ranked.values():
        assert [node.id for node in nodes] == list(range(len(nodes)))
        for node in nodes:
            assert all(dependency < node.id for dependency in node.data_deps)
            assert {*node.ctrl_deps} <= {*node.data_deps}
            assert len({*node.data_deps}) == len(node.data_deps)
        used = {dependency for node in nodes for dependency in node.data_deps}
        loose = [
            node for node in nodes[:-1] if node.id not in used and node.type is not NodeType.SEND
        ]
        assert loose == []  # all is waited for but messages, for which others wait


@every_plan
def test_every_message_that_is_sent_is_received(launch: Launch, ranked: Ranked) -> None:
    def messages(kind: NodeType) -> Counter[tuple[int, int, int, int]]:
        found = Counter[tuple[int, int, int, int]]()
        for rank, nodes in ranked.items():
            for node in nodes:
                if node.type is kind:
                    assert rank == (node.comm_src if kind is NodeType.SEND else node.comm_dst)
                    assert node.comm_src != node.comm_dst
                    found[node.comm_src, node.comm_dst, node.comm_tag, node.comm_size] += 1
        return found

    sent, plan = messages(NodeType.SEND), launch.degrees
    assert sent == messages(NodeType.RECEIVE)
    assert set(sent.values()) <= {1}
    assert len({key[:3] for key in sent}) == len(sent)  # a tag is enough to tell them apart
    assert sent.total() == 2 * (plan.chunks - 1) * plan.micro_batches * plan.devices // plan.pp


@every_plan
def test_groups_hold_the_ranks_that_call_them(
    launch: Launch, ranked: Ranked, written: dict[str, bytes]
) -> None:
    groups = {name: tuple(ranks) for name, ranks in json.loads(written["groups.json"]).items()}
    assert len({*groups.values()}) == len(groups) and "0" not in groups
    calls = defaultdict[str, dict[int, list[tuple[CollectiveType | None, int, str]]]](dict)
    for rank, nodes in ranked.items():
        for node in nodes:
            if node.type is NodeType.COLLECTIVE:
                calls[node.group].setdefault(rank, []).append(
                    (node.comm_type, node.comm_size, node.name)
                )
    assert calls.keys() == groups.keys()
    for name, by_rank in calls.items():
        assert tuple(sorted(by_rank)) == groups[name]
        kinds = {tuple((kind, size) for kind, size, _ in each) for each in by_rank.values()}
        assert len(kinds) == 1  # all call the same collectives in the same order
    everyone = tuple(range(launch.degrees.devices))
    assert everyone in groups.values()


@every_plan
def test_all_passes_are_there_once(launch: Launch, ranked: Ranked) -> None:
    plan = launch.degrees
    names = Counter(
        node.name for nodes in ranked.values() for node in nodes if node.type is NodeType.COMPUTE
    )
    passes = [
        f"{way} of micro-batch {batch} on chunk {chunk}"
        for way in ("forward", "backward")
        for batch in range(plan.micro_batches)
        for chunk in range(plan.chunks)
    ]
    once = dict.fromkeys(("optimizer step", "host between iterations"), plan.devices)
    assert names == Counter(dict.fromkeys(passes, plan.devices // plan.pp) | once)


@every_plan
def test_files_of_astra_sim_agree_with_the_plan(launch: Launch, written: dict[str, bytes]) -> None:
    network, system = yaml.safe_load(written["network.yml"]), json.loads(written["system.json"])
    assert math.prod(network["npus_count"]) == launch.degrees.devices
    assert {len(network[key]) for key in ("topology", "npus_count", "bandwidth", "latency")} == {
        len(network["topology"])
    }
    assert len(system["all-reduce-implementation"]) == len(network["topology"])
    assert json.loads(written["memory.json"]) == {"memory-type": "NO_MEMORY_EXPANSION"}
    for name in ("system.json", "network.yml", "memory.json", "groups.json", "traces/iteration"):
        assert name.encode() in written["run.sh"]


def traffic_of(launch: Launch, members: Members) -> list[Traffic]:
    assert launch.priced is not None
    every = [
        each
        for chunk in plan_work(launch.priced).chunks
        for work in (chunk.forward, chunk.backward)
        for each in work.within
    ]
    return [each for each in every if each.members is members]


@pytest.mark.parametrize("launch", ["1f1b"], indirect=True)
def test_bytes_are_those_of_published_formulas(launch: Launch) -> None:
    assert launch.priced is not None and launch.shape is not None
    work = plan_work(launch.priced)
    tensor_bytes = 2 * launch.plan.sequence_length * launch.shape.hidden  # of bf16 activations
    blocks = launch.shape.layers // 2
    first = work.chunks[0]
    # Two all-reduces of activations in each block, forward and backward, and one behind the divided
    # embedding (Shoeybi et al. 2020, section 3).
    assert [each.payload_bytes for each in first.forward.within] == [
        (2 * blocks + 1) * tensor_bytes
    ]
    assert [each.payload_bytes for each in first.backward.within] == [2 * blocks * tensor_bytes]
    assert first.ahead is not None and first.ahead.sent_bytes == tensor_bytes
    for stage in work.stages:
        assert [each.payload_bytes for each in stage.reductions] == [
            4 * stage.parameters
        ]  # fp32: Megatron-LM, of bf16 weights
    # Nothing is hidden where nothing overlaps: collectives by themselves take what the passes say
    # they do.
    assert all(each.hidden_s == 0.0 for each in traffic_of(launch, Members.TENSOR))


@pytest.mark.parametrize("launch", ["zero3", "zero3 exposed"], indirect=True)
def test_zero3_gathers_before_each_pass_and_scatters_behind(launch: Launch) -> None:
    assert launch.priced is not None
    of_plan = plan_work(launch.priced)
    for chunk, stage in zip(of_plan.chunks, of_plan.stages, strict=True):
        for work, reduced in ((chunk.forward, 0), (chunk.backward, 1)):
            assert [each.kind for each in work.gathers] == [CollectiveKind.ALL_GATHER]
            assert [each.kind for each in work.reductions] == [
                CollectiveKind.REDUCE_SCATTER
            ] * reduced
            assert work.gathers[0].payload_bytes == pytest.approx(2 * stage.parameters)
        assert stage.reductions == stage.updates == ()


@given(st.data())
def test_any_pipeline_replays_in_its_time(data: st.DataObject) -> None:
    report, work, plan = data.draw(pipelines())
    traces = traces_of(report, work, plan)
    ends_s = simulate(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    iteration_s = (
        float((ends_s.reshape(-1, report.pp).max(axis=0) + np.array(report.sync_s)).max())
        + report.optimizer_s
    )
    ranked = {rank: tuple(traces.nodes(rank)) for rank in range(plan.devices)}
    assert replay(ranked).iteration_s == pytest.approx(iteration_s, rel=1e-9)


def traces_of(report: PipelineReport, work: PlanWork, plan: UniformPlan) -> Traces:
    ranks = Ranks(plan)
    iteration = Iteration.of(report, work, {members: ranks.size(members) for members in Members})
    return Traces(
        ranks,
        tuple(stage_nodes(iteration, stage) for stage in range(plan.pp)),
        Communicators(ranks),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[PipelineReport, PlanWork, UniformPlan]:
    """A pipeline with what is sent in it: passes of any length, parts of which are exposed or hide
    something."""
    pp, interleave = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    schedule = (
        draw(st.sampled_from(["gpipe", "1f1b"])) if pp == 1 or interleave == 1 else "interleaved"
    )
    chunks = pp * (interleave if schedule == "interleaved" else 1)
    micro_batches = draw(st.integers(1, 3 if schedule == "interleaved" else 12)) * (
        pp if schedule == "interleaved" else 1
    )
    short = st.floats(0.0, 10.0)
    parts = st.floats(0.0, 0.3)

    def times(count: int) -> tuple[float, ...]:
        return tuple(draw(st.lists(short, min_size=count, max_size=count)))

    def traffic(kind: CollectiveKind, members: Members, seconds: float) -> tuple[Traffic, ...]:
        return (
            Traffic(
                kind,
                members,
                draw(st.floats(1.0, 1e9)),
                seconds * draw(parts),
                seconds * draw(parts),
            ),
        )

    def passed(seconds: float) -> PassWork:
        gathers = traffic(CollectiveKind.ALL_GATHER, Members.REPLICAS, seconds)
        within = traffic(CollectiveKind.ALL_REDUCE, Members.TENSOR, seconds)
        return PassWork(
            1e9,
            1e6,
            gathers,
            within,
            traffic(CollectiveKind.REDUCE_SCATTER, Members.REPLICAS, seconds),
        )

    forward_s, backward_s = times(chunks), times(chunks)
    sent = [Message(1e6, draw(st.sampled_from([0.0, 2e6]))) for _ in range(2 * chunks)]
    every = tuple(
        ChunkWork(
            passed(forward_s[chunk]),
            passed(backward_s[chunk]),
            sent[2 * chunk] if chunk < chunks - 1 else None,
            sent[2 * chunk + 1] if chunk else None,
        )
        for chunk in range(chunks)
    )
    tied_s = draw(st.sampled_from([0.0, 2.0])) if pp > 1 else 0.0
    stages, sync_s = [], []
    for stage in range(pp):
        reductions = traffic(
            CollectiveKind.REDUCE_SCATTER, Members.REPLICAS, sum(backward_s[stage::pp])
        )
        updates = traffic(CollectiveKind.ALL_GATHER, Members.REPLICAS, sum(forward_s[stage::pp]))
        stages.append(StageWork(1e6, reductions, updates))
        sync_s.append(
            sum(each.exposed_s for each in (*reductions, *updates))
            + (tied_s if stage in (0, pp - 1) else 0.0)
        )
    tied = Traffic(CollectiveKind.ALL_REDUCE, Members.ENDS, 1e6, tied_s, 0.0) if tied_s else None
    report = PipelineReport(
        schedule, pp, micro_batches, forward_s, backward_s, times(chunks - 1), times(chunks - 1), draw(st.booleans()),
        tuple(sync_s), draw(short),
    )  # fmt: skip
    order = draw(st.sampled_from([GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER]))
    plan = UniformPlan(tp=2, dp=2, pp=pp, interleave=chunks // pp, group_order=order)
    return report, PlanWork(every, tuple(stages), tied), plan


@pytest.mark.parametrize(
    "plan",
    [
        UniformPlan(tp=2, cp=2, dp=6, pp=3, ep=4),
        UniformPlan(tp=2, cp=2, dp=6, pp=3, ep=4, group_order=GroupOrder.PIPELINE_INNER),
        UniformPlan(tp=2, cp=3, dp=4, pp=2, ep=6, group_order=GroupOrder.PIPELINE_INNER),
        UniformPlan(
            tp=4,
            cp=2,
            dp=4,
            pp=4,
            ep=4,
            group_order=Assignment.parsed("tp2.cp2.ep2/tp2.dp2.pp2.ep2/dp2.pp2"),
        ),
    ],
    ids=str,
)
def test_groups_divide_the_ranks(plan: UniformPlan) -> None:
    ranks = Ranks(plan)
    everyone = list(range(plan.devices))
    for members in Members:
        groups = {ranks.group(rank, members) for rank in everyone}
        of_ends = members is Members.ENDS
        if not of_ends:
            assert sorted(rank for group in groups for rank in group) == everyone
        assert {len(group) for group in groups if not of_ends or len(group) > 1} == {
            ranks.size(members)
        }
    for rank in everyone:
        stage = ranks.stage_of(rank)
        assert ranks.peer(rank, stage) == rank
        assert [ranks.stage_of(ranks.peer(rank, each)) for each in range(plan.pp)] == list(
            range(plan.pp)
        )
        tensor, context, copies = (
            {*ranks.group(rank, each)}
            for each in (Members.TENSOR, Members.CONTEXT, Members.REPLICAS)
        )
        experts, alike = (
            {*ranks.group(rank, each)} for each in (Members.EXPERT, Members.EXPERT_REPLICAS)
        )
        assert len(experts) == plan.ep and len(copies) == plan.dp * plan.cp
        assert (
            experts <= copies
            and alike <= copies
            and experts & alike == {rank}
            and tensor & copies == {rank}
        )
        assert context <= copies
        assert {ranks.stage_of(each) for each in tensor | copies} == {stage}


def test_a_network_of_uneven_blocks_has_one_dimension() -> None:
    cluster = load_cluster("dgx_a100")
    assert [each.count for each in dimensions(UniformPlan(tp=8, dp=4), cluster)] == [8, 4]
    assert [each.count for each in dimensions(UniformPlan(tp=2, dp=2), cluster)] == [4]
    assert [each.count for each in dimensions(UniformPlan(tp=4, dp=3), cluster)] == [12]


@given(
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
    st.floats(allow_nan=False),
    st.lists(st.integers(0, 2**64 - 1)),
)
def test_fields_are_read_as_they_were_written(
    number: int, text: bytes, real: float, many: list[int]
) -> None:
    message = (
        wire.whole(1, number)
        + wire.content(200, text)
        + wire.double(3, real)
        + wire.packed(4, many)
    )
    fields = {field.number: field for field in wire.read_fields(message)}
    assert (fields[1].whole, fields[200].content, fields[3].double) == (number, text, real)
    assert (list(wire.read_packed(fields[4].content)) if many else []) == many
    assert list(wire.read_framed(wire.framed(message) * 3)) == [message] * 3


@pytest.mark.parametrize(
    ("number", "encoded"),  # the examples of the specification
    [(1, b"\x01"), (150, b"\x96\x01"), (2**64 - 1, b"\xff" * 9 + b"\x01")],
)
def test_whole_numbers_are_written_as_specified(number: int, encoded: bytes) -> None:
    assert wire.varint(number) == encoded


def small() -> tuple[Traces, bytes]:
    report = PipelineReport(
        "1f1b", 2, 2, (1.0, 1.0), (2.0, 2.0), (0.1,), (0.1,), False, (0.0, 0.0), 0.5
    )
    message = Message(1e6)
    work = PassWork(1e9, 1e6)
    chunks = (ChunkWork(work, work, message), ChunkWork(work, work, None, message))
    traces = traces_of(
        report,
        PlanWork(chunks, (StageWork(1.0), StageWork(1.0))),
        UniformPlan(pp=2, global_batch_size=2),
    )
    return traces, bytes(next(traces.files()).content)  # type: ignore[arg-type]


@given(st.data())
def test_damaged_traces_are_refused_or_read(data: st.DataObject) -> None:
    _, whole = small()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with suppress(InputError):
        read_trace(whole[:cut])
    place, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    with suppress(InputError):
        read_trace(whole[:place] + bytes([value]) + whole[place + 1 :])


def test_a_trace_that_cannot_end_is_told() -> None:
    traces, _ = small()
    ranked = {rank: tuple(traces.nodes(rank)) for rank in range(2)}
    ranked[1] = tuple(node for node in ranked[1] if node.type is not NodeType.SEND)
    with pytest.raises(PhazeError, match=r"never end, first node \d+ of rank 0"):
        replay(ranked)


@pytest.mark.parametrize("launch", ["1f1b"], indirect=True)
def test_plans_of_too_many_ranks_are_refused_with_fewer_replicas(launch: Launch) -> None:
    many = replace(launch, degrees=replace(launch.degrees, dp=512, global_batch_size=4096))
    refused = EXPORTER.unsupported(many)
    assert refused is not None and "2,048 ranks" in refused.what
    assert dict(refused.nearest) == {"dp": 256, "global_batch_size": 2048}
    deep = EXPORTER.unsupported(replace(launch, degrees=replace(launch.degrees, tp=2048)))
    assert deep is not None and deep.nearest == ()
    assert EXPORTER.unsupported(replace(launch, priced=None)) is not None


CHAKRA = Path(
    os.environ.get("PHAZE_CHAKRA", "not given")
)  # an environment with grpcio-tools, and Chakra's et_def.proto
READ = """
import sys
from google.protobuf.internal.decoder import _DecodeVarint32
from et_def_pb2 import GlobalMetadata, Node
content, at, messages = open(sys.argv[1], "rb").read(), 0, []
while at < len(content):
    size, at = _DecodeVarint32(content, at)
    message = Node() if messages else GlobalMetadata()
    message.ParseFromString(content[at:at + size])
    known = message.ByteSize()
    message.DiscardUnknownFields()
    assert message.ByteSize() == known
    messages.append(message)
    at += size
print(repr(messages[0].version))
for node in messages[1:]:
    named = {each.name: (each.WhichOneof("value"), getattr(each, each.WhichOneof("value"))) for each in node.attr}
    times = node.start_time_micros, node.duration_micros
    print(repr((node.id, node.name, node.type, *times, tuple(node.data_deps), tuple(node.ctrl_deps), named)))
"""
TYPES = {  # in which Chakra's feeder reads them
    "is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val", "comm_type": "int64_val",
    "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val",
    "pg_name": "string_val", "duration_s": "double_val",
}  # fmt: skip


@pytest.mark.skipif(
    not ((CHAKRA / "bin" / "python").exists() and (CHAKRA / "et_def.proto").exists()),
    reason="PHAZE_CHAKRA names no folder with an environment with grpcio-tools and Chakra's "
    "et_def.proto in it",
)
@pytest.mark.parametrize("launch", ["zero3", "experts"], indirect=True)
def test_the_schema_itself_reads_what_is_written(
    written: dict[str, bytes], ranked: Ranked, tmp_path: Path
) -> None:
    python = str(CHAKRA / "bin" / "python")
    compiler = (
        python,
        "-m",
        "grpc_tools.protoc",
        f"-I{CHAKRA}",
        f"--python_out={tmp_path}",
        str(CHAKRA / "et_def.proto"),
    )
    subprocess.run(compiler, check=True, capture_output=True)
    for rank in (0, len(ranked) - 1):
        trace, program = tmp_path / "trace.et", tmp_path / "read.py"
        trace.write_bytes(written[f"traces/iteration.{rank}.et"])
        program.write_text(READ)
        found = subprocess.run(
            (python, str(program), str(trace)), check=True, capture_output=True, text=True
        )
        version, *lines = (eval(line, {"inf": math.inf}) for line in found.stdout.splitlines())
        assert version == "0.0.4"
        for (number, name, kind, start, micros, data, control, named), node in zip(
            lines, ranked[rank], strict=True
        ):
            assert (number, name, kind, data, control) == (
                node.id,
                node.name,
                int(node.type),
                node.data_deps,
                node.ctrl_deps,
            )
            assert (start, micros) == (node.start_micros, node.duration_micros)
            assert {each: which for each, (which, _) in named.items()} == {
                each: TYPES[each] for each in named
            }
            values = {each: value for each, (_, value) in named.items()}
            expected = {"is_cpu_op": False, "duration_s": node.duration_s}
            if node.type is NodeType.COMPUTE:
                expected |= {"num_ops": node.num_ops, "tensor_size": node.tensor_size}
            elif node.type is NodeType.COLLECTIVE:
                assert node.comm_type is not None
                expected |= {
                    "comm_size": node.comm_size,
                    "comm_type": int(node.comm_type),
                    "pg_name": node.group,
                }  # type: ignore[dict-item]
            else:
                source, target, tag = node.comm_src, node.comm_dst, node.comm_tag
                expected |= {
                    "comm_size": node.comm_size,
                    "comm_src": source,
                    "comm_dst": target,
                    "comm_tag": tag,
                }
            assert values == expected
