"""How far predictions of collectives are from measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.network.calibration_tables import CollectiveSample
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import FloatArray

LARGE_BYTES = 32e6  # training sends messages above this size most of the time


@dataclass(frozen=True)
class Errors:
    """Relative errors of predicted seconds, as fractions; ``bias`` is the signed mean, above 0
    where predictions are too slow."""

    rows: int
    mape: float
    median: float
    bias: float


@dataclass(frozen=True)
class NetworkErrors:
    """Errors over a table, and over its messages above ``LARGE_BYTES`` (None without such)."""

    all: Errors
    large: Errors | None


def network_errors(samples: Sequence[CollectiveSample], cluster: Cluster) -> NetworkErrors:
    """Errors of ``cluster`` on measured collectives, at least one.

    Raises:
        InputError: a sample that the cluster cannot hold.
    """
    sizes, seconds = (
        np.array([getattr(sample, name) for sample in samples])
        for name in ("payload_bytes", "seconds")
    )
    errors, large = predicted_s(samples, cluster) / seconds - 1.0, sizes > LARGE_BYTES
    return NetworkErrors(_errors(errors), _errors(errors[large]) if large.any() else None)


def _errors(errors: FloatArray) -> Errors:
    size = np.abs(errors)
    return Errors(len(errors), float(size.mean()), float(np.median(size)), float(errors.mean()))


def predicted_s(samples: Sequence[CollectiveSample], cluster: Cluster) -> FloatArray:
    """Seconds of the measured collectives on ``cluster``; shape (samples,).

    Raises:
        InputError: a sample that the cluster cannot hold.
    """
    by_kind: dict[CollectiveKind, list[int]] = {}
    for position, sample in enumerate(samples):
        by_kind.setdefault(sample.kind, []).append(position)
    sizes = np.array([sample.payload_bytes for sample in samples])
    groups = np.array([sample.group_size for sample in samples])
    strides = np.array([sample.stride(cluster) for sample in samples])
    seconds = np.empty(len(samples))
    for kind, positions in by_kind.items():
        costs = collective_costs_of(kind, groups[positions], strides[positions], cluster)
        seconds[positions] = costs.seconds(sizes[positions])
    return seconds
