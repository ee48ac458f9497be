"""The plans of simpler searches, under the same cost model: Megatron-LM's grid, and stages cut at layers alone.

Megatron-LM's grid: every stage the same tensor and data parallel degrees, layers split as evenly as they can be, everything
within the layers recomputed or nothing. Stages cut at layers alone, as Alpa's inter-operator pass forms them: each stage its
own devices and one pair of degrees for all its operators, recomputed as a whole or not; the best of these by the same dynamic
program as the search.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from third_party.aceso.chains import Chain
from third_party.aceso.evaluation import evaluate
from third_party.aceso.models import NEVER_RECOMPUTED_BY_ACESO, is_layer_start
from third_party.aceso.partitions import Cut, Machine, anywhere, best_partitions
from third_party.aceso.plans import Plan, StagePlan
from third_party.aceso.price_tables import TableLayout, empty_prices, place
from third_party.aceso.questions import Question
from third_party.aceso.resharding import Choice
from third_party.aceso.spaces import NEVER, StageSpace, stage_space
from third_party.aceso.stage_paths import Stretch, path_price

MOST_UNITS = 64  # groups of layers that stages are cut from, as Alpa clusters layers first
EVEN = 1e-9

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Baseline:
    """The best plan of a simpler search; absent with an infinite time where none fits the memory."""

    plan: Plan | None
    iteration_s: float | None
    plans: int  # looked at
    seconds: float


def baselines(question: Question) -> dict[str, Baseline]:
    """Both simpler searches by name."""
    return {"megatron_grid": megatron_grid(question), "layer_stages": layer_stages(question)}


def layer_edges(question: Question, chain: Chain) -> list[int]:
    """First operators of the layers, with those before and behind them in the first and last; and the end."""
    names = question.database.names
    firsts = {first for first, _ in question.database.model.family.layers}
    starts = [at for at, row in enumerate(chain.rows) if names[row] in firsts or (not firsts and is_layer_start(names[row]))]
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
                for again in (False, True):
                    yield Plan(
                        database.model,
                        question.global_batch,
                        micro_batch,
                        tuple(
                            _whole_stage(question, chain, ends[at], ends[at + 1], Choice(width, replicas, 0), again)
                            for at in range(stages)
                        ),
                    )


def _whole_stage(question: Question, chain: Chain, first: int, end: int, choice: Choice, again: bool) -> StagePlan:
    flags = recomputed_flags(question, chain)[first:end] if again else np.zeros(end - first, dtype=np.int64)
    return StagePlan(choice.tp * choice.dp, (choice,) * (end - first), tuple(map(bool, flags)))


def recomputed_flags(question: Question, chain: Chain) -> Integers:
    """(operators) 1 for what whole-layer recomputation repeats: all but embeddings and the last layers behind the body."""
    names = question.database.names
    return np.array(
        [
            int(at < chain.body and not any(part in names[row] for part in NEVER_RECOMPUTED_BY_ACESO))
            for at, row in enumerate(chain.rows)
        ],
        dtype=np.int64,
    )


def layer_stages(question: Question) -> Baseline:
    """The best plan whose stages are whole layers, each with one pair of degrees."""
    started = time.monotonic()
    chain = question.chain()
    edges = layer_edges(question, chain)
    step = math.ceil((len(edges) - 1) / MOST_UNITS)
    edges = [*edges[:-1:step], edges[-1]]
    best, best_s, count = None, math.inf, 0
    for micro_batch in question.micro_batch_sizes:
        plan, number = _layer_plan(question, chain, edges, micro_batch)
        count += number
        if plan is not None:
            iteration_s = evaluate(plan, question.database, question.devices_per_node).iteration_s
            if iteration_s < best_s:
                best, best_s = plan, iteration_s
    return Baseline(best, best_s if best else None, count, time.monotonic() - started)


def _layer_plan(question: Question, chain: Chain, edges: list[int], micro_batch: int) -> tuple[Plan | None, int]:
    """The best plan of one micro-batch size and the number of stages that were priced for it."""
    spaces = []
    devices = 1
    while devices <= question.per_node:
        space = stage_space(question.database, chain, micro_batch, devices)
        if space is not None:
            spaces.append(space)
        devices *= 2
    if not spaces:
        return None, 0
    units = len(edges) - 1
    layout = _layout_of_units(question, spaces, units)
    prices = empty_prices(layout)
    ways: dict[int, tuple[int, bool]] = {}
    again = recomputed_flags(question, chain)
    count = 0
    for at, space in enumerate(spaces):
        for first in range(units):
            for length in range(1, units - first + 1):
                part = slice(edges[first], edges[first + length])
                for choice in (c for c, each in enumerate(space.choices) if each.algorithm == 0):
                    for flags in (np.zeros(part.stop - part.start, dtype=np.int64), again[part]):
                        count += 1
                        _enter(question, chain, layout, prices, ways, at, space, first, length, part, choice, flags)
    if not (prices < NEVER).any():
        return None, count
    number = question.global_batch // micro_batch
    machine = Machine(question.devices, question.per_node)
    high = float(prices[prices < NEVER].max())
    met = best_partitions(prices, layout, machine, anywhere(layout, machine), number, (0.0, high), NEVER, EVEN).met
    if not met:
        return None, count
    stages = []
    for cut in met[0].cuts:
        chosen, repeated = ways[_place(layout, cut)]
        first, end = edges[cut.first], edges[cut.first + cut.length]
        stages.append(_whole_stage(question, chain, first, end, spaces[cut.at].choices[chosen], repeated))
    return Plan(question.database.model, question.global_batch, micro_batch, tuple(stages)), count


def _layout_of_units(question: Question, spaces: list[StageSpace], units: int) -> TableLayout:
    """Places for the stages of so many units, all of them different."""
    flags = 4 if question.devices > question.per_node else 1
    behind = min(question.most_stages, question.devices)
    block = flags * behind * units * (units + 1)
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
        offset=np.arange(len(spaces) + 1, dtype=np.int64) * block,
        tail_from=0,
        tail_offset=len(spaces) * block,
        size=len(spaces) * block,
    )


def _place(layout: TableLayout, cut: Cut) -> int:
    return int(place(layout, cut.flag, cut.at, cut.behind, cut.first, cut.length))


def _enter(
    question: Question,
    chain: Chain,
    layout: TableLayout,
    prices: NDArray[np.float64],
    ways: dict[int, tuple[int, bool]],
    at: int,
    space: StageSpace,
    first: int,
    length: int,
    part: slice,
    choice: int,
    flags: Integers,
) -> None:
    """Enter the price of one way to run a stage, wherever it fits the memory and is the fastest."""
    chosen = np.full(part.stop - part.start, choice, dtype=np.int64)
    rows, pairs = chain.row_array[part], chain.pair_array[part]
    is_last = part.stop == chain.length
    limit = question.memory_limit_mib
    for flag in range(layout.flags):
        sends = flag // 2 if layout.flags == 4 else int(is_last)
        us, mib = path_price(space.arrays, Stretch(rows, pairs, 0, flag % 2, sends, limit), chosen, flags)
        if us >= NEVER or mib > limit:
            return
        _, more = path_price(space.arrays, Stretch(rows, pairs, 1, flag % 2, sends, limit), chosen, flags)
        room = layout.behind if more <= mib else min(layout.behind, 1 + int((limit - mib) / (more - mib)))
        for behind in range(room):
            where = _place(layout, Cut(flag, at, behind, first, length))
            if us < prices[where]:
                prices[where] = us
                ways[where] = (choice, bool(flags.any()))
