"""Exact times of GPipe on unequal stages: identical jobs through a line of machines, forward and
then back."""

import numpy as np

from Estimator.plans.pipeline.kernels import Chunks
from Estimator.plans.pipeline.schedule import FloatArray


def last_backward_end_s(chunks: Chunks, micro_batches: int) -> FloatArray:
    """When each stage has ended its last backward pass, seconds from the start of the first forward
    pass, shape (pp,).

    ``chunks`` holds arrays of shape (pp,). m jobs leave a line of machines after one job's way and
    m - 1 times the slowest machine: the last stage is done with all forward passes, and only then
    begins the backward ones.
    """
    forward_s, backward_s, forward_delay_s, backward_delay_s = chunks
    more = micro_batches - 1
    turn_s = (forward_s + forward_delay_s)[:-1].sum() + forward_s[-1] + more * forward_s.max()
    # From the last stage back to each of the others.
    behind_s = (backward_s + backward_delay_s)[:0:-1].cumsum()[::-1]
    slowest_s = np.maximum.accumulate(backward_s[::-1])[::-1]
    ends_s: FloatArray = turn_s + backward_s + more * slowest_s
    ends_s[:-1] += behind_s
    return ends_s
