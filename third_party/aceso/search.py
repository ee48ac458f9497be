"""The fastest plan under Aceso's cost model, with a bound that proves how far from the best it can be.

Space: everything that a plan file can say. Micro-batches are the profiled ones that divide the global batch; a stage has 1, 2, 4 ...
devices of one node; operators of a stage may differ in tensor and data parallel degree, algorithm and recomputation.

For every micro-batch all stages get a lower bound (``relaxed_stages``); the best partition under these bounds (``partitions``) is a
bound on all plans. Its stages are then priced exactly (``exact_stages``), which raises their bounds and gives stages to build plans
of, until the bound meets the best plan, time is up, or another micro-batch has the lowest bound. Plans are priced by ``evaluation``.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from Common.errors import InfeasibleError, InputError
from third_party.aceso.chains import Chain, model_chain
from third_party.aceso.database import Database
from third_party.aceso.evaluation import DEVICES_PER_NODE, US, evaluate
from third_party.aceso.exact_stages import ExactStage, exact_stage
from third_party.aceso.partitions import Cut, Machine, Partition, best_partitions, least_sum
from third_party.aceso.plans import Plan, StagePlan
from third_party.aceso.price_tables import TableLayout, empty_prices, place, table_layout
from third_party.aceso.relaxed_stages import bound_stages, longest_stage
from third_party.aceso.spaces import NEVER, StageSpace, stage_space
from third_party.aceso.stage_paths import Stretch

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

OPTIMAL = 1e-9  # relative gap up to which a plan counts as the best
THREADS = 2


@dataclass(frozen=True)
class Question:
    """What is searched: a database, a cluster, a batch and a limit on the memory of a device."""

    database: Database
    devices: int
    global_batch: int
    memory_limit_mib: float
    devices_per_node: int = DEVICES_PER_NODE
    most_stages: int = 16
    time_limit_s: float = 50.0
    gap: float = 0.0  # relative, at which the search may end

    def machine(self) -> Machine:
        """Devices in all and per node."""
        return Machine(self.devices, min(self.devices_per_node, self.devices))


@dataclass(frozen=True)
class Found:
    """The best plan, what it takes, and what no plan of the space is faster than."""

    plan: Plan
    iteration_s: float
    bound_s: float
    seconds: float

    @property
    def status(self) -> str:
        """``optimal`` where bound and plan meet, else ``feasible``."""
        return "optimal" if self.iteration_s - self.bound_s <= OPTIMAL * self.iteration_s else "feasible"


@dataclass
class Pricing:
    """All stages of one micro-batch: bounds from below, prices of stages that were found, and how these run."""

    question: Question
    chain: Chain
    micro_batch: int
    spaces: list[StageSpace]
    layout: TableLayout
    most_us: float
    lower: Floats
    upper: Floats
    ways: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    exact: set[int] = field(default_factory=set)
    least_us: float = 0.0
    bound_us: float = 0.0

    @property
    def micro_batches(self) -> int:
        """Of one iteration."""
        return self.question.global_batch // self.micro_batch


def densities(spaces: Sequence[StageSpace], steps: int) -> Floats:
    """Multipliers to try: none, and from the cheapest memory that recomputation frees to well beyond the dearest."""
    ratios = []
    for space in spaces:
        arrays = space.arrays
        frees = (arrays.activations > 1.0) & (arrays.base_us < NEVER)
        ratios.append((arrays.recompute_us[frees] / arrays.activations[frees]))
    flat = np.concatenate(ratios) if ratios else np.zeros(0)
    flat = flat[flat > 0]
    if not flat.size:
        return np.array([0.0, 1.0, 10.0, 100.0])
    low, high = float(np.quantile(flat, 0.02)), float(flat.max())
    return np.concatenate([[0.0], np.geomspace(0.5 * low, 2.0 * high, steps), [10.0 * high, 100.0 * high]])
