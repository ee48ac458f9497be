"""Settings of a plan that change nothing, since the plan or its model has nothing that they are
about."""

from __future__ import annotations

from collections.abc import Iterator

from Estimator.devices.software import Software
from Estimator.plans.axes import BY_ITSELF, PLAN_AXES
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import ModelGraph
from phaze_common.choices import ExpertWidth
from phaze_common.recompute_modules import RecomputedModules

OFF = (None, False, "none")


def unused_settings(
    plan: UniformPlan, graph: ModelGraph, software: Software, experts: int
) -> Iterator[str]:
    """Settings with another value than a plan has by itself or the ``software`` gives it, and why
    they have no effect on a model with so many ``experts`` in a layer."""
    for each in PLAN_AXES:
        about, value = each.axis, each.of(plan)
        usual = getattr(software, each.key) if about.of_framework else each.of(BY_ITSELF)
        if value not in (usual, *OFF) and not each.applies_to(plan):
            text = str(value).lower() if isinstance(value, bool) else f"{value}"
            yield f"{each.key} {text} ({about.of_degree} is 1)"
    if plan.etp is ExpertWidth.ONE and plan.tp > 1 and not experts:
        yield f"etp {plan.etp} (the model has no experts)"
    if isinstance(plan.recompute, RecomputedModules):
        known = {module.name for layer in graph.layers for module in layer.modules}
        missing = [name for name in plan.recompute.names if name not in known]
        if missing:
            yield f"recompute {'+'.join(missing)} (no layer of the model has it)"
