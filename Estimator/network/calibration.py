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
from Estimator.network.cluster import Cluster, CollectiveLibrary, ShortProtocol
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


def _value_at(record: Any, key: str) -> float:
    """The number of a cluster that a key such as ``tiers.0.efficiency`` names."""
    for name in key.split("."):
        record = record[int(name)] if isinstance(record, tuple) else getattr(record, name)
    return float(record)


def _with_value(record: Any, path: Sequence[str], value: float) -> Any:
    """``record`` with the number that the parts of a key lead to."""
    if not path:
        return value
    name, *rest = path
    if isinstance(record, tuple):
        at = int(name)
        return (*record[:at], _with_value(record[at], rest, value), *record[at + 1 :])
    return replace(record, **{name: _with_value(getattr(record, name), rest, value)})


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
    keys = []
    for level in sorted(crossed):
        for protocol in (f"tiers.{level}", f"tiers.{level}.short"):
            keys += [f"{protocol}.{field}" for field in fields]
    for level in sorted(crossed - {0}):
        keys += [f"tiers.{level}.relay_stall", f"tiers.{level}.inner_latency_s"]
    if 0 in crossed:
        keys.append("library.copy_share")
    if reduces and crossed != {0}:
        keys.append("library.tree_efficiency")
    sizes = np.array([sample.payload_bytes for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    weights = np.where(sizes > LARGE_BYTES, LARGE_WEIGHT, 1.0)
    start = _with_library(cluster, crossed)
    fitted = _fit(start, keys, seconds, weights, lambda each: predicted_s(samples, each))
    return NetworkFit(fitted, tuple(keys), network_errors(samples, fitted))


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
    keys: Sequence[str],
    seconds: FloatArray,
    weights: FloatArray,
    seconds_on: Callable[[Cluster], FloatArray],
) -> Cluster:
    from scipy.optimize import least_squares

    bounds = [BOUNDS[key.rpartition(".")[2]] for key in keys]
    lowest, highest = (
        np.log([getattr(bound, end) for bound in bounds]) for end in ("lowest", "highest")
    )
    known = [_value_at(start, key) or bound.start for key, bound in zip(keys, bounds, strict=True)]
    first = np.clip(np.log(known), lowest + 1e-3, highest - 1e-3)

    def built(values: Sequence[float]) -> Cluster:
        cluster = start
        for key, value in zip(keys, values, strict=True):
            cluster = _with_value(cluster, key.split("."), value)
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
