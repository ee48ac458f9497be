"""What a chip is used with, and what there could be more of."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from Estimator.chips.accelerator import Platform
from Estimator.network.cluster import Cluster, Tier, grown_to
from phaze.report.sentences.designs import EQUAL
from phaze.report.sentences.gains import binds, steps
from phaze_common.numbers import number
from phaze_common.units import GIB

MEMORY, MUCH_MEMORY = "HBM capacity", 2**20 * GIB  # bytes: more than any plan needs
GIGA, MEGA, MICRO = 1e9, 1e6, 1e-6
PLENTY = 1e9  # times as much as there is: as good as any amount


@dataclass(frozen=True, eq=False)
class Circumstances:
    """What a chip is used with; ``usd`` buys its devices, None where their number is given."""

    platform: Platform
    cluster: Cluster
    hbm_bytes: int
    usd: float | None = None


@dataclass(frozen=True, eq=False)
class Resource:
    """Something of which there could be ``one`` unit more, or ``plenty``; ``step`` is in words.

    ``speedup`` is by what factor ``one`` shortens anything at most; infinite where it does not say.
    """

    name: str
    unit: str
    amount: float
    after_one: float
    step: str
    one: Circumstances
    plenty: Circumstances
    speedup: float = math.inf
    most: str = ""  # words for plenty of devices where no plan can use more

    def text(self, one: float, plenty: float) -> str:
        """What one unit more and plenty of it bring, as fractions, in a sentence."""
        name, given = self.name[0].upper() + self.name[1:], number(self.amount)
        devices, latency = self.unit == "devices", self.unit == "microseconds"
        most = number(self.plenty.cluster.num_devices)
        if plenty <= EQUAL:
            without = f"more than {given} {self.unit} of it, however much,"
            if latency:
                without = f"having none instead of {given} {self.unit}"
            elif devices:
                without = f"more than {given}, {self.most or f'up to {most}'},"
            return f"{name} does not bind: {without} brings nothing."
        step = f"{self.step} ({given} to {number(self.after_one)})"
        rest = "none at all" if latency else "any amount of it"
        if devices:
            rest = "as many as can be used" if self.most else f"{most} of them"
        return f"{name} {binds(plenty)}: {steps(one, step, plenty, rest)}."


def resources(
    given: Circumstances, most_devices: int, more_usd: float = 0.0, *, usable: bool = True
) -> list[Resource]:
    """Everything there could be more of, of devices as many as ``most_devices``.

    ``usable`` says that no plan can use more, ``more_usd`` what one device more lacks.
    """
    platform, cluster = given.platform, given.cluster
    hertz = platform.frequency_hz

    def with_hbm(bytes_per_s: float) -> Circumstances:
        return replace(given, platform=replace(platform, hbm_bandwidth_bytes_per_s=bytes_per_s))

    def with_buffer(bytes_per_s: float) -> Circumstances:
        return replace(
            given, platform=replace(platform, glb_bandwidth_bytes_per_cycle=bytes_per_s / hertz)
        )

    def clocked(frequency_hz: float) -> Circumstances:
        """Faster cores over the same buffer."""
        per_cycle = platform.glb_bandwidth_bytes_per_cycle * hertz / frequency_hz
        return replace(
            given,
            platform=replace(
                platform, frequency_hz=frequency_hz, glb_bandwidth_bytes_per_cycle=per_cycle
            ),
        )

    def with_tier(position: int, tier: Tier) -> Circumstances:
        tiers = (*cluster.tiers[:position], tier, *cluster.tiers[position + 1 :])
        return replace(given, cluster=replace(cluster, tiers=tiers))

    def with_bandwidth(position: int, tier: Tier, bytes_per_s: float) -> Circumstances:
        return with_tier(position, replace(tier, bandwidth_bytes_per_s=bytes_per_s))

    def with_memory(size_bytes: int) -> Circumstances:
        return replace(given, hbm_bytes=size_bytes)

    def with_devices(count: int) -> Circumstances:
        return replace(given, cluster=grown_to(cluster, count))

    def more_of(
        name: str,
        unit: str,
        amount: float,
        one: Circumstances,
        plenty: Circumstances,
        speedup: float = math.inf,
    ) -> Resource:
        step = f"one more {unit}"
        return Resource(name, unit, amount, amount + 1.0, step, one, plenty, speedup)

    def bandwidth(
        name: str, bytes_per_s: float, having: Callable[[float], Circumstances]
    ) -> Resource:
        one, plenty = having(bytes_per_s + GIGA), having(bytes_per_s * PLENTY)
        faster = (bytes_per_s + GIGA) / bytes_per_s
        return more_of(name, "GB/s", bytes_per_s / GIGA, one, plenty, faster)

    size, there = given.hbm_bytes, cluster.num_devices
    hbm, buffer = platform.hbm_bandwidth_bytes_per_s, platform.glb_bandwidth_bytes_per_cycle * hertz
    larger, plentiful = with_memory(size + GIB), with_memory(size + MUCH_MEMORY)
    one_mhz, fast = clocked(hertz + MEGA), clocked(hertz * PLENTY)
    one, plenty = with_devices(there + 1), with_devices(max(most_devices, there))
    most = "however many" if usable else ""
    found = [
        more_of(MEMORY, "GiB", size / GIB, larger, plentiful),
        bandwidth("HBM bandwidth", hbm, with_hbm),
        bandwidth("on-chip buffer bandwidth", buffer, with_buffer),
        more_of("clock of the cores", "MHz", hertz / MEGA, one_mhz, fast, (hertz + MEGA) / hertz),
        Resource(
            "number of devices", "devices", there, there + 1, "one more", one, plenty, most=most
        ),
    ]
    if given.usd is not None:
        usd, more = given.usd, given.usd + more_usd
        step = f"{number(more_usd)} $ more, enough to buy one more device,"
        one, plenty = replace(given, usd=more), replace(given, usd=usd * PLENTY)
        found.append(Resource("money", "$", usd, more, step, one, plenty))
    for position, tier in enumerate(cluster.tiers):
        which = f" ({tier.name})" if len(cluster.tiers) > 1 else ""
        having = partial(with_bandwidth, position, tier)
        found.append(bandwidth(f"network bandwidth{which}", tier.bandwidth_bytes_per_s, having))
        if tier.latency_s > 0:
            less = max(0.0, tier.latency_s - MICRO)
            name, unit = f"network latency{which}", "microseconds"
            step = "one microsecond less" if less else "none at all"
            one, none = (with_tier(position, replace(tier, latency_s=each)) for each in (less, 0.0))
            amounts = tier.latency_s / MICRO, less / MICRO
            faster = tier.latency_s / less if less else math.inf
            found.append(Resource(name, unit, *amounts, step, one, none, faster))
    return found
