"""Which devices of a plan lie in which tier of the network: so many of every parallel axis in each
block of each tier.

Where a group lies evenly in the blocks it meets, only these numbers decide what its collectives
cost ("rectangles": 4 devices in each of 8 nodes). An order of groups over consecutive devices fills
the innermost tier with the innermost axis first; an assignment shares it out among the axes as it
likes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, ClassVar

from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.settings import Form
from phaze_common.text_in_files import TextInFiles

if TYPE_CHECKING:
    from Estimator.network.cluster import Cluster

AXES = ("tp", "tp2", "cp", "dp", "pp")  # that share out the devices; ep is a part of cp and dp
# axes as written: tp24 would be 24 of tp
_WORDS = {"tp": "tp", "row": "tp2", "cp": "cp", "dp": "dp", "pp": "pp", "ep": "ep"}
_TERM = re.compile(rf"({'|'.join(_WORDS)})([1-9][0-9]{{0,8}})")
# what is meant as one; ``parsed`` says what is wrong with it
_WRITTEN = re.compile(r"(?=.*[0-9])[a-z0-9./]{1,400}")
MOST_TIERS = 10
EXAMPLE = "tp4.dp2/dp8.pp4"
_AXES = ", ".join(_WORDS)
_HOW = f"write what each tier holds, innermost first, such as {EXAMPLE}"


@dataclass(frozen=True)
class Assignment(TextInFiles):
    """Devices of every axis by tier, innermost first: ``tp[0]`` tensor-parallel devices in a block
    of the innermost tier, ...

    All axes have as many entries. ``ep`` is how many of the cp · dp of a tier divide the experts
    among them, ``tp2`` the second axis of a 2D layout, whose devices are written as its rows.
    """

    FORM: ClassVar[Form] = Form(
        _WRITTEN, "so many devices of each axis by tier of the network", EXAMPLE
    )

    tp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]
    dp: tuple[int, ...]
    pp: tuple[int, ...]
    tp2: tuple[int, ...]

    @property
    def kind(self) -> str:
        """What sentences call it."""
        return "tiers"

    @classmethod
    def parsed(cls, text: str) -> Assignment:
        """The assignment written as ``tp4.dp2/dp8.pp4``: tiers, innermost first, and the axes that
        have devices there.

        Raises:
            InputError: it is written otherwise.
        """
        tiers = []
        for number, part in enumerate(text.split("/"), start=1):
            here, found = f"tier {number} of {as_given(text)}", dict[str, int]()
            if not part:
                raise InputError(
                    f"{here} is empty; write 1 for a tier in which no axis has several devices, "
                    "as in tp4/1/dp8"
                )
            for term in part.split(".") if part != "1" else ():
                match = _TERM.fullmatch(term)
                if match is None:
                    raise InputError(
                        f"{here} holds {as_given(term)}, which is no axis ({_AXES}) with its "
                        f"number of devices; {_HOW}"
                    )
                if _WORDS[match[1]] in found:
                    also = "; the second axis of a 2d layout is written row"
                    also = also if match[1] == "tp" else ""
                    raise InputError(
                        f"{here} names {match[1]} twice; name an axis once in a tier, as in "
                        f"{EXAMPLE}{also}"
                    )
                found[_WORDS[match[1]]] = int(match[2])
            tiers.append(dict.fromkeys(_WORDS.values(), 1) | found)
        if len(tiers) > MOST_TIERS:
            raise InputError(
                f"{as_given(text)} assigns axes to {len(tiers)} tiers, and no network has more "
                f"than {MOST_TIERS}; {_HOW}"
            )
        names = [each.name for each in fields(Assignment)]
        return Assignment(*(tuple(tier[name] for tier in tiers) for name in names))

    def __str__(self) -> str:
        axes = [(word, getattr(self, name)) for word, name in _WORDS.items()]
        tiers = []
        for tier in range(len(self.tp)):
            terms = [f"{word}{parts[tier]}" for word, parts in axes if parts[tier] > 1]
            tiers.append(".".join(terms) or "1")
        while len(tiers) > 1 and tiers[-1] == "1":
            tiers.pop()
        return "/".join(tiers)

    def over(self, tiers: int) -> Assignment:
        """The same on a network of so many tiers, at least its own, using the inner ones."""
        if tiers == len(self.tp):
            return self
        more = (1,) * (tiers - len(self.tp))
        return Assignment(*(getattr(self, each.name) + more for each in fields(self)))

    @property
    def groups(self) -> Assignment:
        """The same without replicas and stages: the groups that communicate within a layer."""
        alone = (1,) * len(self.tp)
        return replace(self, dp=alone, pp=alone)

    def has(self, **degrees: int) -> bool:
        """Whether its axes multiply to ``degrees``."""
        return all(math.prod(getattr(self, axis)) == degree for axis, degree in degrees.items())

    @property
    def copies(self) -> tuple[int, ...]:
        """Devices that hold the same parameters, experts aside, by tier."""
        return tuple(math.prod(each) for each in zip(self.tp2, self.cp, self.dp, strict=True))

    @property
    def sequence(self) -> tuple[int, ...]:
        """Devices that share the tokens of sequences, by tier."""
        return tuple(rows * cp for rows, cp in zip(self.tp2, self.cp, strict=True))

    @property
    def divided_copies(self) -> tuple[int, ...]:
        """Devices that hold the same experts, or part of what 2D divides twice, by tier."""
        each = zip(self.copies, self.ep, self.tp2, strict=True)
        return tuple(copies // (ep * rows) for copies, ep, rows in each)

    @property
    def occupied(self) -> tuple[int, ...]:
        """Devices, or blocks, that are used of each block of a tier."""
        return tuple(
            math.prod(each) for each in zip(*(getattr(self, axis) for axis in AXES), strict=True)
        )


def tier_capacities(cluster: Cluster, devices: int | None = None) -> tuple[int, ...]:
    """Devices, or blocks, that a block of each tier holds, given ``devices`` in all."""
    total = cluster.num_devices if devices is None else devices
    return tuple(
        max(outer // inner, 1) for inner, outer in pairwise((*cluster.block_sizes, max(total, 1)))
    )


def check_assignment(assignment: Assignment, degrees: dict[str, int], cluster: Cluster) -> None:
    """Refuse an assignment that does not multiply to the plan's ``degrees`` (by axis), or puts more
    into a tier than it holds.

    Raises:
        InputError: what was given and what is allowed.
    """
    if len(assignment.tp) > len(cluster.tiers):
        names, there = " and ".join(tier.name for tier in cluster.tiers), len(cluster.tiers)
        raise InputError(
            f"{assignment} assigns axes to {len(assignment.tp)} tiers, but the "
            f"{cluster.num_devices:,} devices of {cluster.name} lie in {there}: {names}; assign "
            f"them to {f'{there} tiers' if there > 1 else 'one tier'}"
        )
    for axis, degree in degrees.items():
        parts = getattr(assignment, axis)
        if math.prod(parts) != degree:
            given = " x ".join(map(str, parts))
            raise InputError(
                f"{axis} is {degree}, but {assignment} assigns {given} = {math.prod(parts)} of "
                "it; make them equal"
            )
    for tier, cp, dp, ep in zip(
        cluster.tiers, assignment.cp, assignment.dp, assignment.ep, strict=False
    ):
        copies = cp * dp
        if copies % ep:
            raise InputError(
                f"{assignment} divides experts among {ep} of the {copies} devices that cp and dp "
                f"have in each {tier.name}; give a divisor of {copies}"
            )
    sizes = cluster.block_sizes
    inner_tiers = zip(
        cluster.tiers[:-1], sizes, tier_capacities(cluster), assignment.occupied, strict=False
    )
    for tier, inner, holds, used in inner_tiers:
        if used > holds:
            what = "devices" if inner == 1 else f"blocks of {inner} devices"
            raise InputError(
                f"{assignment} puts {used} {what} into each {tier.name}, which holds {holds}; "
                "assign fewer there"
            )
    last = sum((used - 1) * size for used, size in zip(assignment.occupied, sizes, strict=False))
    if last >= cluster.num_devices:
        raise InputError(
            f"{assignment} needs {last + 1:,} devices, {cluster.name} has "
            f"{cluster.num_devices:,}; fill the inner tiers better"
        )


@lru_cache(maxsize=4096)
def splits(degree: int, tiers: int) -> tuple[tuple[int, ...], ...]:
    """All products of so many factors that are ``degree``; most of it innermost comes first."""
    if tiers == 1:
        return ((degree,),)
    return tuple(
        (first, *rest)
        for first in range(degree, 0, -1)
        if degree % first == 0
        for rest in splits(degree // first, tiers - 1)
    )


def fitting(
    degrees: tuple[int, ...], capacities: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """For axes of ``degrees``, all choices of their parts by tier that overfill no tier."""
    for parts in product(*(splits(degree, len(capacities)) for degree in degrees)):
        if all(
            math.prod(each) <= holds
            for each, holds in zip(zip(*parts, strict=True), capacities, strict=True)
        ):
            yield parts
