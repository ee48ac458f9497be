"""The problem of a search, asked again about other hardware or under other circumstances; nothing
is kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from Estimator.plans.results import Status
from phaze_common.choices import FrontAxis
from phaze_common.progress import SilentProgress
from Solver.designs.best_designs import model_plan
from Solver.designs.confirmed_schedules import LayerSchedule, schedule_layers
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import JointOptimum, best_for_all_models
from Solver.designs.large_spaces import screened
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup
from Solver.designs.proofs import proven_shapes
from Solver.designs.pursuit import Pursuit
from Solver.designs.run import Run
from Solver.hardware import Hardware
from Solver.plan_report import PlanReport
from Solver.plans.space import PlanSpace
from Solver.results import DesignPoint


@dataclass(frozen=True, eq=False)
class PricedHardware:
    """Hardware with the layer costs of every model and shape of the problem of ``run``."""

    run: Run
    shapes: tuple[ModelShapes, ...]
    most_steps: int | None = None  # for the cuts of a plan, see ``ConfigurationPlans.best``

    @property
    def without_plans(self) -> list[str]:
        """Models for which the space has no plan at all."""
        having = {each.model.name for each in self.shapes}
        return [model.name for model in self.run.problem.models if model.name not in having]

    def groups(self, memory_bytes: int) -> list[PointGroup]:
        """Point groups of all models and micro-batch sizes."""
        figures, pursuit = self.run.hardware.figures, Pursuit.of(self.run.problem)
        return [
            PointGroup.of(
                each, memory_bytes, figures, PointStore(None), pursuit, most_steps=self.most_steps
            )
            for each in self.shapes
        ]

    def optimum(self, memory_bytes: int) -> JointOptimum | None:
        """The best of them with the best plans; None where nothing fits, or reaches what was
        asked."""
        if not self.shapes:
            return None
        return best_for_all_models(self.run.problem, self.groups(memory_bytes), memory_bytes)

    def best_optimum(self) -> JointOptimum | None:
        """The best with as much memory as there may be; with the memories of the chips the best of
        all."""
        sizes = self.run.problem.memory_bytes
        asked = (max(sizes),) if self.run.hardware.figures.memory_bytes is None else sizes
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
            layers = schedule_layers(self.run, choice)
            plans[model] = model_plan(self.run, choice, layers)
            schedules += layers
        proven = optimum.proven and not optimum.omitted
        point = DesignPoint(
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            optimal=False,
            objective=self.run.problem.objective,
            value=optimum.value,
            accelerator=self.run.hardware.accelerator(optimum.row),
            hbm_bytes=memory_bytes,
            models=plans,
            certificate=None,
            combine=self.run.problem.deciding,
        )
        return point, tuple(schedules)


def priced(
    run: Run, hardware: Hardware, front: tuple[FrontAxis, ...] = (), least: float = 0.0
) -> PricedHardware:
    """Price ``hardware`` for the problem of ``run``, of which the best is asked alone, unless a
    ``front`` is too.

    What does not reach ``least`` may be left out.
    """
    alone = screened(
        replace(
            run.on(hardware), progress=SilentProgress(), problem=replace(run.problem, front=front)
        ),
        least,
    )
    if not alone.hardware.configurations:
        return PricedHardware(alone, ())
    shapes = [
        proven_shapes(alone, each)
        for model in alone.problem.models
        for each in model_shapes(alone, model)
    ]
    return PricedHardware(alone, tuple(shapes))


def with_spaces(run: Run, changes: Sequence[PlanSpace]) -> Run:
    """The same run with other plans to compare for each model."""
    models = tuple(
        replace(model, space=space)
        for model, space in zip(run.problem.models, changes, strict=True)
    )
    return replace(run, problem=replace(run.problem, models=models))
