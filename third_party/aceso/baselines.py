"""The plans of simpler searches, under the same cost model: Megatron-LM's grid, uniform plans, and
stages cut at layers alone.

Megatron-LM's grid: every stage the same tensor and data parallel degrees, layers split as evenly as
they can be, everything within the layers recomputed or nothing. Uniform plans: every stage the same
degrees and one rule of recomputation (nothing, what attention makes between its products, or the
layers), cut between any two layers. Stages cut at layers alone, as Alpa's inter-operator pass forms
them: each stage its own devices and one pair of degrees for all its operators, recomputed as a
whole or not. The best of the last two by the same dynamic program as the search.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze_common.errors import InputError

from .chains import Chain
from .compiled import Integers
from .evaluation import evaluate
from .models import NEVER_RECOMPUTED_BY_ACESO, is_layer_start
from .partitions import Cut, anywhere, best_partitions
from .plans import Plan, StagePlan, plan_document
from .price_tables import TableLayout, place
from .questions import Question
from .resharding import Choice
from .spaces import NEVER, StageSpace, stage_spaces
from .stage_paths import Stretch, path_price

MOST_UNITS = 64  # groups of layers that stages are cut from, as Alpa clusters layers first
EVEN = 1e-9
ATTENTION = ("attention-score", "attention-softmax", "attention-dropout", "attention-context")


@dataclass(frozen=True)
class Baseline:
    """The best plan of a simpler search; absent with an infinite time where none fits the
    memory."""

    plan: Plan | None
    iteration_s: float | None
    plans: int  # looked at
    seconds: float

    def document(self) -> dict[str, Any]:
        """As the command line prints it."""
        return {
            "iteration_s": self.iteration_s,
            "search_s": self.seconds,
            "plans": self.plans,
            "plan": None if self.plan is None else plan_document(self.plan),
        }


def baselines(question: Question) -> dict[str, Baseline]:
    """The simpler searches by name."""
    return {
        "megatron_grid": megatron_grid(question),
        "uniform": uniform_plan(question),
        "layer_stages": layer_stages(question),
    }


def layer_edges(question: Question, chain: Chain) -> list[int]:
    """First operators of the layers, with those before and behind them in the first and last; and
    the end."""
    names = question.database.names
    firsts = {first for first, _ in question.database.model.family.layers}
    starts = [
        at
        for at, row in enumerate(chain.rows)
        if names[row] in firsts or (not firsts and is_layer_start(names[row]))
    ]
    return [0, *starts[1:], chain.length]


def _best(question: Question, tried: Iterable[tuple[Plan | None, int]]) -> Baseline:
    """The fastest of the plans tried that fits; each comes with the number of plans or stages that
    were looked at for it."""
    started = time.monotonic()
    best, best_s, count = None, math.inf, 0
    for plan, number in tried:
        if plan is None:
            count += number
            continue
        try:
            priced = evaluate(plan, question.database, question.devices_per_node)
        except InputError:  # stages over several nodes, or what was not measured
            continue
        count += number
        if priced.memory_mib <= question.memory_limit_mib and priced.iteration_s < best_s:
            best, best_s = plan, priced.iteration_s
    return Baseline(best, best_s if best else None, count, time.monotonic() - started)


def megatron_grid(question: Question) -> Baseline:
    """The best uniform plan within the memory."""
    return _best(question, ((plan, 1) for plan in _uniform_plans(question)))


def _uniform_plans(question: Question) -> Iterator[Plan]:
    database, chain = question.database, question.chain()
    edges = layer_edges(question, chain)
    units = len(edges) - 1
    rules = (np.zeros(chain.length, dtype=np.int64), recomputed_flags(question, chain))
    for stages in range(1, min(question.most_stages, units, question.devices) + 1):
        devices, rest = divmod(question.devices, stages)
        ends = [edges[round(units * at / stages)] for at in range(stages + 1)]
        sizes = itertools.product(database.tensor_parallel, question.micro_batch_sizes)
        for width, micro_batch in sizes:
            replicas = devices // width
            if rest or devices % width or devices > question.per_node or micro_batch % replicas:
                continue
            if not database.measured(micro_batch // replicas, width):
                continue
            for flags in rules:
                parts = [flags[first:end] for first, end in itertools.pairwise(ends)]
                held = tuple(_stage(Choice(width, replicas, 0), part) for part in parts)
                yield question.plan(micro_batch, held)


def _stage(choice: Choice, flags: Integers) -> StagePlan:
    return StagePlan(choice.tp * choice.dp, (choice,) * len(flags), tuple(map(bool, flags)))


def recomputed_flags(question: Question, chain: Chain) -> Integers:
    """(operators) 1 for what whole-layer recomputation repeats: all but embeddings and the last
    layers behind the body."""
    names = [question.database.names[row] for row in chain.rows]
    ends = [any(part in name for part in NEVER_RECOMPUTED_BY_ACESO) for name in names]
    within = np.arange(chain.length) < chain.body
    return np.array(within & ~np.array(ends), dtype=np.int64)


def layer_stages(question: Question) -> Baseline:
    """The best plan whose stages are whole layers, each with one pair of degrees."""
    chain = question.chain()
    rules = (np.zeros(chain.length, dtype=np.int64), recomputed_flags(question, chain))
    cuts = _LayerCuts(question, chain, _clustered(layer_edges(question, chain)))

    def tried(micro_batch: int) -> tuple[Plan | None, int]:
        spaces = stage_spaces(question, chain, micro_batch)
        return cuts.best(micro_batch, [Ways(space, _choices(space)) for space in spaces], rules)

    return _best(question, map(tried, question.micro_batch_sizes))


def uniform_plan(question: Question) -> Baseline:
    """The best plan whose stages are whole layers and all alike in devices, degrees and rule of
    recomputation."""
    chain = question.chain()
    attention, layers = attention_flags(question, chain), recomputed_flags(question, chain)
    rules = (np.zeros(chain.length, dtype=np.int64), attention, layers)
    cuts = _LayerCuts(question, chain, _clustered(layer_edges(question, chain)))

    def tried() -> Iterator[tuple[Plan | None, int]]:
        for micro_batch in question.micro_batch_sizes:
            spaces = {each.devices: each for each in stage_spaces(question, chain, micro_batch)}
            for stages in range(1, question.most_stages + 1):
                devices, rest = divmod(question.devices, stages)
                if not rest and devices in spaces:
                    space = spaces[devices]
                    for choice, rule in itertools.product(_choices(space), rules):
                        yield cuts.best(micro_batch, [Ways(space, (choice,))], (rule,))

    return _best(question, tried())


def attention_flags(question: Question, chain: Chain) -> Integers:
    """(operators) 1 for scores, softmax, dropout and context of attention, as selective
    recomputation repeats them."""
    names = question.database.names
    again = {row for row, name in enumerate(names) if name.partition("-")[2].startswith(ATTENTION)}
    return np.array([int(row in again) for row in chain.rows], dtype=np.int64)


@dataclass(frozen=True)
class Ways:
    """Stages of one number of devices, and which of its pairs of degrees are tried."""

    space: StageSpace
    choices: tuple[int, ...]


def _choices(space: StageSpace) -> tuple[int, ...]:
    return tuple(at for at, each in enumerate(space.choices) if each.algorithm == 0)


def _clustered(edges: list[int]) -> list[int]:
    """Edges of at most ``MOST_UNITS`` groups of layers."""
    return [*edges[: -1 : math.ceil((len(edges) - 1) / MOST_UNITS)], edges[-1]]


@dataclass(frozen=True)
class _LayerCuts:
    """Plans whose stages lie between ``edges``, which are operators."""

    question: Question
    chain: Chain
    edges: list[int]

    def best(
        self, micro_batch: int, tried: Sequence[Ways], rules: Sequence[Integers]
    ) -> tuple[Plan | None, int]:
        """The best plan of stages that run in one of the ways tried, and the number of stages
        priced for it. Each stage is recomputed by one of the ``rules``, (operators) flags."""
        question, edges, units = self.question, self.edges, len(self.edges) - 1
        if not tried:
            return None, 0
        layout = self._layout(np.array([each.space.devices for each in tried], dtype=np.int64))
        prices = np.full(layout.size, NEVER)
        ways: dict[int, tuple[Choice, Integers]] = {}
        count = 0
        for at, first in itertools.product(range(len(tried)), range(units)):
            space = tried[at].space
            for end in range(first + 1, units + 1):
                part = slice(edges[first], edges[end])
                for choice, flags in itertools.product(tried[at].choices, rules):
                    count += 1
                    cut = Cut(0, at, 0, first, end - first)
                    for where, us in self._prices(layout, cut, space, part, choice, flags[part]):
                        if us < prices[where]:
                            prices[where] = us
                            ways[where] = space.choices[choice], flags[part]
        if not ways:
            return None, count
        number = question.global_batch // micro_batch
        machine, limits = question.machine, (0.0, float(prices[prices < NEVER].max()))
        windows = anywhere(layout, machine)
        met = best_partitions(prices, layout, machine, windows, number, limits, NEVER, EVEN).met
        if not met:
            return None, count
        found = (place(layout, *cut) for cut in met[0].cuts)
        stages = tuple(_stage(*ways[int(where)]) for where in found)
        return question.plan(micro_batch, stages), count

    def _layout(self, devices: Integers) -> TableLayout:
        """Places for the stages, all of them different."""
        question, units = self.question, len(self.edges) - 1
        flags, behind = question.node_flags, question.stages_at_most
        number = np.arange(units, dtype=np.int64)
        shape = flags, len(devices), behind, units
        return TableLayout(
            operators=units,
            body=units,
            behind=behind,
            flags=flags,
            devices=devices,
            starts=number,
            start_index=number,
            longest=np.full(len(devices), units, dtype=np.int64),
            row_at=np.arange(math.prod(shape), dtype=np.int64).reshape(shape) * (units + 1),
            tail_from=0,
        )

    def _prices(
        self,
        layout: TableLayout,
        cut: Cut,
        space: StageSpace,
        part: slice,
        choice: int,
        flags: Integers,
    ) -> Iterator[tuple[int, float]]:
        """Places and prices of one way to run a stage, wherever it fits the memory."""
        chain, limit = self.chain, self.question.memory_limit_mib
        chosen = np.full(part.stop - part.start, choice, dtype=np.int64)
        rows, pairs = chain.row_array[part], chain.pair_array[part]
        for flag in range(layout.flags):
            sends = flag // 2 if layout.flags == 4 else int(part.stop == chain.length)
            stretch = Stretch(rows, pairs, 0, flag % 2, sends, limit)
            us, mib = path_price(space.arrays, stretch, chosen, flags)
            if us >= NEVER or mib > limit:
                return
            _, more = path_price(space.arrays, stretch._replace(behind=1), chosen, flags)
            room = layout.behind if more <= mib else 1 + int((limit - mib) / (more - mib))
            for behind in range(min(layout.behind, room)):
                yield int(place(layout, flag, cut.at, behind, cut.first, cut.length)), us
