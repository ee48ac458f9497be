"""How uneven the routing of tokens may become before a plan's memory is full: seconds are asked for
at the load that is usual, memory must last for the worst of all steps."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.results import Status
from phaze.settings.request import Request
from phaze.studies.evaluation import Evaluation, evaluated

STEP = 0.05  # of the mean of tokens


@dataclass(frozen=True)
class MostLoad:
    """The busiest device of an expert-parallel group may get ``load`` times the mean of tokens;
    ``every``: that is as much as there is."""

    load: float
    every: bool


def most_load(request: Request, plan: Evaluation) -> MostLoad | None:
    """The greatest load, in steps of 0.05, under which ``plan`` of ``request`` fits in memory; None
    where experts are not divided, or it does not fit as it is.

    More tokens never take less memory, so the steps are halved.
    """
    degrees, most = plan.uniform, plan.uniform.most_expert_load
    if most == 1.0 or plan.iteration.status is not Status.FEASIBLE:
        return None

    def fits(load: float) -> bool:
        asked = request.with_settings(expert_load=load)
        return evaluated(asked).iteration.status is Status.FEASIBLE

    if fits(most):
        return MostLoad(most, every=True)
    fitting, beyond = 0, int((most - degrees.expert_load) / STEP)
    while beyond - fitting > 1:
        middle = (fitting + beyond) // 2
        if fits(degrees.expert_load + middle * STEP):
            fitting = middle
        else:
            beyond = middle
    return MostLoad(round(degrees.expert_load + fitting * STEP, 2), every=False)
