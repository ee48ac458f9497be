"""Measure what a search does thousands of times: pricing plans, one and many at once, listing and
preparing them.

Usage: python scripts/benchmark_plans.py Everything runs in this process with the graph held;
figures are of processor time, and nothing is compared with a limit.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.many import evaluate_many
from GraphExtractor.graph import ModelGraph
from GraphExtractor.storage import load_or_extract
from phaze.library import evaluate_many as many_plans
from phaze.library import run_solver, study
from phaze.settings.problem import hardware_of, plan_space
from phaze.settings.resolve import resolve
from Solver.hardware import Hardware
from Solver.plans.best_plan import BestPlan, ConfigurationPlans
from Solver.plans.shape_plans import ShapePlans
from Solver.plans.space import PlanSpace

CLUSTER = {"device": "a100_80gb", "devices": 1024}
QUESTION = CLUSTER | {
    "model": "megatron-175b",
    "global_batch_size": 1536,
    "tp": 8,
    "recompute": "full",
}
MANY_DEVICES = 100_000
LAYOUTS: dict[str, dict[str, str | int]] = {
    "1d": {"tp": 8},
    "2d": {"layout": "2d", "tp": 4, "tp2": 2},
    "2d, assigned to tiers": {"layout": "2d", "tp": 4, "tp2": 2},
    "ring": {"layout": "sequence", "tp": 4, "cp": 2, "exchange": "ring"},
    "ulysses": {"layout": "sequence", "tp": 4, "cp": 2, "exchange": "ulysses"},
}
GROWTH = {"devices": (256, 1024, 4096, 16384), "layers": (24, 96, 384, 1000)}


def cpu_s(work: Callable[[], object], times: int) -> float:
    """Seconds of processor of one of so many calls, after one that is not counted."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def say(what: str, figure: str) -> None:
    """Write a line at once."""
    print(f"  {what:58s} {figure}", flush=True)


def pricing(hardware: Hardware, space: PlanSpace, shape: UniformPlan, costs: LayerCosts) -> None:
    """One plan, and all plans of a shape at once."""
    machine = hardware.machine(0, 80e9)
    plan = replace(shape, pp=8, dp=16, micro_batch_size=1)
    say(
        "one plan on a device, graph held",
        f"{1e3 * cpu_s(lambda: price_iteration(plan, costs, machine), 200):8.2f} ms",
    )
    plans = space.plans(shape, len(costs.graph.sequence), hardware.cluster)
    balanced = plans.pp * plans.interleave <= len(costs.graph.sequence) - 2
    some = plans.some(np.flatnonzero(balanced))
    repeated = some.some(np.arange(len(some)).repeat(max(1, 200_000 // len(some))))
    seconds = cpu_s(lambda: evaluate_many(repeated, costs, machine), 1)
    say(f"{len(repeated):,} plans at once", f"{len(repeated) / seconds:8,.0f} plans per second")


def placements(
    hardware: Hardware, space: PlanSpace, shape: UniformPlan, costs: LayerCosts, graph: ModelGraph
) -> None:
    """The plans of a shape: listed, prepared for one configuration, and the best of them found."""
    machine, layers = hardware.machine(0, 80e9), len(graph.sequence)
    plans = space.plans(shape, layers, hardware.cluster)
    shared = ShapePlans(graph, costs.sizes, plans, machine)
    seconds = cpu_s(lambda: ConfigurationPlans(shared, costs, 0, 80e9), 20)
    say(f"bounds of {len(plans):,} plans on one configuration", f"{1e3 * seconds:8.2f} ms")
    prepared = ConfigurationPlans(shared, costs, 0, 80e9)
    say("the best of them with its cut, proven", f"{1e3 * cpu_s(prepared.best, 3):8.2f} ms")
    cluster = replace(hardware.cluster, num_devices=MANY_DEVICES)
    many = replace(hardware.machine(0, 80e9), cluster=cluster)
    wide = replace(space, devices=MANY_DEVICES, use_all_devices=False)
    for name, axes in (
        ("without ZeRO", replace(wide, zero_stages=(0,), interleave=(1,))),
        ("all stages of ZeRO, interleaved", wide),
    ):
        every, fewer = len(axes.every_plan(shape, layers, cluster)), itertools.count()

        def best(axes: PlanSpace = axes, fewer: Iterator[int] = fewer) -> BestPlan:
            # a list of its own
            listed = replace(axes, devices=axes.devices - next(fewer)).plans(shape, layers, cluster)
            plans = ShapePlans(graph, costs.sizes, listed, many)
            return ConfigurationPlans(plans, costs, 0, 80e9).best()

        say(
            f"best of {every:,} plans of {MANY_DEVICES:,} devices, {name}",
            f"{cpu_s(best, 1):8.2f} s",
        )


def layouts(folder: Path) -> None:
    """Tables of plans of every layout through the library, graphs held."""
    degrees = itertools.product(
        (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64), range(4), (False, True), range(512, 1024, 3)
    )
    columns = "pp", "dp", "zero_stage", "overlap_gradients", "global_batch_size"
    grid = pd.DataFrame([row for row in degrees if row[0] * row[1] * 8 <= 1024], columns=columns)
    for name, layout in LAYOUTS.items():
        table = grid.assign(**layout)
        if name.endswith("tiers"):
            table["group_order"] = [
                f"tp4.row2/dp{dp}.pp{pp}" for pp, dp in zip(table.pp, table.dp, strict=True)
            ]
            table["group_order"] = (
                table["group_order"]
                .str.replace(r"dp1\.|\.pp1$", "", regex=True)
                .replace("tp4.row2/pp1", "tp4.row2")
            )
        question = {
            "device": CLUSTER["device"],
            "model": "megatron-175b",
            "recompute": "full",
            "output": str(folder),
        }
        seconds = cpu_s(lambda table=table, question=question: many_plans(table, **question), 1)  # type: ignore[misc]
        say(
            f"{len(table):,} plans of layout {name} in a table",
            f"{len(table) / seconds:8,.0f} plans per second",
        )


def growth(folder: Path) -> None:
    """Whole searches of tp 8 over devices, and over layers: only the plans grow, or only what they
    are cut from."""
    for key, values in GROWTH.items():
        for value in values:
            layers, devices = (96, value) if key == "devices" else (value, 512)
            question = {
                "model": f"gpt:layers={layers},hidden=12288,heads=96",
                "device": "h200",
                "fast_domain": 64,
                "devices": devices,
                "tp": 8,
            }
            more = {
                "global_batch_size": 1536,
                "micro_batch_size": 1,
                "recompute": "full",
                "output": str(folder / f"{key}{value}"),
            }
            request = study(**question, **more)
            for model, length in zip(
                request.workload.models, request.workload.sequence_length, strict=True
            ):
                load_or_extract(
                    UniformPlan(tp=8, micro_batch_size=1).graph_key(model.name, length),
                    request.folders.graphs,
                )
            start = time.process_time()
            found = run_solver(request)
            say(
                f"search of {layers} layers on {devices:,} devices, {found.status}",
                f"{time.process_time() - start:8.2f} s",
            )


def main() -> None:
    """Run the benchmarks and print them."""
    with tempfile.TemporaryDirectory() as name:
        request = resolve({}, QUESTION | {"output": name})
        hardware, model = hardware_of(request), request.workload.models[0].name
        space = plan_space(request, model)
        shape = next(iter(space.shapes()))
        graph = load_or_extract(
            shape.graph_key(model, request.workload.sequence_length[0]), Path(name)
        )
        costs = hardware.proven(graph, shape.recompute, layer_groups(shape, hardware.cluster))
        pricing(hardware, space, shape, costs)
        placements(hardware, space, shape, costs, graph)
        layouts(Path(name))
        growth(Path(name))


if __name__ == "__main__":
    main()
