"""A profiler's trace of a device beside what was predicted of it: the seconds of an iteration by what kernels do."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from Common.errors import InputError
from GraphExtractor.graph import OperatorKind
from Plans.iteration import busiest_stage
from Plans.layer_costs import moded_layers, run_again
from Plans.pricing import PricedPlan, layers_of
from Plans.results import Breakdown
from Solver.hardware import ExistingDevice
from Studies.evaluation import Evaluation, PreparedPlan, evaluation_of, prepared
from Studies.problem import hardware_of
from Studies.request import Request
from Validation.kernel_trace import COMMUNICATION, ELEMENTWISE, KernelTime, TracedIteration, read_trace

PRODUCTS, ATTENTION, NORMS, OPTIMIZER, COPIES = "products", "attention", "norms and softmax", "optimizer", "copies"
PARTS = (PRODUCTS, ATTENTION, NORMS, ELEMENTWISE, OPTIMIZER, COPIES, COMMUNICATION)
EXPOSED, IDLE, ITERATION = "of it exposed", "no kernel runs", "iteration"
_PART_OF = {
    OperatorKind.GEMM: PRODUCTS,
    OperatorKind.CONV: PRODUCTS,
    OperatorKind.ATTENTION: ATTENTION,
    OperatorKind.REDUCTION: NORMS,
}
_CALIBRATED = {  # what to measure where a part is off
    PRODUCTS: "calibrate --table of matrix products, or --runs",
    ATTENTION: "the software's attention kernel",
    NORMS: "calibrate --table of softmax and layer norm",
    ELEMENTWISE: "the software's fused_tails and eager kernels",
    OPTIMIZER: "memory bandwidth of the device",
    COMMUNICATION: "calibrate --cluster, of measured collectives",
    EXPOSED: "the software's overlap settings",
    IDLE: "host_issue of the software, or data loading and other ranks",
}
APART = 0.1  # of the measured iteration by which a part is off before something is to be done about it


@dataclass(frozen=True)
class ComparedPart:
    """Seconds of one part in an iteration; ``remedy`` is what to calibrate where they are far apart, else empty."""

    name: str
    measured_s: float
    predicted_s: float
    remedy: str = ""


@dataclass(frozen=True)
class TraceComparison:
    """A traced device beside the prediction for one of ``stage``, the busiest of the plan's ``stages``."""

    trace: str
    steps: int
    stage: int
    stages: int
    parts: tuple[ComparedPart, ...]
    longest: tuple[KernelTime, ...]


def compare_trace(path: Path, request: Request, steps: int | None = None) -> TraceComparison:
    """The trace at ``path`` beside the plan of ``request`` on a device that exists.

    Raises:
        InputError: no trace of a device is there, the plan's stages differ, or it is one for a designed chip.
    """
    hardware = hardware_of(request)
    if not isinstance(hardware, ExistingDevice) or request.stages is not None:
        raise InputError("a trace is compared with a plan of stages alike on a device that exists; name one with --device")
    traced, made = read_trace(path, steps), prepared(request)
    found = evaluation_of(request, made)
    stage, predicted = _predicted(hardware, made, found)
    parts = tuple(_compared(name, measured, predicted[name], traced) for name, measured in _measured(traced).items())
    return TraceComparison(path.name, traced.steps, stage + 1, made.degrees.pp, parts, traced.longest)


def _measured(traced: TracedIteration) -> dict[str, float]:
    parts = {name: traced.parts_s.get(name, 0.0) for name in PARTS}
    return parts | {EXPOSED: traced.exposed_s, IDLE: traced.idle_s, ITERATION: traced.iteration_s}


def _compared(name: str, measured_s: float, predicted_s: float, traced: TracedIteration) -> ComparedPart:
    apart = abs(measured_s - predicted_s) > APART * traced.iteration_s
    return ComparedPart(name, measured_s, predicted_s, _CALIBRATED.get(name, "") if apart else "")


def _predicted(hardware: ExistingDevice, made: PreparedPlan, found: Evaluation) -> tuple[int, dict[str, float]]:
    """The busiest stage, and the seconds of one of its devices by part; a product counts with the kernels behind it."""
    priced = PricedPlan(made.degrees, made.costs, made.machine)
    stage, often, breakdown = busiest_stage(priced), made.degrees.micro_batches, found.iteration.breakdown
    graph, parts = made.costs.graph, defaultdict[str, float](float)
    distinct, sequence = moded_layers(graph, made.degrees.recompute)
    for place in layers_of(priced, stage):
        moded = distinct[sequence[place]]
        layer = graph.layers[moded.index]
        for operator in (*layer.forward.operators, *run_again(layer, moded.mode), *layer.backward.operators):
            if operator.kind is not OperatorKind.COLLECTIVE:
                part = _PART_OF.get(operator.kind, ELEMENTWISE)
                parts[part] += often * hardware.operator_seconds(operator, made.degrees.panels)
    exposed_s, hidden_s = _communication(breakdown)
    return stage, {
        **{name: parts[name] for name in PARTS},
        OPTIMIZER: breakdown.optimizer_s,
        COMMUNICATION: exposed_s + hidden_s,
        EXPOSED: exposed_s,
        IDLE: breakdown.bubble_s + breakdown.launch_s + breakdown.host_communication_s,
        ITERATION: found.iteration.iteration_s,
    }


def _communication(breakdown: Breakdown) -> tuple[float, float]:
    """What of it shows, and what passes beside computation."""
    exposed = ("tensor", "sequence", "context", "expert", "pipeline", "data")
    hidden = ("hidden_tensor", "hidden_data")
    return tuple(sum(getattr(breakdown, f"{each}_communication_s") for each in names) for names in (exposed, hidden))
