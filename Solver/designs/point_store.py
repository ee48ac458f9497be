"""Finished design points on disk, one part file per evaluated batch, so that a killed search goes
on where it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phaze_common.array_types import BoolArray, FloatArray, IntArray
from phaze_common.arrays import load_arrays, store_arrays
from phaze_common.bounded_memo import BoundedMemo
from phaze_common.files import content_key, load_or_set_aside
from phaze_common.numbers import number

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StoredPoints:
    """Results of one batch, all of shape (points,).

    Indices, and of the best plan its seconds (inf: infeasible), what no plan is below, bytes of its
    fullest stage, and degrees."""

    points: IntArray
    iteration_s: FloatArray
    least_s: FloatArray
    memory_bytes: FloatArray
    dp: IntArray
    pp: IntArray


@dataclass(frozen=True, eq=False)
class StoredBounds:
    """Lower bounds on the seconds of points, shape (points,); infinite where none is asked for."""

    bound_s: FloatArray


class PointStore:
    """Files in a folder that belongs to one point group; the folder's name is the hash of the
    group's inputs.

    Without a folder nothing is kept. With ``only_bounds`` those are read and nothing is written;
    ``known`` are bounds that were found in this process."""

    def __init__(
        self,
        folder: Path | None,
        *,
        only_bounds: bool = False,
        known: BoundedMemo[FloatArray] | None = None,
    ) -> None:
        self._folder, self._only_bounds, self._known = folder, only_bounds, known

    @property
    def name(self) -> str:
        """The hash; empty without a folder."""
        return "" if self._folder is None else self._folder.name

    def bounds(self, asked: BoolArray, compute: Callable[[BoolArray], FloatArray]) -> FloatArray:
        """The bounds of the points that are ``asked``: stored ones, else ``compute(asked)``, which
        are then stored.

        Of which points there are bounds follows from the objective and the front, which a later run
        may change."""
        if self._folder is None:
            return compute(asked)
        path = self._folder / f"bounds-{content_key(np.packbits(asked).tobytes().hex())}.npz"
        stored = load_or_set_aside(path, lambda file: load_arrays(StoredBounds, file))
        if stored is not None:
            return stored.bound_s
        if self._known is None:
            bound_s = compute(asked)
        else:
            bound_s = self._known.value(path, lambda: compute(asked))
        if not self._only_bounds:
            store_arrays(path, StoredBounds(bound_s))
        return bound_s

    def append(self, batch: StoredPoints) -> None:
        """Write one batch; it is on disk when this returns. Equal batches have equal names."""
        if self._folder is not None and not self._only_bounds:
            store_arrays(self._folder / f"points-{content_key(batch.points.tolist())}.npz", batch)

    def load(self) -> list[StoredPoints]:
        """All stored batches; damaged ones are set aside, and their points evaluated again."""
        if self._folder is None or self._only_bounds:
            return []
        paths = sorted(self._folder.glob("points-*.npz"))
        batches = [
            load_or_set_aside(path, lambda file: load_arrays(StoredPoints, file)) for path in paths
        ]
        found = [batch for batch in batches if batch is not None]
        if found:
            count = sum(len(batch.points) for batch in found)
            points = "point" if count == 1 else "points"
            logger.info("%s finished design %s found in %s", number(count), points, self._folder)
        return found
