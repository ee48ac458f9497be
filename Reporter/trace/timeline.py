"""What a finished run's timeline shows: its iterations, the pipelines of the best design, and its operators on their cores."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from Common.errors import InfeasibleError
from Common.units import GIB, MIB
from Reporter.trace.events import Event, Process, Shown, Slice, Thread, file_content, nanoseconds
from Reporter.trace.operators import schedule_events, schedule_names
from Reporter.trace.pipeline import PipelineTrace, StageActivations
from Solver.plan_search.results import FoundPlan
from Solver.results import DesignPoint, ModelPlan
from Solver.search.schedule_records import KeptSchedule
from Studies.finished_run import FinishedPlanSearch, FinishedRun, FinishedSearch

logger = logging.getLogger(__name__)

MOST_EVENTS = 1_000_000  # viewers take more, but slowly
FEWEST_PASSES = 64  # of a stage that are drawn in any case
FIRST_PID = 1
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Timeline:
    """A trace file's content, and how many processes and events it shows; ``left_out`` says in a sentence what it does not."""

    content: bytes
    processes: int
    events: int
    left_out: str


@dataclass(frozen=True)
class _Contents:
    """What is drawn: the answer in words, plans by model, and the schedules of a designed chip."""

    about: Mapping[str, Shown]
    plans: Mapping[str, ModelPlan | FoundPlan]
    design: DesignPoint | None
    schedules: Sequence[KeptSchedule]


def timeline_of(run: FinishedRun, most_events: int = MOST_EVENTS) -> Timeline:
    """Draw the best design of ``run``: the operators of its layers and its pipelines; on given devices the pipeline alone.

    About ``most_events`` are drawn at most: of longer pipelines the first and the last passes of every stage.

    Raises:
        InfeasibleError: the run found no design.
    """
    contents = _of_devices(run) if isinstance(run, FinishedPlanSearch) else _of_chips(run)
    pipelines = [_pipeline(model, plan) for model, plan in contents.plans.items()]
    limits = _passes_per_stage(pipelines, most_events)
    left_out = _left_out(pipelines, limits)
    if left_out:
        logger.warning("%s", left_out)
    about = {**contents.about, **({"left out": left_out} if left_out else {})}
    kinds = Counter[type]()
    content = file_content(_counted(_events(contents, pipelines, limits), kinds), about)
    return Timeline(content, kinds[Process], kinds.total(), left_out)


def _counted(events: Iterable[Event], kinds: Counter[type]) -> Iterator[Event]:
    for event in events:
        kinds[type(event)] += 1
        yield event


def _of_chips(run: FinishedSearch) -> _Contents:
    best = run.result.best
    if best is None:
        raise _nothing_to_draw(str(run.folder), run.result.reason)
    chip = best.accelerator
    about: dict[str, Shown] = {
        "study": run.result.study,
        "status": best.status.value,
        best.objective.value: best.value,
        "tensor cores": f"{chip.num_tc} of {chip.depth} x {chip.width}",
        "vector cores": f"{chip.num_vc} of {chip.width_vc}",
        "global buffer MiB": chip.glb_bytes / MIB,
        "area mm2": chip.area_mm2,
        "HBM GiB": best.hbm_bytes / GIB,
        "commit": run.manifest.git_commit or "unknown",
        "versions": run.manifest.versions,
    }
    schedules = [each for each in run.schedules if each.hbm_bytes == best.hbm_bytes]
    return _Contents(about, best.models, best, schedules)


def _of_devices(run: FinishedPlanSearch) -> _Contents:
    answer = run.answer
    if not answer.models:
        raise _nothing_to_draw(str(run.folder), answer.reason)
    about: dict[str, Shown] = {
        "study": run.folder.name,
        "status": answer.status.value,
        answer.objective: answer.value or 0.0,
        "device": answer.device_title,
        "cluster": answer.cluster,
        "software": answer.software,
        "commit": run.manifest.git_commit or "unknown",
        "versions": run.manifest.versions,
    }
    return _Contents(about, answer.models, None, ())


def _nothing_to_draw(folder: str, reason: str) -> InfeasibleError:
    why = f" ({reason})" if reason else ""
    return InfeasibleError(
        f"the run in {folder} found no design{why}, so there is nothing to draw; change its study and search again"
    )


def _pipeline(model: str, plan: ModelPlan | FoundPlan) -> PipelineTrace:
    single = len(plan.pipeline.forward_s) == plan.pp
    activations = [StageActivations(each.activation_bytes if single else None) for each in plan.stages[: plan.pp]]
    return PipelineTrace(model, plan.pipeline, [each.layers for each in plan.stages], activations)


def _passes_per_stage(pipelines: Sequence[PipelineTrace], most_events: int) -> list[int]:
    """How many passes of each stage of each pipeline are drawn."""
    share = min(1.0, most_events / max(sum(each.events for each in pipelines), 1))
    counts = [each.passes.start_s.shape[1] for each in pipelines]
    return [count if share == 1.0 else min(count, max(int(count * share), FEWEST_PASSES)) for count in counts]


def _left_out(pipelines: Sequence[PipelineTrace], limits: Sequence[int]) -> str:
    words = [
        f"the middle {each.passes.start_s.shape[1] - limit:,} of the {each.passes.start_s.shape[1]:,} passes "
        f"of each stage of {each.model}"
        for each, limit in zip(pipelines, limits, strict=True)
        if limit < each.passes.start_s.shape[1]
    ]
    return f"left out, because viewers would be slow: {' and '.join(words)}" if words else ""


def _events(contents: _Contents, pipelines: Sequence[PipelineTrace], limits: Sequence[int]) -> Iterator[Event]:
    yield Process(FIRST_PID, f"study {contents.about['study']}")
    for row, (pipeline, plan) in enumerate(zip(pipelines, contents.plans.values(), strict=True)):
        yield from _iteration(row, pipeline, plan, contents.about)
    pid, flow = FIRST_PID + 1, 1
    for pipeline, limit in zip(pipelines, limits, strict=True):
        yield from pipeline.draw(pid, flow, limit)
        pid, flow = pid + pipeline.report.pp, flow + pipeline.report.micro_batches
    if contents.design is not None:
        names = schedule_names(contents.schedules)
        for each, name in zip(contents.schedules, names, strict=True):
            yield from schedule_events(each, name, contents.design.accelerator, pid)
            pid += 1


def _iteration(row: int, pipeline: PipelineTrace, plan: ModelPlan | FoundPlan, about: Mapping[str, Shown]) -> Iterator[Event]:
    """The iteration as the search priced it, on a thread of the study's process."""
    args: dict[str, Shown] = {
        "iteration s": plan.time_per_batch_s,
        "pipeline drawn s": pipeline.end_s,
        "samples per s": plan.throughput_samples_per_s,
        "tp x pp x dp": f"{plan.tp} x {plan.pp} x {plan.dp}",
        "micro-batch size": plan.micro_batch_size,
        "micro-batches per pipeline": plan.micro_batches_per_pipeline,
        "recomputation": plan.recompute,
        "schedule": plan.pipeline.schedule,
        "breakdown s": asdict(plan.breakdown_s),
        **about,
    }
    if pipeline.end_s < plan.time_per_batch_s * (1 - TOLERANCE):
        args["why the pipeline ends before"] = "the search charges every stage with the bubble of the slowest"
    yield Thread(FIRST_PID, row, pipeline.model)
    yield Slice(FIRST_PID, row, f"iteration of {pipeline.model}", "iteration", 0, nanoseconds(plan.time_per_batch_s), args)
