"""Chunks of a model on pipeline stages: seconds of their passes by cause, and what runs beside computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from Solver.training.layer_costs import NOTHING, LayerCost, PassCost
from Solver.training.synchronisation import StageSynchronisation, exposed_s


@dataclass(frozen=True)
class Pass:
    """One pass of a chunk by cause: seconds of arithmetic, memory, host, and exposed and hidden communication."""

    arithmetic_s: float
    memory_s: float
    launch_s: float
    tensor_s: float
    context_s: float
    data_s: float
    hidden_tensor_s: float
    hidden_data_s: float

    @property
    def total_s(self) -> float:
        """What the pass takes."""
        return self.arithmetic_s + self.memory_s + self.launch_s + self.tensor_s + self.context_s + self.data_s


@dataclass(frozen=True)
class Chunk:
    """Consecutive layers of the model on one stage."""

    layers: int
    forward: Pass
    recompute: Pass
    backward: Pass
    saved_bytes: float

    @property
    def whole_backward_s(self) -> float:
        """The backward pass with what is recomputed for it."""
        return self.recompute.total_s + self.backward.total_s


@dataclass(frozen=True)
class Overlap:
    """What runs beside computation, and the part of the micro-batches whose gradients are ``accumulated`` onto earlier ones."""

    tensor: bool
    data: bool
    pipeline: bool
    tp: int
    accumulated: float


@dataclass(frozen=True)
class OncePerIteration:
    """A stage's data-parallel communication that follows the last micro-batch."""

    exposed_s: float
    hidden_s: float


def chunk_cost(costs: Sequence[LayerCost], sync: StageSynchronisation, stage_layers: int, overlap: Overlap) -> Chunk:
    """A chunk of the layers ``costs`` on a stage that holds ``stage_layers`` layers in all and communicates as ``sync`` says."""
    share = len(costs) / stage_layers
    gather_s = sync.gather_s * share
    backward = [cost.backward + cost.accumulation.times(overlap.accumulated) for cost in costs]
    return Chunk(
        layers=len(costs),
        forward=timed_pass([cost.forward for cost in costs], gather_s, overlap),
        recompute=timed_pass([cost.recompute for cost in costs], 0.0, overlap),
        backward=timed_pass(backward, gather_s + sync.reduce_s * share, overlap),
        saved_bytes=float(sum(cost.saved_bytes for cost in costs)),
    )


def timed_pass(passes: Sequence[PassCost], data_s: float, overlap: Overlap) -> Pass:
    """A pass through several layers: the host runs ahead of the device, so the slower of the two decides over all of them."""
    total = sum(passes, NOTHING)
    hidden_tensor_s = min(total.tensor_s, total.products_s) * (1 - 1 / overlap.tp) if overlap.tensor else 0.0
    tensor_s = total.tensor_s - hidden_tensor_s
    device_s = total.kernels.device_s + tensor_s + total.context_s
    busy_s = max(device_s, total.kernels.host_s)
    exposed_data_s = exposed_s(data_s, busy_s, len(passes)) if overlap.data and data_s else data_s
    return Pass(
        arithmetic_s=total.kernels.arithmetic_s,
        memory_s=total.kernels.memory_s,
        launch_s=busy_s - device_s,
        tensor_s=tensor_s,
        context_s=total.context_s,
        data_s=exposed_data_s,
        hidden_tensor_s=hidden_tensor_s,
        hidden_data_s=data_s - exposed_data_s,
    )


def once_per_iteration(sync: StageSynchronisation, chunks: Sequence[Chunk], overlap: Overlap) -> OncePerIteration:
    """Gradients are reduced beside the last backward pass, updated weights gathered beside the first forward pass."""
    if not overlap.data:
        return OncePerIteration(sync.last_reduce_s + sync.update_s, 0.0)
    layers = sum(chunk.layers for chunk in chunks)
    backward_s = sum(chunk.whole_backward_s for chunk in chunks)
    forward_s = sum(chunk.forward.total_s for chunk in chunks)
    shown_s = exposed_s(sync.last_reduce_s, backward_s, layers) + exposed_s(sync.update_s, forward_s, layers)
    return OncePerIteration(shown_s, sync.last_reduce_s + sync.update_s - shown_s)
