"""The nodes of an iteration on a pipeline stage, whose ranks all do the same: passes in the order
of the schedule, then the step.

Nodes follow the prices: a pass takes what it is predicted to, of which collectives have their
exposed seconds to themselves. What is hidden of them is a node of its own beside the computation;
both have their part of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import PipelinePasses, timeline
from Estimator.plans.results import PipelineReport
from GraphExtractor.graph import CollectiveKind
from phaze.exports.chakra.trace import CollectiveType, Node, NodeType
from phaze.exports.chakra.work import Members, Message, PassWork, PlanWork, Traffic

BETWEEN = "host between iterations"
NORM_BYTES = 4  # of the squared norm of the gradients, summed over all ranks in fp32
_TYPES = {
    CollectiveKind.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: CollectiveType.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
}


@dataclass(frozen=True)
class StageNode:
    """A node of all ranks of a stage, which lacks what each has for itself: its group among
    ``members``, its like in ``peer``."""

    node: Node
    members: Members | None = None
    peer: int | None = None


@dataclass(frozen=True, eq=False)
class Iteration:
    """What an iteration consists of; ``sizes`` are the ranks in a group of each kind."""

    pipeline: PipelineReport
    work: PlanWork
    sizes: dict[Members, int]
    passes: PipelinePasses

    @staticmethod
    def of(pipeline: PipelineReport, work: PlanWork, sizes: dict[Members, int]) -> Iteration:
        """The iteration of a priced ``pipeline``, its passes in the order of its schedule."""
        passes = timeline(
            costs_of(pipeline), PipelineSchedule(pipeline.schedule), pipeline.micro_batches
        )
        return Iteration(pipeline, work, sizes, passes)


def stage_nodes(iteration: Iteration, stage: int) -> tuple[StageNode, ...]:
    """The nodes of ``stage`` by ascending id, each behind what it depends on."""
    return _Stage(iteration, stage).nodes()


@dataclass(eq=False)
class _Stage:
    """Nodes as they come about. Before the next pass of the stage all of ``gate`` must be finished,
    to keep its order."""

    iteration: Iteration
    stage: int
    found: list[StageNode] = field(default_factory=list)
    gate: tuple[int, ...] = ()
    # ends by chunk and micro-batch
    forwards: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    computed_s: float = 0.0

    def nodes(self) -> tuple[StageNode, ...]:
        iteration, passes, pp = self.iteration, self.iteration.passes, self.iteration.pipeline.pp
        once = iteration.work.stages[self.stage]
        last = iteration.pipeline.micro_batches - 1
        last_chunk = len(iteration.work.chunks) - pp + self.stage
        # What is hidden of the gather of weights runs beside the first forward passes, of the
        # reductions beside the last backward ones, from where the first gradients are complete.
        forward_s = sum(self._own(iteration.pipeline.forward_s))
        gathered = self._beside(once.updates, "gather of updated weights", (), forward_s)
        ends, reduced = tuple[int, ...](), tuple[int, ...]()
        listed = (passes.forward, passes.chunk, passes.micro_batch)
        order = (each[self.stage].tolist() for each in listed)
        for ahead, chunk, micro_batch in zip(*order, strict=True):
            if not ahead:
                self.gate, gathered = (*self.gate, *gathered), ()
                if micro_batch == last and chunk == last_chunk:
                    within_s = sum(self._own(iteration.pipeline.backward_s))
                    reduced = self._beside(once.reductions, "gradients", self.gate, within_s)
            ends = self._pass(ahead, chunk, micro_batch)
        self._step((*ends, *reduced))
        return tuple(self.found)

    def _own(self, of_chunks: Sequence[float]) -> Sequence[float]:
        return of_chunks[self.stage :: self.iteration.pipeline.pp]

    def _pass(self, ahead: bool, chunk: int, micro_batch: int) -> tuple[int, ...]:
        """A pass with what comes to it and what it sends; returns what must be finished where it
        ends."""
        report, chunks = self.iteration.pipeline, self.iteration.work.chunks
        work = chunks[chunk]
        name = f"{'forward' if ahead else 'backward'} of micro-batch {micro_batch} on chunk {chunk}"
        source, target = (chunk - 1, chunk + 1) if ahead else (chunk + 1, chunk - 1)
        inputs = () if ahead else self.forwards[chunk, micro_batch]
        if 0 <= source < len(chunks):
            message = chunks[source].ahead if ahead else chunks[source].back
            if message is not None:
                tag = self._tag(ahead, source, micro_batch)
                inputs = (*inputs, *self._receive(message, source, tag, name))
        seconds = (report.forward_s if ahead else report.backward_s)[chunk]
        ends = self._computed(work.forward if ahead else work.backward, seconds, inputs, name)
        if ahead:
            self.forwards[chunk, micro_batch] = ends
        sent = work.ahead if ahead else work.back
        self.gate = ()
        if sent is not None:
            send = self._add(
                f"output of {name}",
                NodeType.SEND,
                report.sent_s(ahead, chunk),
                ends,
                peer=target % report.pp,
                size=sent.sent_bytes,
                comm_tag=self._tag(ahead, chunk, micro_batch),
            )
        self.gate = ends if sent is None or report.overlap_transfers else (send,)
        return ends

    def _computed(
        self, work: PassWork, pass_s: float, inputs: tuple[int, ...], name: str
    ) -> tuple[int, ...]:
        """The nodes of a pass of ``pass_s`` seconds; returns its last ones."""
        exposed_s = sum(each.exposed_s for each in (*work.gathers, *work.within, *work.reductions))
        before = tuple(dict.fromkeys((*inputs, *self.gate)))
        beside = (
            *self._beside(work.gathers, f"weights of {name}", before, pass_s),
            *self._beside(work.within, f"tensors of {name}", before, pass_s - exposed_s),
            *self._beside(work.reductions, f"gradients of {name}", before, pass_s),
        )
        ends = self._chain(work.gathers, f"weights of {name}", before)
        own_s, moved = max(pass_s - exposed_s, 0.0), max(round(work.moved_bytes), 1)
        compute = self._compute(name, own_s, ends, round(work.flops), moved)
        ends = self._chain(work.within, f"tensors of {name}", (compute,))
        return (*self._chain(work.reductions, f"gradients of {name}", ends), *beside)

    def _receive(self, message: Message, source: int, tag: int, name: str) -> tuple[int, ...]:
        """The input of a pass from chunk ``source``, put together where it comes in parts."""
        peer, name = source % self.iteration.pipeline.pp, f"input of {name}"
        # The device asks for it when it has come to the pass: it has nothing to wait for before.
        kind, size = NodeType.RECEIVE, message.sent_bytes
        node = self._add(name, kind, 0.0, self.gate, peer=peer, size=size, comm_tag=tag)
        if not message.gathered_bytes:
            return (node,)
        # Its seconds are among those of the message.
        parts = Traffic(CollectiveKind.ALL_GATHER, Members.TENSOR, message.gathered_bytes, 0.0, 0.0)
        return (self._collective(parts, f"parts of the {name}", (node,), 0.0, 1.0),)

    def _tag(self, ahead: bool, chunk: int, micro_batch: int) -> int:
        """The same for a message on both sides, and for no other one."""
        place = chunk * self.iteration.pipeline.micro_batches + micro_batch
        return place * 2 + (0 if ahead else 1)

    def _step(self, ends: tuple[int, ...]) -> None:
        """What follows the last backward pass: synchronisation, the norm that all wait for, the
        update."""
        work, report = self.iteration.work, self.iteration.pipeline
        once, self.gate = work.stages[self.stage], ()
        ends = self._chain(once.reductions, "gradients", ends)
        # Where it is priced, before the step; it moves the same bytes behind it.
        ends = self._chain(once.updates, "gather of updated weights", ends)
        if work.tied is not None and self.stage in (0, report.pp - 1):
            ends = self._chain((work.tied,), "gradients of tied parameters", ends)
        if self.iteration.sizes[Members.EVERYONE] > 1:
            norm = Traffic(CollectiveKind.ALL_REDUCE, Members.EVERYONE, NORM_BYTES, 0.0, 0.0)
            ends = (self._collective(norm, "norm of the gradients", ends, 0.0, 1.0),)
        parameters = max(round(once.parameters), 1)
        step = self._compute("optimizer step", report.optimizer_s, ends, parameters, parameters)
        if report.between_s > 0.0:
            self._compute(BETWEEN, report.between_s, (step,), 1, 1)

    def _chain(
        self, traffic: Iterable[Traffic], name: str, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """What shows of ``traffic``, one after another; returns what is finished with the last
        one."""
        for each in traffic:
            if each.exposed_s > 0.0:
                shown = each.exposed_s / (each.exposed_s + each.hidden_s)
                before = (self._collective(each, name, before, each.exposed_s, shown),)
        return before

    def _beside(
        self, traffic: Iterable[Traffic], name: str, before: tuple[int, ...], within_s: float
    ) -> tuple[int, ...]:
        """What is hidden of ``traffic``, at most for the seconds beside which it runs."""
        found = list[int]()
        for each in traffic:
            if each.hidden_s > 0.0:
                seconds = min(each.hidden_s, max(within_s, 0.0))
                part = each.hidden_s / (each.exposed_s + each.hidden_s)
                found.append(self._collective(each, f"{name}, hidden", before, seconds, part))
        return tuple(found)

    def _collective(
        self, traffic: Traffic, name: str, before: tuple[int, ...], seconds: float, part: float
    ) -> int:
        """A node of such a ``part`` of ``traffic``."""
        kind = _TYPES[traffic.kind]
        size = traffic.payload_bytes * part
        if kind is CollectiveType.ALL_GATHER:  # what a rank gives to it
            size /= self.iteration.sizes[traffic.members]
        name = f"{name}: {traffic.kind.value.replace('_', '-')}, {traffic.members}"
        members, node = traffic.members, NodeType.COLLECTIVE
        return self._add(name, node, seconds, before, members, size=size, comm_type=kind)

    def _compute(
        self, name: str, seconds: float, before: tuple[int, ...], num_ops: int, tensor_size: int
    ) -> int:
        """A node of computation."""
        node = NodeType.COMPUTE
        return self._add(name, node, seconds, before, num_ops=num_ops, tensor_size=tensor_size)

    def _add(
        self,
        name: str,
        node_type: NodeType,
        seconds: float,
        before: tuple[int, ...],
        members: Members | None = None,
        peer: int | None = None,
        size: float = 0.0,
        **others: Any,
    ) -> int:
        """A node behind ``before``, of whose message or collective the bytes are ``size``; returns
        its id."""
        micros = round(seconds * 1e6)
        # so that those of a stage add up to within half a microsecond
        if node_type is NodeType.COMPUTE:
            micros = round((self.computed_s + seconds) * 1e6) - round(self.computed_s * 1e6)
            self.computed_s += seconds
        node = Node(
            id=len(self.found),
            name=name,
            type=node_type,
            duration_s=seconds,
            duration_micros=micros,
            data_deps=before,
            ctrl_deps=tuple(each for each in before if each in self.gate),
            comm_size=0 if node_type is NodeType.COMPUTE else max(round(size), 1),
            **others,
        )
        self.found.append(StageNode(node, members, peer))
        return node.id
