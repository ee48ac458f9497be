"""What the network adds to the operators of a layer pass on designed chips.

Collectives by themselves are operators of the schedule, beside which others run wherever the
schedule lets them. What an operator *streams* (panels of a 2D product, keys and values around a
ring) is part of that operator: it takes its own time on one core, or on all, and what the pipeline
of its pieces leaves exposed of the network's (``Estimator.plans.streams.exposed_s``), the formula
of devices that exist. An accelerator that runs its operators one after another is such a device.
Its panels start nothing: a core's tiles of a product are the same whether they wait for a whole
operand or for a panel of it. A tail (dropout, GELU) runs beside the last panel alone, and hides no
other (``Estimator.chips.part_prices``); each piece around a ring starts by itself, and is merged.

Whole operands as operators of their own beside other work would be too fast: they would lie in a
memory that nobody counted, and several of them be on their way at once, each with the links to
itself, since schedules know cores and no links. For the same reason an operator that streams has
the chip to itself wherever another one that may run at that time communicates too (``ALONE_FACTOR``
makes one core no choice). So two never share what each was priced to have alone; a real chip may be
faster, by work that it finds for idle cores meanwhile, and is never slower. Every schedule solver
sees plain latencies: its optimum and bound are exact for them, in a search over thousands of
accelerators as in the evaluation of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.latency_table import LatencyTable, OperatorTimes, occupies
from Estimator.cost_model import PieceTimes
from Estimator.plans.streams import exposed_s
from GraphExtractor.graph import Collective, Operator, OperatorGraph
from phaze_common.array_types import FloatArray, IntArray
from Solver.schedule.problem import CoreType, ScheduleStructure
from Solver.schedule.structure import closure, members

# Times the serial schedule: no schedule that has an operator this long is as short
ALONE_FACTOR = 2.0


@dataclass(frozen=True, eq=False)
class PassNetwork:
    """The network within the layers of a graph: ``seconds`` prices a collective by itself, 2D
    products run in ``panels``.

    Where accelerators have different links there are ``others`` besides: ``network_of`` is the
    place of each one's network among all, shape (accelerators,); None: there is one."""

    seconds: Callable[[Collective], float]
    panels: int = 1
    others: tuple[Callable[[Collective], float], ...] = ()
    network_of: IntArray | None = None

    def seconds_on(self, rows: IntArray | slice) -> Callable[[Collective], float | FloatArray]:
        """Prices a collective on the accelerators ``rows``: one number, or an array (rows,)."""
        if self.network_of is None:
            return self.seconds
        place, every = self.network_of[rows], (self.seconds, *self.others)

        def seconds(collective: Collective) -> FloatArray:
            of_rows: FloatArray = np.array([each(collective) for each in every], dtype=np.float64)[
                place
            ]
            return of_rows

        return seconds

    def some(self, rows: IntArray) -> PassNetwork:
        """The same of the accelerators ``rows`` alone."""
        return self if self.network_of is None else replace(self, network_of=self.network_of[rows])

    def distinct(self, count: int) -> tuple[IntArray, IntArray]:
        """An accelerator of each network, (networks,), and each one's place, (accelerators,)."""
        network_of = np.zeros(count, np.int64) if self.network_of is None else self.network_of
        _, rows, places = np.unique(network_of, return_index=True, return_inverse=True)
        return rows, places.reshape(-1)

    def collectives_s(
        self, graph: OperatorGraph, rows: IntArray | slice = slice(None)
    ) -> FloatArray:
        """Seconds of the collectives in order: (collectives,), of many networks by ``rows`` too."""
        found = [
            operator.collective for operator in graph.operators if operator.collective is not None
        ]
        seconds = self.seconds_on(rows)
        if self.network_of is None or found:
            return np.array([seconds(collective) for collective in found], dtype=np.float64)
        return np.empty((0, len(self.network_of[rows])))

    def exposed_s(
        self,
        graph: OperatorGraph,
        pieces: PieceTimes[FloatArray],
        rows: IntArray | slice = slice(None),
    ) -> FloatArray:
        """What streaming adds to operators whose ``pieces`` take so long; (rows, operators)."""
        exposed, seconds = np.zeros_like(pieces.first_s), self.seconds_on(rows)
        for place, operator in enumerate(graph.operators):
            if operator.streamed:
                each = PieceTimes(pieces.first_s[..., place], pieces.other_s[..., place])
                exposed[..., place] = exposed_s(operator, each, seconds, self.panels)
        return exposed

    def operator_times(
        self, graph: OperatorGraph, table: LatencyTable, rows: IntArray | slice
    ) -> OperatorTimes:
        """Seconds and joules of the operators of ``graph`` on the accelerators ``rows``, as
        schedules may use them.

        Raises:
            InputError: the table was made for other graphs."""
        times = table.times(graph, rows, self.collectives_s(graph, rows), self.panels)
        if not any(operator.streamed for operator in graph.operators):
            return times
        single, spread = table.piece_times(graph, rows, self.panels)
        single_s = times.single_s + self.exposed_s(graph, single, rows)
        all_s = times.all_s + self.exposed_s(graph, spread, rows)
        single_j, alone = times.single_j.copy(), sharing_links(graph)
        single_s[:, alone] = ALONE_FACTOR * all_s.sum(axis=1)[:, None]
        single_j[:, alone] = times.all_j[:, alone]
        return OperatorTimes(single_s, all_s, single_j, times.all_j)


def sharing_links(graph: OperatorGraph) -> list[int]:
    """Operators that stream while another one that communicates may run: their places."""
    order = closure(schedule_structure(graph))
    communicates = [
        operator.collective is not None or bool(operator.streamed) for operator in graph.operators
    ]
    streamed = (place for place, operator in enumerate(graph.operators) if operator.streamed)
    return [
        place
        for place in streamed
        if any(communicates[other] for other in members(order.parallel(place)))
    ]


def schedule_structure(graph: OperatorGraph) -> ScheduleStructure:
    """Core types and precedence of a layer's operators, by position in ``graph.operators``."""
    position = {operator.id: index for index, operator in enumerate(graph.operators)}
    edges = tuple((position[before], position[after]) for before, after in graph.edges)
    return ScheduleStructure(tuple(core_type(operator) for operator in graph.operators), edges)


def core_type(operator: Operator) -> CoreType:
    """What a core of each type it occupies while it runs."""
    uses = occupies(operator)
    if uses.tensor_core and uses.vector_core:
        return CoreType.TC_AND_VC
    return CoreType.TC if uses.tensor_core else CoreType.VC
