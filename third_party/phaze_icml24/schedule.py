"""Solves one operator graph of the original Phaze (ICML 2024) under its scheduling rules.

Input, one JSON object (further keys are ignored):

    {"num_tc": 2, "num_vc": 4, "graph": {"nodes": [{"id", "core_type", "latency",
                                         "intra_op_latency"}, ...], "edges": [[from, to], ...]}}

with ``core_type`` TC, VC, TCandVC or Nop. ``latency`` is on one core, ``intra_op_latency`` over all
cores of the type; times come back in the unit they were given in. Nops and operators of zero
latency take no time and no core. A fused operator takes any one TC and any one VC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from phaze_common.echo import as_given
from phaze_common.errors import InputError
from third_party.cases import integer

if TYPE_CHECKING:
    from Solver.schedule.problem import ScheduleProblem

TIME_LIMIT_S = 60.0
MOST_NODES, MOST_CORES = 20_000, 2**20
# A Nop's type is immaterial: it has no latency.
CORE_TYPES = {"TC": "TC", "VC": "VC", "TCandVC": "TC+VC", "Nop": "VC"}


def schedule_case(graph_json: Mapping[str, Any]) -> dict[str, Any]:
    """Solve one case: {"makespan", "optimal", "solver", "gap", "schedule": [{"id", "mode", "tc",
    "vc", "start", "end"}, ...]}.

    Raises:
        InputError: a key is missing or has an impossible value, or the graph is cyclic.
        SolverError: the solver failed.
    """
    from Estimator.plans.results import Status
    from Solver.schedule import check_schedule, solver_named

    problem, ids = _problem(graph_json)
    schedule = solver_named("native").solve(problem, TIME_LIMIT_S)
    if schedule.status in (Status.OPTIMAL, Status.FEASIBLE):
        check_schedule(problem, schedule)
    found = math.isfinite(schedule.makespan_s)
    return {
        "makespan": schedule.makespan_s if found else None,
        "optimal": schedule.status is Status.OPTIMAL,
        "status": str(schedule.status),
        "gap": schedule.gap if found else None,
        "solver": schedule.solver,
        "schedule": [
            {
                "id": ids[one.operator],
                "mode": str(one.mode),
                "tc": one.tc,
                "vc": one.vc,
                "start": one.start_s,
                "end": one.end_s,
            }
            for one in schedule.assignments
        ],
    }


def _problem(case: Mapping[str, Any]) -> tuple[ScheduleProblem, list[object]]:
    import numpy as np

    from Solver.schedule.problem import CoreType, ScheduleProblem, ScheduleStructure

    graph = _field(case, "graph", Mapping, "the schedule case")
    nodes = _field(graph, "nodes", Sequence, "the graph")
    edges = _field(graph, "edges", Sequence, "the graph")
    if len(nodes) > MOST_NODES:
        raise InputError(
            f"the graph has {len(nodes):,} nodes, at most {MOST_NODES:,} are possible; give a "
            "smaller one"
        )
    ids = [_field(node, "id", (int, str, float), "a node") for node in nodes]
    position = {identifier: index for index, identifier in enumerate(ids)}
    if len(position) < len(ids):
        raise InputError("two nodes of the graph have the same id; ids must differ")
    types = []
    latencies: dict[str, list[float]] = {"latency": [], "intra_op_latency": []}
    for node in nodes:
        name = _field(node, "core_type", str, f"node {node['id']}")
        if name not in CORE_TYPES:
            raise InputError(
                f"node {as_given(node['id'])} has core_type {as_given(name)}; use one of "
                f"{', '.join(CORE_TYPES)}"
            )
        types.append(CoreType(CORE_TYPES[name]))
        for key, values in latencies.items():
            values.append(0.0 if name == "Nop" else _latency(node, key))
    pairs = []
    for edge in edges:
        if not (
            isinstance(edge, list)
            and len(edge) >= 2
            and all(_is_id(end) and end in position for end in edge[:2])
        ):
            raise InputError(
                f"edge {as_given(edge)} does not name two nodes of the graph; edges are [from id, "
                "to id]"
            )
        pairs.append((position[edge[0]], position[edge[1]]))
    counts = [
        integer(_field(case, key, int, "the schedule case"), key, 0, MOST_CORES)
        for key in ("num_tc", "num_vc")
    ]
    structure = ScheduleStructure(tuple(types), tuple(pairs))
    single, over_all = (
        np.array(latencies[key], dtype=np.float64) for key in ("latency", "intra_op_latency")
    )
    return ScheduleProblem(structure, single, over_all, *counts), ids


def _is_id(value: object) -> bool:
    return isinstance(value, int | str | float) and not isinstance(value, bool)


def _latency(node: Mapping[str, Any], key: str) -> float:
    value = float(_field(node, key, (int, float), f"node {node['id']}"))
    if not 0 <= value < math.inf:
        raise InputError(
            f"{key!r} of node {as_given(node['id'])} is {as_given(value)}; it must be a number "
            "from 0"
        )
    return value


def _field(container: Any, key: str, kind: Any, where: str) -> Any:
    see = "see the head of third_party/phaze_icml24/schedule.py for the format"
    if not isinstance(container, Mapping) or key not in container:
        raise InputError(f"{where} has no {key!r}; {see}")
    value = container[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{key!r} of {where} is {as_given(value)}; {see}")
    return value
