"""The end of a step: gradients of replicas added, norm clipped over all stages, Adam, and what ZeRO
divides of that.

Stages 1 to 3 are those of Rajbhandari et al. 2020. Each replica of a stage owns an equal part of
the stage's flat weights: from stage 1 on it keeps Adam's state of that part alone, from stage 2 on
gradients are added into the part after every backward pass, at stage 3 weights are gathered before
each pass and dropped behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from GraphExtractor.torch_internals import preserve_version_counter
from phaze.runtime.flat_collectives import all_gather, reduce_scatter
from phaze.runtime.training.clock import Activity, Clock
from phaze.runtime.training.groups import Groups
from phaze.runtime.training.job import Optimization
from phaze.runtime.training.places import Seat
from phaze.runtime.training.weights import FlatWeights

_TINY = 1e-6  # added to norms that are divided by, as torch.nn.utils.clip_grad_norm_ does


def adam_of(parameters: Iterable[torch.Tensor], settings: Optimization) -> torch.optim.Adam:
    """Torch's own Adam with these settings."""
    betas = settings.beta1, settings.beta2
    return torch.optim.Adam(parameters, settings.learning_rate, betas, settings.epsilon, fused=True)


class StageOptimizer:
    """Weights, gradients and Adam's state of one process. ``tied`` are weights that several stages
    hold, with these."""

    def __init__(
        self,
        seat: Seat,
        weights: FlatWeights,
        zero_stage: int,
        groups: Groups,
        tied: dict[str, tuple[int, ...]],
        settings: Optimization,
        clock: Clock,
    ) -> None:
        self.seat, self.weights, self.groups = seat, weights, groups
        self.tied, self.settings, self.clock = tied, settings, clock
        self.zero_stage = zero_stage if seat.place.dp > 1 else 0
        size = len(weights.values)
        share = size // seat.place.dp
        if self.zero_stage:
            self.own = range(seat.replica * share, (seat.replica + 1) * share)
        else:
            self.own = range(size)
        own = weights.values[self.own.start : self.own.stop]
        self.values = torch.nn.Parameter(own.clone() if self.zero_stage == 3 else own.detach())
        gradients = weights.gradients[self.own.start : self.own.stop]
        self.gradients = torch.zeros_like(gradients) if self.zero_stage >= 2 else gradients
        self.adam = adam_of([self.values], settings)
        self.drop_weights()

    def gather_weights(self) -> None:
        """Before a pass: all weights are here."""
        if self.zero_stage == 3:
            with (
                self.clock.span(Activity.SYNCHRONISE),
                preserve_version_counter(self.weights.values),
            ):
                storage = self.weights.values.untyped_storage()
                storage.resize_(self.weights.values.nbytes)
                all_gather(self.weights.values, self.values.detach(), self.groups.replicas)

    def drop_weights(self) -> None:
        """Behind a pass: weights of other replicas need not be kept."""
        if self.zero_stage == 3:
            self.weights.values.untyped_storage().resize_(0)

    def after_backward(self) -> None:
        """Add the gradients of one backward pass into what this process keeps of them."""
        if self.zero_stage >= 2:
            with self.clock.span(Activity.SYNCHRONISE):
                part = torch.empty_like(self.gradients)
                reduce_scatter(part, self.weights.gradients, self.groups.replicas)
                self.gradients += part
                self.weights.gradients.zero_()

    def step(self, loss: float) -> tuple[float, float]:
        """Update the weights and clear the gradients; returns the loss summed over processes, and
        the norm before clipping."""
        with self.clock.span(Activity.SYNCHRONISE):
            if self.groups.replicas is not None and self.zero_stage < 2:
                dist.all_reduce(self.weights.gradients, group=self.groups.replicas)
            for name, stages in sorted(self.tied.items()):
                self._add_tied(name, stages)
            sums = torch.tensor([self._squares(), loss], dtype=torch.float64)
            dist.all_reduce(sums, group=self.groups.everyone)
        with self.clock.span(Activity.UPDATE):
            squares, total = sums.tolist()
            norm = squares**0.5
            if norm > self.settings.clip:
                self.gradients *= self.settings.clip / (norm + _TINY)
            self.values.grad = self.gradients
            self.adam.step()
            (self.gradients if self.zero_stage >= 2 else self.weights.gradients).zero_()
        if self.zero_stage in {1, 2}:
            with self.clock.span(Activity.SYNCHRONISE):
                all_gather(self.weights.values, self.values.detach().clone(), self.groups.replicas)
        return total, norm

    def state(self) -> dict[str, torch.Tensor]:
        """Adam's state of the part that this process keeps; empty before the first step."""
        state = self.adam.state[self.values]
        return {
            name: value.clone() for name, value in state.items() if isinstance(value, torch.Tensor)
        }

    def named_weights(self) -> dict[str, torch.Tensor]:
        """A copy of all weights of this process by name; all replicas must ask together."""
        self.gather_weights()
        found = {name: value.detach().clone() for name, value in self.weights.parameters.items()}
        self.drop_weights()
        return found

    def load(self, weights: dict[str, torch.Tensor], state: dict[str, torch.Tensor]) -> None:
        """Go on from what ``named_weights`` and ``state`` gave."""
        flat = self.weights.values
        flat.untyped_storage().resize_(flat.nbytes)
        with torch.no_grad():
            for name, value in weights.items():
                place = self.weights.places[name]
                flat[place.start : place.stop] = value.flatten()
            self.values.copy_(flat[self.own.start : self.own.stop])
        self.adam.state[self.values] = dict(state)
        self.drop_weights()

    @property
    def state_bytes(self) -> int:
        """Of weights, gradients and Adam's state, as they are between steps."""
        whole = 0 if self.zero_stage == 3 else self.weights.values.nbytes
        gradients = self.weights.gradients.nbytes + (
            self.gradients.nbytes if self.zero_stage >= 2 else 0
        )
        own = self.values.nbytes if self.zero_stage == 3 else 0
        return int(whole + own + gradients + 2 * self.values.nbytes)

    def _kept(self, name: str) -> tuple[torch.Tensor, range]:
        """What this process keeps of a gradient, and which of its elements that is."""
        if self.zero_stage < 2:
            gradient = self.weights.gradient(name)
            return gradient, range(len(gradient))
        place, first = self.weights.places[name], self.own.start
        begin, end = max(place.start, first), min(place.stop, self.own.stop)
        end = max(begin, end)
        return self.gradients[begin - first : end - first], range(
            begin - place.start, end - place.start
        )

    @property
    def _counts_replica(self) -> bool:
        """Whether what this process keeps is not also another replica's."""
        return self.zero_stage >= 2 or self.seat.replica == 0

    def _add_tied(self, name: str, stages: Sequence[int]) -> None:
        """Add the gradients of all stages that hold a weight; of processes with the same one of
        them counts."""
        total = torch.zeros(len(self.weights.places[name]), dtype=self.gradients.dtype)
        kept, elements = self._kept(name)
        if self.seat.part == 0 and self._counts_replica:
            total[elements.start : elements.stop] = kept
        dist.all_reduce(total, group=self.groups.tied[tuple(stages)])
        kept.copy_(total[elements.start : elements.stop])

    def _squares(self) -> float:
        """The process' share of the squared norm of all gradients."""
        if not self._counts_replica:
            return 0.0
        total = 0.0
        for weight in self.weights.weights:
            elsewhere = (
                weight.name in self.tied and self.tied[weight.name][0] != self.seat.place.stage
            )
            if elsewhere or (weight.division is None and self.seat.part):
                continue
            total += float(self._kept(weight.name)[0].double().square().sum())
        return total
