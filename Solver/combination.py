"""One number for a design from the objectives that several models reach on it, each with its own
best plan.

All of them grow with each model's objective, so that bounds of the models give a bound of the
whole. Samples of different models are not alike: a weighted mean of samples per second is decided
by whichever model has the smallest. Shares of what each model reaches alone are alike; their
geometric mean has the same best design whatever they are shares of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_common.choices import Combine

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Combination:
    """How the objectives of models become one, by ``weights``.

    ``own_best`` is the most that each model reaches alone; of several it is empty where one of them
    has no plan anywhere.
    """

    how: Combine
    weights: Mapping[str, float]
    own_best: Mapping[str, float]

    def of(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """The whole of ``values``, arrays of one shape, by model; -inf where a model has none. Of
        one model they are its own."""
        if len(values) == 1:
            return next(iter(values.values()))
        if self.how is Combine.MEAN:
            return self.mean(values)
        if not self.own_best:
            return np.full_like(next(iter(values.values())), -np.inf)
        shares = {model: value / self.own_best[model] for model, value in values.items()}
        if self.how is Combine.WORST:
            least: FloatArray = np.min(list(shares.values()), axis=0)
            return least
        if self.how is Combine.TIME_SHARED:
            return self.mean(shares)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = {
                model: np.where(share > 0.0, np.log(share), -np.inf)
                for model, share in shares.items()
            }
        logarithm = self.mean(logarithms)
        return np.where(np.isneginf(logarithm), -np.inf, np.exp(logarithm))

    def mean(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """The weighted mean."""
        total = sum(self.weights[model] for model in values)
        found: FloatArray = np.sum(
            [values[model] * (self.weights[model] / total) for model in values], axis=0
        )
        return found
