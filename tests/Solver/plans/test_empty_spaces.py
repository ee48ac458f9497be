"""The rule that is named where no plan is as asked: it is broken by every plan that keeps the rules
before it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import pytest

from Estimator.network.cluster import Cluster, Tier
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import Recompute
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode
from Solver.plans.empty_spaces import why_empty
from Solver.plans.space import PlanSpace

FLAT = Cluster("flat", 64, (Tier("flat", 64, 1e9, 0.0),))
BEGINS = {  # words of each rule, in the order in which they are added
    "devices": "tp x cp x pp x dp must be",
    "layers": "pp must be at most",
    "experts": "ep must divide dp x cp",
    "chunks": ("pp x interleave must divide", "needs pp of at least 2"),
    "batch": "every replica needs a micro-batch",
    "whole": "must be a multiple of micro-batch size x dp",
    "rounds": "needs micro-batches in multiples of pp",
}


@dataclass(frozen=True)
class Tuple:
    """The degrees of a plan, and the space and layers of which it may be one."""

    space: PlanSpace
    layers: int
    tp: int
    pp: int
    dp: int
    ep: int
    interleave: int
    micro: int

    @property
    def used(self) -> bool:
        devices = self.tp * self.pp * self.dp
        return (
            devices == self.space.devices
            if self.space.use_all_devices
            else devices <= self.space.devices
        )

    @property
    def chunked(self) -> bool:
        blocks = self.layers - 2
        return self.interleave == 1 or (
            self.pp > 1 and blocks > 0 and blocks % (self.pp * self.interleave) == 0
        )

    @property
    def batch(self) -> int:
        return self.space.base.global_batch_size


RULES: dict[str, Callable[[Tuple], bool]] = {
    "devices": lambda each: each.used,
    "layers": lambda each: each.pp <= each.layers,
    "experts": lambda each: each.dp % each.ep == 0,
    "chunks": lambda each: each.chunked,
    "batch": lambda each: each.dp * each.micro <= each.batch,
    "whole": lambda each: (
        not each.space.whole_micro_batches or each.batch % (each.dp * each.micro) == 0
    ),
    "rounds": lambda each: (
        each.interleave == 1 or -(-each.batch // (each.dp * each.micro)) % each.pp == 0
    ),
}


def random_space(chance: random.Random) -> tuple[PlanSpace, int]:
    def some(values: range) -> tuple[int, ...]:
        return tuple(sorted(chance.sample(values, chance.randint(1, 2))))

    space = PlanSpace(
        devices=chance.randint(1, 24),
        use_all_devices=chance.random() < 0.7,
        base=UniformPlan(global_batch_size=chance.choice((2, 7, 12, 16, 24, 31))),
        sequence_length=8,
        tp_widths=some(range(1, 5)),
        micro_batch_sizes=some(range(1, 6)),
        recompute=(Recompute.NONE,),
        ep_degrees=some(range(1, 4)),
        pp_degrees=some(range(1, 12)) if chance.random() < 0.7 else None,
        dp_degrees=some(range(1, 9)) if chance.random() < 0.5 else None,
        interleave=some(range(1, 4)),
        whole_micro_batches=chance.random() < 0.5,
    )
    return space, chance.randint(3, 10)


def tuples(space: PlanSpace, layers: int) -> list[Tuple]:
    upto = range(1, space.devices + 1)
    axes = space.tp_widths, space.pp_degrees or upto, space.dp_degrees or upto
    others = space.ep_degrees, space.interleave or (1,), space.micro_batch_sizes
    return [Tuple(space, layers, *each) for each in product(*axes, *others)]


def rule_of(why: str) -> str:
    (found,) = [
        name
        for name, words in BEGINS.items()
        for word in ([words] if isinstance(words, str) else words)
        if word in why
    ]
    return found


def test_the_named_rule_is_the_first_that_leaves_no_plan() -> None:
    chance, named = random.Random(12), set[str]()
    for _ in range(1500):
        space, layers = random_space(chance)
        why, left = why_empty(space, layers, FLAT), tuples(space, layers)
        first = ""
        for name, rule in RULES.items():
            left = [each for each in left if rule(each)]
            if not left:
                first = name
                break
        assert (rule_of(why) if why else "") == first, (why, space, layers)
        named.add(first)
        if first == "batch" and 1 in (space.interleave or ()):  # the remedy that it names
            least = int(why.split("at least ")[1].split(", given")[0].replace(",", ""))
            open_to_it = replace(space, whole_micro_batches=False, interleave=(1,))
            assert (
                why_empty(
                    replace(open_to_it, base=replace(space.base, global_batch_size=least)),
                    layers,
                    FLAT,
                )
                == ""
            )
            assert (
                why_empty(
                    replace(open_to_it, base=replace(space.base, global_batch_size=least - 1)),
                    layers,
                    FLAT,
                )
                != ""
            )
    assert named == {"", *BEGINS}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"devices": 8192, "pp": 1},
            "dp 8,192, the fewest replicas .* global batch of at least 8,192, given 4,096",
        ),
        (
            {"devices": 4096, "pp": 1, "micro_batch_size": [3, 5]},
            "micro-batch size 3 need a global batch of at least 12,288",
        ),
        (
            {"devices": 4096, "pp": 1, "global_batch_size": 6000},
            "must be a multiple of micro-batch size x dp",
        ),
        (
            {"devices": 4096, "tp": 1, "dp": 1},
            "pp must be at most the 50 layers of the model, and 4,096 devices would need pp 4,096",
        ),
    ],
)
def test_many_devices_are_refused_for_their_own_reason(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve({}, {"model": "gpt2", "device": "h100_sxm"} | asked, Mode.SEARCH)
