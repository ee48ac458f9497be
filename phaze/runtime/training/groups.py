"""Groups of processes that add things up together. All processes make all groups, in the same
order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from phaze.runtime.training.places import Seat, StagePlace


@dataclass(frozen=True)
class Groups:
    """The groups of one process: all of the job, its replicas, those that share its products,
    holders of tied weights."""

    everyone: Any
    replicas: Any
    parts: Any
    tied: Mapping[tuple[int, ...], Any]


def make_groups(
    seat: Seat | None, places: Sequence[StagePlace], tied: Sequence[tuple[int, ...]]
) -> Groups | None:
    """The groups of the process at ``seat``; None where it has no part in the job. ``tied`` are
    sets of stages."""
    everyone = dist.new_group([rank for place in places for rank in place.ranks])
    replicas = parts = None
    for place in places:
        for part in range(place.tp):
            made = dist.new_group(list(place.replicas(part))) if place.dp > 1 else None
            if seat is not None and (place.stage, part) == (seat.place.stage, seat.part):
                replicas = made
        for replica in range(place.dp):
            made = dist.new_group(list(place.parts(replica))) if place.tp > 1 else None
            if seat is not None and (place.stage, replica) == (seat.place.stage, seat.replica):
                parts = made
    holding = {
        stages: dist.new_group([rank for stage in stages for rank in places[stage].ranks])
        for stages in sorted(set(tied))
    }
    return None if seat is None else Groups(everyone, replicas, parts, holding)
