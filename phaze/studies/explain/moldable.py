"""What a finished run's plan would gain on its chip if operators could run on any number of the
cores of their type.

An operator runs on one core of its type beside others, or on all of them alone. Here it may also
have a group of them (``Estimator.chips.core_groups``). The answer of the run is not touched: its
chip and plan stay, each pass of a distinct layer is scheduled again, with a proof and confirmed by
an integer program, and the plan is priced with these makespans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Estimator.chips.core_groups import CoreGroups
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts, PassCosts, layer_names
from Estimator.plans.results import Status
from GraphExtractor.graph import Recompute
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.records import MoldableLayer, MoldableModel
from phaze.studies.explain.repeat import repeat_search
from phaze_common.errors import InputError
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.best_designs import attributed_costs
from Solver.designs.confirmed_schedules import LayerSchedule, schedule_layers
from Solver.designs.joint import Choice
from Solver.designs.moldable_layers import moldable_problem
from Solver.designs.re_solve import priced
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.schedule.moldable import check_moldable, placed_as
from Solver.schedule.moldable_ilp import confirm_moldable
from Solver.schedule.moldable_search import schedule_moldable


def moldable(finished: FinishedRun, progress: Progress | None = None) -> tuple[MoldableModel, ...]:
    """What the best design of ``finished`` gains per model.

    Raises:
        InputError: it found nothing or is on devices, or its study cannot be repeated.
    """
    if finished.on_device:
        raise InputError(
            f"--moldable is about cores of a chip, {finished.folder} is of devices whose operators "
            "have all of it; give a run over a design space"
        )
    shown = progress or SilentProgress()
    repeated = repeat_search(finished, shown)
    chips, best = priced(repeated.alone, repeated.hardware), repeated.best.point
    optimum = chips.optimum(best.hbm_bytes)
    if optimum is None:
        raise InputError(
            f"the best design of {finished.folder} does not fit any more; run its study again"
        )
    return tuple(_of_model(chips.context, choice, shown) for choice in optimum.choices.values())


def _of_model(run: SearchContext, choice: Choice, progress: Progress) -> MoldableModel:
    layers = schedule_layers(run, choice)
    row, shape = choice.group.locate(choice.point)
    plan = choice.group.plan(choice.point)
    with progress.phase(
        f"operators of {choice.group.key.model} on groups of cores", len(layers)
    ) as advance:
        found = []
        for each in layers:
            found.append(_of_layer(run, choice, each))
            advance(1)
    costs = attributed_costs(run, shape, plan, row)
    machine = run.hardware.machine(row, float(choice.group.key.memory_bytes))
    return MoldableModel(
        model=choice.group.key.model,
        iteration_s=price_iteration(plan, costs, machine).iteration_s,
        moldable_s=price_iteration(
            plan, _with_makespans(costs, layers, found), machine
        ).iteration_s,
        layers=tuple(found),
    )


def _of_layer(run: SearchContext, choice: Choice, layer: LayerSchedule) -> MoldableLayer:
    hardware = run.hardware
    assert isinstance(hardware, DesignedChips)  # others are refused
    row, shape = choice.group.locate(choice.point)
    scheduled = hardware.scheduled(
        shape.graph, layer_groups(choice.group.plan(choice.point), hardware.cluster)
    )
    problem = moldable_problem(
        layer.problem, layer.operators, scheduled, CoreGroups(scheduled.table, row)
    )
    found = schedule_moldable(problem, placed_as(problem, layer.schedule))
    check_moldable(problem, found)
    whole = problem.num_tc, problem.num_vc
    return MoldableLayer(
        layer=layer.layer,
        graph=layer.graph,
        repeats=layer.repeats,
        operators=sum(each.mode.seconds > 0 for each in found.placed),
        in_groups=sum(
            each.mode.seconds > 0 and whole != (each.mode.tc, each.mode.vc) for each in found.placed
        ),
        makespan_s=layer.schedule.makespan_s,
        moldable_s=found.makespan_s,
        bound_s=found.bound_s,
        proven=found.status is Status.OPTIMAL,
        confirmed=confirm_moldable(problem, found).agrees,
    )


def _with_makespans(
    costs: LayerCosts, layers: Sequence[LayerSchedule], found: Sequence[MoldableLayer]
) -> LayerCosts:
    """``costs`` of one chip less what the layers gain."""
    names, sequence = layer_names(costs.graph), costs.sizes.sequence
    gained = {
        name: np.zeros(costs.forward.arithmetic_s.shape[1]) for name in ("forward", "backward")
    }
    for layer, now in zip(layers, found, strict=True):
        kind = sequence[names.index(layer.layers[0])]
        gained["forward" if layer.graph == "forward" else "backward"][kind] = (
            now.makespan_s - now.moldable_s
        )
    again = gained["forward"] if costs.mode is Recompute.FULL else np.zeros_like(gained["forward"])
    again = np.where(costs.recompute.arithmetic_s[0] > 0, again, 0.0)
    return replace(
        costs,
        forward=_less(costs.forward, gained["forward"]),
        recompute=_less(costs.recompute, again),
        backward=_less(costs.backward, gained["backward"]),
    )


def _less(passes: PassCosts, gained_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> PassCosts:
    return replace(passes, arithmetic_s=passes.arithmetic_s - gained_s)
