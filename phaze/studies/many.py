"""Many plans of one request priced at once, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from Estimator.coverage import check_functions
from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import Assignment
from Estimator.plans.axes import PLAN_AXES
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.many import evaluate_many
from Estimator.plans.placement import used_part
from Estimator.plans.plan import check_plan
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.models.registry import find_model
from GraphExtractor.storage import load_or_extract
from GraphExtractor.widths import check_panels
from phaze.settings.defaults import Situation, replicas_of, usual_panels
from phaze.settings.plan_table import COLUMNS, SHAPE_COLUMNS, plan_table
from phaze.settings.problem import hardware_of, memory_sizes, plan_space
from phaze.settings.request import Request
from phaze_common.choices import GroupOrder, TensorLayout
from phaze_common.errors import InputError
from phaze_common.setting_fields import BOTH
from phaze_common.text_in_files import TextInFiles
from Solver.hardware import Hardware

if TYPE_CHECKING:
    import pandas as pd

OF_THE_REQUEST = tuple(  # fields of a plan that all plans of a table share
    dict.fromkeys(
        each.attribute.partition(".")[0]
        for each in PLAN_AXES
        if not each.field.holds_many and each.axis.modes == BOTH
    )
)
SECOND_AXIS = "tp2"  # which few plans have, so that refusals leave it out where it is 1
RESULTS = ("iteration_s", "samples_per_s", "step_s", "memory_bytes", "feasible")


def evaluated_many(
    request: Request, plans: pd.DataFrame | Mapping[str, Any], devices: int | None = None
) -> pd.DataFrame:
    """``plans`` with what an iteration of each costs; see ``phaze.library.evaluate_many``.

    ``devices`` are those that each of the plans is to use; None: each uses its own number of them.

    Raises:
        InputError: an unknown column, or a plan that contradicts itself, the model or the cluster.
    """
    import pandas as pd

    table = plan_table(plans)
    hardware, base = hardware_of(request), plan_space(request, request.workload.models[0].name).base
    full = table.assign(**{name: getattr(base, name) for name in COLUMNS if name not in table})
    if devices is not None:
        full["dp"] = _replicas(full, devices, given="dp" in table)
    if "panels" not in table:
        model = find_model(request.workload.models[0].name)
        usual = usual_panels(Situation((model,), request.records))
        divided = (full["layout"] == TensorLayout.TWO_D) & (full["tp"] * full["tp2"] > 1)
        full["panels"] = np.where(divided, usual, 1)
    full["group_order"] = _each(full["group_order"], lambda value: _order(value, hardware.cluster))
    full["groups"] = _each(full["group_order"], _inner)
    found = {name: np.full(len(table), np.nan) for name in RESULTS}
    graphs = _LayerCosts(request, hardware)
    parts: dict[Cluster, Hardware] = {}
    of_graphs = [*SHAPE_COLUMNS, "groups"]
    for rows in full.groupby(of_graphs, dropna=False, sort=False).indices.values():
        same = full.iloc[rows]
        first = same.iloc[0]
        values = {name: _plain(getattr(base, name), first[name]) for name in SHAPE_COLUMNS}
        values |= {name: getattr(base, name) for name in OF_THE_REQUEST}
        shape = UniformPlan(**values, group_order=first["groups"])
        whole = _plans_of(shape, same, hardware)
        for used, placed in _by_used_part(whole, hardware.cluster).items():
            if used not in parts:
                own = used == hardware.cluster
                parts[used] = hardware if own else hardware.in_cluster(used)
            machine = parts[used].machine(0, float(memory_sizes(request)[0]))
            for part in whole.some(placed).by_groups(used).values():
                chosen, at = whole.some(placed[part]), np.asarray(rows)[placed[part]]
                costs = graphs.of(chosen.plan(0), parts[used])
                chosen.check(len(costs.graph.sequence), hardware.cluster, at)
                prices = evaluate_many(chosen, costs, machine)
                for name in ("iteration_s", "step_s", "memory_bytes", "feasible"):
                    found[name][at] = getattr(prices, name)
                found["samples_per_s"][at] = chosen.global_batch_size / prices.iteration_s
    return pd.DataFrame(plans).assign(**{**found, "feasible": found["feasible"] == 1.0})


def _by_used_part(plans: UniformPlans, cluster: Cluster) -> dict[Cluster, NDArray[np.int64]]:
    """Places of plans by the part of ``cluster`` that they use."""
    if isinstance(plans.shape.group_order, Assignment) or len(cluster.tiers) == 1:
        return {cluster: np.arange(len(plans))}
    _, first, place = np.unique(plans.places, return_index=True, return_inverse=True)
    used = [used_part(plans.plan(index), cluster) for index in first.tolist()]
    found = dict[Cluster, NDArray[np.int64]]()
    for part in dict.fromkeys(used):
        same = [number for number, other in enumerate(used) if other == part]
        found[part] = np.flatnonzero(np.isin(place.reshape(-1), same))
    return found


class _LayerCosts:
    """Costs of layers on the request's one configuration, each graph read and priced once."""

    def __init__(self, request: Request, hardware: Hardware) -> None:
        if hardware.configurations != 1:
            raise InputError(
                "many plans are priced on one device or chip; name it with device= or chip="
            )
        self._request = request

    def of(self, plan: UniformPlan, hardware: Hardware) -> LayerCosts:
        """Those of ``plan`` on the part of the cluster that it uses."""
        request = self._request
        model = request.workload.models[0].name
        check_plan(plan)
        check_panels(plan.panels, model, find_model(model))
        key = plan.graph_key(model, request.workload.sequence_length[0])
        graph = load_or_extract(key, request.folders.graphs, code=request.code)
        check_functions([graph], hardware.known_functions, strict=request.search.strict)
        return hardware.proven(graph, plan.recompute, layer_groups(plan, hardware.cluster))


def _replicas(table: pd.DataFrame, devices: int, *, given: bool) -> pd.Series[int]:
    """Data parallel degrees that use so many devices: as stated, or what other degrees leave.

    Raises:
        InputError: a plan uses another number of devices, or cannot use so many; names its row.
    """
    degrees = ("tp", SECOND_AXIS, "pp", "cp")
    inner = np.prod([table[name].to_numpy(dtype=np.int64) for name in degrees], axis=0)
    wrong = (inner < 1) | (devices % np.maximum(inner, 1) != 0)
    if given:
        wrong |= inner * table["dp"].to_numpy(dtype=np.int64) != devices
    for row in np.flatnonzero(wrong)[:1].tolist():
        of_plan = {name: int(table[name].iloc[row]) for name in degrees}
        if of_plan[SECOND_AXIS] == 1:
            del of_plan[SECOND_AXIS]
        for name, degree in of_plan.items():
            if degree < 1:
                raise InputError(f"plan {row}: {name} is {degree}; it must be at least 1")
        try:
            replicas_of(int(table["dp"].iloc[row]) if given else None, devices, of_plan)
        except InputError as error:
            raise InputError(f"plan {row}: {error}") from error
    return table["dp"] if given else (devices // inner)


def _plans_of(shape: UniformPlan, table: pd.DataFrame, hardware: Hardware) -> UniformPlans:
    usual = hardware.machine(0, 0.0).software.overlap_gradients
    overlap = _each(
        table["overlap_gradients"],
        lambda value: usual if value is None or value != value else bool(value),
    )
    orders = table["group_order"]
    pipeline_inner = _each(orders, lambda order: order is GroupOrder.PIPELINE_INNER)
    assigned = [(order.dp, order.pp) for order in orders if isinstance(order, Assignment)]
    numbers = ("pp", "dp", "zero_stage", "interleave", "global_batch_size")
    return UniformPlans(
        shape=shape,
        **{name: table[name].to_numpy(dtype=np.int64) for name in numbers},
        pipeline_inner=pipeline_inner.to_numpy(np.bool_),
        overlap_gradients=overlap.to_numpy(np.bool_),
        assigned=np.array(assigned, np.int64),
    )


def _each(column: pd.Series[Any], read: Callable[[Any], object]) -> pd.Series[Any]:
    """The cells as ``read`` reads them, each distinct one once."""
    import pandas as pd

    numbers, distinct = pd.factorize(column, use_na_sentinel=False)
    found = np.empty(len(distinct), dtype=object)
    found[:] = [read(value) for value in distinct]
    return pd.Series(found[numbers], dtype=object, index=column.index)


def _inner(order: GroupOrder | Assignment) -> GroupOrder | Assignment:
    """What decides where the groups of a layer lie; for all plans of one order it is the same."""
    return order.groups if isinstance(order, Assignment) else GroupOrder.DATA_INNER


def _order(order: GroupOrder | Assignment, cluster: Cluster) -> GroupOrder | Assignment:
    return order.over(len(cluster.tiers)) if isinstance(order, Assignment) else order


def _plain(default: Any, value: Any) -> Any:
    """A cell as a setting of a plan: of the type of its ``default``, None where it is missing."""
    if isinstance(value, StrEnum | TextInFiles):
        return value
    if default is None:
        return None if value is None or value != value else bool(value)
    return type(default)(value)
