"""The search for stages that differ against every plan there is, on random models, hardware and
spaces."""

import math
from dataclasses import replace

import numpy as np
import pytest
from differing_stages import CaseLayers, every_way, least_s

from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.rates import Machine
from GraphExtractor.graph import Recompute
from Solver.paths.rows_search import Loads, RowsSearch
from Solver.paths.search import every_limits
from Solver.paths.spaces import PlanLimits
from Solver.paths.stage_classes import stage_classes
from Solver.paths.stage_options import options_by_rows
from tests.builders.random_searches import random_case

CLOSE = 1e-9
SEEDS = (3, 5, 8, 14, 18, 21, 23, 29, 31, 37, 40, 44)


def searches(seed: int, most_options: int = 12, **changes: object):  # type: ignore[no-untyped-def]
    """The searches of a random case, one for each number of rows, with what enumeration needs."""
    case = random_case(seed, configurations=1, most_layers=3, tables=seed % 2 == 0)
    case = case.with_base(optimizer="muon") if seed % 3 == 0 else case
    case = case.in_groups(2) if seed % 5 == 0 else case
    model = case.problem.models[0]
    space = replace(model.space, devices=min(model.space.devices, 4), layouts=(), **changes)  # type: ignore[arg-type]
    machine, layers = (
        case.hardware.machine(0, float(case.problem.memory_bytes[0])),
        CaseLayers(case),
    )
    modes = [mode for mode in space.recompute if mode is not Recompute.NONE]
    every = every_limits(
        PlanLimits(space.devices, space.use_all_devices, space.pp_degrees, 4), 1, machine
    )
    random = np.random.default_rng(seed)
    for options in options_by_rows(space).values():
        some = sorted(random.permutation(len(options))[:most_options].tolist())
        chosen = [options[place] for place in some]
        its = [layers.of(option.degrees) for option in chosen]
        classes = stage_classes(
            [each.stored.graph for each in {id(each): each for each in its}.values()], modes
        )
        for limits in every:
            if min(option.devices for option in chosen) <= limits.devices:
                yield (
                    RowsSearch(chosen, its, classes, machine, limits),
                    chosen,
                    layers,
                    classes.lattice,
                    limits,
                    machine,
                )


def fits(priced: PricedStages | None) -> bool:
    return (
        priced is not None
        and float(priced.memory_bytes.sum(axis=0).max()) <= priced.machine.memory_bytes
    )


def with_fewer(
    placed: list[tuple[int, PlacedStage]], place: int, layers: CaseLayers, machine: Machine
) -> PricedStages | None:
    """The same stages, of which one recomputes a layer less."""
    stages = [stage for _, stage in placed]
    if not stages[place].recomputed:
        return None
    stages[place] = replace(stages[place], recomputed=stages[place].recomputed - 1)
    return PricedStages(stages, [layers.of(stage.degrees) for stage in stages], machine)


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_plan_is_that_of_enumeration(seed: int) -> None:
    for search, options, layers, lattice, limits, machine in searches(seed):
        true_s = least_s(options, layers, lattice, limits, machine)
        answer = search.answer(math.inf)
        assert answer.iteration_s == pytest.approx(true_s, rel=CLOSE)
        assert answer.bound_s == pytest.approx(true_s, rel=CLOSE)
        if answer.stages is not None:
            assert search.priced(answer.stages).iteration_s == pytest.approx(
                answer.iteration_s, rel=CLOSE
            )
            known = search.answer(true_s * (1 + 1e-6))
            assert known.stages is not None and known.iteration_s == pytest.approx(
                true_s, rel=CLOSE
            )
            nothing = search.answer(true_s * (1 - 1e-6))
            assert nothing.stages is None and nothing.bound_s >= true_s * (1 - 1e-6) * (1 - CLOSE)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_below_the_bound_of_its_largest_load(seed: int) -> None:
    random = np.random.default_rng(seed)
    for search, options, layers, lattice, limits, machine in searches(seed, 6):
        plans = list(every_way(options, lattice, limits, layers.case))
        for number in random.permutation(len(plans))[:20]:
            placed = plans[number]
            priced = PricedStages(
                [stage for _, stage in placed],
                [layers.of(stage.degrees) for _, stage in placed],
                machine,
            )
            if not fits(priced) or any(
                fits(with_fewer(placed, place, layers, machine)) for place in range(len(placed))
            ):
                continue  # the search takes plans that recompute no more than they must
            sent_s = np.zeros((2, len(placed)))
            sent_s[0, :-1], sent_s[1, 1:] = priced.transfers_s
            largest_s = float((priced.chunks_s + sent_s).sum(axis=0).max())
            for wide in (1.0, 1.01, 2.0):
                bound_s = search.bound(
                    Loads(largest_s / wide * (1 - CLOSE), largest_s * wide * (1 + CLOSE))
                )
                assert bound_s <= priced.iteration_s * (1 + CLOSE)


@pytest.mark.thorough
def test_few_steps_leave_a_bound_that_no_plan_beats() -> None:
    left_open = 0
    for seed in (5, 14, 23):
        for search, options, layers, lattice, limits, machine in searches(seed):
            true_s = least_s(options, layers, lattice, limits, machine)
            answer = search.answer(math.inf, most_steps=3)
            assert answer.bound_s <= true_s * (1 + CLOSE)
            assert answer.iteration_s >= true_s * (1 - CLOSE)
            left_open += answer.bound_s < answer.iteration_s * (1 - CLOSE)
    assert left_open
