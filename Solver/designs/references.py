"""What an optimum is compared with: known chips with the best plan on each, and the plans that
published experts use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from Estimator.chips.design_space import ReferenceChip
from Estimator.plans.results import Status
from GraphExtractor.graph import Recompute
from phaze_common.progress import SilentProgress
from Solver.designs.baselines import expert_plans
from Solver.designs.best_designs import expert_plan_that_cannot_run, expert_report, too_many_devices
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import Choice
from Solver.designs.model_shapes import model_shapes
from Solver.designs.re_solve import PricedHardware, priced
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.plan_report import ExpertReport
from Solver.problem import ModelProblem
from Solver.results import DesignPoint, ReferencePoint


def reference_points(
    context: SearchContext, best: Sequence[DesignPoint]
) -> tuple[ReferencePoint, ...]:
    """Known chips with the best plan on each, for every memory size, compared with the optimum."""
    hardware, points = context.hardware, []
    if not isinstance(hardware, DesignedChips) or not hardware.references:
        return ()
    with context.progress.phase("known chips", len(hardware.references)) as advance:
        for chip in hardware.references:
            only = hardware.only([chip.accelerator])
            own = only.metrics.memory_bytes  # None: as much as the problem says
            sizes = context.problem.memory_bytes if own is None else (int(own[0]),)
            alone = priced(
                replace(context, problem=replace(context.problem, memory_bytes=sizes)), only
            )
            for memory_bytes in sizes:
                alike = [
                    point for point in best if point.hbm_bytes == memory_bytes or own is not None
                ]
                optimum_value = max((point.value for point in alike), default=None)
                points.append(_reference_point(alone, chip, memory_bytes, optimum_value))
            advance(1)
    return tuple(points)


def _reference_point(
    alone: PricedHardware, chip: ReferenceChip, memory_bytes: int, optimum_value: float | None
) -> ReferencePoint:
    found, name, source = alone.design(memory_bytes), chip.name, chip.source
    if found is None:
        return ReferencePoint(
            name, source, Status.INFEASIBLE, chip.accelerator, memory_bytes, 0.0, None, {}
        )
    better = None if optimum_value is None else optimum_value / found.value
    reached = found.value, better, found.models
    return ReferencePoint(name, source, found.status, chip.accelerator, memory_bytes, *reached)


def expert_of(
    context: SearchContext,
    model: str,
    choice: Choice,
    shapes: Sequence[ModelShapes],
    row: int,
    memory_bytes: int,
) -> ExpertReport | None:
    """The published plan of ``model`` on configuration ``row``; a width that is not searched is
    priced for that chip alone.

    Experts' plans are for the chips that are designed."""
    expert, hardware = expert_plans().plans.get(model), context.hardware
    if expert is None or not isinstance(hardware, DesignedChips):
        return None
    size = choice.group.key.micro_batch_size
    wanted_key = model, size
    searched = next(
        each for each in shapes if (each.model.name, each.micro_batch_size) == wanted_key
    )
    plain = replace(searched.shapes[0].plan, sequence_parallel=False, overlap_tensor=None)
    like = replace(plain, tp=expert.tp, cp=1, ep=1)
    modes = {shape.plan.recompute for shape in searched.shapes}
    wanted = {replace(like, recompute=mode) for mode in modes}
    mine = [shape for shape in searched.shapes if shape.plan in wanted]
    if len(mine) == len(wanted):
        return expert_report(context, expert, mine, row, memory_bytes)
    unaffordable = too_many_devices(context, expert.tp * expert.pp * expert.dp, row)
    if unaffordable:
        asked = replace(like, pp=expert.pp, dp=expert.dp)
        return expert_plan_that_cannot_run(asked, unaffordable)
    chip = context.hardware.accelerator(row)
    assert chip is not None
    space = replace(
        searched.model.space,
        devices=hardware.cluster.num_devices,
        tp_widths=(expert.tp,),
        cp_degrees=(1,),
        ep_degrees=(1,),
        micro_batch_sizes=(size,),
        sequence_parallel=(False,),
        recompute=tuple(each for each in Recompute if each in modes),
        pp_degrees=(1,),  # the layers cost the same
        dp_degrees=None,
        use_all_devices=False,
    )
    alone = replace(context.on(hardware.only([chip])), progress=SilentProgress())
    (found,) = model_shapes(alone, ModelProblem(model, 1.0, space))
    return expert_report(alone, expert, found.shapes, 0, memory_bytes)
