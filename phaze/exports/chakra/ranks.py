"""Where the ranks of a plan lie: their stage, the groups in which they communicate, their like in
other stages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import GroupLevel, copy_levels, divided_levels
from phaze.exports.chakra.work import Members

Levels = tuple[GroupLevel, ...]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of ``plan``, numbered so that the innermost groups of its order are neighbours.

    An assignment to tiers fills each tier with the axes in the order in which it names them, so
    that a block of a tier is a range of ranks there, too.
    """

    plan: UniformPlan

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of ``rank``."""
        stage, outer = 0, 1
        for level in self._stages:
            stage += rank // level.stride % level.size * outer
            outer *= level.size
        return stage

    def peer(self, rank: int, stage: int) -> int:
        """The like of ``rank`` in another ``stage``."""
        return rank + self._offset(stage) - self._offset(self.stage_of(rank))

    def group(self, rank: int, members: Members) -> tuple[int, ...]:
        """The ranks, ascending, with which ``rank`` communicates among ``members``, itself among
        them."""
        if members is Members.EVERYONE:
            return tuple(range(self.plan.devices))
        if members is Members.ENDS:
            return tuple(sorted({self.peer(rank, 0), self.peer(rank, self.plan.pp - 1)}))
        levels = self._levels[members]
        first = rank - sum(rank // level.stride % level.size * level.stride for level in levels)
        every = product(*(level.offsets for level in levels))
        return tuple(sorted(first + sum(offsets) for offsets in every))

    def size(self, members: Members) -> int:
        """Ranks in a group of ``members``."""
        if members is Members.EVERYONE:
            return self.plan.devices
        if members is Members.ENDS:
            return min(self.plan.pp, 2)
        return math.prod(level.size for level in self._levels[members])

    def _offset(self, stage: int) -> int:
        offset = 0
        for level in self._stages:
            offset += stage % level.size * level.stride
            stage //= level.size
        return offset

    @cached_property
    def _stages(self) -> Levels:
        if isinstance(self.plan.group_order, Assignment):
            return self._assigned[Members.EVERYONE]
        return (GroupLevel(self.plan.pp, self.plan.stage_stride),)

    @cached_property
    def _levels(self) -> dict[Members, Levels]:
        plan = self.plan
        if isinstance(plan.group_order, Assignment):
            return self._assigned
        inside, outside = divided_levels(plan)
        return {
            Members.TENSOR: (GroupLevel(plan.tp, 1),),
            Members.TENSOR2: (GroupLevel(plan.tp2, plan.tp),),
            Members.CONTEXT: (GroupLevel(plan.sequence_devices, plan.tp),),
            Members.EXPERT: inside,
            Members.REPLICAS: copy_levels(plan),
            Members.EXPERT_REPLICAS: outside,
        }

    @cached_property
    def _assigned(self) -> dict[Members, Levels]:
        """The levels of an assignment, those of the stages under ``EVERYONE``."""
        order = self.plan.group_order
        assert isinstance(order, Assignment)
        found: dict[Members, list[GroupLevel]] = {members: [] for members in Members}
        stride = 1
        for tp, tp2, cp, dp, pp, ep in zip(
            order.tp, order.tp2, order.cp, order.dp, order.pp, order.ep, strict=True
        ):
            rows = stride * tp
            copies = rows * tp2
            found[Members.TENSOR].append(GroupLevel(tp, stride))
            found[Members.TENSOR2].append(GroupLevel(tp2, rows))
            found[Members.CONTEXT].append(GroupLevel(tp2 * cp, rows))
            found[Members.REPLICAS].append(GroupLevel(tp2 * cp * dp, rows))
            found[Members.EXPERT].append(GroupLevel(ep, copies))
            found[Members.EXPERT_REPLICAS].append(GroupLevel(cp * dp // ep, copies * ep))
            found[Members.EVERYONE].append(GroupLevel(pp, copies * cp * dp))
            stride = copies * cp * dp * pp
        return {members: tuple(levels) for members, levels in found.items()}


class Communicators:
    """Numbers of the groups that communicate, from 1 on in the order in which they are first asked
    for: 0 is ASTRA-sim's own."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._number = dict[tuple[int, ...], int]()
        self._known = dict[tuple[int, Members], str]()

    def name(self, rank: int, members: Members) -> str:
        """The number of the group of ``rank`` among ``members``, as a text; the same ranks have one
        number."""
        known = self._known.get((rank, members))
        if known is None:
            group = self._ranks.group(rank, members)
            number = self._number.setdefault(group, len(self._number) + 1)
            known = str(number)
            self._known |= {(each, members): known for each in group}
        return known

    @property
    def groups(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        """All groups so far, with their names."""
        return tuple((str(number), group) for group, number in self._number.items())
