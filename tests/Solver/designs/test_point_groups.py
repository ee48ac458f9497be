"""Points are kept under the name of whatever decides them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from Estimator.plans.layer_costs import LayerCosts
from phaze_common.array_types import fieldwise
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.costs import Shape
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_groups import points_folder
from Solver.designs.search_context import Stores
from tests.builders.random_searches import random_case

SIZE = int(1e9)


def test_the_folder_of_points_is_of_their_plans_and_of_what_layers_take_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(500, configurations=4, most_layers=4)
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: case.graph(key) for key in keys},
    )
    run = replace(case.run(), stores=Stores(tmp_path, None, tmp_path))
    shapes = model_shapes(run, case.problem.models[0])[0]
    first, *others = shapes.shapes

    def folder(shape: Shape) -> Path | None:
        return points_folder(run, replace(shapes, shapes=(shape, *others)), SIZE)

    known = folder(first)
    assert known is not None and folder(replace(first)) == known
    # other plans whose layers take the same
    like = replace(first.plan, sequence_parallel=not first.plan.sequence_parallel)
    assert folder(replace(first, plan=like)) != known
    # bounds from layers that may take less
    parts = [replace(part, least=_in_half(part.least)) for part in first.parts]
    assert folder(replace(first, parts=tuple(parts))) != known


def _in_half(costs: LayerCosts) -> LayerCosts:
    return replace(costs, forward=fieldwise(lambda seconds: 0.5 * seconds, costs.forward))
