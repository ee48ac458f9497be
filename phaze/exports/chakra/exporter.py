"""Plans as execution traces of one iteration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from Estimator.plans.degrees import UniformPlan
from phaze.exports.chakra import astra_sim
from phaze.exports.chakra.plan_work import plan_work
from phaze.exports.chakra.ranks import Communicators, Ranks
from phaze.exports.chakra.readme import PREFIX, RUN, readme
from phaze.exports.chakra.replay import Replay, replay
from phaze.exports.chakra.stage_nodes import Iteration, StageNode, stage_nodes
from phaze.exports.chakra.trace import Node, NodeType, node_bytes, of_rank, trace_bytes
from phaze.exports.chakra.work import Members
from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.refusals import Refusals, shard_groups

MOST_RANKS = 1024  # a file each
MOST_PASSES = 1_000_000  # of all ranks, each some kB of nodes
MOST_REPLAYED = 200_000  # nodes of all ranks, some seconds


@dataclass(frozen=True, eq=False)
class Traces:
    """The nodes of an iteration: ``stages`` by stage, bound to a rank when they are asked for."""

    ranks: Ranks
    stages: tuple[tuple[StageNode, ...], ...]
    communicators: Communicators

    @staticmethod
    def of(launch: Launch) -> Traces:
        """The traces of ``launch``.

        Raises:
            ValueError: its passes have not been priced.
        """
        if launch.pipeline is None or launch.priced is None:
            raise ValueError("the passes of the plan have not been priced")
        ranks = Ranks(launch.degrees)
        sizes = {members: ranks.size(members) for members in Members}
        iteration = Iteration.of(launch.pipeline, plan_work(launch.priced), sizes)
        stages = tuple(stage_nodes(iteration, stage) for stage in range(launch.degrees.pp))
        traces = Traces(ranks, stages, Communicators(ranks))
        return traces.timed() if sum(map(len, stages)) <= MOST_REPLAYED else traces

    @property
    def count(self) -> int:
        """Nodes of all ranks."""
        plan = self.ranks.plan
        return sum(map(len, self.stages)) * (plan.devices // plan.pp)

    def timed(self) -> Traces:
        """The same, every node with when it starts: the ranks of a stage are alike, so one of each
        stage tells."""
        column = [self.ranks.peer(0, stage) for stage in range(self.ranks.plan.pp)]
        end_s = replay({rank: tuple(self.nodes(rank)) for rank in column}).end_s

        def timed(rank: int, each: StageNode) -> StageNode:
            node = each.node
            # asked for when all before it is finished, however long it takes to come
            start_s = end_s[rank, node.id] - node.duration_s
            if node.type is NodeType.RECEIVE:
                ends = (end_s[rank, before] for before in (*node.data_deps, *node.ctrl_deps))
                start_s = max(ends, default=0.0)
            return replace(each, node=replace(node, start_micros=round(max(start_s, 0.0) * 1e6)))

        stages = tuple(
            tuple(timed(rank, each) for each in nodes)
            for rank, nodes in zip(column, self.stages, strict=True)
        )
        return replace(self, stages=stages, communicators=Communicators(self.ranks))

    def nodes(self, rank: int) -> Iterator[Node]:
        """The nodes of ``rank``."""
        return (self._bound(each, rank) for each in self.stages[self.ranks.stage_of(rank)])

    def _bound(self, each: StageNode, rank: int) -> Node:
        if each.members is not None:
            return replace(each.node, group=self.communicators.name(rank, each.members))
        if each.peer is None:
            return each.node
        peer = self.ranks.peer(rank, each.peer)
        source, target = (rank, peer) if each.node.type is NodeType.SEND else (peer, rank)
        return replace(each.node, comm_src=source, comm_dst=target)

    def files(self) -> Iterator[ExportedFile]:
        """A trace for every rank. What all ranks of a stage share is written once."""
        shared = [[node_bytes(each.node) for each in nodes] for nodes in self.stages]
        for rank in range(self.ranks.plan.devices):
            stage = self.ranks.stage_of(rank)
            messages = (
                message + of_rank(node)
                for message, node in zip(shared[stage], self.nodes(rank), strict=True)
            )
            yield ExportedFile(f"{PREFIX}.{rank}.et", trace_bytes(messages))


def _not_written(launch: Launch) -> Refusals:
    """Plans of so many ranks or nodes that nobody would want the files, or whose passes have not
    been priced."""
    plan = launch.degrees
    if launch.pipeline is None or launch.priced is None:
        yield unsupported("what its passes take has not been predicted")
    if plan.devices == 1:
        yield unsupported("it runs on one device, which has nobody to communicate with")
    if plan.devices > MOST_RANKS:
        what = f"it has {plan.devices:,} ranks with a trace each"
        near = _fewer_replicas(plan)
        yield unsupported(f"{what}, and at most {MOST_RANKS:,} are written", **near)
    passes = 2 * plan.micro_batches * plan.interleave * plan.devices
    if passes > MOST_PASSES:
        yield unsupported(
            f"its ranks run {passes:,} passes of {plan.micro_batches:,} micro-batches, and traces "
            f"hold up to {MOST_PASSES:,}"
        )


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """Traces of all ranks, ASTRA-sim's configuration, and how to run it."""
    traces, machine = Traces.of(launch), launch.machine
    assert machine is not None
    network = astra_sim.dimensions(launch.degrees, machine.cluster)
    return (
        *traces.files(),  # which names the groups
        ExportedFile("groups.json", astra_sim.groups_file(traces.communicators)),
        ExportedFile("network.yml", astra_sim.network_file(network)),
        ExportedFile("system.json", astra_sim.system_file(machine, network)),
        ExportedFile("memory.json", astra_sim.memory_file()),
        ExportedFile("run.sh", RUN, executable=True),
        ExportedFile("README.md", readme(launch, traces.count, _replayed(traces))),
    )


def _replayed(traces: Traces) -> Replay | None:
    """The replay of all ranks; None where it would take long."""
    if traces.count > MOST_REPLAYED:
        return None
    return replay({rank: tuple(traces.nodes(rank)) for rank in range(traces.ranks.plan.devices)})


def _fewer_replicas(plan: UniformPlan) -> dict[str, object]:
    """The settings of as many replicas as are written, each with the samples that it had; none
    where one is too many."""
    each, samples = plan.inner_devices * plan.pp, plan.micro_batches * plan.micro_batch_size
    if isinstance(plan.group_order, str):
        for dp in range(min(MOST_RANKS // each, plan.dp), 0, -1):
            if plan.expert_devices(dp * plan.cp) % plan.ep == 0:
                return {"dp": dp, "global_batch_size": samples * dp}
    return {}


EXPORTER = Exporter("chakra", "Chakra and ASTRA-sim", (_not_written, shard_groups), files)
