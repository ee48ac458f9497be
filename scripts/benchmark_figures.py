"""Print one figure of what a search does inside one process, the graph held.

Usage: PYTHONPATH=. python scripts/benchmark_figures.py one_plan | plans_at_once | many_devices |
       search LAYERS DEVICES
Milliseconds of pricing one plan; plans priced a second; CPU-seconds of the best of all plans of
100,000 devices, with every stage of ZeRO and interleaving; CPU-seconds of a search that proves its
optimum.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.many import evaluate_many
from GraphExtractor.storage import load_or_extract
from phaze.library import run_solver, study
from phaze.settings.problem import hardware_of, plan_space
from phaze.settings.resolve import resolve
from Solver.hardware import Hardware
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.shape_plans import ShapePlans
from Solver.plans.space import PlanSpace

QUESTION = {
    "device": "a100_80gb",
    "devices": 1024,
    "model": "megatron-175b",
    "global_batch_size": 1536,
    "tp": 8,
    "recompute": "full",
}
MANY_DEVICES = 100_000
MEMORY_BYTES = 80e9


@dataclass(frozen=True, eq=False)
class Held:
    """Plans that differ in pp and dp alone, and what their layers cost."""

    hardware: Hardware
    space: PlanSpace
    shape: UniformPlan
    costs: LayerCosts


def cpu_s(work: Callable[[], object], times: int) -> float:
    """Seconds of processor of one of so many calls, after one that is not counted."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def held(folder: str) -> Held:
    """What is priced, its graph made where it is not in ``folder``."""
    request = resolve({}, QUESTION | {"output": folder})
    hardware, model = hardware_of(request), request.workload.models[0].name
    space = plan_space(request, model)
    shape = next(iter(space.shapes()))
    key = shape.graph_key(model, request.workload.sequence_length[0])
    graph = load_or_extract(key, request.folders.graphs)
    groups = layer_groups(shape, hardware.cluster)
    return Held(hardware, space, shape, hardware.proven(graph, shape.recompute, groups))


def one_plan(of: Held) -> float:
    """Milliseconds of one plan."""
    machine = of.hardware.machine(0, MEMORY_BYTES)
    plan = replace(of.shape, pp=8, dp=16, micro_batch_size=1)

    def priced(times: int) -> None:
        for _ in range(times):
            price_iteration(plan, of.costs, machine)

    priced(1_000)  # by when what such calls run is compiled
    return cpu_s(lambda: priced(500), 2) * 2.0


def plans_at_once(of: Held) -> float:
    """Plans a second."""
    layers = len(of.costs.graph.sequence)
    plans = of.space.plans(of.shape, layers, of.hardware.cluster)
    some = plans.some(np.flatnonzero(plans.pp * plans.interleave <= layers - 2))
    repeated = some.some(np.arange(len(some)).repeat(max(1, 200_000 // len(some))))
    machine = of.hardware.machine(0, MEMORY_BYTES)
    return len(repeated) / cpu_s(lambda: evaluate_many(repeated, of.costs, machine), 1)


def many_devices(of: Held) -> float:
    """Seconds until the best plan is proven, of a list that is made anew."""
    graph = of.costs.graph
    machine = of.hardware.machine(0, MEMORY_BYTES)
    many = replace(machine, cluster=replace(of.hardware.cluster, num_devices=MANY_DEVICES))
    devices = iter((MANY_DEVICES - 1, MANY_DEVICES))

    def best() -> object:
        space = replace(
            of.space,
            devices=next(devices),
            use_all_devices=False,
            whole_micro_batches=False,  # which leaves 445,502 plans
        )
        listed = space.plans(of.shape, len(graph.sequence), many.cluster)
        prepared = ShapePlans(graph, of.costs.sizes, listed, many)
        return ConfigurationPlans(prepared, of.costs, 0, MEMORY_BYTES).best()

    return cpu_s(best, 1)


def search(layers: int, devices: int, folder: str) -> float:
    """Seconds of a search of tp 8 that ends with a proof."""
    request = study(
        model=f"gpt:layers={layers},hidden=12288,heads=96",
        device="h200",
        fast_domain=64,
        devices=devices,
        tp=8,
        global_batch_size=1536,
        micro_batch_size=1,
        recompute="full",
        output=folder,
    )
    key = UniformPlan(tp=8, micro_batch_size=1).graph_key(
        request.workload.models[0].name, request.workload.sequence_length[0]
    )
    load_or_extract(key, request.folders.graphs)
    start = time.process_time()
    found = run_solver(request)
    seconds = time.process_time() - start
    if found.status.value != "optimal":
        sys.exit(f"the search ended {found.status.value}")
    return seconds


FIGURES = {each.__name__: each for each in (one_plan, plans_at_once, many_devices)}


def main() -> None:
    """Take the figure that is named and print it."""
    match sys.argv[1:]:
        case ["search", layers, devices]:
            with tempfile.TemporaryDirectory() as folder:
                print(search(int(layers), int(devices), folder))
        case [name] if name in FIGURES:
            with tempfile.TemporaryDirectory() as folder:
                print(FIGURES[name](held(folder)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
