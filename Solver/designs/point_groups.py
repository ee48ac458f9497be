"""Groups of design points with what earlier runs found of them, by content: whatever decides them
is in the name of their folder."""

from __future__ import annotations

from pathlib import Path

from phaze_common.files import content_key
from Solver.designs.costs import ModelShapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup
from Solver.designs.search_context import SearchContext
from Solver.hardware import graph_content


def point_group(
    context: SearchContext,
    shapes: ModelShapes,
    memory_bytes: int,
    larger_memory: PointGroup | None = None,
    *,
    only_bounds: bool = False,
) -> PointGroup:
    """The points of one model, micro-batch and memory size, with what an earlier run finished; with
    ``only_bounds`` no more than its bounds, and nothing new is stored."""
    folder = points_folder(context, shapes, memory_bytes)
    store = PointStore(folder, only_bounds=only_bounds, known=context.known_bounds)
    return PointGroup.of(context, shapes, memory_bytes, store, larger_memory)


def points_folder(context: SearchContext, shapes: ModelShapes, memory_bytes: int) -> Path | None:
    """Where the points of one model, micro-batch and memory size are kept, if anywhere."""
    if context.stores.points is None:
        return None
    graphs = {shape.graph.key: shape.graph for shape in shapes.shapes}
    contents = list(dict.fromkeys(map(graph_content, graphs.values())))
    # Which a larger node limit may have shortened since an earlier run
    times = [shape.times_key for shape in shapes.shapes]
    bought = context.hardware.metrics.purchase is not None
    decisive = (context.problem.objective.value,) if bought else ()
    # Some of the plans of the space, where bounds closed the others or some are chosen
    plans = [(shape.plan, [part.groups for part in shape.parts]) for shape in shapes.shapes]
    what = shapes.model.space, memory_bytes, plans, contents, times, *decisive
    return context.stores.points / content_key(context.pricing, *what)
