"""Prices on tensor cores that tests share: searches of the same study price the same products."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from Estimator.chips.tensor_core import CoreEstimate, TensorCoreModel, TensorWork
from phaze_common.bounded_memo import BoundedMemo

MOST_BYTES = 2**27


class PricedOnce:
    """``TensorCoreModel.estimate``, or what stands for it, asked once for every product on the same
    cores, platform and rates.

    Errors are not kept, nor is anything beyond this process; arrays that are shared cannot be
    written.
    """

    def __init__(self, estimate: Callable[[TensorCoreModel, TensorWork], CoreEstimate]) -> None:
        self._estimate = estimate
        self._priced = BoundedMemo[CoreEstimate](MOST_BYTES, _bytes_of)
        self._models = WeakKeyDictionary[TensorCoreModel, Hashable]()

    def __call__(self, model: TensorCoreModel, work: TensorWork) -> CoreEstimate:
        """What ``model`` takes for ``work``."""
        if model not in self._models:
            self._models[model] = _content(model)
        asked = type(model), self._models[model], work
        return self._priced.value(asked, lambda: _frozen(self._estimate(model, work)))


def _content(model: TensorCoreModel) -> Hashable:
    """Everything that decides the prices of ``model``: platform, rates and what follows from the
    cores."""
    held = {**vars(model), **{f"rates.{name}": each for name, each in vars(model.rates).items()}}
    arrays = {name: each for name, each in held.items() if isinstance(each, np.ndarray)}
    others = repr((model.platform, model.rates.sram, model.rates.wires))
    return others, tuple(
        (name, each.dtype.str, each.shape, each.tobytes()) for name, each in arrays.items()
    )


def _arrays(estimate: CoreEstimate) -> list[Any]:
    return [getattr(estimate, each.name) for each in fields(estimate)]


def _bytes_of(estimate: CoreEstimate) -> int:
    return sum(each.nbytes for each in _arrays(estimate))


def _frozen(estimate: CoreEstimate) -> CoreEstimate:
    for each in _arrays(estimate):
        each.flags.writeable = False
    return estimate
