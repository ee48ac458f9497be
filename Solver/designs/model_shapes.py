"""The shapes that a search of a model looks at: all there are or, of thousands, those that might
have the best plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from Estimator.coverage import check_functions
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.many import load_or_extract_all
from Solver.designs.costs import MANY_SHAPES, ModelShapes, PricedShapes, Shape
from Solver.designs.run import Lying, Run
from Solver.designs.screening import screened
from Solver.plans.closed_shapes import NONE_CLOSED, ClosedShapes
from Solver.problem import ModelProblem


def model_shapes(
    run: Run,
    model: ModelProblem,
    chosen: Sequence[UniformPlan] | None = None,
    lying: Lying | None = None,
) -> list[ModelShapes]:
    """The shapes of ``model`` by micro-batch size, their graphs extracted where they are not on
    disk, layers priced.

    None where its space holds no plan, or none of as few devices as can be bought of any
    configuration. With some ``chosen`` the others are not looked at, and with some ``lying`` no
    other plans of these.

    Raises: InputError: the model cannot be traced, or has operators without a price and the problem
        is strict.
    """
    model = replace(model, space=model.space.within(run.hardware.figures.most_devices))
    kept, closed = run.kept, NONE_CLOSED
    if kept is not None and chosen is None:
        chosen = kept.shapes[model.name]
        closed = kept.closed_shapes[model.name]
        lying = kept.lying.get(model.name)
    plans = list(model.space.shapes() if chosen is None else chosen)
    keys = list(dict.fromkeys(model.graph_key(shape) for shape in plans))
    with run.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
        problem = run.problem
        graphs = load_or_extract_all(
            keys, run.stores.graphs, problem.force_reextract, problem.code, advance
        )
    if run.first:
        check_functions(graphs.values(), run.hardware.known_functions, strict=run.problem.strict)
    priced = PricedShapes(run, model, graphs, plans, lying)
    found = screened(priced) if len(plans) > MANY_SHAPES and chosen is None else None
    if found is None:
        with run.progress.phase(
            f"layer times of {model.name}, by shape of plans", len(plans)
        ) as advance:
            shapes = []
            for number in range(len(plans)):
                shapes.append(priced.shape(number))
                advance(1)
        found = [shape for shape in shapes if shape is not None], closed
    return _by_micro_batch_size(model, *found)


def _by_micro_batch_size(
    model: ModelProblem, shapes: list[Shape], closed: ClosedShapes
) -> list[ModelShapes]:
    of_size: dict[int, list[Shape]] = defaultdict(list)
    for shape in shapes:
        of_size[shape.plan.micro_batch_size].append(shape)
    return [
        ModelShapes(model, size, tuple(found), closed.with_micro_batch_size(size))
        for size, found in of_size.items()
    ]
