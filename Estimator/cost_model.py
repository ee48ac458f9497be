"""What every operator cost model offers: seconds and joules of a graph's operators on the
configurations of a device.

Designed chips have thousands of configurations, each of which runs an operator on one core or on
all cores of its type; devices that exist have one configuration and one stream. Collectives are
priced by the network, since their time depends on where their groups lie: a cost model says what
they cost besides (their issue by the host, their energy).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from GraphExtractor.graph import OperatorGraph
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.errors import PhazeError

Seconds = TypeVar("Seconds", float, FloatArray)


@dataclass(frozen=True, eq=False)
class PieceTimes(Generic[Seconds]):
    """Seconds of the pieces of an operator beside which others stream: of the first one, and of
    every other one.

    They are what the network can hide behind: panels of a product without the tail that follows the
    last of them, pieces of attention around a ring with their merging.
    """

    first_s: Seconds
    other_s: Seconds


@dataclass(frozen=True, eq=False)
class OperatorCosts:
    """Costs of the operators of a graph, in its order: float64 arrays of shape (configurations,
    operators).

    An operator takes as long as its arithmetic, all operands at hand, plus what the memories add to
    that, plus its start-up (``launch_s``). ``host_s`` are seconds of the host that issues it; the
    host runs ahead of the device, so that a pass takes the longer of its operators' ``seconds`` and
    ``host_s``, summed each. ``joules`` is None where a model knows no energy.
    """

    arithmetic_s: FloatArray
    memory_s: FloatArray
    launch_s: FloatArray
    host_s: FloatArray
    joules: FloatArray | None

    @property
    def seconds(self) -> FloatArray:
        """Time of the device: all parts but the host's; shape (configurations, operators)."""
        return self.arithmetic_s + self.memory_s + self.launch_s


@dataclass(frozen=True, eq=False)
class PricedOperators:
    """Operators that have the whole device to themselves, and on a single core of it (None: the
    device has no such cores)."""

    alone: OperatorCosts
    on_one_core: OperatorCosts | None


def collective_positions(graph: OperatorGraph, collective_s: FloatArray) -> IntArray:
    """Positions of the collectives of ``graph``, (collectives,), to which the network gave
    ``collective_s`` in the same order.

    Raises:
        PhazeError: there are not as many of both.
    """
    positions = [
        index for index, operator in enumerate(graph.operators) if operator.collective is not None
    ]
    if collective_s.shape[:1] != (len(positions),):
        raise PhazeError(
            f"a graph of {len(positions)} collectives was given seconds of shape "
            f"{collective_s.shape} for them"
        )
    return np.array(positions, dtype=np.int64)


class OperatorCostModel(ABC):
    """Prices operators on a fixed set of configurations; equal questions have equal answers."""

    @property
    @abstractmethod
    def configurations(self) -> int:
        """How many configurations are priced at once."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of all inputs of the model, for keys of caches; the code is not in it
        (``phaze_common.files.code_version``)."""

    @abstractmethod
    def price(
        self, graph: OperatorGraph, rows: IntArray | slice | None = None, panels: int = 1
    ) -> PricedOperators:
        """Costs of the operators of ``graph`` on the configurations ``rows`` (None: all, else at
        least one).

        Products of 2D layouts run in so many ``panels``. Neither an operator's costs nor a
        configuration's depend on what else is priced. Collectives take no seconds.

        Raises:
            InputError: the model does not know such an operator.
        """

    @abstractmethod
    def peak_flops(self, number_format: str) -> FloatArray:
        """Dense matrix FLOP/s of each configuration, shape (configurations,).

        Raises:
            InputError: the device does not compute in that format.
        """

    @property
    @abstractmethod
    def stream_bytes_per_s(self) -> float:
        """Memory bandwidth that element-wise work over long arrays reaches, such as the
        optimizer's."""

    @property
    @abstractmethod
    def accumulation_bytes(self) -> float:
        """Traffic per parameter of adding a micro-batch's weight gradients to those before it; 0
        where products do it."""
