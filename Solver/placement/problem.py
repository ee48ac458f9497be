"""The placement problem and its answer: cut the layers of a model into pipeline stages over a cluster of devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Common.choices import GroupOrder as GroupOrder
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import LayerTensor, Recompute
from Solver.results import Breakdown, Status

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingPolicy:
    """Bytes per parameter and how they are sharded: ZeRO stage 1 shards optimizer state, 2 gradients too, 3 weights too.

    Mixed-precision Adam is 2 + 2 + 12 (Rajbhandari et al. 2020); ``optimizer_step_bytes`` is a step's HBM traffic per parameter.
    """

    optimizer: str
    weight_bytes: float
    gradient_bytes: float
    optimizer_state_bytes: float
    optimizer_step_bytes: float
    zero_stage: int


@dataclass(frozen=True, eq=False)
class PlanVariant:
    """The layers in execution order, per device, for one width and recomputation. Arrays have shape (layers,).

    ``cut_bytes[i]`` and ``cut_gradient_bytes[i]`` cross the cut before layer i (entry 0 is 0). ``tied_parameter_count`` sums,
    over the layers, the parameters that an earlier layer owns too. A plan of one stage holds them once. With several stages
    every layer that reads them holds a copy of its own, which counts too much where two such layers share a stage, and the
    copies' gradients are synchronised over the distance between first and last stage.
    ``tensors`` join the layers where these need not form a chain; they are what makes ``cut_bytes`` in execution order.
    ``copied_bytes[i]`` are those of ``cut_bytes[i]`` that several layers read: they are saved where they are made, and once more,
    for every micro-batch in flight, by a stage that starts at layer i and reads or hands them on. None: there are none.
    """

    tp: int
    recompute: Recompute
    parameter_count: FloatArray
    saved_bytes: FloatArray  # per micro-batch in flight
    workspace_bytes: FloatArray  # the largest of a stage's layers is needed once
    cut_bytes: FloatArray
    cut_gradient_bytes: FloatArray
    tied_parameter_count: float
    tensors: tuple[LayerTensor, ...] | None = None  # None: every layer needs the one before it
    copied_bytes: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Everything but the latencies, so it is shared by all accelerators: variants x cluster x memory x batch.

    ``pp`` and ``dp`` leave only the plans with so many stages and replicas (None: any number).
    """

    variants: tuple[PlanVariant, ...]
    cluster: Cluster
    hbm_bytes: float
    hbm_bandwidth_bytes_per_s: float
    micro_batches: int  # of the global batch, over all pipelines
    policy: TrainingPolicy
    pp: int | None = None
    dp: int | None = None


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """Seconds per micro-batch of every layer, per variant: shape (variants, layers). ``backward_s`` excludes what is recomputed.

    ``recompute_s`` is what full recomputation adds before the backward pass (0 for the other modes: selective
    recomputation is part of the backward operators and so of ``backward_s``).
    """

    forward_s: FloatArray
    backward_s: FloatArray
    recompute_s: FloatArray


@dataclass(frozen=True, eq=False)
class BatchTimes:
    """``LayerTimes`` by distinct layer, shape (accelerators, variants, distinct layers); layer i is ``sequence[i]``."""

    forward_s: FloatArray
    backward_s: FloatArray
    recompute_s: FloatArray
    sequence: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: seconds per micro-batch with its transfers, bytes on each of its tp·dp devices.

    Its first and last layer are places in the plan's order of the layers.
    """

    first_layer: int
    last_layer: int
    devices: int
    load_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Placement:
    """A plan: degrees, stages first to last, and the time of one iteration of the global batch.

    ``order`` are the layers, by their place in execution order, as the stages hold them one after another.
    """

    status: Status
    iteration_s: float
    bound_s: float
    tp: int
    pp: int
    dp: int
    recompute: Recompute
    micro_batches_per_pipeline: int
    stages: tuple[Stage, ...]
    order: tuple[int, ...]
    breakdown: Breakdown | None
    reason: str = ""  # why infeasible
    group_order: GroupOrder = GroupOrder.DATA_INNER  # immaterial on a network of one tier


@dataclass(frozen=True, eq=False)
class BatchPlacements:
    """Best plans of N accelerators: iteration seconds, index of the variant, dp and pp; shape (accelerators,).

    Without a plan the seconds are inf, dp and pp 0 and the variant -1 where nothing fits, -2 where nothing beats the incumbent.
    """

    iteration_s: FloatArray
    variant: IntArray
    dp: IntArray
    pp: IntArray
