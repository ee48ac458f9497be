"""The layers of a model as a graph on the stages of a plan: what passes, and what is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from phaze.report.pages.charts import by_role, chart_of, exactly, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.theme import BELOW_LEGEND, SERIES, colour
from phaze.report.table import Table
from phaze_common.numbers import size_text
from Solver.designs.schedule_records import KeptTensor
from Solver.plan_report import PlanReport

ARC = 17  # points of an arc
LABELLED = 40  # layers up to which each has its name


@dataclass(frozen=True)
class LayerEdge:
    """A tensor between layers: places in stage order, bytes forward and back, boundaries."""

    source: int
    destination: int
    forward_bytes: int
    gradient_bytes: int
    boundaries: int


@dataclass(frozen=True)
class PlacedLayers:
    """Layers of a plan in the order of its chunks, the chunk of each, and edges between them."""

    names: tuple[str, ...]
    chunk: tuple[int, ...]
    edges: tuple[LayerEdge, ...]


def placed_layers(plan: PlanReport, tensors: Sequence[KeptTensor]) -> PlacedLayers:
    """The layers of ``plan`` with the tensors between them."""
    names = [layer for stage in plan.plan.stages for layer in stage.layers]
    chunk = [number for number, stage in enumerate(plan.plan.stages) for _ in stage.layers]
    place = {name: index for index, name in enumerate(names)}
    edges = []
    for tensor in tensors:
        start = place[tensor.source]
        for destination in tensor.destinations:
            end = place[destination]
            sizes = tensor.forward_bytes, tensor.gradient_bytes
            edges.append(LayerEdge(start, end, *sizes, chunk[end] - chunk[start]))
    return PlacedLayers(tuple(names), tuple(chunk), tuple(edges))


def boundary_bytes(placed: PlacedLayers) -> dict[int, int]:
    """Bytes forward over boundaries, by the chunk before; a tensor that many read passes once."""
    crossing: dict[int, dict[tuple[int, int], int]] = {}
    for edge in placed.edges:
        for boundary in range(placed.chunk[edge.source], placed.chunk[edge.destination]):
            crossing.setdefault(boundary, {})[edge.source, edge.forward_bytes] = edge.forward_bytes
    return {boundary: sum(found.values()) for boundary, found in sorted(crossing.items())}


def layer_graph_figure(
    plan: PlanReport, tensors: Sequence[KeptTensor], suffix: str
) -> Figure | None:
    """Layers in a row, coloured by stage; tensors along it or as arcs; None without tensors."""
    if not tensors:
        return None
    placed = placed_layers(plan, tensors)
    count, last = len(placed.names), len(placed.names) - 1
    longest = max((edge.destination - edge.source for edge in placed.edges), default=1)
    arcs: list[dict[str, object]] = []
    for number, edge in enumerate(placed.edges):
        span = edge.destination - edge.source
        height = 0.0 if abs(span) == 1 else abs(span) / longest
        for at in np.linspace(0.0, 1.0, 2 if height == 0.0 else ARC).tolist():
            arcs.append(
                {
                    "edge": number,
                    "x": edge.source + span * at,
                    "y": height * float(np.sin(np.pi * at)),
                    "cut": edge.boundaries > 0,
                    "between": f"{placed.names[edge.source]} to {placed.names[edge.destination]}",
                    "bytes": size_text(edge.forward_bytes),
                    "gradient": size_text(edge.gradient_bytes),
                    "boundaries": edge.boundaries,
                }
            )
    nodes = chart_of(
        {
            "x": place,
            "y": 0.0,
            "name": name,
            "stage": chunk % plan.pp + 1,
            "parity": chunk % plan.pp % len(SERIES),
        }
        for place, (name, chunk) in enumerate(zip(placed.names, placed.chunk, strict=True))
    )
    arched = any(edge.destination - edge.source != 1 for edge in placed.edges)
    named = count <= LABELLED
    below = (0.45 if arched else 1.0) if named else 0.1
    bare: dict[str, Any] = {"title": None, "axis": None}
    at = {
        "x": alt.X("x:Q", scale=exactly(-0.7, last + 0.7), **bare),
        "y": alt.Y("y:Q", scale=exactly(-below, 1.05 if arched else 0.15), **bare),
    }
    kinds = "datum.value == 1 ? 'cut between stages' : 'within a stage'"
    legend = alt.Legend(offset=BELOW_LEGEND, labelExpr=kinds)
    titles = {"between:N": "from", "bytes:N": "forward"}
    titles |= {"gradient:N": "gradient back", "boundaries:Q": "boundaries crossed"}
    size = 150 if named else 40
    stages = by_role("parity:N", dict(enumerate(SERIES)), legend=None)
    layers = [
        chart_of(arcs)
        .mark_line(strokeWidth=1.8)
        .encode(
            detail="edge:N",
            color=by_role("cut:O", {0: "faint", 1: "accent"}, legend=legend),
            tooltip=tips(titles),
            **at,
        ),
        nodes.mark_circle(size=size, opacity=1, stroke=colour("page"), strokeWidth=1).encode(
            color=stages, tooltip=tips({"name:N": "layer", "stage:Q": "stage"}), **at
        ),
    ]
    if named:
        look = {"angle": 270, "align": "right", "baseline": "middle", "dx": -11, "fontSize": 10}
        layers.append(nodes.mark_text(tooltip=None, **look).encode(text="name:N", **at))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return Figure(
        f"layer-graph{suffix}",
        "Layers on the stages",
        _caption(plan, placed),
        sized(chart, 260 if arched else 110),
        len(arcs) // 2 + count,
        _table(plan, placed),
    )


def _caption(plan: PlanReport, placed: PlacedLayers) -> str:
    crossing = boundary_bytes(placed)
    skips = sum(edge.boundaries > 1 for edge in placed.edges)
    caption = (
        f"{len(placed.names)} layers from left to right as the stages run them, neighbours of one "
        "stage in one colour; tensors to other than the next layer are arcs."
    )
    if crossing:
        most = max(crossing, key=lambda boundary: crossing[boundary])
        size = size_text(crossing[most])
        behind = f"Most crosses behind stage {most % plan.pp + 1}: {size}"
        behind = f"{size} cross every cut" if len(set(crossing.values())) == 1 else behind
        caption += f" {behind}, forward, per micro-batch and device."
        caption += f" {skips} tensors pass over stages that do not use them." if skips else ""
    return caption


def _table(plan: PlanReport, placed: PlacedLayers) -> Table:
    crossing = boundary_bytes(placed)
    rows = []
    for number, stage in enumerate(plan.plan.stages):
        forward = crossing.get(number, 0)
        row = {"stage": str(number % plan.pp + 1), "layers": layer_range(stage.layers)}
        rows.append(row | {"forward bytes behind it": size_text(forward) if forward else ""})
    return Table.of("Layers of each stage, and what it hands on", rows, words={"layers"})
