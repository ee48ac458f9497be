"""The report of a search for the best accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from Common.units import GIB
from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from Reporter.report import placement_figures, size_figures, time_figures
from Reporter.report.axis_figures import axis_figures, axis_table
from Reporter.report.charts import REACH_WORDS
from Reporter.report.design_points import PointsOfModel, points_of
from Reporter.report.figures import KeyNumber, Part, Reasons, Report, Section
from Reporter.report.pipeline_figures import pipeline_figures
from Reporter.report.provenance import search_provenance
from Reporter.report.scatter_figure import scatter
from Reporter.report.schedule_figures import schedule_figures
from Reporter.report.stages import stages_of
from Reporter.report.why import why
from Reporter.report.words import duration, share
from Studies.explain.explanation import explain
from Studies.words import UNITS, accelerator_words, listed, number, part_words

if TYPE_CHECKING:
    from Solver.results import DesignPoint, Limit, ModelPlan
    from Studies.finished_run import FinishedSearch


COLLECTIVE = OperatorKind.COLLECTIVE.value


def search_report(run: FinishedSearch) -> Report:
    """The page of ``run``; one that found nothing says why."""
    result, explanation = run.result, explain(run)
    models = listed([label(name) for name in (result.best.models if result.best else _asked(run))])
    if result.best is None:
        sizes = (Part("", (), (), (size_figures.size_table(result.rows),)),) if result.rows else ()
        return Report(
            f"No accelerator fits {models}",
            f"Run {result.study}, {result.status.value}",
            explanation.answer,
            (),
            (),
            (
                *((Section("sizes", "What was tried", sizes),) if sizes else ()),
                Section("provenance", "Provenance", search_provenance(run)),
            ),
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
        f"The best accelerator for {models}",
        f"Run {result.study}",
        explanation.answer,
        tuple(_numbers(best, points)),
        tuple(reason for reason in reasons if reason.sentences),
        tuple(_sections(run, best, points, explanation.limits)),
    )


def _sections(run: FinishedSearch, best: DesignPoint, points: list[PointsOfModel], limits: Sequence[Limit]) -> Iterator[Section]:
    several = len(points) > 1

    def heading(each: PointsOfModel) -> str:
        return label(each.model) if several else ""

    yield Section(
        "design-space",
        "Throughput, area and energy",
        tuple(Part(heading(each), (), (scatter(each),)) for each in points),
    )
    yield Section("axes", "What each axis of the accelerator allows", tuple(_axes(each, heading(each)) for each in points))
    yield Section("placement", "Placement on the devices", tuple(_placement(each, heading(each)) for each in points))
    yield Section("iteration", "Where the time of an iteration goes", tuple(_iteration(each, heading(each)) for each in points))
    yield Section("pipeline", "Pipeline timeline", tuple(_pipeline(each, heading(each)) for each in points))
    yield Section(
        "schedules", "Schedule of the operators on the cores", tuple(_schedules(each, heading(each)) for each in points)
    )
    yield Section("comparisons", "Known chips, expert plans, HBM and micro-batch sizes", tuple(_comparisons(run, best, points)))
    if limits:
        yield Section("limits", "What limits the optimum", (Part("", (), (time_figures.limits_figure(limits),)),))
    yield Section("provenance", "Provenance", search_provenance(run))


def _axes(points: PointsOfModel, heading: str) -> Part:
    return Part(heading, (REACH_WORDS.format(what="design"),), axis_figures(points), (axis_table(points),))


def _placement(points: PointsOfModel, heading: str) -> Part:
    plan = points.plan
    stages = stages_of(plan)
    words = (
        f"{plan.devices_used:,} devices: tensor parallel width {plan.tp}, pipeline depth {plan.pp}, data parallel degree "
        f"{plan.dp}; {plan.micro_batches_per_pipeline} micro-batches of {plan.micro_batch_size} per pipeline, recomputation "
        f"{plan.recompute}."
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
        seconds = time_figures.term_seconds(expert.breakdown_s)
        bars.append(time_figures.IterationBar("expert's plan", seconds, expert.throughput_samples_per_s, note))
    tensor_s = plan.breakdown_s.tensor_communication_s
    inside = share(tensor_s / plan.time_per_batch_s)
    words = (f"Of forward, backward and recomputation, tensor-parallel communication takes {inside} of the iteration.",)
    return Part(heading, words if tensor_s else (), (time_figures.breakdown_figure(bars, points.suffix),))


def _bar(name: str, plan: ModelPlan) -> time_figures.IterationBar:
    note = f"{plan.tp} x {plan.pp} x {plan.dp}, {plan.recompute}"
    return time_figures.IterationBar(name, time_figures.term_seconds(plan.breakdown_s), plan.throughput_samples_per_s, note)


def _pipeline(points: PointsOfModel, heading: str) -> Part:
    return Part(heading, (), pipeline_figures(points.plan, points.suffix))


def _schedules(points: PointsOfModel, heading: str) -> Part:
    chosen = [
        schedule
        for schedule in points.run.schedules
        if schedule.model == points.model and schedule.hbm_bytes == points.best.hbm_bytes
    ]
    chip = points.best.accelerator
    plan = points.plan
    words: tuple[str, ...] = (
        f"Each distinct layer and pass on one chip of {chip.num_tc} tensor cores (TC) and {chip.num_vc} vector cores (VC). Over "
        f"a micro-batch the tensor cores are busy {share(plan.tc_utilization)} and the vector cores "
        f"{share(plan.vc_utilization)} of the time; products with a fused tail occupy both. An operator in a row of several "
        "cores uses all cores of that type.",
    )
    if any(operator.kind == COLLECTIVE for schedule in chosen for operator in schedule.operators):
        words += ("A collective between devices is drawn on a vector core, which it occupies while it runs.",)
    return Part(heading, words, schedule_figures(chosen, chip, points.suffix))


def _comparisons(run: FinishedSearch, best: DesignPoint, points: list[PointsOfModel]) -> Iterator[Part]:
    if run.result.references:
        yield Part("", (), (), (size_figures.reference_table(run.result.references, UNITS[best.objective]),))
    experts = size_figures.expert_table(best)
    if experts.rows:
        yield Part("", (), (), (experts,))
    figures = [figure for each in points if (figure := size_figures.size_figure(each)) is not None]
    yield Part("", (), tuple(figures), (size_figures.hbm_table(run.result.per_hbm), size_figures.size_table(run.result.rows)))


def _numbers(best: DesignPoint, points: list[PointsOfModel]) -> Iterator[KeyNumber]:
    yield KeyNumber(best.objective.value.replace("_", " "), f"{number(best.value)} {UNITS[best.objective]}", _proof(best))
    yield KeyNumber("area of the chip", f"{best.accelerator.area_mm2:.1f} mm²", accelerator_words(best.accelerator))
    known = [point for point in points[0].references if point.best_over_reference is not None]
    if known:
        nearest = min(known, key=lambda point: point.best_over_reference or 0.0)
        yield KeyNumber("over the best known chip", f"{nearest.best_over_reference:.2f}x", nearest.name)
    for each in points:
        plan = each.plan
        name = f" of {label(each.model)}" if len(points) > 1 else ""
        if plan.speedup_over_expert is not None and plan.expert is not None:
            degrees = f"{plan.expert.tp} x {plan.expert.pp} x {plan.expert.dp} on the same chip"
            yield KeyNumber(f"over the expert's plan{name}", f"{plan.speedup_over_expert:.2f}x", degrees)
        terms = time_figures.term_seconds(plan.breakdown_s)
        largest = max(terms, key=lambda term: terms[term])
        most = f"{share(terms[largest] / plan.time_per_batch_s)} {part_words(largest)}"
        yield KeyNumber(f"an iteration{name}", duration(plan.time_per_batch_s), most)


def _proof(best: DesignPoint) -> str:
    if best.optimal:
        return "proven optimal"
    bound = best.certificate.best_open_bound if best.certificate else None
    return "not proven" if bound is None else f"not proven, at most {number(bound)}"


def _asked(run: FinishedSearch) -> list[str]:
    asked = run.settings.get("model", [])
    return [str(name).split("=")[0] for name in (asked if isinstance(asked, list) else [asked])]
