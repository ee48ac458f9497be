"""What a run's timeline shows: iterations, the best design's pipelines, operators on cores."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from phaze.report.sentences.designs import (
    degrees_text,
    exposed_s,
    hardware_text,
    hidden_s,
    plan_extras,
)
from phaze.report.trace.events import (
    Event,
    Process,
    Shown,
    Slice,
    Thread,
    file_content,
    nanoseconds,
)
from phaze.report.trace.operators import schedule_events, schedule_names
from phaze.report.trace.pipeline import PipelineTrace
from phaze.runs.finished_run import FinishedRun
from phaze_common.errors import InfeasibleError
from phaze_common.units import GIB, MIB
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint

logger = logging.getLogger(__name__)

MOST_EVENTS = 1_000_000  # viewers take more, but slowly
FEWEST_PASSES = 64  # of a stage that are drawn in any case
FIRST_PID = 1


@dataclass(frozen=True)
class Timeline:
    """A trace file's content, its processes and events; ``left_out`` says what it does not show."""

    content: bytes
    processes: int
    events: int
    left_out: str


def timeline_of(run: FinishedRun, most_events: int = MOST_EVENTS) -> Timeline:
    """Draw the best design of ``run``: its pipelines, and the operators on designed chips.

    About ``most_events`` are drawn at most: of longer pipelines the first and the last passes of
    every stage.

    Raises:
        InfeasibleError: the run found no design.
    """
    best = run.result.best
    if best is None:
        why = f" ({run.result.reason})" if run.result.reason else ""
        raise InfeasibleError(
            f"the run in {run.folder} found no design{why}, so there is nothing to draw; change "
            "its study and search again"
        )
    pipelines = [_pipeline(model, plan) for model, plan in best.models.items()]
    limits = _passes_per_stage(pipelines, most_events)
    left_out = _left_out(pipelines, limits)
    if left_out:
        logger.warning("%s", left_out)
    about = {**_about(run, best), **({"left out": left_out} if left_out else {})}
    kinds = Counter[type]()
    content = file_content(_counted(_events(run, best, pipelines, limits, about), kinds), about)
    return Timeline(content, kinds[Process], kinds.total(), left_out)


def _counted(events: Iterable[Event], kinds: Counter[type]) -> Iterator[Event]:
    for event in events:
        kinds[type(event)] += 1
        yield event


def _about(run: FinishedRun, best: DesignPoint) -> dict[str, Shown]:
    """The answer in words."""
    hardware, chip = run.result.hardware, best.accelerator
    cores: dict[str, Shown] = {}
    if chip is not None:
        cores = {
            "tensor cores": f"{chip.num_tc} of {chip.depth} x {chip.width}",
            "vector cores": f"{chip.num_vc} of {chip.width_vc}",
            "global buffer MiB": chip.glb_bytes / MIB,
            "area mm2": chip.area_mm2,
        }
    return {
        "study": run.result.study,
        "status": best.status.value,
        best.objective.value: best.value,
        "accelerator": hardware_text(chip, hardware),
        **cores,
        "HBM GiB": best.hbm_bytes / GIB,
        "cluster": hardware.cluster,
        "software": hardware.software,
        "commit": run.manifest.git_commit or "unknown",
        "versions": run.manifest.versions,
    }


def _pipeline(model: str, plan: PlanReport) -> PipelineTrace:
    """The pipeline of a plan; stages hold the layers of their chunks one chunk after another."""
    activations = [each.activation_bytes if plan.interleave == 1 else None for each in plan.stages]
    layers = [chunk.layers for chunk in plan.plan.stages]
    return PipelineTrace(model, plan.pipeline, layers, activations)


def _passes_per_stage(pipelines: Sequence[PipelineTrace], most_events: int) -> list[int]:
    """How many passes of each stage of each pipeline are drawn."""
    share = min(1.0, most_events / max(sum(each.events for each in pipelines), 1))
    counts = [each.passes.start_s.shape[1] for each in pipelines]
    return [
        count if share == 1.0 else min(count, max(int(count * share), FEWEST_PASSES))
        for count in counts
    ]


def _left_out(pipelines: Sequence[PipelineTrace], limits: Sequence[int]) -> str:
    words = [
        f"the middle {each.passes.start_s.shape[1] - limit:,} of the "
        f"{each.passes.start_s.shape[1]:,} passes of each stage of {each.model}"
        for each, limit in zip(pipelines, limits, strict=True)
        if limit < each.passes.start_s.shape[1]
    ]
    return f"left out, because viewers would be slow: {' and '.join(words)}" if words else ""


def _events(
    run: FinishedRun,
    best: DesignPoint,
    pipelines: Sequence[PipelineTrace],
    limits: Sequence[int],
    about: Mapping[str, Shown],
) -> Iterator[Event]:
    yield Process(FIRST_PID, f"study {run.result.study}")
    for row, (pipeline, plan) in enumerate(zip(pipelines, best.models.values(), strict=True)):
        yield from _iteration(row, pipeline, plan, about)
    pid, flow = FIRST_PID + 1, 1
    for pipeline, limit in zip(pipelines, limits, strict=True):
        yield from pipeline.draw(pid, flow, limit)
        pid, flow = pid + pipeline.report.pp, flow + pipeline.report.micro_batches
    if best.accelerator is None:
        return
    schedules = [each for each in run.schedules if each.hbm_bytes == best.hbm_bytes]
    for each, name in zip(schedules, schedule_names(schedules), strict=True):
        yield from schedule_events(each, name, best.accelerator, pid)
        pid += 1


def _iteration(
    row: int, pipeline: PipelineTrace, plan: PlanReport, about: Mapping[str, Shown]
) -> Iterator[Event]:
    """The iteration as the search priced it, on a thread of the study's process."""
    args: dict[str, Shown] = {
        "iteration s": plan.time_per_batch_s,
        "pipeline drawn s": pipeline.end_s,
        "samples per s": plan.throughput_samples_per_s,
        "tp x pp x dp": degrees_text(plan),
        **({"further": ", ".join(plan_extras(plan))} if plan_extras(plan) else {}),
        "micro-batch size": plan.micro_batch_size,
        "micro-batches per pipeline": plan.micro_batches_per_pipeline,
        "recomputation": str(plan.recompute),
        "schedule": plan.pipeline.schedule,
        "breakdown s": exposed_s(plan.breakdown_s),
        "hidden s": hidden_s(plan.breakdown_s),
        **about,
    }
    yield Thread(FIRST_PID, row, pipeline.model)
    name, end_ns = f"iteration of {pipeline.model}", nanoseconds(plan.time_per_batch_s)
    yield Slice(FIRST_PID, row, name, "iteration", 0, end_ns, args)
