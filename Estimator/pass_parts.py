"""The time of a layer pass by cause: of each of its operators, and of the whole pass."""

from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from Estimator.cost_model import PricedOperators, collective_positions
from GraphExtractor.graph import CollectiveGroup, CollectiveKind, OperatorGraph
from phaze_common.array_types import FloatArray

Seconds = TypeVar("Seconds", float, FloatArray)


@dataclass(frozen=True)
class _Parts(Generic[Seconds]):
    """Seconds: arithmetic, what memories add to it, starting operators, and exposed collectives by
    group.

    ``sequence_s`` are the gathers and scatters among tensor-parallel devices that sequence
    parallelism makes of all-reduces.
    """

    arithmetic_s: Seconds
    memory_s: Seconds
    launch_s: Seconds
    tensor_s: Seconds
    sequence_s: Seconds
    context_s: Seconds
    expert_s: Seconds

    @property
    def work_s(self) -> Seconds:
        """What is no communication."""
        return self.arithmetic_s + self.memory_s + self.launch_s

    @property
    def total_s(self) -> Seconds:
        """All parts."""
        return self.work_s + self.communication_s

    @property
    def communication_s(self) -> Seconds:
        """Collectives of all groups."""
        return self.tensor_s + self.sequence_s + self.context_s + self.expert_s


@dataclass(frozen=True)
class PassParts(_Parts[float]):
    """Of a whole pass."""


@dataclass(frozen=True, eq=False)
class OperatorParts(_Parts[FloatArray]):
    """Of every operator of a pass: float64 arrays of shape (operators,)."""

    def weighted(self, weights: FloatArray) -> PassParts:
        """Sum over operators, each times its weight; ``weights`` has shape (operators,)."""
        return PassParts(
            **{field.name: float(getattr(self, field.name) @ weights) for field in fields(self)}
        )


def operator_parts(
    graph: OperatorGraph,
    priced: PricedOperators,
    row: int,
    alone: NDArray[np.bool_],
    collective_s: FloatArray,
    exposed_s: FloatArray | None = None,
) -> OperatorParts:
    """Parts of the operators of ``graph`` on the priced configuration ``row``.

    ``alone`` (operators,) says which have the whole device, the others being on one core;
    ``collective_s`` (collectives,) are the network's seconds of the graph's collectives, in its
    order, ``exposed_s`` (operators,) those that what operators stream adds to them (None: nothing
    streams); they are of the group of the first that streams.

    Raises:
        PhazeError: there are not as many seconds as collectives.
    """
    positions = collective_positions(graph, collective_s)
    sent = {group: np.zeros(len(graph.operators)) for group in CollectiveGroup}
    sequence_s = np.zeros(len(graph.operators))
    network_s = np.zeros(len(graph.operators)) if exposed_s is None else exposed_s.copy()
    network_s[positions] += collective_s
    for position, (operator, seconds) in enumerate(zip(graph.operators, network_s, strict=True)):
        if operator.collective is None and not operator.streamed:
            continue
        collective = operator.collective or operator.streamed[0]
        of_tensors = collective.group in (CollectiveGroup.TENSOR, CollectiveGroup.TENSOR2)
        gathers = of_tensors and collective.kind is not CollectiveKind.ALL_REDUCE
        (sequence_s if gathers else sent[collective.group])[position] = seconds
    on_one_core = priced.on_one_core or priced.alone
    arithmetic_s, memory_s, launch_s = (
        np.where(alone, getattr(priced.alone, name)[row], getattr(on_one_core, name)[row])
        for name in ("arithmetic_s", "memory_s", "launch_s")
    )
    return OperatorParts(
        arithmetic_s=arithmetic_s,
        memory_s=memory_s,
        launch_s=launch_s,
        tensor_s=sent[CollectiveGroup.TENSOR] + sent[CollectiveGroup.TENSOR2],
        sequence_s=sequence_s,
        context_s=sent[CollectiveGroup.CONTEXT],
        expert_s=sent[CollectiveGroup.EXPERT],
    )
