"""How long an iteration takes by its execution traces: their dependencies alone, and the durations
that they state.

A node starts when all it depends on is finished; computation of a rank runs one at a time, in the
order in which it can start. A message arrives when it is sent, at the earliest when it is asked
for; a collective starts when all its ranks have come to it, the n-th of a group on one rank being
the n-th on the others.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze.exports.chakra.trace import Node, NodeType
from phaze_common.errors import PhazeError

Place = tuple[int, int]  # a rank and the id of a node
MessageKey = tuple[int, int, int]  # sender, receiver, tag


@dataclass(frozen=True)
class Replay:
    """When every node of every rank ends, seconds from the start; ``iteration_s`` is the last one
    of all."""

    end_s: Mapping[Place, float]

    @property
    def iteration_s(self) -> float:
        """Seconds of the whole."""
        return max(self.end_s.values(), default=0.0)


def replay(ranks: Mapping[int, Sequence[Node]]) -> Replay:
    """Replay the nodes of all ``ranks``.

    Raises:
        PhazeError: some never start, since they depend on each other or on what is not there.
    """
    return _Simulation(ranks).run()


class _Simulation:
    """Events in the order of their times; of one time in that of ranks and ids, so that every
    replay is the same."""

    def __init__(self, ranks: Mapping[int, Sequence[Node]]) -> None:
        self._nodes = {(rank, node.id): node for rank, nodes in ranks.items() for node in nodes}
        self._left = {
            place: len({*node.data_deps, *node.ctrl_deps}) for place, node in self._nodes.items()
        }
        self._children = defaultdict[Place, list[Place]](list)
        for (rank, number), node in self._nodes.items():
            for parent in {*node.data_deps, *node.ctrl_deps}:
                self._children[rank, parent].append((rank, number))
        self._call = self._numbered(ranks)
        self._callers = defaultdict[tuple[str, int], list[Place]](list)
        for place, call in self._call.items():
            self._callers[call].append(place)
        self._came = defaultdict[tuple[str, int], int](int)
        self._sent_s = dict[MessageKey, float]()
        self._asked = dict[MessageKey, Place]()
        self._waiting = defaultdict[int, list[int]](list)  # computation that could start, by rank
        self._busy = set[int]()
        self._events = list[tuple[float, Place]]()
        self._end_s = dict[Place, float]()

    @staticmethod
    def _numbered(ranks: Mapping[int, Sequence[Node]]) -> dict[Place, tuple[str, int]]:
        """Of every collective its group, and how many of it its rank has called before."""
        found, calls = dict[Place, tuple[str, int]](), defaultdict[tuple[int, str], int](int)
        for rank, nodes in ranks.items():
            for node in nodes:
                if node.type is NodeType.COLLECTIVE:
                    found[rank, node.id] = node.group, calls[rank, node.group]
                    calls[rank, node.group] += 1
        return found

    def run(self) -> Replay:
        for place, left in self._left.items():
            if not left:
                self._ready(place, 0.0)
        while self._events:
            now_s, place = heapq.heappop(self._events)
            self._finish(place, now_s)
        if len(self._end_s) < len(self._nodes):
            rank, number = min(place for place in self._nodes if place not in self._end_s)
            count = len(self._nodes) - len(self._end_s)
            raise PhazeError(
                f"{count} nodes never end, first node {number} of rank {rank}: "
                f"{self._nodes[rank, number].name}"
            )
        return Replay(self._end_s)

    def _ready(self, place: Place, now_s: float) -> None:
        """All that ``place`` depends on is finished."""
        (rank, number), node = place, self._nodes[place]
        match node.type:
            case NodeType.COMPUTE:
                heapq.heappush(self._waiting[rank], number)
                self._compute(rank, now_s)
            case NodeType.SEND:
                self._end(place, now_s + node.duration_s)
            case NodeType.RECEIVE:
                key = node.comm_src, node.comm_dst, node.comm_tag
                self._asked[key] = place
                if key in self._sent_s:
                    self._end(place, now_s)
            case NodeType.COLLECTIVE:
                call = self._call[place]
                self._came[call] += 1
                if self._came[call] == len(self._callers[call]):
                    for each in self._callers[call]:
                        self._end(each, now_s + self._nodes[each].duration_s)

    def _compute(self, rank: int, now_s: float) -> None:
        if rank not in self._busy and self._waiting[rank]:
            place = rank, heapq.heappop(self._waiting[rank])
            self._busy.add(rank)
            self._end(place, now_s + self._nodes[place].duration_s)

    def _end(self, place: Place, end_s: float) -> None:
        heapq.heappush(self._events, (end_s, place))

    def _finish(self, place: Place, now_s: float) -> None:
        rank, node = place[0], self._nodes[place]
        self._end_s[place] = now_s
        if node.type is NodeType.SEND:
            key = node.comm_src, node.comm_dst, node.comm_tag
            self._sent_s[key] = now_s
            if key in self._asked:
                self._end(self._asked[key], now_s)
        for child in self._children[place]:
            self._left[child] -= 1
            if not self._left[child]:
                self._ready(child, now_s)
        if node.type is NodeType.COMPUTE:
            self._busy.remove(rank)
            self._compute(rank, now_s)
