"""One process of a stage: its layers, and the order of its passes.

One schedule of our own runs all plans, uniform ones too: torch.distributed.pipelining has no edge
between stages of different dp or tp, and two paths would have to be proven equal. The order of
passes is that of ``Estimator.plans.pipeline.schedule``: with 1F1B a stage runs one forward pass for
each stage behind it, then one forward and one backward pass in turn; with GPipe it runs all forward
passes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks

from GraphExtractor.forward_trace import real_model, trace_forward
from GraphExtractor.models.base import ModelFamily
from phaze.runtime.training.clock import Activity, Clock
from phaze.runtime.training.divided_weights import division_of
from phaze.runtime.training.exchange import Exchange
from phaze.runtime.training.groups import Groups
from phaze.runtime.training.job import Job
from phaze.runtime.training.optimizer import StageOptimizer
from phaze.runtime.training.places import Seat
from phaze.runtime.training.stage_program import (
    Crossing,
    Cutter,
    StageProgram,
    run_layer,
    stages_of_layers,
)
from phaze.runtime.training.weights import Weight, flat_weights
from phaze_common.choices import PipelineSchedule


@dataclass(frozen=True)
class Pass:
    """A forward or backward pass of a micro-batch."""

    forward: bool
    micro_batch: int


def passes(
    schedule: PipelineSchedule, stage: int, stages: int, micro_batches: int
) -> Iterator[Pass]:
    """The passes of a stage in order."""
    if schedule is PipelineSchedule.GPIPE and stages > 1:
        warm_up = micro_batches
    else:
        warm_up = min(stages - stage - 1, micro_batches)
    yield from (Pass(True, number) for number in range(warm_up))
    for number in range(warm_up, micro_batches):
        yield Pass(True, number)
        yield Pass(False, number - warm_up)
    yield from (Pass(False, number) for number in range(micro_batches - warm_up, micro_batches))


@dataclass(frozen=True)
class CutStage:
    """A stage's program, and the model's weights that it holds."""

    program: StageProgram
    weights: tuple[Weight, ...]


@dataclass(frozen=True)
class _Flight:
    """A micro-batch between its forward and its backward pass: what was received, what gets
    gradients, and bytes kept."""

    received: Mapping[str, torch.Tensor]
    sent: tuple[tuple[Crossing, torch.Tensor], ...]
    loss: torch.Tensor | None
    kept_bytes: int


def cut_stage(
    job: Job, family: ModelFamily, stage: int, real: Mapping[str, Callable[..., Any]]
) -> CutStage:
    """Trace the model for the processes of one stage and cut this stage out of it."""
    key, held = job.key(stage), job.plan.stages[stage]
    model = real_model(family, key)
    whole = {name: parameter.shape for name, parameter in model.named_parameters()}
    trace = trace_forward(model, family, key)
    cutter = Cutter(trace, stages_of_layers(job.plan, trace.layers), held.degrees.micro_batch_size)
    program = cutter.program(
        stage, held.degrees.recompute, real, held.layers[: held.recomputed_layers]
    )
    parts = {name: parameter.shape for name, parameter in model.named_parameters()}
    weights = tuple(
        Weight(name, whole[name], parts[name], division_of(family, name, whole[name], parts[name]))
        for name in program.parameters
    )
    return CutStage(program, weights)


def operators_to_run(group: Sequence[Any], clock: Clock) -> dict[str, Callable[..., Any]]:
    """What runs in the place of the trace's operators that have shapes only.

    ``group`` holds the processes that share products as soon as they are known.
    """

    def enter(x: torch.Tensor, tp: int) -> Any:
        return _Enter.apply(group[0], clock, x)

    def leave(x: torch.Tensor, tp: int) -> Any:
        return _Leave.apply(group[0], clock, x)

    return {"phaze.enter_group.default": enter, "phaze.leave_group.default": leave}


class _Enter(torch.autograd.Function):  # type: ignore[misc]
    """Megatron's f: nothing forward, gradients added backward."""

    @staticmethod
    def forward(ctx: Any, group: Any, clock: Clock, x: torch.Tensor) -> torch.Tensor:
        ctx.group, ctx.clock = group, clock
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, _added(gradient, ctx.group, ctx.clock)


class _Leave(torch.autograd.Function):  # type: ignore[misc]
    """Megatron's g: parts added forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, group: Any, clock: Clock, x: torch.Tensor) -> torch.Tensor:
        return _added(x, group, clock)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, gradient


def _added(x: torch.Tensor, group: Any, clock: Clock) -> torch.Tensor:
    with clock.span(Activity.SHARE):
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
    return total


class StageWorker:
    """Runs the steps of one process."""

    def __init__(self, job: Job, seat: Seat, cut: CutStage, groups: Groups, clock: Clock) -> None:
        self.job, self.seat, self.program, self.clock = job, seat, cut.program, clock
        stage = job.plan.stages[seat.place.stage]
        weights = flat_weights(
            cut.weights,
            job.seed,
            getattr(torch, job.dtype),
            seat.place.tp,
            seat.part,
            seat.place.dp,
        )
        self.parameters = weights.parameters
        tied = {
            name: stages for name, stages in cut.program.tied.items() if seat.place.stage in stages
        }
        self.optimizer = StageOptimizer(
            seat, weights, stage.degrees.zero_stage, groups, tied, job.optimization, clock
        )
        self.exchange = Exchange(seat, job.places, cut.program.crossings, job.micro_batches, clock)
        self.kept_bytes = self.peak_kept_bytes = 0
        # what passes keep, in the first step: it is the same in all, and counting takes time of its
        # own
        self._counts = True
        self._flights: dict[int, _Flight] = {}

    def step(self, batch: Mapping[str, torch.Tensor]) -> tuple[float, float]:
        """Train on all rows of a step; returns its loss and the norm of its gradients."""
        loss = 0.0
        for each in passes(
            self.job.plan.schedule,
            self.seat.place.stage,
            len(self.job.plan.stages),
            self.job.micro_batches,
        ):
            if each.forward:
                loss += self._forward(each.micro_batch, batch)
            else:
                self._backward(each.micro_batch)
        self.exchange.finish_sending()
        self._counts = False
        return self.optimizer.step(loss)

    def _forward(self, micro_batch: int, batch: Mapping[str, torch.Tensor]) -> float:
        received = {
            each.name: self.exchange.receive(each, micro_batch) for each in self.program.receives
        }
        for each in self.program.receives:
            received[each.name].requires_grad_(each.has_gradient)
        self.optimizer.gather_weights()
        with (
            self.clock.span(Activity.FORWARD, micro_batch),
            _Kept(self.optimizer.weights.values, self._counts) as kept,
        ):
            values: dict[str, Any] = {
                node: self.parameters[name] for name, node in self.program.parameters.items()
            }
            first = micro_batch * self.job.micro_batch_rows + self.seat.rows.start
            for name, node in self.program.inputs.items():
                values[node] = batch[name][first : first + len(self.seat.rows)]
            values |= {**self.program.constants, **received}
            for layer in self.program.layers:
                run_layer(layer, values)
        self.optimizer.drop_weights()
        sent = tuple((each, values[each.name]) for each in self.program.sends)
        for each, value in sent:
            self.exchange.send(each, micro_batch, value)
        loss = None
        if self.program.loss is not None:
            loss = values[self.program.loss] * (
                len(self.seat.rows) / self.job.plan.global_batch_size
            )
        self._flights[micro_batch] = _Flight(
            received, tuple(each for each in sent if each[0].has_gradient), loss, kept.bytes
        )
        self.kept_bytes += kept.bytes
        self.peak_kept_bytes = max(self.peak_kept_bytes, self.kept_bytes)
        return 0.0 if loss is None or self.seat.part else loss.item()

    def _backward(self, micro_batch: int) -> None:
        flight = self._flights.pop(micro_batch)
        ends: list[torch.Tensor] = [value for _, value in flight.sent]
        gradients: list[torch.Tensor | None] = [
            self.exchange.receive_gradient(each, micro_batch) for each, _ in flight.sent
        ]
        if flight.loss is not None:
            ends.append(flight.loss)
            gradients.append(None)
        self.optimizer.gather_weights()
        with self.clock.span(Activity.BACKWARD, micro_batch):
            torch.autograd.backward(ends, gradients)
        self.optimizer.drop_weights()
        for each in self.program.receives:
            if each.has_gradient:
                value = flight.received[each.name]
                self.exchange.send_gradient(
                    each, micro_batch, torch.zeros_like(value) if value.grad is None else value.grad
                )
        self.optimizer.after_backward()
        self.kept_bytes -= flight.kept_bytes


class _Kept:
    """Counts the bytes that a forward pass keeps for its backward pass, each storage once and
    weights not; or does nothing."""

    def __init__(self, weights: torch.Tensor, counts: bool) -> None:
        self._seen = {weights.untyped_storage()._cdata}
        self._held: list[Any] = []
        self.bytes, self._counts = 0, counts
        self._hooks: Any = (
            saved_tensors_hooks(self._pack, lambda value: value) if counts else nullcontext()
        )

    def _pack(self, value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._held.append(storage)  # so that no other takes its place while this is counted
            self.bytes += storage.nbytes()
        return value

    def __enter__(self) -> _Kept:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)
        self._held.clear()
