"""What of a training is kept in host memory: which part of its optimizer state, gradients, weights
and saved activations.

What is kept there leaves the device but for two layers of it at a time, one at work and one on its
way (never more than would be there without). It travels over the device's link to the host:

* **optimizer state** to the device and back once per iteration, beside the step, which the device
  runs as always;
* **gradients** back after each micro-batch's backward pass, to the device before it where they are
  added to those of earlier micro-batches, and to the device once more for the step. Replicas reduce
  them layer by layer before they leave;
* **weights** to the device for each forward and for each backward pass, and to the device and back
  for the step;
* **activations** back behind the forward pass and to the device for the backward pass of each
  micro-batch.

``Estimator.plans.host_traffic`` says what that takes. Mist (Zhu et al., EuroSys 2025) has the same
four and searches their parts, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import product
from typing import ClassVar

from phaze_common.choices import OffloadKind
from phaze_common.errors import InputError
from phaze_common.setting_values import Form
from phaze_common.text_in_files import TextInFiles

RATIOS = (0.0, 0.5, 1.0)  # parts that a search tries of what it may keep in host memory
_WRITTEN = re.compile(r"[a-z]+=[0-9.eE+-]{1,20}")
EXAMPLE = "activations=0.5"


@dataclass(frozen=True, order=True)
class Offload(TextInFiles):
    """Parts, from 0 to 1, that are kept in host memory."""

    optimizer: float = 0.0
    gradients: float = 0.0
    weights: float = 0.0
    activations: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self != NOTHING

    @property
    def in_passes(self) -> bool:
        """Whether passes of micro-batches wait for the host, not the optimizer's step alone."""
        return max(self.gradients, self.weights, self.activations) > 0.0

    @property
    def terms(self) -> tuple[str, ...]:
        """As it is given: ``optimizer``, ``activations=0.5``; empty where nothing is."""
        parts = ((each.name, getattr(self, each.name)) for each in fields(self))
        return tuple(
            name if part == 1.0 else f"{name}={part!r}" for name, part in parts if part > 0.0
        )

    def __str__(self) -> str:
        """The same in one text."""
        return " ".join(self.terms)

    @classmethod
    def parsed(cls, text: str) -> Offload:
        """What ``str`` gave."""
        return offload_of(
            OffloadShare.parsed(term) if "=" in term else OffloadKind(term) for term in text.split()
        )


NOTHING = Offload()


@dataclass(frozen=True)
class OffloadShare:
    """A part of one kind, as ``activations=0.5``."""

    FORM: ClassVar[Form] = Form(_WRITTEN, "a part of one of them", EXAMPLE)

    kind: OffloadKind
    part: float

    @property
    def value(self) -> str:
        """As it is given."""
        return f"{self.kind.value}={self.part!r}"

    @staticmethod
    def parsed(text: str) -> OffloadShare:
        """The part written as ``activations=0.5``.

        Raises:
            InputError: there is no such kind, or no such part.
        """
        name, _, number = text.partition("=")
        names = [kind.value for kind in OffloadKind if kind is not OffloadKind.AUTO]
        try:
            part = float(number)
        except ValueError:
            part = -1.0
        if name not in names or not 0.0 <= part <= 1.0:
            raise InputError(
                f"offload has {text!r}; give {', '.join(names)}, or a part of one of them from 0 "
                f"to 1, as in {EXAMPLE}"
            )
        return OffloadShare(OffloadKind(name), part)


OffloadTerm = OffloadKind | OffloadShare


def offload_of(terms: Iterable[OffloadTerm]) -> Offload:
    """What is kept in host memory where ``terms`` are, wholly or in part.

    Raises:
        InputError: a kind is given twice.
    """
    parts: dict[str, float] = {}
    for term in terms:
        kind, part = (term.kind, term.part) if isinstance(term, OffloadShare) else (term, 1.0)
        if kind.value in parts:
            raise InputError(
                f"offload has {kind.value} twice; give it once, as {kind.value}, or a part of it "
                f"as {EXAMPLE}"
            )
        parts[kind.value] = part
    return Offload(**parts)


def offloads_searched(terms: Iterable[OffloadTerm]) -> tuple[Offload, ...]:
    """Everything that a search tries where ``terms`` may be kept in host memory: of each
    ``RATIOS``, or nothing and its part.

    Raises:
        InputError: a kind is given twice.
    """
    given = tuple(terms)
    if OffloadKind.AUTO in given:
        named = {term.kind if isinstance(term, OffloadShare) else term for term in given}
        others = (kind for kind in OffloadKind if kind not in named)
        given = (*(term for term in given if term is not OffloadKind.AUTO), *others)
    offload_of(given)
    tried = {
        (term.kind if isinstance(term, OffloadShare) else term).value: tuple(
            dict.fromkeys((0.0, term.part) if isinstance(term, OffloadShare) else RATIOS)
        )
        for term in given
    }
    return tuple(
        Offload(**dict(zip(tried, parts, strict=True))) for parts in product(*tried.values())
    )
