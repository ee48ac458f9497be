"""The best of a search of chips, found by scheduling every layer of every shape singly and pricing
every plan."""

import dataclasses

import numpy as np

from Estimator.plans.layer_costs import PassCosts, moded_layers
from GraphExtractor.graph import Recompute
from phaze.studies.context import search_context
from phaze_common.progress import SilentProgress
from Solver.designs.model_shapes import model_shapes
from Solver.plans.best_plan import ConfigurationPlans
from Solver.schedule import solver_named


def one_by_one(study, micro_batch_size, hbm_bytes):
    """Least seconds over every accelerator and recomputation mode: schedules solved singly, every
    uniform plan and cut."""
    single = study.with_settings(micro_batch_size=(micro_batch_size,))
    run = search_context(single, SilentProgress())
    (found,) = model_shapes(run, run.problem.models[0])
    solver, least_s = solver_named("native"), np.inf
    for shape in found.shapes:
        (part,) = shape.parts
        scheduled = run.hardware.scheduled(shape.graph, part.groups)
        distinct, _ = moded_layers(shape.graph, shape.plan.recompute)
        layers = [(shape.graph.layers[each.index], each.mode) for each in distinct]
        for row in range(run.hardware.configurations):

            def makespan(operators, row=row, scheduled=scheduled):
                return solver.solve(scheduled.problem(operators, row)).makespan_s

            forward = np.array([[makespan(layer.forward) for layer, _ in layers]])
            backward = np.array([[makespan(layer.backward_graph(mode)) for layer, mode in layers]])
            again = forward * [mode is Recompute.FULL for _, mode in layers]
            passes = {
                name: PassCosts.of_total(each)
                for name, each in (("forward", forward), ("backward", backward))
            }
            costs = dataclasses.replace(
                part.costs.rows(np.array([row])), recompute=PassCosts.of_total(again), **passes
            )
            plans = ConfigurationPlans(part.plans, costs, 0, float(hbm_bytes))
            least_s = min(least_s, plans.best().iteration_s)
    return least_s
