"""The shapes that a search of a model looks at: all there are or, of thousands, those that might
have the best plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from Estimator.coverage import check_functions
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.many import load_or_extract_all
from Solver.designs.costs import MANY_SHAPES, ModelShapes, PricedShapes, Shape
from Solver.designs.kept_shapes import kept_shapes
from Solver.designs.search_context import Placements, SearchContext
from Solver.plans.shape_bounds import NONE_PRUNED, PrunedShapes
from Solver.problem import ModelProblem


def model_shapes(
    context: SearchContext,
    model: ModelProblem,
    chosen: Sequence[UniformPlan] | None = None,
    placements: Placements | None = None,
) -> list[ModelShapes]:
    """The shapes of ``model`` by micro-batch size, their graphs extracted where they are not on
    disk, layers priced.

    None where its space holds no plan, or none of as few devices as can be bought of any
    configuration. With some ``chosen`` the others are not looked at, and with some ``placements``
    no other plans of these.

    Raises: InputError: the model cannot be traced, or has operators without a price and the problem
        is strict."""
    model = replace(model, space=model.space.within(context.hardware.metrics.most_devices))
    remaining, pruned = context.remaining, NONE_PRUNED
    if remaining is not None and chosen is None:
        chosen = remaining.shapes[model.name]
        pruned = remaining.pruned_shapes[model.name]
        placements = remaining.placements.get(model.name)
    plans = list(model.space.shapes() if chosen is None else chosen)
    graphs = training_graphs(context, model, plans)
    priced = PricedShapes(context, model, graphs, plans, placements)
    found = kept_shapes(priced) if len(plans) > MANY_SHAPES and chosen is None else None
    if found is None:
        with context.progress.phase(
            f"layer times of {model.name}, by shape of plans", len(plans)
        ) as advance:
            shapes = []
            for number in range(len(plans)):
                shapes.append(priced.shape(number))
                advance(1)
        found = [shape for shape in shapes if shape is not None], pruned
    return _by_micro_batch_size(model, *found)


def training_graphs(
    context: SearchContext, model: ModelProblem, shapes: Sequence[UniformPlan]
) -> dict[GraphKey, ModelGraph]:
    """The graphs of ``shapes``, extracted where they are not on disk; the first time operators
    without a price are named, or refused."""
    keys, problem = list(dict.fromkeys(model.graph_key(shape) for shape in shapes)), context.problem
    with context.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
        graphs = load_or_extract_all(
            keys, context.stores.graphs, problem.force_reextract, problem.code, advance
        )
    if context.first:
        known = context.hardware.known_functions
        check_functions(graphs.values(), known, strict=problem.strict)
    return graphs


def _by_micro_batch_size(
    model: ModelProblem, shapes: list[Shape], pruned: PrunedShapes
) -> list[ModelShapes]:
    of_size: dict[int, list[Shape]] = defaultdict(list)
    for shape in shapes:
        of_size[shape.plan.micro_batch_size].append(shape)
    return [
        ModelShapes(model, size, tuple(found), pruned.with_micro_batch_size(size))
        for size, found in of_size.items()
    ]
