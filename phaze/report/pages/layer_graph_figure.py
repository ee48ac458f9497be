"""The layers of a model as the graph they are, on the stages of a plan: what passes between them,
and what is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import layer_range
from phaze.report.pages.theme import BELOW_LEGEND, SERIES, colour
from phaze_common.numbers import size_text
from Solver.designs.schedule_records import KeptTensor
from Solver.results import ModelPlan

ARC = 17  # points of an arc
LABELLED = 40  # layers up to which each has its name


@dataclass(frozen=True)
class LayerEdge:
    """A tensor from one layer to another: places in the order of the stages, bytes forward and
    back, boundaries between."""

    source: int
    destination: int
    forward_bytes: int
    gradient_bytes: int
    boundaries: int


@dataclass(frozen=True)
class PlacedLayers:
    """Layers of a plan in the order of its chunks, the chunk of each, and the edges between
    them."""

    names: tuple[str, ...]
    chunk: tuple[int, ...]
    edges: tuple[LayerEdge, ...]


def placed_layers(plan: ModelPlan, tensors: Sequence[KeptTensor]) -> PlacedLayers:
    """The layers of ``plan`` with the tensors between them."""
    names = [layer for stage in plan.plan.stages for layer in stage.layers]
    chunk = [number for number, stage in enumerate(plan.plan.stages) for _ in stage.layers]
    place = {name: index for index, name in enumerate(names)}
    edges = []
    for tensor in tensors:
        start = place[tensor.source]
        for destination in tensor.destinations:
            end = place[destination]
            edges.append(
                LayerEdge(
                    start,
                    end,
                    tensor.forward_bytes,
                    tensor.gradient_bytes,
                    chunk[end] - chunk[start],
                )
            )
    return PlacedLayers(tuple(names), tuple(chunk), tuple(edges))


def boundary_bytes(placed: PlacedLayers) -> dict[int, int]:
    """Bytes forward over each boundary, from the chunk before it; a tensor that several layers
    behind it read passes once."""
    crossing: dict[int, dict[tuple[int, int], int]] = {}
    for edge in placed.edges:
        for boundary in range(placed.chunk[edge.source], placed.chunk[edge.destination]):
            crossing.setdefault(boundary, {})[edge.source, edge.forward_bytes] = edge.forward_bytes
    return {boundary: sum(found.values()) for boundary, found in sorted(crossing.items())}


def layer_graph_figure(
    plan: ModelPlan, tensors: Sequence[KeptTensor], suffix: str
) -> Figure | None:
    """Layers in a row, coloured by stage; tensors to the next layer along it, others as arcs; None
    for runs without tensors."""
    import altair as alt

    if not tensors:
        return None
    placed = placed_layers(plan, tensors)
    count, last = len(placed.names), len(placed.names) - 1
    longest = max((edge.destination - edge.source for edge in placed.edges), default=1)
    arcs = []
    for number, edge in enumerate(placed.edges):
        span = edge.destination - edge.source
        height = 0.0 if abs(span) == 1 else abs(span) / longest
        words = f"{placed.names[edge.source]} to {placed.names[edge.destination]}"
        for at in np.linspace(0.0, 1.0, 2 if height == 0.0 else ARC).tolist():
            where = edge.source + span * at, height * float(np.sin(np.pi * at))
            sizes = size_text(edge.forward_bytes), size_text(edge.gradient_bytes)
            arcs.append((number, *where, edge.boundaries > 0, words, *sizes, edge.boundaries))
    edges = inline_data(
        ("edge", "x", "y", "cut", "between", "bytes", "gradient", "boundaries"),
        arcs,
        words={"between", "bytes", "gradient"},
    )
    nodes = inline_data(
        ("x", "y", "name", "stage", "parity"),
        [
            (place, 0.0, name, chunk % plan.pp + 1, chunk % plan.pp % len(SERIES))
            for place, (name, chunk) in _numbered(placed)
        ],
        words={"name"},
    )
    x = alt.X("x:Q", title=None, axis=None, scale=alt.Scale(domain=[-0.7, last + 0.7], nice=False))
    arched = any(edge.destination - edge.source != 1 for edge in placed.edges)
    below = (0.45 if arched else 1.0) if count <= LABELLED else 0.1
    y = alt.Y(
        "y:Q",
        title=None,
        axis=None,
        scale=alt.Scale(domain=[-below, 1.05 if arched else 0.15], nice=False),
    )
    kinds = alt.Scale(domain=[0, 1], range=[colour("faint"), colour("accent")])
    legend = alt.Legend(
        offset=BELOW_LEGEND, labelExpr="datum.value == 1 ? 'cut between stages' : 'within a stage'"
    )
    tooltip = [
        alt.Tooltip("between:N", title="from"),
        alt.Tooltip("bytes:N", title="forward"),
        alt.Tooltip("gradient:N", title="gradient back"),
        alt.Tooltip("boundaries:Q", title="boundaries crossed"),
    ]
    colours = alt.Scale(domain=list(range(len(SERIES))), range=[colour(role) for role in SERIES])
    of_layer = [alt.Tooltip("name:N", title="layer"), alt.Tooltip("stage:Q", title="stage")]
    base, at = alt.Chart(nodes), alt.Chart(edges)
    layers = [
        at.mark_line(strokeWidth=1.8).encode(
            x=x,
            y=y,
            detail="edge:N",
            color=alt.Color("cut:O", title=None, scale=kinds, legend=legend),
            tooltip=tooltip,
        ),
        base.mark_circle(
            size=150 if count <= LABELLED else 40, opacity=1, stroke=colour("page"), strokeWidth=1
        ).encode(
            x=x, y=y, color=alt.Color("parity:N", scale=colours, legend=None), tooltip=of_layer
        ),
    ]
    if count <= LABELLED:
        layers.append(
            base.mark_text(
                angle=270, align="right", baseline="middle", dx=-11, fontSize=10, tooltip=None
            ).encode(x=x, y=y, text="name:N")
        )
    chart = alt.layer(*layers).resolve_scale(color="independent")
    crossing = boundary_bytes(placed)
    skips = sum(edge.boundaries > 1 for edge in placed.edges)
    caption = (
        f"{count} layers from left to right as the stages run them, neighbours of one stage in "
        "one colour; tensors to other than "
        "the next layer are arcs."
    )
    if crossing:
        most = max(crossing, key=lambda boundary: crossing[boundary])
        size = size_text(crossing[most])
        behind = f"Most crosses behind stage {most % plan.pp + 1}: {size}"
        behind = f"{size} cross every cut" if len(set(crossing.values())) == 1 else behind
        caption += f" {behind}, forward, per micro-batch and device."
        caption += f" {skips} tensors pass over stages that do not use them." if skips else ""
    spec = sized(chart, 260 if arched else 110)
    marks = len(arcs) // 2 + count
    return Figure(
        f"layer-graph{suffix}", "Layers on the stages", caption, spec, marks, _table(plan, placed)
    )


def _numbered(placed: PlacedLayers) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(placed.names, placed.chunk, strict=True)))


def _table(plan: ModelPlan, placed: PlacedLayers) -> PageTable:
    crossing = boundary_bytes(placed)
    rows = []
    for number, stage in enumerate(plan.plan.stages):
        forward = crossing.get(number, 0)
        rows.append(
            (
                str(number % plan.pp + 1),
                layer_range(stage.layers),
                size_text(forward) if forward else "",
            )
        )
    return table(
        "Layers of each stage, and what it hands on",
        ("stage", "layers", "forward bytes behind it"),
        rows,
        words={"layers"},
    )
