"""Where stages, replicas and ranks of a plan are on the network, and what exchanges there."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import AXES, Assignment
from phaze.report.pages.charts import by_role, chart_of, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.theme import SERIES, colour
from phaze.report.sentences.designs import listed
from phaze.report.table import Table
from phaze_common.choices import GroupOrder
from phaze_common.numbers import number
from Solver.plan_report import PlanReport

MOST_DEVICES = 2048  # drawn: of more, the first
WIDEST_ROW = 64  # devices of a row of the picture, at most
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlacedDevices:
    """Devices by number on the network, and ranks along each axis: arrays (devices,)."""

    device: IntArray
    tensor: IntArray
    row: IntArray  # along the second axis of a 2D layout
    context: IntArray
    replica: IntArray
    stage: IntArray


@dataclass(frozen=True)
class GroupOnTiers:
    """Groups that exchange something: devices, stride of neighbours, widest tier that any needs."""

    name: str
    exchanges: str
    size: int
    stride: int
    tier: str
    bandwidth_bytes_per_s: float


def placed_devices(plan: PlanReport, cluster: Cluster) -> PlacedDevices:
    """Ranks of devices: tensor-parallel ones are innermost, then rows, context, replicas, stages.

    Where the plan assigns axes to tiers, this holds within every tier.
    """
    device = np.arange(plan.devices)
    if isinstance(plan.group_order, Assignment):
        return _assigned_devices(plan.group_order, cluster, device)
    rest, tensor = np.divmod(device, plan.tp)
    rest, row = np.divmod(rest, plan.tp2)
    rest, context = np.divmod(rest, plan.cp)
    if plan.group_order == GroupOrder.PIPELINE_INNER:
        replica, stage = np.divmod(rest, plan.pp)
    else:
        stage, replica = np.divmod(rest, plan.dp)
    return PlacedDevices(device, tensor, row, context, replica, stage)


def _assigned_devices(assigned: Assignment, cluster: Cluster, count: IntArray) -> PlacedDevices:
    ranks, weights = {axis: np.zeros_like(count) for axis in AXES}, dict.fromkeys(AXES, 1)
    device, block, rest = np.zeros_like(count), 1, count
    by_tier = zip(*(getattr(assigned, axis) for axis in AXES), strict=True)
    for tier, parts in zip(cluster.tiers, by_tier, strict=False):
        place = 1
        for axis, part in zip(AXES, parts, strict=True):
            rest, digit = np.divmod(rest, part)
            ranks[axis] += digit * weights[axis]
            device += digit * place * block
            weights[axis] *= part
            place *= part
        block = tier.group_size
    return PlacedDevices(device, *(ranks[axis] for axis in AXES))


def groups_on_tiers(plan: PlanReport, cluster: Cluster) -> tuple[GroupOnTiers, ...]:
    """The groups of a plan that have several devices, from the innermost."""
    placed = placed_devices(plan, cluster)
    weights = "weights of every layer, keys and values"
    kinds = [
        ("tensor parallel", "activations of every layer", plan.tp, placed.tensor),
        ("tensor parallel, second axis", weights, plan.tp2, placed.row),
        ("context parallel", "keys and values, gradients", plan.cp, placed.context),
        ("data parallel", "gradients", plan.dp, placed.replica),
        ("neighbouring stages", "activations between stages", plan.pp, placed.stage),
    ]
    found = []
    for name, exchanges, size, ranks in kinds:
        if size == 1:
            continue
        others = [each for *_, each in kinds if each is not ranks]
        same = np.unique(np.stack(others), axis=1, return_inverse=True)[1].reshape(-1)
        members = placed.device[np.lexsort((placed.device, same))].reshape(-1, size)
        stride, tier = int(members[0, 1] - members[0, 0]), cluster.tiers[-1]
        for each in cluster.tiers:
            if (members // each.group_size == members[:, :1] // each.group_size).all():
                tier = each
                break
        rate = tier.bandwidth_bytes_per_s * tier.efficiency
        found.append(GroupOnTiers(name, exchanges, size, stride, tier.name, rate))
    return tuple(found)


def devices_figure(plan: PlanReport, cluster: Cluster, suffix: str) -> Figure:
    """Every device of the plan as a square, row by row as on the network, coloured by stage."""
    placed = placed_devices(plan, cluster)
    drawn = min(len(placed.stage), MOST_DEVICES)
    row = _row_of(cluster, drawn)
    device = placed.device[:drawn]

    def on_network(place: int) -> str:
        tiers = cluster.tiers
        return " / ".join(f"{tier.name} {device[place] // tier.group_size}" for tier in tiers)

    ranks = ("stage", "replica", "tensor", "row", "context")
    base = chart_of(
        {
            "device": int(device[place]),
            "x": int(device[place]) % row,
            "y": int(device[place]) // row,
            **{name: int(getattr(placed, name)[place]) + 1 for name in ranks},
            "colour": int(placed.stage[place]) % len(SERIES),
            "where": on_network(place),
        }
        for place in range(drawn)
    )
    gaps = alt.Scale(paddingInner=0.12)
    unmarked = alt.Axis(labels=False, ticks=False)
    at = {
        "x": alt.X("x:O", title=f"device, {row} in a row", axis=unmarked, scale=gaps),
        "y": alt.Y("y:O", title=None, axis=None, scale=gaps),
    }
    titles = {
        "device:Q": "device",
        "stage:Q": f"stage, of {plan.pp}",
        "replica:Q": f"replica, of {plan.dp}",
        "tensor:Q": f"tensor-parallel rank, of {plan.tp}",
    }
    if plan.tp2 > 1:
        titles["row:Q"] = f"rank on the second tensor axis, of {plan.tp2}"
    if plan.cp > 1:
        titles["context:Q"] = f"context-parallel rank, of {plan.cp}"
    colours = by_role("colour:N", dict(enumerate(SERIES)), legend=None)
    tooltip = tips(titles | {"where:N": "on the network"})
    layers = [base.mark_rect().encode(color=colours, tooltip=tooltip, **at)]
    rows = int(device.max()) // row + 1
    height = int(min(max(rows * 22, 40), 420))
    if row <= 32 and height / rows >= 14:
        text = base.mark_text(fontSize=10, color=colour("label_on_dark"), tooltip=None)
        layers.append(text.encode(text="stage:Q", **at))
    groups = groups_on_tiers(plan, cluster)
    where = [f"{each.name} groups of {each.size:,} on tier {each.tier}" for each in groups]
    caption = (
        "Each square is a device, in the order of the network, coloured by its stage "
        "(colours repeat where there are many)."
    )
    caption += f" What exchanges where: {listed(where)}." if where else ""
    if drawn < len(placed.stage):
        caption += f" The first {drawn:,} of {len(placed.stage):,} devices are drawn."
    name, spec = f"devices{suffix}", sized(alt.layer(*layers), height)
    return Figure(name, "Devices on the network", caption, spec, drawn, _table(groups))


def _row_of(cluster: Cluster, devices: int) -> int:
    """Devices of a row: a block of a tier about as wide as the page, so that rows hold blocks."""
    fitting = [tier.group_size for tier in cluster.tiers if 4 <= tier.group_size <= WIDEST_ROW]
    side = np.sqrt(devices)
    if fitting:
        block = fitting[-1]
        return min(block * max(1, min(WIDEST_ROW // block, int(side) // block)), devices)
    return min(WIDEST_ROW, max(4, int(2 ** np.ceil(np.log2(max(side, 1))))), devices)


def _table(groups: tuple[GroupOnTiers, ...]) -> Table:
    words = ("groups", "exchange", "widest tier they need")
    rows = (
        {
            "groups": each.name,
            "exchange": each.exchanges,
            "devices": f"{each.size:,}",
            "stride": f"{each.stride:,}",
            "widest tier they need": each.tier,
            "GB/s of a device there": number(each.bandwidth_bytes_per_s / 1e9),
        }
        for each in groups
    )
    columns = (*words[:2], "devices", "stride", words[2], "GB/s of a device there")
    return Table.of("Groups on the tiers of the network", rows, columns=columns, words=words)
