"""Fits the efficiencies and latencies of a cluster to measured collectives, and says how good the
fit is.

Least squares on the logarithm of predicted over measured seconds, so that short and long messages
count alike, with a loss that is linear for outliers. What data sheets say (sizes, bandwidths,
topology) is kept; what is fitted stays within physical bounds.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from Estimator.network.calibration_errors import (
    LARGE_BYTES,
    NetworkErrors,
    network_errors,
    predicted_s,
)
from Estimator.network.calibration_tables import CollectiveSample
from Estimator.network.cluster import Cluster, CollectiveLibrary, ShortProtocol, Tier
from Estimator.network.crossings import crossings
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError

LARGE_WEIGHT = 2.0  # messages of the size that training sends most of the time count double
OUTLIER = 0.3  # logarithmic errors beyond this count linearly
DIGITS = 5  # significant ones that a fitted number keeps


@dataclass(frozen=True)
class Bounds:
    """Where a fitted number starts if the cluster does not say, and where it may lie."""

    start: float
    lowest: float
    highest: float


BOUNDS = {
    "efficiency": Bounds(0.8, 0.01, 1.0),
    "latency_s": Bounds(1e-5, 1e-8, 1e-3),
    "start_s": Bounds(1e-5, 1e-8, 1e-3),
    "inner_latency_s": Bounds(5e-6, 1e-8, 1e-3),
    "relay_stall": Bounds(0.2, 1e-3, 3.0),
    "tree_efficiency": Bounds(0.9, 0.3, 1.0),
    "copy_share": Bounds(0.3, 1e-3, 2.0),
}


@dataclass(frozen=True)
class NetworkFit:
    """A cluster with fitted numbers, their keys (``tiers.0.efficiency``), and the errors over the
    table they were fitted to."""

    cluster: Cluster
    fitted: tuple[str, ...]
    errors: NetworkErrors


@dataclass(frozen=True)
class _Knob:
    """A number of a cluster that is fitted: a field of a tier, of its protocol for short messages,
    or of the library."""

    tier: int | None
    short: bool
    field: str

    @property
    def key(self) -> str:
        owner = (
            "library"
            if self.tier is None
            else f"tiers.{self.tier}.short"
            if self.short
            else f"tiers.{self.tier}"
        )
        return f"{owner}.{self.field}"

    def get(self, cluster: Cluster) -> float:
        value: float = getattr(self._owner(cluster), self.field)
        return value

    def _owner(self, cluster: Cluster) -> Tier | ShortProtocol | CollectiveLibrary | None:
        if self.tier is None:
            return cluster.library
        return cluster.tiers[self.tier].short if self.short else cluster.tiers[self.tier]

    def set(self, cluster: Cluster, value: float) -> Cluster:
        change: dict[str, Any] = {self.field: value}
        if self.tier is None:
            return replace(cluster, library=cluster.library and replace(cluster.library, **change))
        tiers = list(cluster.tiers)
        if self.short:
            short = tiers[self.tier].short
            change = {"short": short and replace(short, **change)}
        tiers[self.tier] = replace(tiers[self.tier], **change)
        return replace(cluster, tiers=tuple(tiers))


def fit_collectives(samples: Sequence[CollectiveSample], cluster: Cluster) -> NetworkFit:
    """Fit the tiers that ``samples`` cross and the library of ``cluster``, which is where the
    search for them starts.

    Raises:
        InputError: no samples, or one that the cluster cannot hold.
    """
    if not samples:
        raise InputError(
            "there are no measured collectives to fit; give a table with at least one row"
        )
    groups = np.array([sample.group_size for sample in samples])
    strides = np.array([sample.stride(cluster) for sample in samples])
    used = crossings(groups, strides, cluster, np.zeros_like(groups)).used.any(axis=1)
    crossed = set(np.flatnonzero(used).tolist())
    reduces = any(sample.kind is CollectiveKind.ALL_REDUCE for sample in samples)
    fields = ("efficiency", "latency_s", "start_s")
    knobs = [
        _Knob(level, short, field)
        for level in sorted(crossed)
        for short in (False, True)
        for field in fields
    ]
    outer = sorted(crossed - {0})
    knobs += [
        _Knob(level, False, field)
        for level in outer
        for field in ("relay_stall", "inner_latency_s")
    ]
    knobs += [_Knob(None, False, "copy_share")] if 0 in crossed else []
    knobs += [_Knob(None, False, "tree_efficiency")] if reduces and crossed != {0} else []
    sizes = np.array([sample.payload_bytes for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    weights = np.where(sizes > LARGE_BYTES, LARGE_WEIGHT, 1.0)
    fitted = _fit(
        _with_library(cluster, crossed),
        knobs,
        seconds,
        weights,
        lambda each: predicted_s(samples, each),
    )
    return NetworkFit(fitted, tuple(knob.key for knob in knobs), network_errors(samples, fitted))


def _with_library(cluster: Cluster, crossed: set[int]) -> Cluster:
    """The cluster with something to start from for all that a library's collectives need."""
    library = cluster.library or CollectiveLibrary(
        BOUNDS["tree_efficiency"].start, BOUNDS["copy_share"].start
    )
    quick = ShortProtocol(BOUNDS["start_s"].start, 1e-6, 0.2)
    tiers = (
        replace(tier, short=tier.short or quick) if level in crossed else tier
        for level, tier in enumerate(cluster.tiers)
    )
    return replace(cluster, library=library, tiers=tuple(tiers))


def _fit(
    start: Cluster,
    knobs: Sequence[_Knob],
    seconds: FloatArray,
    weights: FloatArray,
    seconds_on: Callable[[Cluster], FloatArray],
) -> Cluster:
    from scipy.optimize import least_squares

    bounds = [BOUNDS[knob.field] for knob in knobs]
    lowest, highest = (
        np.log([getattr(bound, end) for bound in bounds]) for end in ("lowest", "highest")
    )
    stated = [knob.get(start) or bound.start for knob, bound in zip(knobs, bounds, strict=True)]
    first = np.clip(np.log(stated), lowest + 1e-3, highest - 1e-3)

    def built(values: Sequence[float]) -> Cluster:
        cluster = start
        for knob, value in zip(knobs, values, strict=True):
            cluster = knob.set(cluster, value)
        return cluster

    def residuals(logarithms: FloatArray) -> FloatArray:
        return weights * np.log(seconds_on(built(np.exp(logarithms).tolist())) / seconds)

    found = least_squares(
        residuals, first, bounds=(lowest, highest), loss="soft_l1", f_scale=OUTLIER
    )
    return built([float(f"{value:.{DIGITS}g}") for value in np.exp(found.x)])


def cluster_yaml(fit: NetworkFit, table: str, based_on: str) -> str:
    """A cluster file that ``load_cluster`` reads, each number with its source: fitted to ``table``
    or stated in ``based_on``."""
    errors = "".join(
        f"# {label}: {each.rows} rows, mean error {each.mape:.1%}, median {each.median:.1%}, bias "
        f"{each.bias:+.1%}.\n"
        for label, each in (
            ("All sizes", fit.errors.all),
            (f"Above {LARGE_BYTES / 1e6:.0f} MB", fit.errors.large),
        )
        if each is not None
    )
    return (
        f"# Calibrated on {table}, starting from "
        f"{based_on}.\n{errors}{stated_yaml(fit.cluster, fit.fitted, table, based_on)}"
    )


def stated_yaml(cluster: Cluster, fitted: Collection[str], table: str, based_on: str) -> str:
    """``cluster`` as a file, numbers whose keys are ``fitted`` (``tiers.0.efficiency``) to
    ``table``, others as ``based_on``."""
    import yaml

    def stated(value: object, key: str) -> object:
        if isinstance(value, bool | str) or value is None:
            return value
        if isinstance(value, int | float):
            return {
                "value": value,
                "source": f"calibrated on {table}" if key in fitted else based_on,
            }
        if isinstance(value, tuple):
            return [stated(each, f"{key}.{position}") for position, each in enumerate(value)]
        fields = (
            (name, stated(each, f"{key}.{name}".lstrip("."))) for name, each in vars(value).items()
        )
        return {
            name: str(each) if isinstance(each, str) else each
            for name, each in fields
            if each is not None
        }

    text: str = yaml.safe_dump(stated(cluster, ""), sort_keys=False, width=130, allow_unicode=True)
    return text
