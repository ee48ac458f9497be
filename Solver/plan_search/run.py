"""``run_solver --device``: search the plans of a request and write the run directory."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from Common.files import write_atomically
from Common.progress import Progress
from Common.records import to_json
from Estimator.coverage import check_functions
from Estimator.devices.functions import TENSORS_MOVED
from Estimator.devices.operator_cost import DeviceModel
from GraphExtractor import load_or_extract
from GraphExtractor.graph import GraphKey, ModelGraph
from Plans.plan import TrainingPlan, plan_mapping
from Solver.plan_search.results import FoundChunk, FoundPlan, PlanAnswer, PlanManifest, PlanPoint, PlanSearchResult
from Solver.plan_search.search import search_plans
from Studies.adapters import PlanRequest
from Studies.file_contents import file_contents
from Studies.folders import REPOSITORY
from Studies.run_directory import folder_is_writable, git_commit, library_versions, peak_bytes

if TYPE_CHECKING:
    import pandas as pd

POINT_MEANING = (
    "a design point is a plan: tp x pp x dp x ep x micro-batch x recomputation x sequence parallelism x interleaving x "
    "ZeRO stage x order of the groups, with its best stages"
)


@dataclass(frozen=True)
class PlanRun:
    """A finished search: what was asked and what came out."""

    request: PlanRequest
    result: PlanSearchResult
    layer_names: tuple[str, ...]


def run_plan_search(request: PlanRequest, progress: Progress) -> PlanRun:
    """Extract the graphs, search, and write study.yaml, manifest.json, designs.parquet (.csv) and best.json.

    Raises:
        InputError: the request has no plan at all.
        PhazeError: the run directory cannot be written.
    """
    folder_is_writable(request.run)
    start, contents = perf_counter(), file_contents(request.request)
    run = answer_request(request, progress)
    _write(run, perf_counter() - start, contents)
    return run


def answer_request(request: PlanRequest, progress: Progress) -> PlanRun:
    """Extract the graphs and search, writing nothing but graphs.

    Raises:
        InputError: the request has no plan at all.
    """
    shapes = list(request.space.shapes())
    graphs: dict[GraphKey, ModelGraph] = {}
    keys = list(dict.fromkeys(_key(request, shape) for shape in shapes))
    with progress.phase(f"training graphs of {request.model}", len(keys)) as advance:
        for key in keys:
            graphs[key] = load_or_extract(key, request.graphs, force=request.request.force_reextract_model)
            advance(1)
    check_functions(graphs.values(), TENSORS_MOVED, strict=request.request.strict)
    model = DeviceModel(request.device, request.software, request.space.base.precision.matrix_format)
    with progress.phase(f"plans of {request.model} on {request.cluster.num_devices} devices", len(shapes)) as advance:
        result = search_plans(request.space, lambda shape: graphs[_key(request, shape)], model, request.cluster, advance)
    graph = graphs[keys[0]]
    names = tuple(f"{graph.layers[index].name}.{position}" for position, index in enumerate(graph.sequence))
    return PlanRun(request, result, names)


def best_json(run: PlanRun) -> bytes:
    """The optimum as JSON; ``evaluate --plan`` reads it back."""
    return to_json(answer(run), indent=2)


def answer(run: PlanRun) -> PlanAnswer:
    """What ``best.json`` holds."""
    request, result = run.request, run.result
    return PlanAnswer(
        status=result.status,
        optimal=result.optimal,
        objective="throughput",
        value=None if result.prediction is None else result.prediction.samples_per_s,
        device_title=request.device.title,
        device_memory_bytes=request.device.memory.capacity.value,
        **request.hardware,
        models={} if result.prediction is None else {request.model: _found_plan(run)},
        counts=result.counts,
        reason=result.reason,
    )


def _key(request: PlanRequest, shape: TrainingPlan) -> GraphKey:
    return shape.graph_key(request.model, request.sequence_length)


def _found_plan(run: PlanRun) -> FoundPlan:
    plan, prediction = run.result.plan, run.result.prediction
    assert plan is not None and prediction is not None and plan.stage_layers is not None
    chunks, first = [], 0
    for chunk, count in enumerate(plan.stage_layers):
        stage = prediction.stages[chunk % plan.pp]
        chunks.append(
            FoundChunk(
                layers=run.layer_names[first : first + count],
                stage=chunk % plan.pp,
                devices=plan.tp * plan.cp * plan.dp,
                load_s=(stage.forward_s + stage.backward_s) / plan.interleave,
                memory_bytes=stage.memory_bytes,
                parameter_state_bytes=stage.parameter_state_bytes,
                activation_bytes=stage.activation_bytes,
                workspace_bytes=stage.workspace_bytes,
                reserved_bytes=stage.reserved_bytes,
            )
        )
        first += count
    return FoundPlan(
        throughput_samples_per_s=prediction.samples_per_s,
        tokens_per_s=prediction.tokens_per_s,
        time_per_batch_s=prediction.iteration_s,
        time_per_batch_bound_s=run.result.bound_s,
        **{key: value for key, value in plan_mapping(plan).items() if key != "stage_layers"},
        sequence_length=run.request.sequence_length,
        micro_batches_per_pipeline=prediction.micro_batches_per_pipeline,
        devices_used=prediction.devices,
        stages=tuple(chunks),
        pipeline=prediction.pipeline,
        breakdown_s=prediction.breakdown,
        model_flops_utilization=prediction.model_flops_utilization,
        hardware_flops_utilization=prediction.hardware_flops_utilization,
    )


def designs_table(points: Sequence[PlanPoint]) -> pd.DataFrame:
    """One row per plan of the space, with its outcome and the bound that closed it."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                **{key: value for key, value in plan_mapping(point.plan).items() if key != "stage_layers"},
                "status": point.outcome.value,
                "time_per_batch_s": point.iteration_s,
                "time_per_batch_bound_s": point.bound_s,
                "memory_bytes": point.memory_bytes,
                "reason": point.reason,
            }
            for point in points
        ]
    )


def _write(run: PlanRun, seconds: float, contents: dict[str, str]) -> None:
    """Write every file of the run, best.json last, so that its presence says that the rest is complete."""
    request, folder = run.request, run.request.run
    (folder / "best.json").unlink(missing_ok=True)
    write_atomically(folder / "study.yaml", request.request.to_yaml().encode())
    designs = designs_table(run.result.points)
    buffer = io.BytesIO()
    designs.to_parquet(buffer, index=False, compression="zstd")
    write_atomically(folder / "designs.parquet", buffer.getvalue())
    if request.request.csv:
        write_atomically(folder / "designs.csv", designs.to_csv(index=False).encode())
    else:
        (folder / "designs.csv").unlink(missing_ok=True)  # of an earlier run, which these files replace
    manifest = PlanManifest(
        versions=library_versions(),
        contents=contents,
        git_commit=git_commit(REPOSITORY),
        seconds=seconds,
        peak_bytes=peak_bytes(),
        point_meaning=POINT_MEANING,
        counts=run.result.counts,
    )
    write_atomically(folder / "manifest.json", to_json(manifest, indent=2))
    write_atomically(folder / "best.json", best_json(run))
