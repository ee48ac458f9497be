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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_common.errors import InputError

from .chains import Chain
from .evaluation import evaluate
from .models import NEVER_RECOMPUTED_BY_ACESO, is_layer_start
from .partitions import Cut, Machine, anywhere, best_partitions
from .plans import Plan, StagePlan
from .price_tables import TableLayout, place
from .questions import Question
from .resharding import Choice
from .spaces import NEVER, StageSpace, stage_space
from .stage_paths import Stretch, path_price

MOST_UNITS = 64  # groups of layers that stages are cut from, as Alpa clusters layers first
EVEN = 1e-9
ATTENTION = ("attention-score", "attention-softmax", "attention-dropout", "attention-context")

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Baseline:
    """The best plan of a simpler search; absent with an infinite time where none fits the
    memory."""

    plan: Plan | None
    iteration_s: float | None
    plans: int  # looked at
    seconds: float


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


def megatron_grid(question: Question) -> Baseline:
    """The best uniform plan within the memory."""
    started = time.monotonic()
    chain = question.chain()
    edges = layer_edges(question, chain)
    best, best_s, count = None, math.inf, 0
    for plan in _uniform_plans(question, chain, edges):
        try:
            priced = evaluate(plan, question.database, question.devices_per_node)
        except InputError:  # stages over several nodes, or what was not measured
            continue
        count += 1
        if priced.memory_mib <= question.memory_limit_mib and priced.iteration_s < best_s:
            best, best_s = plan, priced.iteration_s
    return Baseline(best, best_s if best else None, count, time.monotonic() - started)


def _uniform_plans(question: Question, chain: Chain, edges: list[int]) -> Iterator[Plan]:
    database = question.database
    units = len(edges) - 1
    for stages in range(1, min(question.most_stages, units, question.devices) + 1):
        if question.devices % stages:
            continue
        devices = question.devices // stages
        ends = [edges[round(units * at / stages)] for at in range(stages + 1)]
        for width in database.tensor_parallel:
            if devices % width or devices > question.per_node:
                continue
            replicas = devices // width
            for micro_batch in question.micro_batch_sizes:
                if micro_batch % replicas or not database.measured(micro_batch // replicas, width):
                    continue
                for flags in (
                    np.zeros(chain.length, dtype=np.int64),
                    recomputed_flags(question, chain),
                ):
                    yield Plan(
                        database.model,
                        question.global_batch,
                        micro_batch,
                        tuple(
                            _stage(Choice(width, replicas, 0), flags[ends[at] : ends[at + 1]])
                            for at in range(stages)
                        ),
                    )


def _stage(choice: Choice, flags: Integers) -> StagePlan:
    return StagePlan(choice.tp * choice.dp, (choice,) * len(flags), tuple(map(bool, flags)))


def recomputed_flags(question: Question, chain: Chain) -> Integers:
    """(operators) 1 for what whole-layer recomputation repeats: all but embeddings and the last
    layers behind the body."""
    names = question.database.names
    return np.array(
        [
            int(
                at < chain.body
                and not any(part in names[row] for part in NEVER_RECOMPUTED_BY_ACESO)
            )
            for at, row in enumerate(chain.rows)
        ],
        dtype=np.int64,
    )


def layer_stages(question: Question) -> Baseline:
    """The best plan whose stages are whole layers, each with one pair of degrees."""
    started = time.monotonic()
    chain = question.chain()
    edges = _clustered(layer_edges(question, chain))
    best, best_s, count = None, math.inf, 0
    for micro_batch in question.micro_batch_sizes:
        plan, number = _layer_plan(question, chain, edges, micro_batch)
        count += number
        if plan is not None:
            iteration_s = evaluate(plan, question.database, question.devices_per_node).iteration_s
            if iteration_s < best_s:
                best, best_s = plan, iteration_s
    return Baseline(best, best_s if best else None, count, time.monotonic() - started)


def _layer_plan(
    question: Question, chain: Chain, edges: list[int], micro_batch: int
) -> tuple[Plan | None, int]:
    """The best plan of one micro-batch size and the number of stages that were priced for it."""
    spaces = []
    devices = 1
    while devices <= question.per_node:
        space = stage_space(question.database, chain, micro_batch, devices)
        if space is not None:
            spaces.append(space)
        devices *= 2
    nothing, layers = np.zeros(chain.length, dtype=np.int64), recomputed_flags(question, chain)
    return _best_cut(
        question,
        chain,
        edges,
        micro_batch,
        [Ways(space, _choices(space)) for space in spaces],
        (nothing, layers),
    )


def uniform_plan(question: Question) -> Baseline:
    """The best plan whose stages are whole layers and all alike in devices, degrees and rule of
    recomputation."""
    started = time.monotonic()
    chain = question.chain()
    edges = _clustered(layer_edges(question, chain))
    rules = [
        np.zeros(chain.length, dtype=np.int64),
        attention_flags(question, chain),
        recomputed_flags(question, chain),
    ]
    best, best_s, count = None, math.inf, 0
    for micro_batch, stages in itertools.product(
        question.micro_batch_sizes, range(1, question.most_stages + 1)
    ):
        devices = question.devices // stages
        if question.devices % stages or devices > question.per_node or devices & (devices - 1):
            continue
        space = stage_space(question.database, chain, micro_batch, devices)
        for choice, rule in itertools.product(_choices(space) if space else (), rules):
            assert space is not None
            plan, number = _best_cut(
                question, chain, edges, micro_batch, [Ways(space, (choice,))], (rule,)
            )
            count += number
            if plan is not None:
                iteration_s = evaluate(
                    plan, question.database, question.devices_per_node
                ).iteration_s
                if iteration_s < best_s:
                    best, best_s = plan, iteration_s
    return Baseline(best, best_s if best else None, count, time.monotonic() - started)


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


def _best_cut(
    question: Question,
    chain: Chain,
    edges: list[int],
    micro_batch: int,
    tried: Sequence[Ways],
    rules: Sequence[Integers],
) -> tuple[Plan | None, int]:
    """The best plan of stages between ``edges`` that run in one of the ways tried, and the number
    of stages priced for it.

    Each stage is recomputed by one of the ``rules``, (operators) flags.
    """
    spaces = [each.space for each in tried]
    if not spaces:
        return None, 0
    units = len(edges) - 1
    layout = _layout_of_units(question, spaces, units)
    prices = np.full(layout.size, NEVER)
    ways: dict[int, tuple[int, int]] = {}
    count = 0
    for at, space in enumerate(spaces):
        for first in range(units):
            for length in range(1, units - first + 1):
                part = slice(edges[first], edges[first + length])
                for choice, (rule, flags) in itertools.product(tried[at].choices, enumerate(rules)):
                    count += 1
                    way = (choice, rule)
                    _enter(
                        question,
                        chain,
                        layout,
                        prices,
                        ways,
                        at,
                        space,
                        first,
                        length,
                        part,
                        way,
                        flags[part],
                    )
    if not (prices < NEVER).any():
        return None, count
    number = question.global_batch // micro_batch
    machine = Machine(question.devices, question.per_node)
    high = float(prices[prices < NEVER].max())
    met = best_partitions(
        prices, layout, machine, anywhere(layout, machine), number, (0.0, high), NEVER, EVEN
    ).met
    if not met:
        return None, count
    stages = []
    for cut in met[0].cuts:
        chosen, rule = ways[_place(layout, cut)]
        first, end = edges[cut.first], edges[cut.first + cut.length]
        stages.append(_stage(spaces[cut.at].choices[chosen], rules[rule][first:end]))
    return Plan(question.database.model, question.global_batch, micro_batch, tuple(stages)), count


def _layout_of_units(question: Question, spaces: list[StageSpace], units: int) -> TableLayout:
    """Places for the stages of so many units, all of them different."""
    flags = 4 if question.devices > question.per_node else 1
    behind = min(question.most_stages, question.devices)
    shape = flags, len(spaces), behind, units
    number = np.arange(units, dtype=np.int64)
    return TableLayout(
        operators=units,
        body=units,
        behind=behind,
        flags=flags,
        devices=np.array([space.devices for space in spaces], dtype=np.int64),
        starts=number,
        start_index=number,
        longest=np.full(len(spaces), units, dtype=np.int64),
        row_at=np.arange(math.prod(shape), dtype=np.int64).reshape(shape) * (units + 1),
        tail_from=0,
    )


def _place(layout: TableLayout, cut: Cut) -> int:
    return int(place(layout, cut.flag, cut.at, cut.behind, cut.first, cut.length))


def _enter(
    question: Question,
    chain: Chain,
    layout: TableLayout,
    prices: NDArray[np.float64],
    ways: dict[int, tuple[int, int]],
    at: int,
    space: StageSpace,
    first: int,
    length: int,
    part: slice,
    way: tuple[int, int],
    flags: Integers,
) -> None:
    """Enter the price of one way to run a stage, wherever it fits the memory and is the fastest."""
    chosen = np.full(part.stop - part.start, way[0], dtype=np.int64)
    rows, pairs = chain.row_array[part], chain.pair_array[part]
    is_last = part.stop == chain.length
    limit = question.memory_limit_mib
    for flag in range(layout.flags):
        sends = flag // 2 if layout.flags == 4 else int(is_last)
        us, mib = path_price(
            space.arrays, Stretch(rows, pairs, 0, flag % 2, sends, limit), chosen, flags
        )
        if us >= NEVER or mib > limit:
            return
        _, more = path_price(
            space.arrays, Stretch(rows, pairs, 1, flag % 2, sends, limit), chosen, flags
        )
        room = (
            layout.behind
            if more <= mib
            else min(layout.behind, 1 + int((limit - mib) / (more - mib)))
        )
        for behind in range(room):
            where = _place(layout, Cut(flag, at, behind, first, length))
            if us < prices[where]:
                prices[where] = us
                ways[where] = way
