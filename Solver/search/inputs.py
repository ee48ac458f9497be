"""From a study to what the search compares: graphs, latencies, layer times and design points of a model and micro-batch size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Common.files import content_key
from Common.progress import Advance
from Common.records import to_json
from Estimator.chips.latency_table import LatencyTable, load_or_populate, populate_estimates
from Estimator.coverage import check_functions
from GraphExtractor import load_or_extract
from GraphExtractor.graph import ModelGraph
from Solver.placement.policy import training_policy
from Solver.placement.problem import FloatArray, PlacementProblem
from Solver.search.layer_times import GraphTimes, layer_times
from Solver.search.point_store import PointStore
from Solver.search.points import PointGroup, PointKey
from Solver.search.run import Run
from Solver.search.variants import batch_times, energy_per_sample_j, plan_variant


@dataclass(frozen=True)
class Degrees:
    """Numbers of stages and replicas that all plans must have; None leaves the choice open."""

    pp: int | None = None
    dp: int | None = None


FREE = Degrees()


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """One model at one micro-batch size: a graph and its layer times per tensor parallel width (same order).

    ``doubtful`` accelerators have layer times that are not proven shortest, although shorter ones might make them the best.
    """

    model: str
    micro_batch_size: int
    graphs: tuple[ModelGraph, ...]
    table: LatencyTable
    times: tuple[GraphTimes, ...]
    doubtful: int = 0

    @property
    def proven(self) -> bool:
        """Whether all layer times that matter are proven shortest."""
        return self.doubtful == 0

    def graph_of(self, tp: int) -> ModelGraph:
        """The graph of one tensor parallel width."""
        return next(graph for graph in self.graphs if graph.key.tp == tp)


def extract_graphs(run: Run, model: str, micro_batch_size: int, advance: Advance) -> tuple[ModelGraph, ...]:
    """The graphs of one model and micro-batch size, one per tensor parallel width of the study."""
    graphs = []
    for tp in run.study.tp_widths:
        key = run.study.graph_key(model, micro_batch_size, tp)
        graphs.append(load_or_extract(key, run.stores.graphs, force=run.study.force_reextract))
        advance(1)
    if micro_batch_size == run.study.micro_batch_sizes[0]:  # others have the same operators
        check_functions(graphs, run.hardware.platform.vector_functions.cycles_per_element, strict=run.study.strict)
    return tuple(graphs)


def scheduled_inputs(run: Run, graphs: tuple[ModelGraph, ...]) -> ModelInputs:
    """Price the operators of ``graphs`` and schedule their layers on every accelerator of ``run``."""
    key, hardware = graphs[0].key, run.hardware
    label = f"{key.label}, micro-batch {key.micro_batch_size}"
    with run.progress.phase(f"operator latencies of {label}", 1) as advance:
        what = graphs, hardware.accelerators, hardware.platform
        folder = run.stores.estimates
        table = populate_estimates(*what) if folder is None else load_or_populate(*what, folder)
        advance(1)
    with run.progress.phase(f"layer schedules of {label}", sum(3 * len(graph.layers) for graph in graphs)) as advance:
        times = []
        for graph in graphs:
            path = None
            if folder is not None:
                path = folder / key.label / f"layer_times-{_identity(run, graph, run.solver.name)}.npz"
            times.append(layer_times(graph, table, hardware.accelerators, run.collective_s, run.solver, path, advance))
    return ModelInputs(key.model, key.micro_batch_size, graphs, table, tuple(times))


def placement_problem(run: Run, inputs: ModelInputs, hbm_bytes: int, degrees: Degrees = FREE) -> PlacementProblem:
    """Everything but the latencies: variants are tensor parallel widths (outermost) x recomputation modes."""
    study, hardware = run.study, run.hardware
    return PlacementProblem(
        variants=tuple(plan_variant(graph, recompute) for graph in inputs.graphs for recompute in study.recompute),
        cluster=hardware.cluster,
        hbm_bytes=float(hbm_bytes),
        hbm_bandwidth_bytes_per_s=hardware.platform.hbm_bandwidth_bytes_per_s,
        micro_batches=-(-study.global_batch_size // inputs.micro_batch_size),
        policy=training_policy(study.optimizer, study.zero_stage),
        pp=degrees.pp,
        dp=degrees.dp,
    )


def point_group(run: Run, inputs: ModelInputs, hbm_bytes: int, degrees: Degrees = FREE) -> PointGroup:
    """The design points of one model, micro-batch size and HBM size, with what an earlier run finished."""
    study = run.study
    settings = (hbm_bytes, study.global_batch_size, study.optimizer, study.zero_stage, study.recompute, degrees.pp, degrees.dp)
    folder = run.stores.points
    if folder is not None:
        folder /= _identity(run, *inputs.graphs, *settings, [times.fingerprint for times in inputs.times])
    return PointGroup(
        PointKey(inputs.model, inputs.micro_batch_size, hbm_bytes),
        placement_problem(run, inputs, hbm_bytes, degrees),
        batch_times(inputs.times, study.recompute, inputs.graphs[0].sequence),
        run.hardware.accelerators.area_mm2,
        variant_energies_j(run, inputs),
        study.global_batch_size,
        PointStore(folder),
    )


def variant_energies_j(run: Run, inputs: ModelInputs) -> FloatArray:
    """Joules per sample, shape (accelerators, variants)."""
    columns = [
        energy_per_sample_j(graph, times, recompute)
        for graph, times in zip(inputs.graphs, inputs.times, strict=True)
        for recompute in run.study.recompute
    ]
    return np.stack(columns, axis=1)


def _identity(run: Run, *parts: object) -> str:
    """Content key of what prices layers in ``run``, and of ``parts`` (graphs by their content)."""
    contents = [to_json(part).decode() if isinstance(part, ModelGraph) else part for part in parts]
    return content_key(run.pricing, contents)
