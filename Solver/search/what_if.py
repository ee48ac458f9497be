"""The question of a search, asked again about other accelerators, other circumstances or other plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Common.progress import SilentProgress
from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import ModelGraph
from GraphExtractor.names import label
from Solver.placement import place_batch
from Solver.placement.problem import BatchTimes, FloatArray, PlacementProblem
from Solver.results import DesignPoint, ModelPlan, Objective, Status
from Solver.search.doubts import model_inputs
from Solver.search.inputs import FREE, Degrees, ModelInputs, placement_problem, point_group, variant_energies_j
from Solver.search.joint import JointOptimum, best_for_all_models
from Solver.search.points import objective_value, single_variant
from Solver.search.run import Run
from Solver.search.variants import batch_times
from Solver.search.winner_schedules import LayerSchedule, schedule_layers
from Solver.search.winners import model_plan


@dataclass(frozen=True, eq=False)
class PricedAccelerators:
    """Accelerators with the layer times of every model and micro-batch size of the study of ``run``."""

    run: Run
    inputs: tuple[ModelInputs, ...]

    def optimum(self, hbm_bytes: int, degrees: Degrees = FREE) -> JointOptimum | None:
        """The best of them with the best plans that have ``degrees``; None where nothing fits."""
        groups = [point_group(self.run, item, hbm_bytes, degrees) for item in self.inputs]
        return best_for_all_models(self.run.study, groups, hbm_bytes)

    def values(self, hbm_bytes: int) -> FloatArray:
        """The objective on each of them with the best plans, shape (accelerators,); 0 where some model does not fit."""
        study, count = self.run.study, len(self.run.hardware.accelerators)
        best = {model.name: np.zeros(count) for model in study.models}
        for item in self.inputs:
            problem = placement_problem(self.run, item, hbm_bytes)
            times = batch_times(item.times, study.recompute, item.graphs[0].sequence)
            if study.objective is Objective.THROUGHPUT_PER_JOULE:
                self._frugal(item, problem, times, best[item.model])
            else:
                throughput = study.global_batch_size / place_batch(problem, times, np.arange(count)).iteration_s
                value = objective_value(study.objective, throughput, self.run.hardware.accelerators.area_mm2, np.ones(count))
                np.maximum(best[item.model], value, out=best[item.model])
        weights = np.array([model.weight for model in study.models])
        mean: FloatArray = np.average([best[model.name] for model in study.models], axis=0, weights=weights)
        return np.where(np.min([best[model.name] for model in study.models], axis=0) > 0.0, mean, 0.0)

    def _frugal(self, item: ModelInputs, problem: PlacementProblem, times: BatchTimes, best: FloatArray) -> None:
        """Raise ``best`` to the samples per joule of every variant that fits, which does not depend on the accelerator."""
        value = 1.0 / variant_energies_j(self.run, item)
        for index in np.argsort(-value.max(axis=0)):
            if (value[:, index] > best).any():
                one = place_batch(*single_variant(problem, times, int(index)), np.array([0]))
                if np.isfinite(one.iteration_s[0]):
                    np.maximum(best, value[:, index], out=best)

    def design(self, optimum: JointOptimum, hbm_bytes: int) -> tuple[DesignPoint, tuple[LayerSchedule, ...]]:
        """``optimum`` with its plans in full, without a certificate, and the schedules of its layers."""
        plans: dict[str, ModelPlan] = {}
        schedules: list[LayerSchedule] = []
        for model, choice in optimum.choices.items():
            key = model, choice.group.key.micro_batch_size
            item = next(each for each in self.inputs if (each.model, each.micro_batch_size) == key)
            layers = schedule_layers(self.run, choice, item)
            plans[model] = model_plan(self.run, choice, item, layers)
            schedules += layers
        proven = not optimum.lost and all(item.proven for item in self.inputs)
        point = DesignPoint(
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            optimal=False,
            objective=self.run.study.objective,
            value=optimum.value,
            accelerator=self.run.hardware.accelerators.accelerator(optimum.row),
            hbm_bytes=hbm_bytes,
            models=plans,
            certificate=None,
        )
        return point, tuple(schedules)

    def why_infeasible(self, hbm_bytes: int, degrees: Degrees = FREE) -> str:
        """What keeps the models from fitting, which does not depend on the accelerator."""
        reasons = []
        for model in self.run.study.models:
            mine = (item for item in self.inputs if item.model == model.name)
            leanest = min(mine, key=lambda item: item.micro_batch_size)  # what it does not fit, no larger micro-batch does
            reason = point_group(self.run, leanest, hbm_bytes, degrees).why_infeasible()
            reasons += [f"{label(model.name)}: {reason}" if len(self.run.study.models) > 1 else reason] if reason else []
        return "; ".join(reasons)


def quietly(run: Run) -> Run:
    """``run`` without progress, keeping nothing on disk."""
    return replace(run.unkept(), progress=SilentProgress())


def priced(run: Run, graphs: Sequence[tuple[ModelGraph, ...]], accelerators: AcceleratorSet) -> PricedAccelerators:
    """Price ``accelerators`` for ``graphs``, those of every model and micro-batch size; nothing is kept on disk."""
    alone = quietly(run.on(accelerators))
    return PricedAccelerators(alone, tuple(model_inputs(alone, each) for each in graphs))


def under(run: Run, *, platform: Platform | None = None, cluster: Cluster | None = None) -> Run:
    """The same run with another platform or cluster."""
    hardware = run.hardware
    return replace(run, hardware=replace(hardware, platform=platform or hardware.platform, cluster=cluster or hardware.cluster))
