"""Slow-downs of activities that run at once, fitted to measurements of products, traffic between
devices and with the host.

A row is one measurement: how much of each activity was started together, and when all had ended.
Fitted are what each activity takes alone (a start and a rate; of traffic between devices for each
arrangement of its groups) and, at the same time, how much every activity slows every other one
down, by least squares of the logarithm of the joint time.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.network.contention import ACTIVITIES, Activity, joint_s
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.echo import clipped
from phaze_common.errors import InputError
from phaze_common.files import read_text

TRAFFIC_COLUMNS = ("gpu_to_gpu_mb", "cpu_to_gpu_mb", "gpu_to_cpu_mb")
COLUMNS = (
    "gpu",
    "m",
    "n",
    "k",
    *TRAFFIC_COLUMNS,
    "intra_group_size",
    "inter_group_size",
    "latency_ms",
)
LARGEST = 1e9
LEAST_ROWS = 100  # for some thirty constants
HELD_OUT = 0.3  # part of the rows that the stated error is taken from
START, SOFT = 0.1, 0.1  # slow-downs to begin with; relative error from which rows weigh less
MOST_STEPS = 40
LEAST_S, QUICKEST = 1e-4, 0.1  # of a start; part of the rows that are taken to be disturbed least
BETWEEN = 3
# constants of each activity: products, with the host, and each arrangement between devices
KINDS = (0, BETWEEN, BETWEEN, 1, 2)
PAIRS = tuple(  # traffic between devices is one or the other
    (i, j)
    for (i, slowed), (j, other) in product(enumerate(ACTIVITIES), repeat=2)
    if i != j and {slowed, other} != {Activity.NEAR, Activity.FAR}
)


@dataclass(frozen=True, eq=False)
class JointRows:
    """N measurements: TFLOP and MB of each activity (N, 5), which arrangement of groups (N,),
    seconds until all ended (N,)."""

    device: str
    work: FloatArray
    arrangement: IntArray
    arrangements: int
    seconds: FloatArray

    def some(self, rows: NDArray[np.bool_]) -> JointRows:
        """Those of ``rows``."""
        work, arrangement = self.work[rows], self.arrangement[rows]
        return replace(self, work=work, arrangement=arrangement, seconds=self.seconds[rows])


@dataclass(frozen=True, eq=False)
class ContentionFit:
    """Slow-downs of i by j in the order of ``ACTIVITIES`` (5, 5), fitted to all rows; the mean
    error of rows held out."""

    slowdown: FloatArray
    rows: int
    mape: float
    bias: float
    held_out_rows: int
    held_out_mape: float
    held_out_bias: float

    def by_name(self) -> dict[str, dict[str, float]]:
        """The slow-downs that are not 0, as a file of them states them."""
        named = {
            str(slowed): {
                str(other): round(float(value), 3)
                for other, value in zip(ACTIVITIES, row, strict=True)
                if value > 5e-4
            }
            for slowed, row in zip(ACTIVITIES, self.slowdown, strict=True)
        }
        return {name: row for name, row in named.items() if row}


def read_joint_rows(path: Path) -> JointRows:
    """Read a CSV with the ``COLUMNS``: a product m x n x k, MB between devices and with the host,
    ms until all have ended.

    Raises: InputError: the file is not readable, has other columns or values, few rows, or several
        devices.
    """
    text = read_text(path, "a table of what runs at once")
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]}; a table of what runs at once has "
            f"{', '.join(COLUMNS)}"
        )
    devices, numbers = set(), []
    for place, row in enumerate(reader, start=2):
        devices.add((row["gpu"] or "").strip())
        numbers.append([_number(row[name], name, f"{path} line {place}") for name in COLUMNS[1:]])
    if len(numbers) < LEAST_ROWS or len(devices) != 1:
        given = f"{len(numbers)} rows of {len(devices)} devices"
        raise InputError(f"{path} has {given}; give {LEAST_ROWS} or more of one device")
    m, n, k, between, to_device, from_device, near, far, latency_ms = np.array(numbers).T
    if latency_ms.min() <= 0.0:
        raise InputError(f"{path}: latency_ms is {latency_ms.min():g}; it must be positive")
    beyond = far > 1
    work = np.stack(
        [2.0 * m * n * k / 1e12, between * ~beyond, between * beyond, to_device, from_device],
        axis=1,
    )
    kinds, arrangement = np.unique(np.stack([near, far]), axis=1, return_inverse=True)
    return JointRows(
        devices.pop(), work, arrangement.reshape(-1), kinds.shape[1], latency_ms * 1e-3
    )


def _number(text: str | None, name: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LARGEST:
        raise InputError(
            f"{where}: {name} is {clipped(repr(text))}; give a number from 0 to {LARGEST:g}"
        )
    return value


def fit_contention(rows: JointRows) -> ContentionFit:
    """Fit all rows; the error of rows held out is that of a fit to the others."""
    held_out = np.random.default_rng(0).random(len(rows.seconds)) < HELD_OUT
    others = _Constants(rows.arrangements).fitted(rows.some(~held_out))
    error = others.error(rows.some(held_out))
    every = _Constants(rows.arrangements).fitted(rows)
    all_errors = every.error(rows)
    return ContentionFit(
        slowdown=every.slowdown,
        rows=len(all_errors),
        mape=float(np.abs(all_errors).mean()),
        bias=float(all_errors.mean()),
        held_out_rows=len(error),
        held_out_mape=float(np.abs(error).mean()),
        held_out_bias=float(error.mean()),
    )


class _Constants:
    """Seconds of a start and per unit of work of each activity, of traffic by arrangement;
    slow-downs."""

    def __init__(self, arrangements: int, values: FloatArray | None = None) -> None:
        self._arrangements = arrangements
        self._values = (
            np.full(2 * (3 + arrangements) + len(PAIRS), np.nan) if values is None else values
        )

    @property
    def slowdown(self) -> FloatArray:
        """Of i by j, shape (5, 5)."""
        matrix = np.zeros((len(ACTIVITIES), len(ACTIVITIES)))
        for (i, j), value in zip(PAIRS, self._values[-len(PAIRS) :].tolist(), strict=True):
            matrix[i, j] = value
        return matrix

    def fitted(self, rows: JointRows) -> _Constants:
        """Those that fit ``rows`` best."""
        from scipy.optimize import least_squares

        def residuals(values: FloatArray) -> FloatArray:
            found: FloatArray = np.log(
                _Constants(self._arrangements, values).seconds(rows) / rows.seconds
            )
            return found

        best = least_squares(
            residuals,
            self._start(rows),
            bounds=(0.0, np.inf),
            loss="soft_l1",
            f_scale=SOFT,
            max_nfev=MOST_STEPS,
        )
        return _Constants(self._arrangements, best.x)

    def seconds(self, rows: JointRows) -> FloatArray:
        """Predicted joint seconds, shape (N,)."""
        predicted: FloatArray = np.maximum(joint_s(self._alone_s(rows), self.slowdown), 1e-9)
        return predicted

    def error(self, rows: JointRows) -> FloatArray:
        """Relative error of every row, shape (N,)."""
        error: FloatArray = self.seconds(rows) / rows.seconds - 1.0
        return error

    def _alone_s(self, rows: JointRows) -> FloatArray:
        starts, rates = self._values[: -len(PAIRS)].reshape(2, -1)
        of = np.tile(np.array(KINDS), (len(rows.seconds), 1))
        of[:, 1:3] += rows.arrangement[:, None]
        return np.where(rows.work > 0.0, starts[of] + rates[of] * rows.work, 0.0)

    def _start(self, rows: JointRows) -> FloatArray:
        """Each activity as rows say that have only that, or else the quickest rows that have it;
        slow-downs a little."""
        constants = np.full((3 + self._arrangements, 2), LEAST_S)
        only = (rows.work > 0.0).sum(axis=1) == 1
        for place, first in enumerate(KINDS):
            for kind in range(self._arrangements) if first == BETWEEN else (0,):
                used = rows.work[:, place] > 0.0
                used &= (rows.arrangement == kind) | (first != BETWEEN)
                if not used.any():
                    continue
                work, seconds = rows.work[used & only, place], rows.seconds[used & only]
                if len(np.unique(work)) > 1:
                    line = np.polynomial.polynomial.polyfit(work, seconds, 1)
                else:
                    rates = rows.seconds[used] / rows.work[used, place]
                    line = np.array([LEAST_S, np.quantile(rates, QUICKEST)])
                constants[first + kind] = np.maximum(line, LEAST_S * 1e-3)
        return np.concatenate([constants.T.ravel(), np.full(len(PAIRS), START)])


def of_one_device(tables: Sequence[JointRows]) -> JointRows:
    """Rows of several tables of one device, whose arrangements of groups are told apart by table.

    Raises:
        InputError: the tables are of several devices.
    """
    names = sorted({table.device for table in tables})
    if len(names) > 1:
        raise InputError(f"tables of {' and '.join(names)} were given; fit one device at a time")
    first = np.cumsum([0, *(table.arrangements for table in tables)])
    return JointRows(
        names[0],
        np.concatenate([table.work for table in tables]),
        np.concatenate(
            [
                table.arrangement + start
                for table, start in zip(tables, first.tolist(), strict=False)
            ]
        ),
        int(first[-1]),
        np.concatenate([table.seconds for table in tables]),
    )
