"""Tensors between the stages of a plan: activations forward, gradients backward, point to point
between processes.

Sending never waits: what was sent is kept until the end of the step. A receiver posts all it
expects of a tensor at once and puts the rows together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from phaze.runtime.training.clock import Activity, Clock
from phaze.runtime.training.places import Link, Seat, StagePlace, backward_links, forward_links
from phaze.runtime.training.stage_program import Crossing


@dataclass(frozen=True)
class _Route:
    """How one tensor goes from one stage to another: all links, and a number that tells it from
    others."""

    number: int
    links: tuple[Link, ...]


class Exchange:
    """What one process sends and receives."""

    def __init__(
        self,
        seat: Seat,
        places: Sequence[StagePlace],
        crossings: Sequence[Crossing],
        micro_batches: int,
        clock: Clock,
    ) -> None:
        self.seat, self.micro_batches, self.clock = seat, micro_batches, clock
        self._pending: list[tuple[Any, torch.Tensor]] = []
        self._forward: dict[tuple[str, int], _Route] = {}
        self._backward: dict[tuple[str, int], _Route] = {}
        for crossing in crossings:
            for target in crossing.targets:
                source, number = places[crossing.source], len(self._forward)
                in_rows = crossing.rows_times > 0
                key = (crossing.name, target)
                self._forward[key] = _Route(
                    2 * number, forward_links(source, places[target], in_rows=in_rows)
                )
                self._backward[key] = _Route(
                    2 * number + 1, backward_links(source, places[target], in_rows=in_rows)
                )

    def send(self, crossing: Crossing, micro_batch: int, value: torch.Tensor) -> None:
        """Send an activation to all stages that read it."""
        for target in crossing.targets:
            self._send(self._forward[crossing.name, target], crossing, micro_batch, value)

    def receive(self, crossing: Crossing, micro_batch: int) -> torch.Tensor:
        """An activation that another stage made."""
        with self.clock.span(Activity.WAIT, micro_batch):
            return self._receive(
                self._forward[crossing.name, self.seat.place.stage], crossing, micro_batch
            )

    def send_gradient(self, crossing: Crossing, micro_batch: int, gradient: torch.Tensor) -> None:
        """Send the gradient of a received activation back."""
        self._send(
            self._backward[crossing.name, self.seat.place.stage], crossing, micro_batch, gradient
        )

    def receive_gradient(self, crossing: Crossing, micro_batch: int) -> torch.Tensor:
        """The gradient of an activation that was sent: the sum of those of all stages that read
        it."""
        with self.clock.span(Activity.WAIT, micro_batch):
            total = self._receive(
                self._backward[crossing.name, crossing.targets[0]], crossing, micro_batch
            )
            for target in crossing.targets[1:]:
                total += self._receive(self._backward[crossing.name, target], crossing, micro_batch)
            return total

    def finish_sending(self) -> None:
        """Wait until everything that was sent has arrived."""
        with self.clock.span(Activity.WAIT):
            for work, _ in self._pending:
                work.wait()
        self._pending.clear()

    def _tag(self, route: _Route, micro_batch: int) -> int:
        return route.number * self.micro_batches + micro_batch

    def _send(
        self, route: _Route, crossing: Crossing, micro_batch: int, value: torch.Tensor
    ) -> None:
        for link in route.links:
            if link.source == self.seat.rank:
                sent = _rows(value.detach(), link.source_rows, crossing.rows_times).contiguous()
                self._pending.append(
                    (dist.isend(sent, link.target, tag=self._tag(route, micro_batch)), sent)
                )

    def _receive(self, route: _Route, crossing: Crossing, micro_batch: int) -> torch.Tensor:
        whole = torch.zeros(crossing.shape, dtype=crossing.dtype)
        links = [link for link in route.links if link.target == self.seat.rank]
        posted = []
        for number, link in enumerate(links):
            part = _rows(whole, link.target_rows, crossing.rows_times)
            room = torch.empty_like(part) if number and link.target_rows is None else part
            posted.append((dist.irecv(room, link.source, tag=self._tag(route, micro_batch)), room))
        for number, (work, room) in enumerate(posted):
            work.wait()
            # shares of the gradient of a tensor without rows
            if number and room.shape == whole.shape:
                whole += room
        return whole


def _rows(value: torch.Tensor, rows: range | None, times: int) -> torch.Tensor:
    return value if rows is None else value[rows.start * times : rows.stop * times]
