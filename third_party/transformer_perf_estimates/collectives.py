"""Seconds of collectives on two tiers of a network: rings within fast domains (NVLink) and between
them (InfiniBand).

A group of n devices has t of them in each fast domain, so it spans n / t domains. With the reached
bandwidths bf of NVLink and bs of a network card, and latencies lf and ls, a message of V GB takes

    latency       ls (n / t - 1) + lf (n - n / t)
    t = 1         latency + c V / bs
    t = n         latency + c V / bf
    else          latency + max(c V / (cards t bs), c V / bf)

with c = (n - 1) / n for all-gather and reduce-scatter, 1 for broadcast and reduce. All of it is
linear in V, so a group is described by its latencies and its seconds for each GB.
"""

from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import FloatArray

from .corrections import Correction, Corrections
from .systems import System


@dataclass(frozen=True, eq=False)
class Ring:
    """Times of messages in groups of devices; all arrays of the shape of the groups, nothing for
    groups of one."""

    latency_s: FloatArray
    gather_s_per_gb: FloatArray
    broadcast_s_per_gb: FloatArray
    all_reduce_latency_s: FloatArray
    all_reduce_s_per_gb: FloatArray

    def gather_s(self, volume_gb: FloatArray) -> FloatArray:
        """All-gather or reduce-scatter of ``volume_gb``, the whole tensor."""
        return self.latency_s + self.gather_s_per_gb * volume_gb

    def broadcast_s(self, volume_gb: FloatArray) -> FloatArray:
        """Broadcast or reduce."""
        return self.latency_s + self.broadcast_s_per_gb * volume_gb

    def all_reduce_s(self, volume_gb: FloatArray) -> FloatArray:
        """All-reduce."""
        return self.all_reduce_latency_s + self.all_reduce_s_per_gb * volume_gb


def ring(
    system: System, devices: FloatArray, in_domain: FloatArray, corrections: Corrections
) -> Ring:
    """The ring over groups of ``devices``, ``in_domain`` of them (which divides) in each fast
    domain."""
    domains = devices / in_domain
    slow, fast = 1.0 / system.ib_reached_gb_per_s, 1.0 / system.nvlink_reached_gb_per_s
    mixed = np.maximum(slow / (system.nics_per_gpu * in_domain), fast)
    s_per_gb = np.where(in_domain == 1.0, slow, np.where(domains == 1.0, fast, mixed)) * (
        devices > 1.0
    )
    gather = s_per_gb * ((devices - 1.0) / devices)
    latency = system.ib_latency_s * (domains - 1.0) + system.nvlink_latency_s * (devices - domains)
    both = Correction.ALL_REDUCE in corrections
    partly = (in_domain > 1.0) & (domains > 1.0)
    return Ring(
        latency_s=latency,
        gather_s_per_gb=gather,
        broadcast_s_per_gb=s_per_gb,
        all_reduce_latency_s=2.0 * latency if both else latency,
        all_reduce_s_per_gb=2.0 * gather if both else np.where(partly, 2.0, 1.0) * gather,
    )


def neighbour_s(system: System, volume_gb: FloatArray, fast: bool) -> FloatArray:
    """Sending to one other device, in the same fast domain or in another."""
    if fast:
        return system.nvlink_latency_s + volume_gb / system.nvlink_reached_gb_per_s
    return system.ib_latency_s + volume_gb / system.ib_reached_gb_per_s
