"""What activities that run at once on a device cost each other: products, traffic between devices,
traffic with the host.

Each activity beside others runs slower than alone: one plus a slow-down for every other one, added
up, times as long. When one ends, the rest goes on with fewer (``joint_s``), as in Mist
(EuroSys 2025, section 5.2), whose measurements of an A100 the numbers come from. On other devices
they are taken to be the same, but for what products lose to traffic within the first tier of the
network: that is in proportion to the part of the memory's bandwidth that these links can ask for.
So a chip behind a thin link loses nothing, and one whose links are as fast as its memory would
rather wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np

from Estimator.chips.technology import Quantity
from phaze_common.array_types import FloatArray


class Activity(StrEnum):
    """What may run at once on a device."""

    PRODUCTS = "products"
    NEAR = "traffic_in_first_tier"
    FAR = "traffic_beyond"
    TO_DEVICE = "host_to_device"
    FROM_DEVICE = "device_to_host"


ACTIVITIES = tuple(Activity)


@dataclass(frozen=True)
class Hiding:
    """What becomes of traffic beside computation.

    ``shown_part`` of its seconds prolong the computation beside which it fits; where it does not
    fit, a second of computation hides ``hidden_part`` of a second of it. Nothing is slowed down: 0
    and 1.
    """

    shown_part: float
    hidden_part: float


UNDISTURBED = Hiding(0.0, 1.0)


@dataclass(frozen=True)
class Contention:
    """Slow-downs by what is slowed down and by what beside it; those not given are 0.

    ``link_share`` is the bandwidth of the first tier's links over that of the memory, as long
    arrays reach it, of the device that was measured.
    """

    name: str
    link_share: Annotated[Quantity, "fraction"]
    # times longer than alone, less one: of what is slowed down, by what is beside it
    slowdown: dict[str, dict[str, float]]
    source: str

    def matrix(self) -> FloatArray:
        """Slow-down of activity i by activity j, in the order of ``ACTIVITIES``, shape (5, 5)."""
        rows = [
            [self.slowdown.get(slowed, {}).get(other, 0.0) for other in ACTIVITIES]
            for slowed in ACTIVITIES
        ]
        return np.array(rows)

    def hiding(self, *, near: bool, link_share: float) -> Hiding:
        """What becomes of traffic within the first tier (``near``) or beyond it, on a device with
        such a ``link_share``.

        Until the first of both ends, computation runs 1 + a and traffic 1 + b times as long as
        alone. So T seconds of traffic that end first add T (1 + b) a / (1 + a); else C seconds of
        computation hide C (1 + a) / (1 + b) and are prolonged by C a. Where both are slowed down so
        much that one after the other is faster, they do not overlap.
        """
        traffic = Activity.NEAR if near else Activity.FAR
        computation_slowdown = self.slowdown.get(Activity.PRODUCTS, {}).get(traffic, 0.0)
        traffic_slowdown = self.slowdown.get(traffic, {}).get(Activity.PRODUCTS, 0.0)
        if near:
            computation_slowdown *= link_share / self.link_share.value
        shown = computation_slowdown * (1.0 + traffic_slowdown) / (1.0 + computation_slowdown)
        hidden = (1.0 - computation_slowdown * traffic_slowdown) / (1.0 + traffic_slowdown)
        return Hiding(shown, hidden) if hidden > 0.0 else Hiding(1.0, 0.0)


def joint_s(alone_s: FloatArray, slowdown: FloatArray) -> FloatArray:
    """Seconds until activities that start together have all ended: (N, activities) alone, with
    slow-downs of i by j."""
    left_s, total_s = alone_s.copy(), np.zeros(len(alone_s))
    for _ in range(alone_s.shape[1]):
        running = left_s > 0.0
        factor = 1.0 + running @ slowdown.T
        needed_s = np.where(running, left_s * factor, np.inf)
        step_s = needed_s.min(axis=1)
        step_s = np.where(np.isfinite(step_s), step_s, 0.0)
        total_s += step_s
        ended = needed_s <= step_s[:, None] * (1.0 + 1e-12)
        left_s = np.where(running & ~ended, left_s - step_s[:, None] / factor, 0.0)
    return total_s
