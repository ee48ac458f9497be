"""What decides between configurations of hardware besides the seconds and joules of plans on them:
area, power, money, carbon."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import AcceleratorSet, Variant
from Estimator.chips.cost import G_PER_KG, Prices, service_s
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.own_links import own_links
from Estimator.network.cluster import Cluster
from Estimator.network.own_links import over_links
from phaze_common.choices import Objective
from phaze_common.files import content_key
from Solver.purchase import Purchase, cluster_switches_usd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

J_PER_KWH = 3.6e6
LEAST_WEIGHT = (
    1e-300  # of plans whose seconds cost nothing, of which the fastest is wanted all the same
)
OF_WHOLE_CHIPS = frozenset(
    {Objective.THROUGHPUT_PER_DOLLAR, Objective.COST_PER_TOKEN, Objective.CARBON_PER_TOKEN}
)


@dataclass(frozen=True)
class UseCosts:
    """What joules cost in dollars and kilograms of CO2 equivalents, cooling included, and how long
    devices are written off."""

    service_s: float
    usd_per_j: float
    kg_per_j: float
    host_w: float = 0.0  # what the host of a device draws beside it


@dataclass(frozen=True, eq=False)
class ChipMetrics:
    """Metrics of configurations, arrays of shape (configurations,), and of the cluster of
    ``devices`` that is made of one.

    ``static_w`` is drawn whatever is computed, ``peak_w`` with everything busy; ``owning_usd`` and
    ``embodied_kg`` are what one device costs besides energy. ``memory_bytes`` is what memory as it
    is sold holds, None where the problem says how much there may be. What is not known is
    0. ``tier_bytes_per_s`` (configurations, tiers) is the bandwidth of the network of each, None
       where all have the same;
    ``links_disturb`` says that traffic slows computation down by the bandwidth of its links, so
    that faster ones may be worse. Where devices are bought with the money of a ``purchase``, every
    plan has a cluster of the devices that it uses, ``weights`` say what its seconds count, and
    ``owning_usd`` is without the share of switches, which depends on their number.
    """

    area_mm2: FloatArray
    static_w: FloatArray
    owning_usd: FloatArray
    embodied_kg: FloatArray
    peak_w: FloatArray
    stream_bytes_per_s: FloatArray
    memory_bytes: FloatArray | None = None
    devices: int = 1
    use: UseCosts | None = None
    tier_bytes_per_s: FloatArray | None = None
    links_disturb: bool = False
    purchase: Purchase | None = None

    @classmethod
    def of_areas(cls, area_mm2: FloatArray) -> ChipMetrics:
        """Of configurations of which nothing but the area is known."""
        nothing = np.zeros(len(area_mm2))
        return cls(area_mm2, nothing, nothing, nothing, nothing, nothing)

    @classmethod
    def of(
        cls,
        chips: AcceleratorSet,
        space: DesignSpace | None,
        bandwidth: FloatArray,
        cluster: Cluster,
    ) -> ChipMetrics:
        """Of ``chips`` of a design space, whose memories stream ``bandwidth`` bytes per second,
        (chips,).

        A device's share of the cluster has that of switches.
        """
        nothing, network = np.zeros(len(chips)), _tier_bytes_per_s(chips, cluster)
        if (
            space is None
            or not space.platform.memories
            or any(each.memory is None for each in chips.variants)
        ):
            return cls(
                chips.area_mm2,
                nothing,
                nothing,
                nothing,
                nothing,
                bandwidth,
                tier_bytes_per_s=network,
            )
        switches, purchase = 0.0, purchase_of(space, cluster)
        if space.prices is not None and purchase is None:
            switches = cluster_switches_usd(cluster, cluster.num_devices, space.prices)
        whole = space.whole(chips)
        sizes = [space.platform.memory(str(each.memory)).capacity_bytes for each in chips.variants]
        return cls(
            chips.area_mm2,
            whole.static_w,
            whole.owning_usd + switches,
            whole.embodied_kg,
            whole.peak_w,
            bandwidth,
            np.array(sizes, dtype=np.float64)[chips.variant],
            cluster.num_devices,
            use_costs(space.prices),
            network,
            purchase=purchase,
        )

    def __len__(self) -> int:
        return len(self.area_mm2)

    def some(self, rows: IntArray) -> ChipMetrics:
        """Those of ``rows``."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen: dict[str, Any] = {
            name: each[rows] for name, each in every.items() if isinstance(each, np.ndarray)
        }
        return replace(self, **chosen)

    @cached_property
    def caps(self) -> IntArray | None:
        """Most devices that the money buys of each configuration, shape (configurations,); None
        where nothing is bought."""
        return None if self.purchase is None else self.purchase.affordable(self.owning_usd)

    @property
    def most_devices(self) -> int | None:
        """Those of the configuration of which most can be bought; None where nothing is bought."""
        return None if self.caps is None else int(self.caps.max(initial=0))

    @property
    def bought_with(self) -> tuple[str, ...]:
        """Content keys of all that ``weights`` follow from; none where nothing is bought."""
        if self.purchase is None:
            return ()
        prices = [
            each.tobytes().hex() for each in (self.static_w, self.owning_usd, self.embodied_kg)
        ]
        return (content_key(str(self.purchase), str(self.use), *prices),)

    def device_usd(self, devices: IntArray) -> FloatArray:
        """What owning a device costs, with its share of the switches of so many ``devices`` where
        these are bought."""
        if self.purchase is None:
            return self.owning_usd
        return self.owning_usd + self.purchase.share_usd(devices)

    def owned(self, devices: int) -> ChipMetrics:
        """The same in the cluster that is owned while a plan uses ``devices``: one of so many where
        they are bought for it."""
        if self.purchase is None:
            return self
        return replace(
            self, owning_usd=self.device_usd(np.array([devices])), devices=devices, purchase=None
        )

    def weights(
        self, objective: Objective, rows: IntArray | int, devices: IntArray
    ) -> FloatArray | None:
        """By what the seconds of plans that use ``devices`` count on ``rows``, shape of
        ``devices``; None where all count alike.

        They are infinite where the money does not buy as many. Of what is bought the value of a
        plan under ``objective`` depends on the seconds of an iteration times what its devices cost
        (dollars, kilograms, joules) in one: that is the weight, and ``value`` takes the throughput
        over it. It grows with the devices, and with what ``of_counted`` has of a configuration.
        """
        if self.purchase is None or self.caps is None:
            return None
        weights = np.ones(len(devices))
        if objective in OF_WHOLE_CHIPS:
            assert self.use is not None  # which a request for these objectives is not without
            running = np.asarray(self.static_w[rows] + self.use.host_w)
            if objective is Objective.CARBON_PER_TOKEN:
                weights = devices * (
                    self.embodied_kg[rows] / self.use.service_s + self.use.kg_per_j * running
                )
            else:
                owned = self.owning_usd[rows] + self.purchase.share_usd(devices)
                weights = devices * (owned / self.use.service_s + self.use.usd_per_j * running)
        elif objective is Objective.THROUGHPUT_PER_JOULE and self.static_w.any():
            weights = devices * self.static_w[rows]
        return np.where(devices > self.caps[rows], np.inf, np.maximum(weights, LEAST_WEIGHT))

    def holding(self, memory_bytes: int) -> NDArray[np.bool_]:
        """Which configurations have, or may have, so much memory; shape (configurations,)."""
        if self.memory_bytes is None:
            return np.ones(len(self), dtype=np.bool_)
        held: NDArray[np.bool_] = self.memory_bytes == memory_bytes
        return held

    @cached_property
    def machines(self) -> IntArray:
        """A configuration of each bandwidth of memory and of the network, by which what plans add
        to layers differs."""
        return self._machines[0]

    @cached_property
    def machine_of(self) -> IntArray:
        """The place of each configuration among ``machines``."""
        return self._machines[1]

    @cached_property
    def _machines(self) -> tuple[IntArray, IntArray]:
        network = (
            np.empty((len(self), 0)) if self.tier_bytes_per_s is None else self.tier_bytes_per_s
        )
        speeds = np.column_stack([self.stream_bytes_per_s, network])
        _, rows, places = np.unique(speeds, axis=0, return_index=True, return_inverse=True)
        return rows, places.reshape(-1)

    @property
    def _speeds(self) -> list[FloatArray]:
        """What makes plans on the same layers take longer, smaller is better: slowness of memory
        and of every tier."""
        found = [-self.stream_bytes_per_s]
        if self.tier_bytes_per_s is not None:
            # the dimensions of a torus are alike
            distinct = np.unique(-self.tier_bytes_per_s, axis=1).T
            found += [*distinct, *([self.tier_bytes_per_s[:, 0]] if self.links_disturb else [])]
        return found

    @cached_property
    def of_plans(self) -> FloatArray:
        """What the seconds of plans depend on besides those of layers, smaller is better: shape
        (configurations, criteria).

        Whatever is asked, no configuration dominates one that is better in these.
        """
        # of what costs less more can be bought
        bought = [self.owning_usd] if self.purchase is not None else []
        return _differing([*self._speeds, *bought], len(self))

    @cached_property
    def of_counted(self) -> FloatArray:
        """``of_plans`` with what the ``weights`` of plans depend on under any objective; as that
        where nothing is bought."""
        if self.purchase is None:
            return self.of_plans
        return np.hstack([_differing([self.static_w, self.embodied_kg], len(self)), self.of_plans])

    def criteria(self, columns: Collection[str]) -> FloatArray:
        """Fields in ``columns`` that differ, and ``of_plans``; smaller is better: shape
        (configurations, criteria)."""
        chosen = [getattr(self, each.name) for each in fields(self) if each.name in columns]
        return np.hstack([_differing(chosen, len(self)), self.of_plans])

    def sample_joules(self, joules: FloatArray, throughput: FloatArray) -> FloatArray:
        """Joules of a sample with those that are drawn all the time, of all devices; where these
        are bought without them.

        They are among the ``weights`` then.
        """
        if self.purchase is not None:
            return joules
        return self.total_joules(joules, throughput, self.devices)

    def total_joules(
        self, joules: FloatArray, throughput: FloatArray, devices: IntArray | int
    ) -> FloatArray:
        """Joules of a sample with those that so many ``devices`` draw all the time."""
        if not self.static_w.any():
            return joules
        with np.errstate(divide="ignore"):
            total: FloatArray = joules + self.static_w * devices / throughput
        return total

    def value(
        self, objective: Objective, throughput: FloatArray, joules: FloatArray, sample_tokens: int
    ) -> FloatArray:
        """What is maximised, of configurations with this throughput in samples per second and
        joules per sample.

        Monotone in the criteria that ``Solver.designs.search_criteria`` names for it, which pruning
        relies on. Per dollar are samples over what all devices cost in the time that a sample
        takes, written off over the years of service, and the electricity of a sample; costs and
        carbon per token are told as tokens per dollar and per kilogram. Of what is bought
        ``throughput`` is over ``weights``."""
        if objective is Objective.THROUGHPUT:
            return throughput
        if objective is Objective.THROUGHPUT_PER_AREA:
            return throughput / self.area_mm2
        if self.purchase is not None:
            return self._bought_value(objective, throughput, joules, sample_tokens)
        total_j = self.sample_joules(joules, throughput)
        with np.errstate(divide="ignore", invalid="ignore"):
            if objective is Objective.THROUGHPUT_PER_JOULE:
                return 1.0 / total_j
            assert self.use is not None  # which a request for these objectives is not without
            carbon = objective is Objective.CARBON_PER_TOKEN
            if carbon:
                owned, per_j = (self.embodied_kg, self.use.kg_per_j)
            else:
                owned, per_j = (self.owning_usd, self.use.usd_per_j)
            hosts_j = self.use.host_w * self.devices / throughput
            of_sample = self.devices * owned / self.use.service_s / throughput + per_j * (
                total_j + hosts_j
            )
            per_sample: FloatArray = np.where(throughput > 0.0, 1.0 / of_sample, 0.0)
        if objective is Objective.THROUGHPUT_PER_DOLLAR:
            return per_sample
        return per_sample * sample_tokens

    def reached(
        self,
        objective: Objective,
        seconds: FloatArray,
        joules: FloatArray,
        batch_samples: int,
        sample_tokens: int,
    ) -> FloatArray:
        """``value`` of configurations whose iteration of so many samples takes ``seconds``; -inf
        where these are infinite."""
        with np.errstate(divide="ignore"):
            throughput = batch_samples / seconds
        values = self.value(objective, throughput, joules, sample_tokens)
        return np.where(throughput > 0.0, values, -np.inf)

    def _bought_value(
        self, objective: Objective, weighted: FloatArray, joules: FloatArray, sample_tokens: int
    ) -> FloatArray:
        """``value`` of objectives of energy, money and carbon where the throughput is
        ``weighted``."""
        per_j = 1.0
        if objective in OF_WHOLE_CHIPS:
            assert self.use is not None
            per_j = (
                self.use.kg_per_j if objective is Objective.CARBON_PER_TOKEN else self.use.usd_per_j
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            owned = 1.0 / weighted if objective in OF_WHOLE_CHIPS or self.static_w.any() else 0.0
            per_sample: FloatArray = np.where(weighted > 0.0, 1.0 / (per_j * joules + owned), 0.0)
        tokens = objective in {Objective.COST_PER_TOKEN, Objective.CARBON_PER_TOKEN}
        return per_sample * sample_tokens if tokens else per_sample


def purchase_of(space: DesignSpace | None, cluster: Cluster) -> Purchase | None:
    """What devices of ``space`` are bought with in ``cluster``; None where their number is
    given."""
    if space is None or space.prices is None or space.limits.cluster_usd is None:
        return None
    return Purchase.of(space.limits.cluster_usd, cluster, space.prices)


def _differing(columns: Collection[FloatArray], count: int) -> FloatArray:
    """Those of ``columns`` (count,) in which any two configurations differ, shape (count,
    columns)."""
    kept = [each for each in columns if np.ptp(each) > 0.0]
    return np.column_stack(kept) if kept else np.empty((count, 0))


def use_costs(prices: Prices | None) -> UseCosts | None:
    """Those of ``prices``; None where there are none."""
    if prices is None:
        return None
    per_kwh = prices.pue.value / J_PER_KWH
    usd, kg = prices.electricity.value * per_kwh, prices.grid_carbon.value / G_PER_KG * per_kwh
    return UseCosts(service_s(prices), usd, kg, prices.host_power.value)


def with_links_of(cluster: Cluster, variant: Variant) -> Cluster:
    """``cluster`` of chips with the links of ``variant``."""
    return over_links(cluster, None if variant.links is None else own_links(variant.links))


def _tier_bytes_per_s(chips: AcceleratorSet, cluster: Cluster) -> FloatArray | None:
    """Bandwidth of the tiers of the network of each of ``chips``, (chips, tiers); None where all
    have the same."""
    networks = [with_links_of(cluster, variant).tiers for variant in chips.variants]
    tiers = np.array([[tier.bandwidth_bytes_per_s for tier in each] for each in networks])
    return tiers[chips.variant] if len(chips) and np.ptp(tiers, axis=0).any() else None
