"""Traces of devices beside predictions: seconds of an iteration by stage, part and product."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from Estimator.plans.iteration import breakdown_of
from Estimator.plans.layer_costs import moded_layers, run_again
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.results import Breakdown, Iteration
from GraphExtractor.graph import Operator, OperatorKind
from phaze.settings.problem import hardware_of
from phaze.settings.request import Request
from phaze.studies.evaluation import evaluation_of, prepared
from phaze.studies.traced_stages import TracedStage, traced_stages
from phaze.validation.traced_kernels import (
    BACKWARD,
    COMMUNICATION,
    ELEMENTWISE,
    FORWARD,
    HOST,
    MESSAGES,
    OPTIMIZER,
    PRODUCTS,
    KernelTime,
    ProductShape,
    TracedIteration,
)
from phaze_common.errors import InputError
from Solver.hardware import ExistingDevice

ATTENTION, NORMS, COPIES = "attention", "norms and softmax", "copies"
EXPOSED, ITERATION = "of it exposed", "iteration"
IDLE, WAITING = "no kernel runs", "messages, or no kernel runs"
_PART_OF = {
    OperatorKind.GEMM: PRODUCTS,
    OperatorKind.CONV: PRODUCTS,
    OperatorKind.ATTENTION: ATTENTION,
    OperatorKind.REDUCTION: NORMS,
}
# the parts of a trace of kernels, and of one of whole passes
_KERNELS = (PRODUCTS, ATTENTION, NORMS, ELEMENTWISE, OPTIMIZER, COPIES)
_PASSES = (FORWARD, BACKWARD, OPTIMIZER)
_CALIBRATED = {  # what to measure where a part is off
    PRODUCTS: "calibrate --table of matrix products, or --runs",
    ATTENTION: "the software's attention kernel",
    NORMS: "calibrate --table of softmax and layer norm",
    ELEMENTWISE: "the software's fused_tails and eager kernels",
    OPTIMIZER: "memory bandwidth of the device",
    COMMUNICATION: "calibrate --cluster, of measured collectives",
    EXPOSED: "the software's overlap settings",
    IDLE: "host_issue of the software, or data loading and other ranks",
    WAITING: "the slowest stage, from a trace of each; calibrate --cluster",
    FORWARD: "calibrate --runs, or from a trace of kernels",
    BACKWARD: "calibrate --runs, or from a trace of kernels",
}
APART = 0.1  # of the measured iteration: a part that is further off is to be calibrated


@dataclass(frozen=True)
class ComparedPart:
    """Seconds of a part of an iteration, and what to calibrate (``remedy``) if far apart."""

    name: str
    measured_s: float
    predicted_s: float
    remedy: str = ""


@dataclass(frozen=True)
class ComparedProduct:
    """Matrix products of one shape in an iteration; 0 where there are none."""

    shape: ProductShape
    measured_count: float
    measured_s: float
    predicted_count: int
    predicted_s: float


@dataclass(frozen=True)
class ComparedStage:
    """A stage, counted from 1, with the mean of ``traces`` over at least ``steps`` iterations.

    ``products`` are by shape, those that take most first; empty where no trace has the shapes of
    operands.
    """

    stage: int
    traces: tuple[str, ...]
    steps: int
    parts: tuple[ComparedPart, ...]
    products: tuple[ComparedProduct, ...]
    longest: tuple[KernelTime, ...]


@dataclass(frozen=True)
class TraceComparison:
    """The traced stages of ``pp``, of which ``busiest`` is predicted to take longest; from 1."""

    pp: int
    busiest: int
    stages: tuple[ComparedStage, ...]


def compare_traces(
    paths: Sequence[Path], request: Request, steps: int | None = None
) -> TraceComparison:
    """Traces of ranks at ``paths`` beside the plan of ``request`` on a device that exists.

    Raises: InputError: no trace of a device is there, its rank is not known, the plan's stages
        differ, or it is for a designed chip.
    """
    hardware = hardware_of(request)
    if not isinstance(hardware, ExistingDevice) or request.stages is not None:
        raise InputError(
            "a trace is compared with a plan of stages alike on a device that exists; name one "
            "with --device"
        )
    made = prepared(request)
    priced = PricedPlan(made.degrees, made.costs, made.machine)
    busiest = priced.busiest_stage
    traced = traced_stages(paths, made.degrees, busiest, steps)
    predicted = _Predicted(hardware, priced, evaluation_of(request, made).iteration)
    return TraceComparison(
        made.degrees.pp, busiest + 1, tuple(predicted.beside(each) for each in traced)
    )


@dataclass(frozen=True, eq=False)
class _Predicted:
    """What was predicted of the stages of a plan."""

    hardware: ExistingDevice
    priced: PricedPlan
    iteration: Iteration

    def beside(self, traced: TracedStage) -> ComparedStage:
        found, measured = traced.iteration, self._measured(traced.iteration)
        predict = self._of_passes if FORWARD in measured else self._of_kernels
        predicted = predict(traced.stage)
        parts = (
            _compared(name, seconds, predicted[name], found.iteration_s)
            for name, seconds in measured.items()
        )
        products = self._products(traced.stage, found) if found.products else ()
        of_traces = traced.traces, found.steps, tuple(parts), products, found.longest
        return ComparedStage(traced.stage + 1, *of_traces)

    @property
    def _rest(self) -> str:
        """What nothing fills; kernels that receive from a stage wait for it, too."""
        return IDLE if self.priced.plan.pp == 1 else WAITING

    def _measured(self, traced: TracedIteration) -> dict[str, float]:
        kernels = _PASSES if {FORWARD, BACKWARD} & traced.parts_s.keys() else _KERNELS
        parts = {name: traced.parts_s.get(name, 0.0) for name in (*kernels, COMMUNICATION)}
        parts |= {
            EXPOSED: traced.exposed_s,
            self._rest: traced.idle_s,
            ITERATION: traced.iteration_s,
        }
        parts[self._rest] += traced.parts_s.get(HOST, 0.0)
        if self.priced.plan.pp == 1:  # then they are of all-to-alls and rings
            parts[COMMUNICATION] += traced.parts_s.get(MESSAGES, 0.0)
            parts[EXPOSED] += traced.messages_s
        else:
            parts[self._rest] += traced.messages_s
        return parts

    def _of_kernels(self, stage: int) -> dict[str, float]:
        """A product counts with the kernels behind it."""
        parts = dict.fromkeys(_KERNELS, 0.0)
        for operator, seconds in self._operators(stage):
            parts[_PART_OF.get(operator.kind, ELEMENTWISE)] += seconds
        breakdown = breakdown_of(self.priced, stage)
        exposed_s, hidden_s = _communication(breakdown)
        waiting_s = breakdown.bubble_s + breakdown.pipeline_communication_s
        return parts | {
            OPTIMIZER: breakdown.optimizer_s,
            COMMUNICATION: exposed_s + hidden_s,
            EXPOSED: exposed_s,
            self._rest: waiting_s + breakdown.launch_s + breakdown.host_communication_s,
            ITERATION: self.iteration.iteration_s,
        }

    def _of_passes(self, stage: int) -> dict[str, float]:
        """Whole passes have their launches and what waits for the host in them."""
        report, many = self.iteration.stages[stage], self.priced.plan.micro_batches
        passes_s = report.forward_communication_s + report.backward_communication_s
        exposed_s = many * passes_s + report.after_s
        parts = {
            FORWARD: many * (report.forward_s - report.forward_communication_s),
            BACKWARD: many * (report.backward_s - report.backward_communication_s),
            OPTIMIZER: self.priced.step_s - self.priced.rates.between_s,
        }
        return parts | {
            COMMUNICATION: exposed_s + _communication(breakdown_of(self.priced, stage))[1],
            EXPOSED: exposed_s,
            self._rest: self.iteration.iteration_s - sum(parts.values()) - exposed_s,
            ITERATION: self.iteration.iteration_s,
        }

    def _products(self, stage: int, traced: TracedIteration) -> tuple[ComparedProduct, ...]:
        counts = defaultdict[ProductShape, int](int)
        seconds = defaultdict[ProductShape, float](float)
        for operator, operator_s in self._operators(stage):
            if operator.kind is OperatorKind.GEMM and len(operator.gemms) == 1:
                gemm = operator.gemms[0]
                shape = ProductShape.of(gemm.batch, gemm.m, gemm.n, gemm.k)
                counts[shape] += self.priced.plan.micro_batches
                seconds[shape] += operator_s
        measured = {each.shape: (each.count, each.seconds) for each in traced.products}
        found = (
            ComparedProduct(
                shape, *measured.get(shape, (0.0, 0.0)), counts.get(shape, 0), seconds[shape]
            )
            for shape in {**measured, **counts}
        )
        return tuple(sorted(found, key=lambda each: -max(each.measured_s, each.predicted_s)))

    def _operators(self, stage: int) -> Iterator[tuple[Operator, float]]:
        """The operators of a device of ``stage``, each with its seconds in an iteration."""
        plan, graph = self.priced.plan, self.priced.costs.graph
        distinct, sequence = moded_layers(graph, plan.recompute)
        for place in self.priced.layers_of(stage):
            moded = distinct[sequence[place]]
            layer = graph.layers[moded.index]
            repeated, backward = run_again(layer, moded.mode), layer.backward.operators
            for operator in (*layer.forward.operators, *repeated, *backward):
                if operator.kind is not OperatorKind.COLLECTIVE:
                    kernels_s = self.hardware.kernel_seconds(
                        operator, plan.panels, self.priced.rates.straggler_excess
                    )
                    yield operator, plan.micro_batches * kernels_s


def _compared(name: str, measured_s: float, predicted_s: float, iteration_s: float) -> ComparedPart:
    apart = abs(measured_s - predicted_s) > APART * iteration_s
    return ComparedPart(name, measured_s, predicted_s, _CALIBRATED.get(name, "") if apart else "")


def _communication(breakdown: Breakdown) -> tuple[float, float]:
    """What of collectives shows, and what passes beside computation."""
    exposed = ("tensor", "sequence", "context", "expert", "data")
    hidden = ("hidden_tensor", "hidden_data")
    return tuple(
        sum(getattr(breakdown, f"{each}_communication_s") for each in names)
        for names in (exposed, hidden)
    )
