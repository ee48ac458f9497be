"""The co-search: every accelerator x HBM size x micro-batch size x plan of a study, exactly, with a certificate."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from Common.progress import Progress
from Common.units import GIB
from GraphExtractor.graph import ModelGraph
from Solver.results import Counts, SearchResult, SizeRow, SpaceSize, Status
from Solver.schedule import solver_named
from Solver.search.candidates import ScoredPoint, reference_points, scored_point
from Solver.search.doubts import model_inputs
from Solver.search.inputs import ModelInputs, extract_graphs, point_group
from Solver.search.joint import best_for_all_models
from Solver.search.limits.limits import limits_of
from Solver.search.points import PointGroup, PointStatus
from Solver.search.run import Run, Stores
from Solver.search.schedule_records import KeptSchedules
from Solver.search.winner_schedules import kept_schedules
from Studies.adapters import ChipStudy
from Studies.file_contents import file_contents
from Studies.folders import REPOSITORY
from Studies.hardware import hardware_to_design
from Studies.run_directory import (
    POINT_MEANING,
    Manifest,
    designs_table,
    folder_is_writable,
    git_commit,
    library_versions,
    write_run,
)

if TYPE_CHECKING:
    import pandas as pd


def space_size(study: ChipStudy) -> SpaceSize:
    """Count what ``run_solver`` would search, without searching."""
    accelerators = len(hardware_to_design(study.request).accelerators)
    plans = len(study.tp_widths) * len(study.recompute)
    sizes = len(study.hbm_sizes_gb) * len(study.micro_batch_sizes) * len(study.models)
    return SpaceSize(
        accelerators=accelerators,
        hbm_sizes=len(study.hbm_sizes_gb),
        micro_batch_sizes=len(study.micro_batch_sizes),
        models=len(study.models),
        plans_per_point=plans,
        points=accelerators * sizes * plans,
    )


def run_solver(study: ChipStudy, progress: Progress) -> SearchResult:
    """Answer ``study`` and write its run directory.

    Raises:
        InputError: the study names something that does not exist or does not fit together.
        PhazeError: an artefact cannot be written, or a solver failed.
    """
    folder_is_writable(study.folders.run)
    contents = file_contents(study.request)
    run = Run(study, hardware_to_design(study.request), solver_named(study.solver), _stores(study), progress)
    with run.phase("graphs"):
        graphs = extract_all(run)
    with run.phase("layer times"):
        inputs = [model_inputs(run, model_graphs) for model_graphs in graphs]
    with run.phase("design points"):
        groups = explore(run, inputs)
    with run.phase("winners"):
        optima = {hbm_bytes: best_for_all_models(study, groups, hbm_bytes) for hbm_bytes in study.hbm_sizes_bytes}
        best_points = [group.best(study.objective) for group in groups]
        counts = _counts(groups)  # after these, which may evaluate points that the search of a group pruned
        scored = [scored_point(run, optimum, inputs, hbm_bytes, counts) for hbm_bytes, optimum in optima.items() if optimum]
        references = reference_points(run, graphs, [one.point for one in scored])
        best = max((one.point for one in scored), key=lambda point: point.value, default=None)
    with run.phase("limits"):
        best = best and replace(best, limits=limits_of(run, graphs, best))
    with run.phase("files"):
        designs = designs_table(groups, run.hardware.accelerators)
        proven = {(item.model, item.micro_batch_size): item.proven for item in inputs}
        rows = tuple(
            _row(run, group, point, proven=proven[group.key.model, group.key.micro_batch_size])
            for group, point in zip(groups, best_points, strict=True)
        )
        result = SearchResult(
            study=study.name,
            status=best.status if best else Status.INFEASIBLE,
            best=best,
            per_hbm=tuple(one.point for one in scored),
            rows=rows,
            references=references,
            counts=counts,
            run_directory=str(study.folders.run),
            reason="" if best else _why_infeasible(groups),
        )
    _write(run, result, scored, designs, contents)
    return result


def extract_all(run: Run) -> list[tuple[ModelGraph, ...]]:
    """Graphs of every model and micro-batch size, one per tensor parallel width."""
    study = run.study
    pairs = [(model.name, size) for model in study.models for size in study.micro_batch_sizes]
    with run.progress.phase("training graphs", len(pairs) * len(study.tp_widths)) as advance:
        return [extract_graphs(run, model, size, advance) for model, size in pairs]


def explore(run: Run, inputs: Sequence[ModelInputs]) -> list[PointGroup]:
    """All point groups of the study, every point evaluated, pruned or infeasible."""
    groups = []
    for hbm_bytes in run.study.hbm_sizes_bytes:
        for item in inputs:
            group = point_group(run, item, hbm_bytes)
            label = f"{item.model}, micro-batch {item.micro_batch_size}, {hbm_bytes / GIB:g} GiB"
            still_open = int(np.count_nonzero(group.status == PointStatus.OPEN))
            with run.progress.phase(f"design points of {label}", still_open) as advance:
                group.explore(advance)
            groups.append(group)
    return groups


def _stores(study: ChipStudy) -> Stores:
    folders = study.folders
    return Stores(folders.graphs, folders.estimates, folders.run / "points")


def _counts(groups: Sequence[PointGroup]) -> Counts:
    status = np.concatenate([group.status for group in groups])
    return Counts(
        space=len(status),
        evaluated=int(np.count_nonzero(status == PointStatus.EVALUATED)),
        pruned=int(np.count_nonzero(status == PointStatus.PRUNED)),
        infeasible=int(np.count_nonzero(status == PointStatus.INFEASIBLE)),
    )


def _row(run: Run, group: PointGroup, point: int | None, *, proven: bool) -> SizeRow:
    """The best ``point`` of one model, HBM size and micro-batch size as a row."""
    key = group.key
    if point is None:
        reason = group.why_infeasible()
        return SizeRow(key.model, key.hbm_bytes, key.micro_batch_size, Status.INFEASIBLE, 0.0, None, 0.0, "", 0, 0, 0, reason)
    accelerator, variant = group.locate(point)
    plan = group.problem.variants[variant]
    return SizeRow(
        model=key.model,
        hbm_bytes=key.hbm_bytes,
        micro_batch_size=key.micro_batch_size,
        status=Status.OPTIMAL if proven and not group.lost else Status.FEASIBLE,
        value=float(group.objective_bound(run.study.objective)[point]),
        accelerator=run.hardware.accelerators.accelerator(accelerator),
        throughput_samples_per_s=float(group.batch_samples / group.iteration_s[point]),
        recompute=plan.recompute.value,
        tp=plan.tp,
        pp=int(group.pp[point]),
        dp=int(group.dp[point]),
        reason=group.lost,
    )


def _why_infeasible(groups: Sequence[PointGroup]) -> str:
    return "; ".join(sorted({group.why_infeasible() for group in groups if not np.isfinite(group.bound_s.min())}))


def _write(
    run: Run, result: SearchResult, scored: Sequence[ScoredPoint], designs: pd.DataFrame, contents: dict[str, str]
) -> None:
    confirmed = [item for one in scored if one.point.certificate for item in one.point.certificate.schedules]
    manifest = Manifest(
        versions=library_versions(),
        contents=contents,
        git_commit=git_commit(REPOSITORY),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        schedule_solver=run.solver.name,
        confirmation_solvers=tuple(sorted({item.ilp_solver for item in confirmed})),
        phases=tuple(run.phases),
        point_meaning=POINT_MEANING,
        counts=result.counts,
        pareto_front_points=int(designs["on_front"].sum()),
    )
    schedules = KeptSchedules(tuple(each for one in scored for each in kept_schedules(one.point.hbm_bytes, one.schedules)))
    write_run(run.study.folders.run, run.study.request.to_yaml(), manifest, result, schedules, designs, csv=run.study.csv)
