"""The best plan of a model whose stages may differ: over all numbers of rows of a micro-batch,
beside what is known already."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups, layer_groups
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage, plan_of
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.iteration import iteration_of
from Estimator.plans.plan import with_own_degrees
from Estimator.plans.rates import Machine
from Estimator.plans.results import Status
from GraphExtractor.graph import GraphKey, ModelGraph, Recompute
from GraphExtractor.many import load_or_extract_all
from GraphExtractor.names import label
from phaze_common.recompute_modules import Recomputation
from Solver.designs.search_context import SearchContext
from Solver.hardware import Hardware
from Solver.paths.rows_search import RowsSearch
from Solver.paths.spaces import PlanLimits
from Solver.paths.stage_classes import stage_classes
from Solver.paths.stage_options import options_by_rows
from Solver.plan_report import PlanReport
from Solver.problem import ModelProblem
from Solver.results import HeterogeneousAnswer

MOST_STAGES = 32  # unless pp names more


@dataclass(eq=False)
class _Graphs:
    """Graphs of a model and what their layers cost, each once."""

    hardware: Hardware
    graphs: dict[GraphKey, ModelGraph]
    layers: dict[tuple[GraphKey, LayerGroups, Recomputation], RecomputableLayers] = field(
        default_factory=dict
    )

    def of(self, degrees: UniformPlan, key: GraphKey) -> RecomputableLayers:
        """Those of a stage trained so."""
        groups, mode = layer_groups(degrees, self.hardware.cluster), degrees.recompute
        known = key, groups, mode
        if known not in self.layers:
            kept = recomputed = self.hardware.proven(self.graphs[key], Recompute.NONE, groups)
            if mode is not Recompute.NONE:
                recomputed = self.hardware.proven(self.graphs[key], mode, groups)
            self.layers[known] = RecomputableLayers(kept, recomputed)
        return self.layers[known]


def search_heterogeneous(
    run: SearchContext, model: ModelProblem, memory_bytes: int, uniform: PlanReport | None
) -> HeterogeneousAnswer:
    """The best plan of ``model`` whose stages may differ, on a device that exists, beside the best
    ``uniform`` one.

    Raises:
        InputError: the model cannot be traced.
    """
    space, machine = model.space, run.hardware.machine(0, float(memory_bytes))
    by_rows = options_by_rows(space)
    uniform_s = None if uniform is None else uniform.time_per_batch_s
    uniform_bound_s = math.inf if uniform is None else uniform.time_per_batch_bound_s
    if not by_rows:
        return HeterogeneousAnswer(
            model.name,
            memory_bytes,
            Status.INFEASIBLE if uniform is None else Status.FEASIBLE,
            None,
            uniform_s,
            None if uniform is None else uniform_bound_s,
            0,
            0,
            "no stage is as asked",
        )
    every_option = [option for options in by_rows.values() for option in options]
    keys = list(dict.fromkeys(model.graph_key(option.degrees) for option in every_option))
    with run.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
        traced = load_or_extract_all(keys, run.stores.graphs, False, run.problem.code, advance)
    graphs = _Graphs(run.hardware, traced)
    modes = [mode for mode in space.recompute if mode is not Recompute.NONE]
    classes = stage_classes(list(traced.values()), modes)
    most = max(MOST_STAGES, *(space.pp_degrees or (1,)))
    narrowest = min(option.devices for option in every_option)
    limits = PlanLimits(space.devices, space.use_all_devices, space.pp_degrees, most)
    best: tuple[tuple[PlacedStage, ...], list[RecomputableLayers]] | None = None
    best_s, bound_s = math.inf if uniform_s is None else uniform_s, uniform_bound_s
    title = f"plans of {label(model.name)} whose stages differ"
    with run.progress.phase(title, len(by_rows)) as advance:
        for options in by_rows.values():
            layers = [graphs.of(each.degrees, model.graph_key(each.degrees)) for each in options]
            for some in every_limits(limits, narrowest, machine):
                if min(option.devices for option in options) > some.devices:
                    continue
                search = RowsSearch(options, layers, classes, machine, some)
                found = search.answer(best_s)
                bound_s = min(bound_s, found.bound_s)
                if found.stages is not None:
                    best_s = found.iteration_s
                    stages = tuple(stage for _, stage in found.stages)
                    best = stages, [search.layers[option] for option, _ in found.stages]
            advance(1)
    bound_s = min(bound_s, best_s)
    omitted = classes.lattice.omitted
    deepest = min(len(classes.lattice.members[0]), space.devices // narrowest)
    if space.pp_degrees is None and deepest > most:
        too_many = f"plans of more than {most} stages that differ were not compared"
        omitted = "; ".join(filter(None, [omitted, too_many]))
    answer = HeterogeneousAnswer(
        model=model.name,
        hbm_bytes=memory_bytes,
        status=Status.INFEASIBLE if math.isinf(best_s) else Status.FEASIBLE,
        best=None if best is None else _described(model, machine, *best, bound_s),
        uniform_time_per_batch_s=uniform_s,
        time_per_batch_bound_s=None if math.isinf(best_s) else bound_s,
        row_counts=len(by_rows),
        options=len(every_option),
        omitted=omitted,
    )
    return replace(answer, status=Status.OPTIMAL) if answer.meets_bound and not omitted else answer


def every_limits(limits: PlanLimits, narrowest: int, machine: Machine) -> tuple[PlanLimits, ...]:
    """``limits`` as sets of plans within which what waiting for the slowest device costs is one
    number, the most devices first.

    No stage has less than ``narrowest`` devices.
    """
    if limits.all_devices or machine.variation == 0.0:
        return (limits,)
    return tuple(
        replace(limits, devices=count, all_devices=True)
        for count in range(limits.devices, narrowest - 1, -1)
    )


def _described(
    model: ModelProblem,
    machine: Machine,
    stages: tuple[PlacedStage, ...],
    layers: list[RecomputableLayers],
    bound_s: float,
) -> PlanReport:
    names = layers[0].stored.sizes.names
    plan = plan_of(stages, model.name, model.space.sequence_length, names)
    iteration = iteration_of(PricedStages(stages, layers, machine))
    iteration = replace(iteration, stages=with_own_degrees(plan, iteration.stages))
    return PlanReport.priced(
        plan.of_first_stage,
        plan.model,
        plan.sequence_length,
        iteration,
        int(machine.memory_bytes),
        bound_s,
    )
