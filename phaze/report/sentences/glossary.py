"""What words of an answer mean, for the terminal and for the page."""

import re
from dataclasses import dataclass

from Estimator.plans.axes import PLAN_AXES
from phaze.report.sentences.utilization import MFU_OF_ANY


@dataclass(frozen=True)
class Meaning:
    """A word and what it means; ``text`` ends without a full stop."""

    word: str
    text: str


MEANINGS = (
    Meaning("TC", "tensor core, 8 TC 128x64 are eight of 128 rows and 64 columns of multipliers"),
    Meaning("VC", "vector core, 2 VC 128 are two of 128 lanes"),
    Meaning("GLB", "the buffer on the chip that its cores share"),
    Meaning("HBM", "the memory beside the chip"),
    Meaning("micro-batch", "samples that pass through a pipeline together"),
    *(
        Meaning(each.key, f"{each.axis.help}, {each.axis.glossary}")
        for each in PLAN_AXES
        if each.axis.glossary
    ),
    Meaning(
        "Pareto front",
        "designs that no other one equals or beats in everything that the front is of (--front)",
    ),
    Meaning("MFU", f"utilisation by {MFU_OF_ANY}"),
    Meaning("bubble", "waiting for other pipeline stages"),
    Meaning("recomputation", "activations made again in the backward pass instead of kept"),
    Meaning(
        "ZeRO",
        "states of the optimizer (1), gradients too (2), weights too (3) shared out over replicas",
    ),
)


def used_in(text: str) -> tuple[Meaning, ...]:
    """The meanings of the words that stand in ``text``."""
    return tuple(meaning for meaning in MEANINGS if re.search(rf"\b{meaning.word}\b", text))
