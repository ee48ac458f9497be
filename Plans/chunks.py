"""Chunks of a model on pipeline stages: seconds of their passes by cause, and what runs beside computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from Plans.layer_costs import NOTHING, LayerCost, PassCost
from Plans.synchronisation import StageSynchronisation, exposed_s


@dataclass(frozen=True)
class Pass:
    """One pass of a chunk by cause: seconds of arithmetic, memory, host, and exposed and hidden communication."""

    arithmetic_s: float
    memory_s: float
    launch_s: float
    tensor_s: float
    context_s: float
    expert_s: float
    data_s: float
    hidden_tensor_s: float
    hidden_data_s: float

    @property
    def device_s(self) -> float:
        """All but communication."""
        return self.arithmetic_s + self.memory_s + self.launch_s

    @property
    def total_s(self) -> float:
        """What the pass takes."""
        return self.device_s + self.tensor_s + self.context_s + self.expert_s + self.data_s


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
    backward = through(costs, lambda cost: cost.backward + cost.accumulation.times(overlap.accumulated))
    return Chunk(
        layers=len(costs),
        forward=timed_pass(through(costs, lambda cost: cost.forward), len(costs), gather_s, overlap),
        recompute=timed_pass(through(costs, lambda cost: cost.recompute), len(costs), 0.0, overlap),
        backward=timed_pass(backward, len(costs), gather_s + sync.reduce_s * share, overlap),
        saved_bytes=float(sum(cost.saved_bytes for cost in costs)),
    )


def through(costs: Sequence[LayerCost], part: Callable[[LayerCost], PassCost]) -> PassCost:
    """One pass through ``costs``, of which it takes ``part``; layers that repeat are counted, not added one by one."""
    total, first = NOTHING, 0
    while first < len(costs):
        last = first
        while last < len(costs) and costs[last] is costs[first]:
            last += 1
        total += part(costs[first]).times(last - first)
        first = last
    return total


def timed_pass(total: PassCost, layers: int, data_s: float, overlap: Overlap) -> Pass:
    """A pass through ``layers`` layers: the host runs ahead of the device, so the slower of the two decides over all of them."""
    hidden_tensor_s = min(total.tensor_s, total.products_s) * (1 - 1 / overlap.tp) if overlap.tensor else 0.0
    tensor_s = total.tensor_s - hidden_tensor_s
    device_s = total.kernels.device_s + tensor_s + total.context_s + total.expert_s
    busy_s = max(device_s, total.kernels.host_s)
    exposed_data_s = exposed_s(data_s, busy_s, layers) if overlap.data and data_s else data_s
    return Pass(
        arithmetic_s=total.kernels.arithmetic_s,
        memory_s=total.kernels.memory_s,
        launch_s=total.kernels.launch_s + (busy_s - device_s),
        tensor_s=tensor_s,
        context_s=total.context_s,
        expert_s=total.expert_s,
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
