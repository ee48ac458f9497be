"""Scheduling problems for the tests: from the shared cases, at random, by hand; and their optimum
by enumeration."""

import itertools
import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from Solver.schedule.problem import CoreType, Mode, ScheduleProblem, ScheduleStructure

ORIGINAL_TYPES = {
    "TC": CoreType.TC,
    "VC": CoreType.VC,
    "TCandVC": CoreType.TC_AND_VC,
    "Nop": CoreType.VC,
}


def problem_of(types, edges, single, over_all, num_tc, num_vc):
    structure = ScheduleStructure(tuple(types), tuple(edges))
    return ScheduleProblem(
        structure, np.array(single, float), np.array(over_all, float), num_tc, num_vc
    )


def shared_problems(shared_data: Path, name: str):
    """(problem, optimal makespan) of every case in a shared file, in its own unit of time."""
    for case in json.loads((shared_data / "phaze" / name).read_text()):
        nodes = case["graph"]["nodes"]
        position = {node["id"]: index for index, node in enumerate(nodes)}
        latencies = [
            [0.0 if n["core_type"] == "Nop" else n[key] for n in nodes]
            for key in ("latency", "intra_op_latency")
        ]
        edges = [(position[source], position[target]) for source, target in case["graph"]["edges"]]
        types = [ORIGINAL_TYPES[n["core_type"]] for n in nodes]
        yield problem_of(types, edges, *latencies, case["num_tc"], case["num_vc"]), case["T"]


@st.composite
def problems(draw, max_operators=5, min_latency=0, faster_over_all=False):
    """Small problems; few distinct latencies, so that ties and interchangeable operators are
    common."""
    count = draw(st.integers(1, max_operators))
    pairs = list(itertools.combinations(range(count), 2))
    edges = (
        draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs))) if pairs else []
    )
    types = draw(st.lists(st.sampled_from(list(CoreType)), min_size=count, max_size=count))
    single = np.array(
        draw(
            st.lists(
                st.sampled_from([0, 1, 2, 3, 5, 8][min_latency:]), min_size=count, max_size=count
            )
        ),
        float,
    )
    shares = [0.25, 0.5, 0.9, 1.0] if faster_over_all else [0.25, 0.5, 0.9, 1.0, 1.5]
    over_all = single * draw(st.lists(st.sampled_from(shares), min_size=count, max_size=count))
    return problem_of(
        types, edges, single, over_all, draw(st.integers(1, 3)), draw(st.integers(1, 3))
    )


def optimum_by_enumeration(
    problem: ScheduleProblem, apart: frozenset[tuple[int, int]] = frozenset()
) -> float:
    """Least makespan over all modes and all orders in which operators are placed, each as early as
    possible: one is optimal.

    Pairs ``apart`` never run at once, in either order.
    """
    count = len(problem.structure.core_types)
    needs_tc = [core_type is not CoreType.VC for core_type in problem.structure.core_types]
    needs_vc = [core_type is not CoreType.TC for core_type in problem.structure.core_types]
    worth_choosing = [
        (Mode.SINGLE, Mode.ALL) if over_all < single else (Mode.SINGLE,)
        for single, over_all in zip(problem.single_latency_s, problem.all_latency_s, strict=True)
    ]
    orders = [
        order
        for order in itertools.permutations(range(count))
        if all(
            order.index(source) < order.index(target) for source, target in problem.structure.edges
        )
    ]
    best = np.inf
    for modes in itertools.product(*worth_choosing):
        duration = [
            float((problem.all_latency_s if m is Mode.ALL else problem.single_latency_s)[i])
            for i, m in enumerate(modes)
        ]
        for order in orders:
            placed: dict[int, float] = {}

            def fits(i, start, placed=placed, modes=modes, duration=duration):
                overlapping = [
                    j
                    for j in placed
                    if duration[j] > 0
                    and placed[j] < start + duration[i]
                    and start < placed[j] + duration[j]
                ]
                if duration[i] == 0 or not overlapping:
                    return True
                if modes[i] is Mode.ALL or any(modes[j] is Mode.ALL for j in overlapping):
                    return False
                if any((i, j) in apart or (j, i) in apart for j in overlapping):
                    return False
                for instant in [start, *(placed[j] for j in overlapping if placed[j] > start)]:
                    now = [j for j in overlapping if placed[j] <= instant < placed[j] + duration[j]]
                    if needs_tc[i] and sum(needs_tc[j] for j in now) >= problem.num_tc:
                        return False
                    if needs_vc[i] and sum(needs_vc[j] for j in now) >= problem.num_vc:
                        return False
                return True

            for i in order:
                ready = max(
                    (placed[s] + duration[s] for s, t in problem.structure.edges if t == i),
                    default=0.0,
                )
                times = [
                    ready,
                    *sorted(
                        placed[j] + duration[j] for j in placed if placed[j] + duration[j] > ready
                    ),
                ]
                placed[i] = next(time for time in times if fits(i, time))
                if placed[i] + duration[i] >= best:
                    break
            else:
                best = max(placed[i] + duration[i] for i in placed)
    return float(best)


def transformer_layer():
    """(types, edges, microseconds on one core) of a layer, forward (9 operators) and backward (25,
    dX and dW separate)."""
    tc, vc, fused = CoreType.TC, CoreType.VC, CoreType.TC_AND_VC
    names = ["q", "k", "v", "attention", "o", "norm1", "fc1", "fc2", "norm2"]
    types = [tc, tc, tc, fused, fused, vc, fused, fused, vc]
    single = [80, 80, 80, 150, 85, 20, 320, 320, 20]
    edges = [
        ("q", "attention"),
        ("k", "attention"),
        ("v", "attention"),
        ("attention", "o"),
        ("o", "norm1"),
        ("norm1", "fc1"),
    ]
    edges += [("fc1", "fc2"), ("fc2", "norm2"), ("norm1", "norm2")]

    def add(name, core_type, latency, *after):
        names.append(name)
        types.append(core_type)
        single.append(latency)
        edges.extend((before, name) for before in after)

    add("dnorm2", vc, 30, "norm2")
    add("gamma2", vc, 12, "norm2")
    add("ddropout2", vc, 10, "dnorm2")
    for gemm, gradient, latency in (("fc2", "ddropout2", 320), ("fc1", "dgelu", 320)):
        add(f"{gemm}.dx", tc, latency, gradient)
        add(f"{gemm}.dw", tc, latency, gradient)
        add(f"{gemm}.db", vc, 8, gradient)
        add("dgelu" if gemm == "fc2" else "dadd1", vc, 40, f"{gemm}.dx")
    add("dnorm1", vc, 30, "dadd1", "dnorm2")
    add("gamma1", vc, 12, "dadd1")
    add("o.dx", tc, 85, "dnorm1")
    add("o.dw", tc, 85, "dnorm1")
    add("o.db", vc, 8, "dnorm1")
    add("dattention", fused, 380, "o.dx")
    for gemm in "qkv":
        add(f"{gemm}.dx", tc, 80, "dattention")
        add(f"{gemm}.dw", tc, 80, "dattention")
    add("qkv.db", vc, 15, "dattention")
    add("dsum", vc, 30, "q.dx", "k.dx", "v.dx", "dnorm1")
    position = {name: index for index, name in enumerate(names)}
    return types, [(position[source], position[target]) for source, target in edges], single


def layer_problem(num_tc, num_vc, efficiency=0.7, operators=34):
    """The first ``operators`` of the layer above (9: the forward pass); over m cores they are
    ``efficiency`` x m times faster."""
    types, edges, single = transformer_layer()
    types, single = types[:operators], single[:operators]
    edges = [(source, target) for source, target in edges if target < operators]
    cores = [num_vc if core_type is CoreType.VC else num_tc for core_type in types]
    over_all = [
        min(latency, latency / (efficiency * m)) for latency, m in zip(single, cores, strict=True)
    ]
    return problem_of(
        types, edges, np.array(single) * 1e-6, np.array(over_all) * 1e-6, num_tc, num_vc
    )
