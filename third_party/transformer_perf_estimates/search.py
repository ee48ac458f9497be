"""The best configurations of a whole space: shortest iterations among those that fit, proven by
pricing every one."""

from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import IntArray

from .configurations import Training
from .corrections import CORRECTED, Corrections
from .spaces import space
from .totals import Estimates, estimate


@dataclass(frozen=True, eq=False)
class Search:
    """A priced space; ``best`` are places of the best configurations that fit, the shortest
    iteration first."""

    estimates: Estimates
    best: IntArray

    @property
    def candidates(self) -> int:
        """Configurations of the space."""
        return len(self.estimates.configurations)

    @property
    def feasible(self) -> int:
        """Those that fit the memory."""
        return int(np.count_nonzero(self.estimates.feasible))


def search(training: Training, top: int = 1, corrections: Corrections = CORRECTED) -> Search:
    """Price a space and find its ``top`` best configurations, fewer where fewer fit. Raises
    InputError: the space is larger than memory holds."""
    return best_of(estimate(training, space(training), corrections), top)


def best_of(estimates: Estimates, top: int) -> Search:
    """The ``top`` best of priced configurations; of equally long iterations those that come
    first."""
    fitting = np.flatnonzero(estimates.feasible)
    seconds = estimates.seconds[fitting]
    if 0 < top < len(fitting):
        within = seconds <= np.partition(seconds, top - 1)[top - 1]
        fitting, seconds = fitting[within], seconds[within]
    return Search(estimates, fitting[np.argsort(seconds, kind="stable")][:top])
