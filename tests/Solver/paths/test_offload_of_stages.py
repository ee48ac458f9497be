"""Stages that choose what they keep in host memory, each for itself, against every plan there
is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from differing_stages import CaseLayers, least_s

from GraphExtractor.graph import Recompute
from Solver.paths.rows_search import RowsSearch
from Solver.paths.search import every_limits
from Solver.paths.spaces import PlanLimits
from Solver.paths.stage_classes import stage_classes
from Solver.paths.stage_options import options_by_rows
from tests.builders.offload_cases import hosted_case


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", (3, 5, 8, 14))
def test_stages_that_differ_choose_for_themselves(seed: int) -> None:
    case = hosted_case(seed, configurations=1, most_layers=3, tables=seed % 2 == 0)
    model = case.problem.models[0]
    space = replace(model.space, devices=min(model.space.devices, 4), layouts=())
    machine, layers = (
        case.hardware.machine(0, float(case.problem.memory_bytes[0])),
        CaseLayers(case),
    )
    modes = [mode for mode in space.recompute if mode is not Recompute.NONE]
    limits = every_limits(
        PlanLimits(space.devices, space.use_all_devices, space.pp_degrees, 3), 1, machine
    )[0]
    random = np.random.default_rng(seed)
    for options in options_by_rows(space).values():
        chosen = [
            options[place] for place in sorted(random.permutation(len(options))[:12].tolist())
        ]
        its = [layers.of(option.degrees) for option in chosen]
        classes = stage_classes(
            [each.stored.graph for each in {id(each): each for each in its}.values()], modes
        )
        search = RowsSearch(chosen, its, classes, machine, limits)
        true_s = least_s(chosen, layers, classes.lattice, limits, machine)
        answer = search.answer(math.inf)
        assert answer.iteration_s == pytest.approx(true_s, rel=1e-9)
        assert answer.bound_s == pytest.approx(true_s, rel=1e-9)
        if answer.stages is not None:
            priced = search.priced(answer.stages)
            assert priced.iteration_s == pytest.approx(answer.iteration_s, rel=1e-9)
