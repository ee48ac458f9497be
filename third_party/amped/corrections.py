"""What is wrong in AMPeD's published formulas. All is put right unless it is kept as published.

Each is of quantities of its own, so that any of them can be left out alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest


@dataclass(frozen=True)
class Correction:
    """An error: what was published, and what is done instead."""

    name: str
    published: str
    corrected: str


HEAD_WIDTH = Correction(
    "head_width",
    "activation and error volumes are those of one attention head",
    "they are those of all heads",
)
GROUP_VOLUMES = Correction(
    "group_volumes",
    "every group is charged the whole batch's activations between nodes and the gradients of all "
    "stages; it has its node's network for itself",
    "a group moves the activations and gradients of its own replica and stage; the groups of a "
    "node share its network",
)
PRECISION = Correction(
    "precision",
    "a product of n bits takes ceil(n / 32) times that of 8 bits; weight updates take the same at "
    "any precision",
    "n / 8 times: the rates are those of 8 bits",
)
MICRO_BATCHES = Correction(
    "micro_batches",
    "a minibatch has as many micro-batches as the pipeline has stages where the configuration "
    "names no number",
    "it has micro-batches of one sequence",
)
BUBBLE = Correction(
    "bubble",
    "of a stage's time the bubble has all communication but of computation a share of 1 / layers "
    "and no weight gradients",
    "(pp - 1) / micro-batches of all that a stage does for a batch",
)
SHARDING = Correction(
    "sharding",
    "memory holds 1 / (dp tp pp) of weights and gradients and optimizer (ZeRO-3) while time has "
    "full all-reduces and a quarter of other traffic on top",
    "both follow zero_stage (0 where the configuration names none): with 3 each pass gathers the "
    "weights",
)
ACTIVATION_MEMORY = Correction(
    "activation_memory",
    "activations are divided by the data parallel degree twice and are those of one micro-batch",
    "they are divided once and are those of the micro-batches that 1F1B has in flight: at most "
    "one for each stage",
)
DECODER = Correction(
    "decoder",
    "decoder_flag is a product of sizes; the projection onto the vocabulary is counted for one "
    "token of a sequence and in each layer and forward only",
    "the flag is 1 where the configuration gives none; the projection is counted for all tokens "
    "and once and in all passes",
)
GATING = Correction(
    "gating", "the gating networks of all layers are counted in each layer", "they are counted once"
)
NON_LINEAR = Correction(
    "non_linear",
    "non-linear operations of the MLP do not grow with the sequence and run on one core",
    "they do, for each token, and run on all cores",
)
MATRIX_DIMENSIONS = Correction(  # of a file alone; see ``matrices``
    "matrix_dimensions",
    "the two products of the MLP in mat_dims.txt are D x MLP_1 and MLP_1 x MLP_2",
    "they are MLP_1 x MLP_2 and MLP_2 x MLP_1, so that the six lines add up to the layer's "
    "operations",
)

CORRECTIONS = (
    HEAD_WIDTH,
    GROUP_VOLUMES,
    PRECISION,
    MICRO_BATCHES,
    BUBBLE,
    SHARDING,
    ACTIVATION_MEMORY,
    DECODER,
    GATING,
    NON_LINEAR,
    MATRIX_DIMENSIONS,
)
NAMES = tuple(each.name for each in CORRECTIONS)


def applied(kept: Collection[str]) -> tuple[Correction, ...]:
    """The corrections but those whose names are ``kept`` as published. Raises InputError: a name is
    none of a correction."""
    for name in kept:
        if name not in NAMES:
            raise InputError(
                f"unknown correction {name!r}; "
                f"{nearest(name, NAMES, 'choose among ' + ', '.join(NAMES))}"
            )
    return tuple(each for each in CORRECTIONS if each.name not in kept)
