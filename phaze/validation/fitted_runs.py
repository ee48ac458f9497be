"""The few constants of one cluster that a user's own runs tell, with what ships as prior.

An iteration is the sum of its parts, of which each goes with a constant. So many runs as a user has
tell two or three of them: factors of the time of products, of what memory takes, and of all
communication, log-normal around 1 with the width of their ranges, are fitted to logarithms of
measured over predicted times (maximum a posteriori). Each run is also predicted by a fit to the
others, which says whether the fit helps where it did not look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from Estimator.devices.files import load_device
from Estimator.devices.written_yaml import written_yaml
from Estimator.hardware_files import load_cluster
from Estimator.network.calibration import stated_yaml
from Estimator.quantity import Quantity
from phaze.validation.explained import load_parts, part_seconds, times
from phaze.validation.records import RunResult
from phaze_common.errors import InputError

FloatArray = NDArray[np.float64]

GROUPS = {
    "products": ("products",),
    "memory": ("memory",),
    "communication": ("layers' communication", "data-parallel communication"),
}
# standard deviations of the logarithms of factors
WIDTHS = {"products": 0.12, "memory": 0.25, "communication": 0.4}
NOISE = 0.05  # of a run's time, as a standard deviation of its logarithm
FEWEST = 3


@dataclass(frozen=True)
class RunFit:
    """Factors of time by what they are of; mean errors of all runs before and after, and of each by
    the fit to the others."""

    factors: dict[str, float]
    rows: int
    before: float
    after: float
    left_out: float


def fit_runs(runs: Sequence[RunResult]) -> RunFit:
    """Fit the factors to runs of one device on one cluster.

    Raises:
        InputError: there are too few runs that could be predicted, or they are of several devices.
    """
    known = [
        run for run in runs if run.plan and run.breakdown_s and run.measured_s and run.predicted_s
    ]
    if len(known) < FEWEST:
        raise InputError(
            f"{len(known)} of {len(runs)} runs could be predicted, too few to fit constants to; "
            f"give at least {FEWEST} of one device on one cluster ('phaze validate RUNS.csv' says "
            "why rows are skipped)"
        )
    devices = sorted({run.plan.device for run in known if run.plan})
    if len(devices) > 1:
        raise InputError(
            f"the runs are of several devices ({', '.join(devices)}); give those of one, or "
            "--device for all of them"
        )
    parts = _parts(known)
    measured, predicted = times(known)
    factors = _fit(parts, predicted, measured)
    left_out = []
    for place in range(len(known)):
        others = np.arange(len(known)) != place
        factors_of_others = _fit(parts[others], predicted[others], measured[others])
        left_out.append(_predicted(factors_of_others, parts, predicted)[place])
    return RunFit(
        dict(zip(GROUPS, factors.tolist(), strict=True)),
        len(known),
        _error(predicted, measured),
        _error(_predicted(factors, parts, predicted), measured),
        _error(np.array(left_out), measured),
    )


def device_text(start: str, fit: RunFit, name: str, runs: str) -> str:
    """The file of the device ``start`` with what the fit to ``runs`` says of products and memory;
    fractions are at most 1.

    All that the memory delivers is moved: to copies, to functions that have a part of the bandwidth
    of their own, to products.
    """
    device, source = load_device(start), f"fitted to {fit.rows} runs of {runs}"
    engine, time_factor = device.matrix, fit.factors["memory"]
    operands = engine.operand_bandwidth
    matrix = replace(
        engine,
        sustained=_moved(engine.sustained, fit.factors["products"], source),
        batched_bandwidth=_moved(engine.batched_bandwidth, time_factor, source),
        operand_bandwidth=None if operands is None else _moved(operands, time_factor, source),
    )
    functions = {
        each: _moved(part, time_factor, source) for each, part in device.memory.functions.items()
    }
    efficiency = _moved(device.memory.efficiency, time_factor, source)
    memory = replace(device.memory, efficiency=efficiency, functions=functions)
    return written_yaml(replace(device, name=name, aliases=(), matrix=matrix, memory=memory))


def cluster_text(start: str, fit: RunFit, name: str, runs: str) -> str:
    """The file of the cluster ``start`` with links as fast as the fit to ``runs`` says of
    communication."""
    cluster, time_factor = load_cluster(start), fit.factors["communication"]
    tiers = tuple(
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s / time_factor)
        for tier in cluster.tiers
    )
    fitted = {f"tiers.{place}.bandwidth_bytes_per_s" for place in range(len(tiers))}
    text = stated_yaml(replace(cluster, name=name, tiers=tiers), fitted, runs, cluster.name)
    return (
        f"# Bandwidths {1.0 / time_factor:.3f} times those of {cluster.name}, fitted to {fit.rows} "
        f"runs of {runs}.\n{text}"
    )


def _parts(runs: Sequence[RunResult]) -> FloatArray:
    named = {part.name: part for part in load_parts()}
    columns = [sum(part_seconds(named[name], runs) for name in names) for names in GROUPS.values()]
    return np.array(columns, dtype=np.float64).T


def _fit(parts: FloatArray, predicted: FloatArray, measured: FloatArray) -> FloatArray:
    from scipy.optimize import least_squares

    widths = np.array([WIDTHS[group] for group in GROUPS])

    def residuals(logarithms: FloatArray) -> FloatArray:
        moved = _predicted(np.exp(logarithms), parts, predicted)
        return np.concatenate(
            [np.log(np.maximum(moved, 1e-12) / measured) / NOISE, logarithms / widths]
        )

    found: FloatArray = np.exp(least_squares(residuals, np.zeros(len(widths))).x)
    return found


def _predicted(factors: FloatArray, parts: FloatArray, predicted: FloatArray) -> FloatArray:
    moved: FloatArray = predicted + parts @ (factors - 1.0)
    return moved


def _error(predicted: FloatArray, measured: FloatArray) -> float:
    return float(np.abs(predicted / measured - 1.0).mean())


def _moved(quantity: Quantity, time_factor: float, source: str) -> Quantity:
    value = min(quantity.value / time_factor, 1.0)
    source = f"{source}, from {quantity.value:g} ({quantity.source})"
    return replace(quantity, value=round(value, 4), source=source)
