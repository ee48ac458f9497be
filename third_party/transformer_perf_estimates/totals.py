"""Seconds of an iteration and GB on a GPU, of many configurations at once.

With L / pp layers on a stage and m micro-batches,

    t           (forward + backward) m L / pp + t_pp + bubble + t_dp
    t_pp        2 m times a stage-to-stage message, the mean over the pp - 1 links, of which
                pp / nv_pp - 1 leave a fast domain
    bubble      (pp - 1) / m of layers and t_pp
    t_dp        weights of one layer reduce-scattered and gathered, T1 each, and of every further
                layer on the stage what a pass of one layer does not hide, T1 + max(T1 - pass, 0)
                (L / pp - 1); over dp, in seqp over dp tp2
    memory      weights, as many gradients, 6 / dp (in seqp 6 / (dp tp2)) of the weights for the
                optimizer, and kept activations of min(pp, m) micro-batches; fits where it is at
                most the capacity
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_common.array_types import FloatArray

from .collectives import neighbour_s, ring
from .configurations import Configurations, Strategy, Training, floats
from .corrections import CORRECTED, Correction, Corrections
from .timing import LayerTimes, layer_times

OPTIMIZER_COPIES = 6.0  # fp32 master weights and two moments: 12 bytes for each 2 of weights


@dataclass(frozen=True, eq=False)
class Estimates:
    """Iterations of a training under ``configurations``; arrays (configurations,), of ``layer``
    (layouts,)."""

    training: Training
    configurations: Configurations
    layer: LayerTimes
    seconds: FloatArray
    memory_gb: FloatArray
    passes: FloatArray  # times that a GPU runs a layer for a micro-batch
    data_parallel_s: FloatArray
    pipeline_s: FloatArray
    bubble_s: FloatArray
    weights_gb: FloatArray  # and of gradients
    optimizer_gb: FloatArray
    kept_gb: FloatArray

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Which fit the memory."""
        return self.memory_gb <= self.training.system.hbm_capacity_gb


def estimate(
    training: Training, configurations: Configurations, corrections: Corrections = CORRECTED
) -> Estimates:
    """Price all ``configurations`` of a training; which of them are sensible is for ``spaces`` and
    ``cases`` to know."""
    system, layouts, layout = training.system, configurations.layouts, configurations.layout
    layer = layer_times(training, layouts, corrections)
    pp, dp = floats(configurations.pp), floats(configurations.dp)
    per_stage = training.model.layers / pp
    micro_batches = training.global_batch / (dp * floats(layouts.micro_batch)[layout])
    forward_s, backward_s = layer.forward.seconds[layout], layer.backward.seconds[layout]
    weights_gb = layer.weights_gb[layout]
    replicas, in_domain = dp, floats(configurations.nv_dp)
    if training.strategy is Strategy.SEQUENCE:
        replicas = dp * floats(layouts.tp2)[layout]
        in_domain = in_domain * floats(layouts.nv_tp2)[layout]

    once_s = ring(system, replicas, in_domain, corrections).gather_s(weights_gb)
    late_s = np.maximum(once_s - forward_s, 0.0) + np.maximum(once_s - backward_s, 0.0)
    data_parallel_s = 2.0 * once_s + late_s * (per_stage - 1.0)
    message_s = _stage_message_s(
        training, configurations, layer.stage_input_gb[layout], corrections
    )
    pipeline_s = 2.0 * micro_batches * message_s
    passes = micro_batches * per_stage
    busy_s = (forward_s + backward_s) * passes + pipeline_s
    bubble_s = (pp - 1.0) * busy_s / micro_batches
    on_stage_gb = weights_gb * per_stage
    optimizer_gb = OPTIMIZER_COPIES * on_stage_gb / replicas
    kept_gb = layer.kept_gb[layout] * per_stage * np.minimum(pp, micro_batches)
    return Estimates(
        training=training,
        configurations=configurations,
        layer=layer,
        seconds=busy_s + bubble_s + data_parallel_s,
        memory_gb=2.0 * on_stage_gb + optimizer_gb + kept_gb,
        passes=passes,
        data_parallel_s=data_parallel_s,
        pipeline_s=pipeline_s,
        bubble_s=bubble_s,
        weights_gb=on_stage_gb,
        optimizer_gb=optimizer_gb,
        kept_gb=kept_gb,
    )


def _stage_message_s(
    training: Training,
    configurations: Configurations,
    volume_gb: FloatArray,
    corrections: Corrections,
) -> FloatArray:
    pp, in_domain = floats(configurations.pp), floats(configurations.nv_pp)
    links = np.maximum(pp - 1.0, 1.0)
    between = pp / in_domain - 1.0
    within_s, between_s = (neighbour_s(training.system, volume_gb, fast) for fast in (True, False))
    if Correction.PIPELINE_LINKS not in corrections:
        between_s = np.where(in_domain > 1.0, 0.0, between_s)
    return ((pp - 1.0 - between) * within_s + between * between_s) / links
