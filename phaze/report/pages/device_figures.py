"""Where the stages, replicas and tensor-parallel ranks of a plan lie on the tiers of the network,
and what exchanges there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import AXES, Assignment
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.theme import SERIES, colour
from phaze.studies.wording import listed
from phaze_common.choices import GroupOrder
from phaze_common.numbers import number
from Solver.results import ModelPlan

MOST_DEVICES = 2048  # drawn: of more, the first
WIDEST_ROW = 64  # devices of a row of the picture, at most
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlacedDevices:
    """Every device in use by its number on the network, and its rank along each axis: arrays of
    shape (devices,)."""

    device: IntArray
    tensor: IntArray
    row: IntArray  # along the second axis of a 2D layout
    context: IntArray
    replica: IntArray
    stage: IntArray


@dataclass(frozen=True)
class GroupOnTiers:
    """Groups of a kind that exchange something: devices, how far apart neighbours are, and the
    widest tier any of them needs."""

    name: str
    exchanges: str
    size: int
    stride: int
    tier: str
    bandwidth_bytes_per_s: float


def placed_devices(plan: ModelPlan, cluster: Cluster) -> PlacedDevices:
    """Tensor-parallel groups lie innermost, then rows of a 2D layout, context-parallel ones, then
    replicas or stages in order.

    Where the plan assigns axes to tiers, this holds within every tier.
    """
    device = np.arange(plan.tp * plan.tp2 * plan.cp * plan.dp * plan.pp)
    if plan.group_order not in {order.value for order in GroupOrder}:
        return _assigned_devices(Assignment.parsed(plan.group_order), cluster, device)
    rest, tensor = np.divmod(device, plan.tp)
    rest, row = np.divmod(rest, plan.tp2)
    rest, context = np.divmod(rest, plan.cp)
    if plan.group_order == GroupOrder.PIPELINE_INNER.value:
        replica, stage = np.divmod(rest, plan.pp)
    else:
        stage, replica = np.divmod(rest, plan.dp)
    return PlacedDevices(device, tensor, row, context, replica, stage)


def _assigned_devices(assigned: Assignment, cluster: Cluster, count: IntArray) -> PlacedDevices:
    ranks, weights = {axis: np.zeros_like(count) for axis in AXES}, dict.fromkeys(AXES, 1)
    device, block, rest = np.zeros_like(count), 1, count
    for tier, parts in zip(
        cluster.tiers, zip(*(getattr(assigned, axis) for axis in AXES), strict=True), strict=False
    ):
        place = 1
        for axis, part in zip(AXES, parts, strict=True):
            rest, digit = np.divmod(rest, part)
            ranks[axis] += digit * weights[axis]
            device += digit * place * block
            weights[axis] *= part
            place *= part
        block = tier.group_size
    return PlacedDevices(device, *(ranks[axis] for axis in AXES))


def groups_on_tiers(plan: ModelPlan, cluster: Cluster) -> tuple[GroupOnTiers, ...]:
    """The groups of a plan that have several devices, from the innermost."""
    placed = placed_devices(plan, cluster)
    kinds = [
        ("tensor parallel", "activations of every layer", plan.tp, placed.tensor),
        (
            "tensor parallel, second axis",
            "weights of every layer, keys and values",
            plan.tp2,
            placed.row,
        ),
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
        tier = next(
            (
                each
                for each in cluster.tiers
                if (members // each.group_size == members[:, :1] // each.group_size).all()
            ),
            cluster.tiers[-1],
        )
        stride = int(members[0, 1] - members[0, 0])
        found.append(
            GroupOnTiers(
                name,
                exchanges,
                size,
                stride,
                tier.name,
                tier.bandwidth_bytes_per_s * tier.efficiency,
            )
        )
    return tuple(found)


def devices_figure(plan: ModelPlan, cluster: Cluster, suffix: str) -> Figure:
    """Every device of the plan as a square, row by row in the order of the network, coloured by
    stage."""
    import altair as alt

    placed = placed_devices(plan, cluster)
    drawn = min(len(placed.stage), MOST_DEVICES)
    row = _row_of(cluster, drawn)
    device = placed.device[:drawn]
    blocks = [device // tier.group_size for tier in cluster.tiers]
    names = [
        " / ".join(
            f"{tier.name} {block[place]}" for tier, block in zip(cluster.tiers, blocks, strict=True)
        )
        for place in range(drawn)
    ]
    columns = (
        "device",
        "x",
        "y",
        "stage",
        "replica",
        "tensor",
        "row",
        "context",
        "colour",
        "where",
    )
    rows = zip(
        *(
            each.tolist()
            for each in (
                device,
                device % row,
                device // row,
                placed.stage[:drawn] + 1,
                placed.replica[:drawn] + 1,
            )
        ),
        *((each[:drawn] + 1).tolist() for each in (placed.tensor, placed.row, placed.context)),
        (placed.stage[:drawn] % len(SERIES)).tolist(),
        names,
        strict=True,
    )
    data = inline_data(columns, rows, words={"where"})
    lines = int(device.max()) // row + 1
    x = alt.X(
        "x:O",
        title=f"device, {row} in a row",
        axis=alt.Axis(labels=False, ticks=False),
        scale=alt.Scale(paddingInner=0.12),
    )
    y = alt.Y("y:O", title=None, axis=None, scale=alt.Scale(paddingInner=0.12))
    scale = alt.Scale(domain=list(range(len(SERIES))), range=[colour(role) for role in SERIES])
    tooltip = [
        alt.Tooltip("device:Q", title="device"),
        alt.Tooltip("stage:Q", title=f"stage, of {plan.pp}"),
        alt.Tooltip("replica:Q", title=f"replica, of {plan.dp}"),
        alt.Tooltip("tensor:Q", title=f"tensor-parallel rank, of {plan.tp}"),
        *(
            [alt.Tooltip("row:Q", title=f"rank on the second tensor axis, of {plan.tp2}")]
            if plan.tp2 > 1
            else []
        ),
        *(
            [alt.Tooltip("context:Q", title=f"context-parallel rank, of {plan.cp}")]
            if plan.cp > 1
            else []
        ),
        alt.Tooltip("where:N", title="on the network"),
    ]
    base = alt.Chart(data)
    layers = [
        base.mark_rect().encode(
            x=x, y=y, color=alt.Color("colour:N", scale=scale, legend=None), tooltip=tooltip
        )
    ]
    height = int(min(max(lines * 22, 40), 420))
    if row <= 32 and height / lines >= 14:
        layers.append(
            base.mark_text(fontSize=10, color=colour("label_on_dark"), tooltip=None).encode(
                x=x, y=y, text="stage:Q"
            )
        )
    groups = groups_on_tiers(plan, cluster)
    where = [f"{each.name} groups of {each.size:,} on tier {each.tier}" for each in groups]
    caption = (
        "Each square is a device, in the order of the network, coloured by its stage "
        "(colours repeat where there are many)."
    )
    caption += f" What exchanges where: {listed(where)}." if where else ""
    if drawn < len(placed.stage):
        caption += f" The first {drawn:,} of {len(placed.stage):,} devices are drawn."
    spec = sized(alt.layer(*layers), height)
    return Figure(
        f"devices{suffix}", "Devices on the network", caption, spec, drawn, _table(groups)
    )


def _row_of(cluster: Cluster, devices: int) -> int:
    """Devices of a row: a block of a tier where one is about as wide as the page, so that blocks
    are rows or parts of them."""
    fitting = [tier.group_size for tier in cluster.tiers if 4 <= tier.group_size <= WIDEST_ROW]
    if fitting:
        block = fitting[-1]
        return min(
            block * max(1, min(WIDEST_ROW // block, int(np.sqrt(devices)) // block)), devices
        )
    return min(WIDEST_ROW, max(4, int(2 ** np.ceil(np.log2(max(np.sqrt(devices), 1))))), devices)


def _table(groups: tuple[GroupOnTiers, ...]) -> PageTable:
    columns = (
        "groups",
        "exchange",
        "devices",
        "stride",
        "widest tier they need",
        "GB/s of a device there",
    )
    rows = (
        (
            each.name,
            each.exchanges,
            f"{each.size:,}",
            f"{each.stride:,}",
            each.tier,
            number(each.bandwidth_bytes_per_s / 1e9),
        )
        for each in groups
    )
    return table(
        "Groups on the tiers of the network",
        columns,
        rows,
        words={"groups", "exchange", "widest tier they need"},
    )
