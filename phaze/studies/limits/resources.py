"""What a chip is used with, and what there could be more of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from Estimator.chips.accelerator import Platform
from Estimator.network.cluster import Cluster, Tier, grown_to
from phaze_common.numbers import number
from phaze_common.units import GIB

MEMORY, MUCH_MEMORY = "HBM capacity", 2**20 * GIB  # bytes: more than any plan needs
GIGA = 1e9
MICRO = 1e-6
PLENTY = 1e9  # times as much as there is: as good as any amount


@dataclass(frozen=True, eq=False)
class Circumstances:
    """What a chip is used with; ``usd`` is the money for its devices, None where their number is
    given."""

    platform: Platform
    cluster: Cluster
    hbm_bytes: int
    usd: float | None = None


@dataclass(frozen=True, eq=False)
class Resource:
    """Something there could be more of: ``one`` unit more, or ``plenty``. ``step`` and ``most`` are
    for the sentence."""

    name: str
    unit: str
    amount: float
    after_one: float
    step: str
    one: Circumstances
    plenty: Circumstances
    most: str = ""  # words for plenty of devices where no plan can use more


def resources(
    given: Circumstances, most_devices: int, more_usd: float = 0.0, *, usable: bool = True
) -> list[Resource]:
    """Everything there could be more of, of devices as many as ``most_devices``: all that are
    ``usable``, or not.

    ``more_usd`` are lacking for one more device than the money buys.
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

    def bandwidth(
        name: str, given_bytes_per_s: float, having: Callable[[float], Circumstances]
    ) -> Resource:
        amount, one, plenty = (
            given_bytes_per_s / GIGA,
            having(given_bytes_per_s + GIGA),
            having(given_bytes_per_s * PLENTY),
        )
        return Resource(name, "GB/s", amount, amount + 1.0, "one more GB/s", one, plenty)

    hbm_gib = given.hbm_bytes / GIB
    hbm, buffer = platform.hbm_bandwidth_bytes_per_s, platform.glb_bandwidth_bytes_per_cycle * hertz
    found = [
        Resource(
            MEMORY,
            "GiB",
            hbm_gib,
            hbm_gib + 1.0,
            "one more GiB",
            replace(given, hbm_bytes=given.hbm_bytes + GIB),
            replace(given, hbm_bytes=given.hbm_bytes + MUCH_MEMORY),
        ),
        bandwidth("HBM bandwidth", hbm, with_hbm),
        bandwidth("on-chip buffer bandwidth", buffer, with_buffer),
        Resource(
            "clock of the cores",
            "MHz",
            hertz / 1e6,
            hertz / 1e6 + 1.0,
            "one more MHz",
            clocked(hertz + 1e6),
            clocked(hertz * PLENTY),
        ),
        Resource(
            "number of devices",
            "devices",
            cluster.num_devices,
            cluster.num_devices + 1,
            "one more",
            replace(given, cluster=grown_to(cluster, cluster.num_devices + 1)),
            replace(given, cluster=grown_to(cluster, max(most_devices, cluster.num_devices))),
            "however many" if usable else "",
        ),
    ]
    if given.usd is not None:
        usd, more = given.usd, given.usd + more_usd
        step = f"{number(more_usd)} $ more, enough to buy one more device,"
        one, plenty = replace(given, usd=more), replace(given, usd=usd * PLENTY)
        found.append(Resource("money", "$", usd, more, step, one, plenty))
    for position, tier in enumerate(cluster.tiers):
        which = f" ({tier.name})" if len(cluster.tiers) > 1 else ""
        faster = partial(with_bandwidth, position, tier)
        found.append(bandwidth(f"network bandwidth{which}", tier.bandwidth_bytes_per_s, faster))
        if tier.latency_s > 0:
            less = max(0.0, tier.latency_s - MICRO)
            found.append(
                Resource(
                    f"network latency{which}",
                    "microseconds",
                    tier.latency_s / MICRO,
                    less / MICRO,
                    "one microsecond less" if less else "none at all",
                    with_tier(position, replace(tier, latency_s=less)),
                    with_tier(position, replace(tier, latency_s=0.0)),
                )
            )
    return found
