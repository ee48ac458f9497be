"""The problem of a search, asked again about other hardware or under other circumstances; nothing
is kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Status
from phaze_common.choices import FrontAxis
from phaze_common.progress import SilentProgress
from Solver.designs.best_designs import model_plan
from Solver.designs.confirmed_schedules import LayerSchedule, schedule_layers
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import JointOptimum, best_for_all_models
from Solver.designs.large_spaces import pruned_space
from Solver.designs.points import PointGroup
from Solver.designs.proofs import proven_shapes_of_models
from Solver.designs.search_context import SearchContext
from Solver.hardware import Hardware
from Solver.plan_report import PlanReport
from Solver.plans.space import PlanSpace
from Solver.results import DesignPoint


@dataclass(frozen=True, eq=False)
class PricedHardware:
    """Hardware with the layer costs of every model and shape of the problem of ``context``."""

    context: SearchContext
    shapes: tuple[ModelShapes, ...]
    most_steps: int | None = None  # for the cuts of a plan, see ``ConfigurationPlans.best``

    @property
    def without_plans(self) -> list[str]:
        """Models for which the space has no plan at all."""
        having = {each.model.name for each in self.shapes}
        return [model.name for model in self.context.problem.models if model.name not in having]

    def groups(self, memory_bytes: int) -> list[PointGroup]:
        """Point groups of all models and micro-batch sizes."""
        return [
            PointGroup.of(self.context, each, memory_bytes, most_steps=self.most_steps)
            for each in self.shapes
        ]

    def optimum(self, memory_bytes: int) -> JointOptimum | None:
        """The best with so much memory; None where nothing fits, or reaches what was asked."""
        if not self.shapes:
            return None
        return best_for_all_models(self.context.problem, self.groups(memory_bytes), memory_bytes)

    def best_optimum(self) -> JointOptimum | None:
        """The best with as much memory as there may be, or with the memories of the chips."""
        sizes = self.context.problem.memory_bytes
        asked = (max(sizes),) if self.context.hardware.metrics.memory_bytes is None else sizes
        found = [optimum for size in asked if (optimum := self.optimum(size)) is not None]
        return max(found, key=lambda optimum: optimum.value, default=None)

    def design(self, memory_bytes: int) -> DesignPoint | None:
        """The best design, without a certificate; None where nothing fits."""
        found = self.scored(memory_bytes)
        return found[0] if found else None

    def scored(self, memory_bytes: int) -> tuple[DesignPoint, tuple[LayerSchedule, ...]] | None:
        """The best design and the schedules of its layers."""
        optimum = self.optimum(memory_bytes)
        return None if optimum is None else self.scored_optimum(optimum, memory_bytes)

    def scored_optimum(
        self, optimum: JointOptimum, memory_bytes: int
    ) -> tuple[DesignPoint, tuple[LayerSchedule, ...]]:
        """``optimum`` of these chips in full."""
        plans: dict[str, PlanReport] = {}
        schedules: list[LayerSchedule] = []
        for model, choice in optimum.choices.items():
            layers = schedule_layers(self.context, choice)
            plans[model] = model_plan(self.context, choice, layers)
            schedules += layers
        proven = optimum.proven and not optimum.omitted
        point = DesignPoint(
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            optimal=False,
            objective=self.context.problem.objective,
            value=optimum.value,
            accelerator=self.context.hardware.accelerator(optimum.row),
            hbm_bytes=memory_bytes,
            models=plans,
            certificate=None,
            combine=self.context.problem.deciding,
        )
        return point, tuple(schedules)


def priced(
    context: SearchContext,
    hardware: Hardware,
    front: tuple[FrontAxis, ...] = (),
    least: float = 0.0,
    chosen: Sequence[UniformPlan] | None = None,
) -> PricedHardware:
    """Price ``hardware`` for the problem of ``context``, of which the best is asked alone, unless a
    ``front`` is too.

    What does not reach ``least`` may be left out; of the only model no shapes but those that are
    ``chosen`` are looked at, if any are."""
    quiet = replace(context.on(hardware), progress=SilentProgress())
    alone = replace(quiet, problem=replace(context.problem, front=front))
    if chosen is None:
        alone = pruned_space(alone, least)
    if not alone.hardware.configurations:
        return PricedHardware(alone, ())
    return PricedHardware(alone, tuple(proven_shapes_of_models(alone, chosen)))


def with_spaces(context: SearchContext, changes: Sequence[PlanSpace]) -> SearchContext:
    """The same run with other plans to compare for each model."""
    changed = zip(context.problem.models, changes, strict=True)
    models = tuple(replace(model, space=space) for model, space in changed)
    return replace(context, problem=replace(context.problem, models=models))
