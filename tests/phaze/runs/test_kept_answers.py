"""Answers about a best design are kept under the name of whatever decides them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from Estimator.plans.results import Status
from phaze.runs.kept_answers import answer_file
from phaze.settings.problem import hardware_of, search_problem
from phaze.settings.resolve import resolve
from phaze_common.choices import Objective
from phaze_common.progress import SilentProgress
from Solver.designs.search_context import SearchContext, Stores
from Solver.hardware import DesignedChips
from Solver.results import DesignPoint


def test_an_answer_about_chips_is_of_their_space_and_its_budget(tmp_path: Path) -> None:
    request = resolve({}, {"model": "bertbase"})
    chips = hardware_of(request)
    assert isinstance(chips, DesignedChips) and chips.space is not None
    best = DesignPoint(
        Status.OPTIMAL, True, Objective.THROUGHPUT, 1.0, chips.accelerator(0), 1, {}, None
    )

    def path(budget_mm2: float) -> Path | None:
        space = replace(chips.space, budget_mm2=budget_mm2)
        stores = Stores(tmp_path, None, tmp_path)
        hardware = replace(chips, space=space)
        run = SearchContext(search_problem(request), hardware, stores, SilentProgress())
        return answer_file(run, "limits", str, best).path

    budget = chips.space.budget_mm2
    assert path(budget) == path(budget) != path(budget + 1.0)
