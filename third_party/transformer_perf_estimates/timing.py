"""Seconds of a layer: each operator a roofline of arithmetic and memory, with its messages behind
it or panel by panel beside it.

    arithmetic    20 us + operations / (0.8 peak), of tensor cores or vector units
    memory        bytes / bandwidth
    operator      max(arithmetic, memory) + messages
    in panels     s = time of the messages of one panel; max(arithmetic, memory) + s
                  + max(panels s - max(arithmetic, memory), 0)

The constants are the published ones.
"""

from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import FloatArray, fieldwise

from .blocks import PIPELINE_INPUT, layer
from .collectives import Ring, ring
from .configurations import LayerLayouts, Training, floats
from .corrections import Corrections
from .operators import Axis, Collective, Message, Operator, Pass, Shards

START_UP_S, PEAK_REACHED = 20e-6, 0.8


@dataclass(frozen=True, eq=False)
class PassTimes:
    """One direction; arrays (layouts,)."""

    seconds: FloatArray
    arithmetic_s: FloatArray
    exposed_memory_s: FloatArray
    messages_s: FloatArray  # that arithmetic and memory do not hide


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """An operator with what it takes; arrays (layouts,)."""

    name: str
    forward: PassTimes
    backward: PassTimes
    forward_tflop: FloatArray
    backward_tflop: FloatArray
    weights_gb: FloatArray
    kept_gb: FloatArray


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """A layer and one micro-batch, under every layout; arrays (layouts,)."""

    operators: tuple[OperatorTimes, ...]
    forward: PassTimes
    backward: PassTimes
    tflop: FloatArray
    weights_gb: FloatArray
    kept_gb: FloatArray
    stage_input_gb: FloatArray


def layer_times(training: Training, layouts: LayerLayouts, corrections: Corrections) -> LayerTimes:
    """Times and sizes of a layer under all ``layouts``."""
    system, tp1, tp2 = training.system, floats(layouts.tp1), floats(layouts.tp2)
    panels = floats(layouts.panels)
    shards = Shards(training.model, floats(layouts.micro_batch), tp1, tp2, panels, corrections)
    rings = {
        Axis.TP1: ring(system, tp1, floats(layouts.nv_tp1), corrections),
        Axis.TP2: ring(system, tp2, floats(layouts.nv_tp2), corrections),
    }
    operators = tuple(
        _operator_times(training, each, panels, rings)
        for each in layer(
            training.strategy, shards, system.matrix_tflop_per_s / system.vector_tflop_per_s
        )
    )
    return LayerTimes(
        operators=operators,
        forward=fieldwise(_added, *(each.forward for each in operators)),
        backward=fieldwise(_added, *(each.backward for each in operators)),
        tflop=_added(*(each.forward_tflop + each.backward_tflop for each in operators)),
        weights_gb=_added(*(each.weights_gb for each in operators)),
        kept_gb=_added(*(each.kept_gb for each in operators)),
        stage_input_gb=next(each.kept_gb for each in operators if each.name == PIPELINE_INPUT),
    )


def _operator_times(
    training: Training, operator: Operator, panels: FloatArray, rings: dict[Axis, Ring]
) -> OperatorTimes:
    system, none = training.system, np.zeros_like(panels)

    def times(one: Pass) -> PassTimes:
        peak = system.matrix_tflop_per_s if operator.on_tensor_cores else system.vector_tflop_per_s
        arithmetic = START_UP_S + one.operations * (system.tflop / (PEAK_REACHED * peak))
        memory = (
            one.traffic * system.element_gb + one.masks * system.mask_gb
        ) / system.hbm_gb_per_s
        busy = np.maximum(arithmetic, memory)
        if operator.in_panels:
            share_gb = system.element_gb / panels
            panel = _added(*(_message_s(each, share_gb, rings) for each in one.messages))
            messages = panel + np.maximum(panel * panels - busy, 0.0)
        else:
            sent = (_message_s(each, system.element_gb, rings) for each in one.messages)
            messages = _added(none, *sent)
        exposed = np.maximum(memory - arithmetic, 0.0)
        return PassTimes(busy + messages, arithmetic, exposed, messages)

    return OperatorTimes(
        name=operator.name,
        forward=times(operator.forward),
        backward=times(operator.backward),
        forward_tflop=operator.forward.operations * system.tflop,
        backward_tflop=operator.backward.operations * system.tflop,
        weights_gb=none + operator.weights * system.element_gb,
        kept_gb=none + operator.kept * system.element_gb + operator.kept_masks * system.mask_gb,
    )


def _message_s(
    message: Message, element_gb: FloatArray | float, rings: dict[Axis, Ring]
) -> FloatArray:
    group, volume_gb = rings[message.axis], message.elements * element_gb
    match message.collective:
        case Collective.GATHER:
            return group.gather_s(volume_gb)
        case Collective.BROADCAST:
            return group.broadcast_s(volume_gb)
        case Collective.ALL_REDUCE:
            return group.all_reduce_s(volume_gb)


def _added(*arrays: FloatArray) -> FloatArray:
    total: FloatArray = np.sum(arrays, axis=0)
    return total
