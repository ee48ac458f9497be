"""Independent statements of the schedules: each written out as the papers draw it, timed by a
longest path over a graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np

from Estimator.plans.pipeline.schedule import PipelineCosts, PipelineSchedule


@dataclass(frozen=True)
class Pass:
    """One micro-batch on one chunk, forward or backward."""

    forward: bool
    chunk: int
    micro_batch: int


def stage_order(
    schedule: PipelineSchedule,
    pp: int,
    rounds: int,
    micro_batches: int,
    stage: int,
    *,
    whole_warm_up: bool,
) -> list[Pass]:
    """The passes of a stage in the order in which it runs them; all forward ones first with
    ``whole_warm_up`` of pp of them."""
    if schedule is PipelineSchedule.INTERLEAVED:
        groups = range(0, micro_batches, pp)
        chunks = [turn * pp + stage for turn in range(rounds)]
        forward = [
            Pass(True, c, k) for first in groups for c in chunks for k in range(first, first + pp)
        ]
        backward = [
            Pass(False, c, k)
            for first in groups
            for c in reversed(chunks)
            for k in range(first, first + pp)
        ]
        warm_up = (
            len(forward)
            if whole_warm_up and micro_batches == pp
            else 2 * (pp - 1 - stage) + (rounds - 1) * pp
        )
    else:
        forward = [Pass(True, stage, k) for k in range(micro_batches)]
        backward = [Pass(False, stage, k) for k in range(micro_batches)]
        warm_up = pp - 1 - stage if schedule is PipelineSchedule.ONE_F_ONE_B else micro_batches
    order = forward[:warm_up]
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        order += [ahead, back]
    return order + backward[len(forward[warm_up:]) :]


def starts_s(
    costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int
) -> dict[Pass, float]:
    """When each pass starts: the longest path to it over the edges of the stages' orders and of
    what is sent between them."""
    chunks = len(costs.forward_s)
    graph: nx.DiGraph[Pass] = nx.DiGraph()

    def seconds(each: Pass) -> float:
        return float((costs.forward_s if each.forward else costs.backward_s)[each.chunk])

    def sent_s(each: Pass) -> float:
        if each.forward:
            return float(costs.transfer_s[each.chunk]) if each.chunk < chunks - 1 else 0.0
        return float(costs.backward_transfer_s[each.chunk - 1]) if each.chunk else 0.0

    def edge(first: Pass, then: Pass, length: float) -> None:
        length = (
            max(length, graph.edges[first, then]["length"])
            if graph.has_edge(first, then)
            else length
        )
        graph.add_edge(first, then, length=length)

    for stage in range(costs.pp):
        order = stage_order(
            schedule,
            costs.pp,
            chunks // costs.pp,
            micro_batches,
            stage,
            whole_warm_up=costs.whole_warm_up,
        )
        graph.add_nodes_from(order)
        for first, then in pairwise(order):
            edge(first, then, seconds(first) + (0.0 if costs.overlap_transfers else sent_s(first)))
    for k in range(micro_batches):
        way = [Pass(True, c, k) for c in range(chunks)] + [
            Pass(False, c, k) for c in reversed(range(chunks))
        ]
        for first, then in pairwise(way):
            edge(first, then, seconds(first) + sent_s(first))
    assert nx.is_directed_acyclic_graph(graph), "the schedule waits for itself"
    start: dict[Pass, float] = {}
    for each in nx.topological_sort(graph):
        start[each] = max(
            (start[p] + graph.edges[p, each]["length"] for p in graph.predecessors(each)),
            default=0.0,
        )
    return start


@dataclass(frozen=True)
class Message:
    """Activations or gradients of a micro-batch between ``link`` and ``link + 1``."""

    forward: bool
    link: int
    micro_batch: int


def rendezvous_s(costs: PipelineCosts, micro_batches: int) -> float:
    """1F1B as Megatron-LM runs it: blocking exchanges that may send and receive at once; a message
    needs both sides.

    An exchange begins when its stage comes to it and ends with the last of its messages; each
    message takes its time from when both of its sides have begun their exchange.
    """
    pp = costs.pp

    def receive_forward(stage: int, k: int) -> list[Message]:
        return [Message(True, stage - 1, k)] if stage and k < micro_batches else []

    def send_forward(stage: int, k: int) -> list[Message]:
        return [Message(True, stage, k)] if stage < pp - 1 else []

    def receive_backward(stage: int, k: int) -> list[Message]:
        return [Message(False, stage, k)] if stage < pp - 1 else []

    def send_backward(stage: int, k: int) -> list[Message]:
        return [Message(False, stage - 1, k)] if stage else []

    programs: list[list[float | list[Message]]] = []
    for stage in range(pp):
        warm_up = min(micro_batches, pp - 1 - stage)
        forward_s, backward_s = float(costs.forward_s[stage]), float(costs.backward_s[stage])
        program: list[float | list[Message]] = []
        for k in range(warm_up):
            program += [receive_forward(stage, k), forward_s, send_forward(stage, k)]
        program.append(receive_forward(stage, warm_up))
        for k in range(micro_batches - warm_up):
            program += [
                forward_s,
                send_forward(stage, warm_up + k) + receive_backward(stage, k),
                backward_s,
            ]
            program.append(send_backward(stage, k) + receive_forward(stage, warm_up + k + 1))
        for k in range(micro_batches - warm_up, micro_batches):
            program += [receive_backward(stage, k), backward_s, send_backward(stage, k)]
        programs.append(program)
    now = [0.0] * pp
    begun: dict[tuple[Message, int], float] = {}
    while any(programs):
        before = sum(map(len, programs))
        for stage, program in enumerate(programs):
            while program:
                step = program[0]
                if isinstance(step, float):
                    now[stage] += step
                else:
                    for message in step:
                        begun.setdefault((message, stage), now[stage])
                    sides = [(message, message.link + end) for message in step for end in (0, 1)]
                    if any(side not in begun for side in sides):
                        break
                    for message, side in sides:
                        takes_s = (
                            costs.transfer_s if message.forward else costs.backward_transfer_s
                        )[message.link]
                        now[stage] = max(now[stage], begun[message, side] + float(takes_s))
                program.pop(0)
        assert sum(map(len, programs)) < before, "the exchanges wait for each other"
    return max(now)


def like_chunks(
    pp: int,
    rounds: int,
    forward_s: float,
    backward_s: float,
    transfer_s: float = 0.0,
    backward_transfer_s: float = 0.0,
    overlap_transfers: bool = True,
) -> PipelineCosts:
    """Costs of chunks that are all the same."""
    chunks = pp * rounds
    return PipelineCosts(
        pp=pp,
        forward_s=np.full(chunks, forward_s),
        backward_s=np.full(chunks, backward_s),
        transfer_s=np.full(chunks - 1, transfer_s),
        backward_transfer_s=np.full(chunks - 1, backward_transfer_s),
        overlap_transfers=overlap_transfers,
    )
