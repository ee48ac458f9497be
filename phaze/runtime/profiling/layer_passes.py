"""Passes through each layer of a model as a training on processes of this machine runs them
(``phaze.runtime.training``).

Beside the seconds of their operators alone they say what running them one after another adds:
operands that are in no cache, the graph of gradients, adding gradients up. Each layer is timed by
itself, on what the layers before it made: as it is, behind waits, as in a pipeline for other
stages, which a pass pays for with its first operators, and with layers run again in the backward
pass.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from Estimator.profiled.machine import Clock
from Estimator.profiled.rows import Timing
from GraphExtractor.extract import reduced
from GraphExtractor.forward_trace import plain_operators, real_model, trace_forward
from GraphExtractor.graph import GraphKey, Phase, Recompute
from GraphExtractor.models.base import ModelFamily
from phaze.runtime.profiling.kernels import real_inputs
from phaze.runtime.profiling.timing import Repeats, now, timing_of
from phaze.runtime.training.stage_program import Cutter, LayerModule, StageProgram, run_layer
from phaze.runtime.training.weights import Weight, flat_weights

WAIT_S = 0.003  # long enough for a core to be given to something else, or to sleep


@dataclass(frozen=True)
class LayerPass:
    """A pass through a layer; ``start_s`` is what it took longer where the pass through all layers
    began behind a wait.

    ``again_s``, of the backward pass of a layer that plans may recompute, is what doing so took
    beyond a second forward pass.
    """

    timing: Timing
    start_s: float = 0.0
    again_s: float | None = None


def measured_layer_passes(
    key: GraphKey, family: ModelFamily, clock: Clock, repeats: Repeats
) -> Mapping[tuple[Phase, str], LayerPass]:
    """Both passes of a micro-batch through each of the layers that are traced for ``key``, of width
    1."""
    passes = _Passes(key, family, clock)
    alone, behind_waits, recomputing = _Rounds(), _Rounds(), _Rounds()
    started = time.monotonic()
    with plain_operators():
        for index in range(repeats.warm_up + repeats.most):
            found = passes.once(wait_s=WAIT_S), passes.once(recompute=True), passes.once()
            if index < repeats.warm_up:
                continue
            for rounds, seconds in zip((behind_waits, recomputing, alone), found, strict=True):
                rounds.seconds.append(seconds)
            if repeats.enough(alone.columns(), started):
                break
    recomputed, places = passes.recomputed, alone.seconds[0]
    del passes
    gc.collect()
    # Each round is compared with itself, in which the machine was as fast for all of it.
    of_layers = {}
    for phase, layer in places:
        start_s = np.median(behind_waits.of((phase, layer)) - alone.of((phase, layer)))
        again_s = None
        if phase is Phase.BACKWARD and layer in recomputed:
            beyond_s = (
                recomputing.both(layer) - alone.both(layer) - alone.of((Phase.FORWARD, layer))
            )
            again_s = float(np.median(beyond_s))
        of_layers[phase, layer] = LayerPass(
            timing_of(alone.of((phase, layer)).tolist()), float(start_s), again_s
        )
    return of_layers


class _Rounds:
    """Seconds of passes through layers, of every round."""

    def __init__(self) -> None:
        self.seconds: list[Mapping[tuple[Phase, str], float]] = []

    def of(self, place: tuple[Phase, str]) -> NDArray[np.float64]:
        """Of one pass, shape (rounds,)."""
        return np.array([each[place] for each in self.seconds])

    def columns(self) -> list[list[float]]:
        """Of every pass, those of all rounds."""
        return [self.of(place).tolist() for place in self.seconds[0]]

    def both(self, layer: str) -> NDArray[np.float64]:
        """Of the forward and the backward pass through a layer together, shape (rounds,)."""
        return self.of((Phase.FORWARD, layer)) + self.of((Phase.BACKWARD, layer))


class _Passes:
    """A model cut into its layers, with weights and inputs."""

    def __init__(self, key: GraphKey, family: ModelFamily, clock: Clock) -> None:
        self._clock = clock
        model = reduced(real_model(family, key), family)
        trace = trace_forward(model, family, key)
        cutter = Cutter(trace, [0] * len(trace.layers), key.micro_batch_size)
        self._program: StageProgram = cutter.program(0, Recompute.NONE, {})
        self._recomputing = cutter.program(0, Recompute.FULL, {})
        shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        weights = tuple(
            Weight(name, shapes[name], shapes[name], None) for name in self._program.parameters
        )
        flat = flat_weights(weights, 0, getattr(torch, key.dtype), 1, 0, 1)
        inputs = real_inputs(key, family)
        self._given: dict[str, Any] = {
            node: flat.parameters[name] for name, node in self._program.parameters.items()
        }
        self._given |= {node: inputs[name] for name, node in self._program.inputs.items()}
        self._given |= self._program.constants

    @property
    def recomputed(self) -> frozenset[str]:
        """The layers that recomputation of whole layers runs again."""
        return frozenset(
            layer.name for layer in self._recomputing.layers if layer.recompute is Recompute.FULL
        )

    def once(self, wait_s: float = 0.0, recompute: bool = False) -> dict[tuple[Phase, str], float]:
        """Seconds of one pass in each direction, by layer, before each of which the process
        waits."""
        layers = (self._recomputing if recompute else self._program).layers
        seconds: dict[tuple[Phase, str], float] = {}
        made: dict[str, torch.Tensor] = {}
        leaves: dict[tuple[str, str], torch.Tensor] = {}
        time.sleep(wait_s)
        for layer in layers:
            values = self._taken(layer, made, leaves)
            start = now(self._clock)
            run_layer(layer, values)
            seconds[Phase.FORWARD, layer.name] = now(self._clock) - start
            made |= {name: values[name] for name in layer.gives}
        time.sleep(wait_s)
        for layer in reversed(layers):
            ends = [
                name
                for name in layer.gives
                if isinstance(made[name], torch.Tensor) and made[name].requires_grad
            ]
            gradients = [self._gradient(name, made[name], leaves) for name in ends]
            if ends:
                start = now(self._clock)
                torch.autograd.backward([made[name] for name in ends], gradients)
                seconds[Phase.BACKWARD, layer.name] = now(self._clock) - start
        return seconds

    def _taken(
        self,
        layer: LayerModule,
        made: Mapping[str, torch.Tensor],
        leaves: dict[tuple[str, str], torch.Tensor],
    ) -> dict[str, Any]:
        """What a layer reads; of what other layers made, copies that end its graph of gradients."""
        values = {}
        for name in layer.takes:
            if name in self._given:
                values[name] = self._given[name]
                continue
            value = made[name]
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value = leaves[layer.name, name] = value.detach().requires_grad_()
            values[name] = value
        return values

    def _gradient(
        self, name: str, value: torch.Tensor, leaves: Mapping[tuple[str, str], torch.Tensor]
    ) -> torch.Tensor | None:
        """The gradient of what a layer made: the sum of those of all that read it; None of the
        loss."""
        if name == self._program.loss:
            return None
        read = [
            leaf.grad
            for (_, taken), leaf in leaves.items()
            if taken == name and leaf.grad is not None
        ]
        total = torch.zeros_like(value)
        for each in read:
            total += each
        return total
