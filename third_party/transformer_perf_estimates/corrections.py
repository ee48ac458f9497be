"""What the published formulas get wrong, each error with its correction, so that every one can be
switched by itself.

What is a choice of the model rather than an error stays as published in any case: 20 us for every
operator and 80% of every peak, no embeddings, head, loss or optimizer step, whole attention
matrices for causal models, no interleaving, stage-to-stage messages that nothing hides, parameters
of norms and biases that no extra message synchronises over tensor parallel GPUs, and the A100's
memory, which is of two different parts.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import TypeAlias


class Correction(StrEnum):
    """An error of the published formulas, named for what is put right."""

    ALL_REDUCE = "all-reduce"
    """An all-reduce is a reduce-scatter and an all-gather, both terms twice, wherever its group
    lies. Published: only the term of the bandwidth doubles, and only in groups that are partly in
    the fast domain (``collectives``)."""
    NORM_WIDTH = "norm-width"
    """A norm of the 2D layout holds the e / tp1 features of its device. Published: ``l // m1``, the
    sequence for the width, which also sets what pipeline stages send each other
    (``operators.norm_2d``)."""
    PIPELINE_LINKS = "pipeline-links"
    """A link between stages of two fast domains takes the time of the slow network. Published:
    none, wherever a fast domain holds several stages (``totals``)."""
    BIAS_SHARDS = "bias-shards"
    """Behind a reduce-scatter of the sequence, bias is added to the device's own tokens. Published:
    to all tokens in the 1D layout, and in the sequence layout with a weight split over tp1 behind
    the attention only (``blocks``)."""
    EXACT_SHARDS = "exact-shards"
    """The tokens of a micro-batch divide evenly over the devices, as the search demands. Published:
    those of one sequence are rounded down first, so that tokens are lost where only the whole
    micro-batch divides (``operators.Shards``)."""


Corrections: TypeAlias = AbstractSet[Correction]  # those in force
AS_PUBLISHED: Corrections = frozenset()
CORRECTED: Corrections = frozenset(Correction)
