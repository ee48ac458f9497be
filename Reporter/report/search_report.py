"""The report of a search: the best accelerator and plan, or the best plan on a device that was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from Common.units import GIB
from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from Reporter.report import choice_figures, placement_figures, size_figures, time_figures
from Reporter.report.axis_figures import axis_figures, axis_table
from Reporter.report.charts import REACH_WORDS
from Reporter.report.design_points import PointsOfModel, points_of
from Reporter.report.figures import KeyNumber, Part, Reasons, Report, Section
from Reporter.report.formats import duration, share
from Reporter.report.pipeline_figures import pipeline_figures
from Reporter.report.provenance import provenance
from Reporter.report.scatter_figure import scatter
from Reporter.report.schedule_figures import schedule_figures
from Reporter.report.stages import stages_of
from Reporter.report.why import why
from Studies.explain.explanation import explain
from Studies.wording import (
    ALONG_THE_CRITICAL_PATH,
    UNITS,
    accelerator_text,
    exposed_s,
    hidden_s,
    listed,
    number,
    part_text,
    plan_extras,
)

if TYPE_CHECKING:
    from Estimator.chips.accelerator import Accelerator
    from Solver.results import DesignPoint, Limit, ModelPlan
    from Studies.finished_run import FinishedRun

COLLECTIVE = OperatorKind.COLLECTIVE.value


def search_report(run: FinishedRun) -> Report:
    """The page of ``run``; one that found nothing says why."""
    result, explanation = run.result, explain(run)
    models = listed([label(name) for name in (result.best.models if result.best else _asked(run))])
    what, where = ("plan", f", {result.hardware.title}") if run.on_device else ("accelerator", "")
    sources = Section("provenance", "Provenance", provenance(run))
    if result.best is None:
        tried = (Section("sizes", "What was tried", (Part("", (), (), (size_figures.size_table(result),)),)),)
        return Report(
            f"No {what} fits {models}",
            f"Run {result.study}{where}, {result.status.value}",
            explanation.answer,
            (),
            (),
            (*(tried if result.rows else ()), sources),
        )
    best = result.best
    points = [points_of(run, best, name) for name in best.models]
    reasons = (
        Reasons("By how much", explanation.lead),
        Reasons("Why this one", why(best, points)),
        Reasons("What limits it", explanation.limits_in_words),
        Reasons("Where the time goes", explanation.time_in_words),
    )
    return Report(
        f"The best {what} for {models}",
        f"Run {result.study}{where}",
        explanation.answer,
        tuple(_numbers(run, best, points)),
        tuple(reason for reason in reasons if reason.sentences),
        (*_sections(run, best, points, explanation.limits), sources),
    )


def _sections(run: FinishedRun, best: DesignPoint, points: list[PointsOfModel], limits: Sequence[Limit]) -> Iterator[Section]:
    def of_each(part: Callable[[PointsOfModel, str], Part]) -> tuple[Part, ...]:
        return tuple(part(each, label(each.model) if len(points) > 1 else "") for each in points)

    chip = best.accelerator
    if chip is not None:
        yield Section("design-space", "Throughput, area and energy", of_each(lambda each, name: Part(name, (), (scatter(each),))))
        yield Section("axes", "What each axis of the accelerator allows", of_each(_axes))
    else:
        title = "Throughput and memory of the plans"
        yield Section("plans", title, of_each(lambda each, name: Part(name, (), (choice_figures.memory_scatter(each),))))
    choices = tuple(part for part in of_each(_choices) if part.figures or part.tables)
    if choices:
        yield Section("choices", "What each choice of the plan allows", choices)
    yield Section("placement", "Placement on the devices", of_each(_placement))
    yield Section("iteration", "Where the time of an iteration goes", of_each(_iteration))
    pipelines = of_each(lambda each, name: Part(name, (), pipeline_figures(each.plan, each.suffix)))
    yield Section("pipeline", "Pipeline timeline", pipelines)
    if chip is not None:
        schedules = of_each(lambda each, name: _schedules(each, chip, name))
        yield Section("schedules", "Schedule of the operators on the cores", schedules)
    yield Section("comparisons", "Known chips, expert plans, HBM and micro-batch sizes", tuple(_comparisons(run, best, points)))
    if limits:
        yield Section("limits", "What limits the optimum", (Part("", (), (time_figures.limits_figure(limits),)),))


def _axes(points: PointsOfModel, heading: str) -> Part:
    return Part(heading, (REACH_WORDS.format(what="design"),), axis_figures(points), (axis_table(points),))


def _choices(points: PointsOfModel, heading: str) -> Part:
    figures = choice_figures.choice_figures(points)
    return Part(heading, (REACH_WORDS.format(what="plan"),) if figures else (), figures, choice_figures.choice_tables(points))


def _placement(points: PointsOfModel, heading: str) -> Part:
    plan = points.plan
    stages = stages_of(plan)
    extras = "".join(f", {words}" for words in plan_extras(plan))
    words = (
        f"{plan.devices_used:,} devices: tensor parallel width {plan.tp}, pipeline depth {plan.pp}, data parallel degree "
        f"{plan.dp}{extras}; {plan.micro_batches_per_pipeline} micro-batches of {plan.micro_batch_size} per pipeline, "
        f"recomputation {plan.recompute}."
    )
    figures = (
        placement_figures.load_figure(stages, points.suffix),
        placement_figures.memory_figure(stages, plan.hbm_bytes, "GiB", GIB, points.suffix),
    )
    return Part(heading, (words,), figures, (placement_figures.stage_table(stages, plan.hbm_bytes, "GiB", GIB),))


def _iteration(points: PointsOfModel, heading: str) -> Part:
    plan = points.plan
    bars = [_bar("optimum", plan)]
    bars += [_bar(point.name, point.models[points.model]) for point in points.references]
    expert = plan.expert
    if expert is not None and expert.breakdown_s is not None and plan.speedup_over_expert is not None:
        note = f"{expert.tp} x {expert.pp} x {expert.dp}, {expert.recompute}"
        seconds = exposed_s(expert.breakdown_s)
        bars.append(time_figures.IterationBar("expert's plan", seconds, expert.throughput_samples_per_s, note))
    words = [
        f"{duration(seconds)} of {part_text(part)} runs beside computation."
        for part, seconds in hidden_s(plan.breakdown_s).items()
    ]
    words += [ALONG_THE_CRITICAL_PATH] if points.best.accelerator is not None else []
    return Part(heading, tuple(words), (time_figures.breakdown_figure(bars, points.suffix),))


def _bar(name: str, plan: ModelPlan) -> time_figures.IterationBar:
    note = f"{plan.tp} x {plan.pp} x {plan.dp}, {plan.recompute}"
    return time_figures.IterationBar(name, exposed_s(plan.breakdown_s), plan.throughput_samples_per_s, note)


def _schedules(points: PointsOfModel, chip: Accelerator, heading: str) -> Part:
    chosen = [
        schedule
        for schedule in points.run.schedules
        if schedule.model == points.model and schedule.hbm_bytes == points.best.hbm_bytes
    ]
    plan = points.plan
    busy = ""
    if plan.tc_utilization is not None and plan.vc_utilization is not None:
        busy = (
            f" Over a micro-batch the tensor cores are busy {share(plan.tc_utilization)} and the vector cores "
            f"{share(plan.vc_utilization)} of the time; products with a fused tail occupy both."
        )
    words: tuple[str, ...] = (
        f"Each distinct layer and pass on one chip of {chip.num_tc} tensor cores (TC) and {chip.num_vc} vector cores (VC).{busy} "
        "An operator in a row of several cores uses all cores of that type.",
    )
    if any(operator.kind == COLLECTIVE for schedule in chosen for operator in schedule.operators):
        words += ("A collective between devices is drawn on a vector core, which it occupies while it runs.",)
    return Part(heading, words, schedule_figures(chosen, chip, points.suffix))


def _comparisons(run: FinishedRun, best: DesignPoint, points: list[PointsOfModel]) -> Iterator[Part]:
    if run.result.references:
        yield Part("", (), (), (size_figures.reference_table(run.result.references, UNITS[best.objective]),))
    experts = size_figures.expert_table(best)
    if experts.rows:
        yield Part("", (), (), (experts,))
    figures = [figure for each in points if (figure := size_figures.size_figure(each)) is not None]
    yield Part("", (), tuple(figures), (size_figures.hbm_table(run.result), size_figures.size_table(run.result)))


def _numbers(run: FinishedRun, best: DesignPoint, points: list[PointsOfModel]) -> Iterator[KeyNumber]:
    hardware = run.result.hardware
    yield KeyNumber(best.objective.value.replace("_", " "), f"{number(best.value)} {UNITS[best.objective]}", _proof(best))
    if best.accelerator is not None:
        yield KeyNumber("area of the chip", f"{best.accelerator.area_mm2:.1f} mm²", accelerator_text(best.accelerator))
    known = [point for point in points[0].references if point.best_over_reference is not None]
    if known:
        nearest = min(known, key=lambda point: point.best_over_reference or 0.0)
        yield KeyNumber("over the best known chip", f"{nearest.best_over_reference:.2f}x", nearest.name)
    for each in points:
        plan = each.plan
        name = f" of {label(each.model)}" if len(points) > 1 else ""
        if plan.speedup_over_expert is not None and plan.expert is not None:
            degrees = (
                f"{plan.expert.tp} x {plan.expert.pp} x {plan.expert.dp} on the same {'devices' if run.on_device else 'chip'}"
            )
            yield KeyNumber(f"over the expert's plan{name}", f"{plan.speedup_over_expert:.2f}x", degrees)
        extras = "".join(f", {words}" for words in plan_extras(plan))
        yield KeyNumber(
            f"tp x pp x dp{name}",
            f"{plan.tp} x {plan.pp} x {plan.dp}",
            f"{plan.devices_used:,} devices of {hardware.cluster}, micro-batch {plan.micro_batch_size}{extras}",
        )
        largest, seconds = next(iter(exposed_s(plan.breakdown_s).items()))
        most = f"{share(seconds / plan.time_per_batch_s)} {part_text(largest)}"
        yield KeyNumber(f"an iteration{name}", duration(plan.time_per_batch_s), most)
        left = plan.causal_model_flops_utilization
        counted = plan.model_flops_utilization
        tokens = f"{plan.tokens_per_s:,.0f} tokens/s; counts all scores of attention"
        tokens += f", {share(left)} without masked ones" if left is not None and left < counted else ""
        yield KeyNumber(f"model FLOPs utilisation{name}", share(counted), tokens)
        filled = each.plan_memory_bytes
        of = f"{share(filled / best.hbm_bytes)} of {best.hbm_bytes / GIB:.4g} GiB"
        yield KeyNumber(f"memory of the fullest stage{name}", f"{filled / GIB:.4g} GiB", of)


def _proof(best: DesignPoint) -> str:
    if best.optimal:
        return "proven optimal"
    bound = best.certificate.best_open_bound if best.certificate else None
    return "not proven" if bound is None else f"not proven, at most {number(bound)}"


def _asked(run: FinishedRun) -> list[str]:
    asked = run.settings.get("model", [])
    return [str(name).split("=")[0] for name in (asked if isinstance(asked, list) else [asked])]
