"""The report of a search: the best accelerator and plan, or the best plan on a given device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.report.pages import placement_figures, size_figures, time_figures
from phaze.report.pages.axis_figures import Sensitivity, axis_figures, axis_table, sensitivity_words
from phaze.report.pages.charts import unvalidated
from phaze.report.pages.chip_figures import (
    area_figure,
    energy_figure,
    roofline_figure,
    whole_chip_figures,
)
from phaze.report.pages.choice_figures import fastest_plans, memory_scatter
from phaze.report.pages.design_points import PointsOfModel, points_of
from phaze.report.pages.device_figures import devices_figure
from phaze.report.pages.figures import Figure, KeyNumber, Part, Reasons, Report, Section
from phaze.report.pages.layer_graph_figure import layer_graph_figure
from phaze.report.pages.memory_figures import memory_over_time
from phaze.report.pages.pipeline_figures import pipeline_figures
from phaze.report.pages.provenance import provenance
from phaze.report.pages.robust_figure import robust_figure
from phaze.report.pages.scatter_figure import scatter, scatter_title
from phaze.report.pages.schedule_figures import schedule_figures
from phaze.report.pages.stages import stages_of
from phaze.report.pages.training.run_sections import measured_sections, trainings_of
from phaze.report.pages.training.training_report import training_words
from phaze.report.sentences.answers import proof_text
from phaze.report.sentences.designs import (
    ALONG_THE_CRITICAL_PATH,
    accelerator_text,
    capitalised,
    degrees_text,
    exposed_s,
    hidden_s,
    listed,
    part_text,
    plan_extras,
    plan_text,
    unit_of,
)
from phaze.report.sentences.differences import why
from phaze.report.sentences.explanation import explain
from phaze.report.sentences.known_chips import better_beyond, beyond_limits, missing_sizes
from phaze.report.sentences.stages import heterogeneous_text
from phaze.report.sentences.utilization import mfu_note, mfu_share
from phaze.report.tables.heterogeneous_tables import stages_table
from phaze.report.tables.search_tables import optimum_table, reference_table, size_table
from phaze_common.numbers import gib, number, percent, share, time_text

if TYPE_CHECKING:
    from Estimator.chips.accelerator import Accelerator
    from phaze.report.table import Table
    from phaze.runs.finished_run import FinishedRun
    from Solver.plan_report import ExpertReport, PlanReport
    from Solver.results import DesignPoint, HeterogeneousAnswer, Limit

COLLECTIVE = OperatorKind.COLLECTIVE.value


@unvalidated
def search_report(run: FinishedRun) -> Report:
    """The page of ``run``; one that found nothing says why."""
    result, explanation, best = run.result, explain(run), run.result.best
    models = listed([label(name) for name in (best.models if best else _asked(run))])
    what, where = ("plan", f", {result.hardware.title}") if run.on_device else ("accelerator", "")
    points = [points_of(run, best, name) for name in best.models] if best else []
    trainings = trainings_of(run, points)
    sections = list(measured_sections(points, trainings))
    if best is not None:
        sections += _sections(run, best, points, explanation.limits)
    elif result.rows:
        tried = Part("", (), (), (titled(size_table(result)),))
        sections.append(Section("sizes", "What was tried", (tried,)))
    if result.heterogeneous is not None:
        sections.append(_stages_that_differ(result.heterogeneous))
    sections.append(Section("provenance", "Provenance", provenance(run)))
    if best is None:
        title = f"No {what} fits {models}"
        subtitle = f"Run {result.study}{where}, {result.status.value}"
        return Report(title, subtitle, explanation.answer, (), (), tuple(sections))
    measured = tuple(training_words(each.record) for each in trainings)
    reasons = (
        Reasons("By how much", explanation.lead),
        Reasons("Why this one", tuple(why(best, result.references))),
        Reasons("What limits it", explanation.limits_in_words),
        Reasons("Where the time goes", explanation.time_in_words),
        Reasons("What training it measured", measured),
    )
    return Report(
        f"The best {what} for {models}",
        f"Run {result.study}{where}",
        explanation.answer,
        tuple(_numbers(run, best, points)),
        tuple(reason for reason in reasons if reason.sentences),
        tuple(sections),
        explanation.warnings,
    )


def _stages_that_differ(answer: HeterogeneousAnswer) -> Section:
    """What stages that differ bring, the stages of the best such plan, and its timeline."""
    part, best = Part("", (f"{heterogeneous_text(answer)}.",)), answer.best
    if best is not None:
        tables = (stages_table(best.plan, best.stages),)
        part = replace(part, figures=pipeline_figures(best.pipeline, "differing"), tables=tables)
    return Section("differing", "Stages that differ", (part,))


def _sections(
    run: FinishedRun, best: DesignPoint, points: list[PointsOfModel], limits: Sequence[Limit]
) -> Iterator[Section]:
    chip = best.accelerator

    def section(
        anchor: str, title: str, part: Callable[[PointsOfModel], Part]
    ) -> Iterator[Section]:
        """A part for each model, without those that have nothing to show."""
        parts = []
        for each in points:
            found = part(each)
            if found.figures or found.tables:
                heading = label(each.model) if len(points) > 1 else ""
                parts.append(replace(found, title=heading))
        if parts:
            yield Section(anchor, title, tuple(parts))

    if chip is None:
        title = "Throughput and memory of the plans"
        yield from section("plans", title, lambda each: Part(figures=(memory_scatter(each),)))
    else:
        title = scatter_title(run.manifest.front)
        yield from section("design-space", title, lambda each: Part(figures=(scatter(each),)))
        of_the_chip = tuple(axis for axis in best.axes if axis.model is None)
        if of_the_chip:
            part = _sensitivity(Sensitivity(of_the_chip, "design", unit_of(best)))
            yield Section("axes", "What each axis of the accelerator allows", (part,))
    reaches = "What the device reaches" if chip is None else "What the chip spends and reaches"
    yield from section("hardware", reaches, _hardware)
    yield from section("choices", "What each choice of the plan allows", _choices)
    yield from section("placement", "Placement on the devices", _placement)
    yield from section("iteration", "Where the time of an iteration goes", _iteration)
    yield from section(
        "pipeline",
        "Pipeline timeline",
        lambda each: Part(figures=pipeline_figures(each.plan.pipeline, each.suffix)),
    )
    if chip is not None:
        title = "Schedule of the operators on the cores"
        yield from section("schedules", title, lambda each: _schedules(each, chip))
    compared = capitalised(listed(_compared(run, best)))
    yield Section("comparisons", compared, tuple(_comparisons(run, best, points)))
    robust = drawn(robust_figure(points[0]))
    if robust:
        title = "Whether the choice survives what is not known"
        yield Section("robustness", title, (Part(figures=robust),))
    if limits:
        title, figure = "What limits the optimum", time_figures.limits_figure(limits)
        yield Section("limits", title, (Part(figures=(figure,)),))


def _sensitivity(sensitivity: Sensitivity) -> Part:
    words, figures = sensitivity_words(sensitivity), axis_figures(sensitivity)
    return Part("", words, figures, (axis_table(sensitivity),))


def _hardware(points: PointsOfModel) -> Part:
    area = area_figure(points) if points.model == next(iter(points.best.models)) else None
    whole = [] if area is None else whole_chip_figures(points)
    return Part(figures=drawn(area, *whole, energy_figure(points), roofline_figure(points)))


def drawn(*figures: Figure | None) -> tuple[Figure, ...]:
    """Those that there are."""
    return tuple(figure for figure in figures if figure is not None)


def _choices(points: PointsOfModel) -> Part:
    axes = tuple(axis for axis in points.best.axes if axis.model == points.model)
    part = Part()
    if axes:
        part = _sensitivity(Sensitivity(axes, "plan", "samples/s", points.suffix))
    return replace(part, tables=(*part.tables, *fastest_plans(points)))


def _placement(points: PointsOfModel) -> Part:
    plan, suffix, stages = points.plan, points.suffix, stages_of(points.plan)
    words = (
        f"{plan.devices_used:,} devices: {plan_text(plan)}{_extras(plan)}; "
        f"{plan.micro_batches_per_pipeline} micro-batches of {plan.micro_batch_size} per pipeline, "
        f"recomputation {plan.recompute}."
    )
    tensors = [each for each in points.run.tensors if each.model == points.model]
    figures = (
        placement_figures.load_figure(stages, suffix),
        placement_figures.memory_figure(stages, plan.hbm_bytes, suffix),
        *memory_over_time(plan, suffix),
        *drawn(layer_graph_figure(plan, tensors, suffix)),
        devices_figure(plan, points.run.result.hardware.records.cluster, suffix),
    )
    table = placement_figures.stage_table(stages, plan.hbm_bytes)
    return Part("", (words,), figures, (table,))


def _extras(plan: PlanReport) -> str:
    return "".join(f", {words}" for words in plan_extras(plan))


def _iteration(points: PointsOfModel) -> Part:
    plan, expert = points.plan, points.plan.expert
    bars = [_bar("optimum", plan)]
    bars += [_bar(point.name, point.models[points.model]) for point in points.references]
    if expert is not None and plan.speedup_over_expert is not None:
        bars += [_bar("expert's plan", expert)] if expert.breakdown_s is not None else []
    words = [
        f"{time_text(seconds)} of {part_text(part)} runs beside computation."
        for part, seconds in hidden_s(plan.breakdown_s).items()
    ]
    words += [ALONG_THE_CRITICAL_PATH] if points.best.accelerator is not None else []
    return Part("", tuple(words), (time_figures.breakdown_figure(bars, points.suffix),))


def _bar(name: str, plan: PlanReport | ExpertReport) -> time_figures.IterationBar:
    assert plan.breakdown_s is not None  # an expert's plan that does not fit is not drawn
    note, seconds = f"{degrees_text(plan)}, {plan.recompute}", exposed_s(plan.breakdown_s)
    return time_figures.IterationBar(name, seconds, plan.throughput_samples_per_s, note)


def _schedules(points: PointsOfModel, chip: Accelerator) -> Part:
    chosen = [
        schedule
        for schedule in points.run.schedules
        if schedule.model == points.model and schedule.hbm_bytes == points.best.hbm_bytes
    ]
    operators = [operator for schedule in chosen for operator in schedule.operators]
    plan, busy = points.plan, ""
    if plan.tc_utilization is not None and plan.vc_utilization is not None:
        busy = (
            f" Over a micro-batch the tensor cores are busy {share(plan.tc_utilization)} and the "
            f"vector cores {share(plan.vc_utilization)} of the time; products with a fused tail "
            "occupy both."
        )
    words = [
        f"Each distinct layer and pass on one chip of {chip.num_tc} tensor cores (TC) and "
        f"{chip.num_vc} vector cores (VC).{busy} An operator in a row of several cores uses all "
        "cores of that type."
    ]
    if any(operator.kind == COLLECTIVE for operator in operators):
        words.append(
            "A collective between devices is drawn on a vector core, which it occupies while it "
            "runs."
        )
    if any(operator.exposed_s for operator in operators):
        words.append(
            "Operators that exchange pieces with other devices while they run hold their cores "
            "while they wait for them."
        )
    return Part("", tuple(words), schedule_figures(chosen, chip, points.suffix))


def _compared(run: FinishedRun, best: DesignPoint) -> list[str]:
    """What there is to compare the optimum with."""
    there = {
        "known chips": bool(run.result.references),
        "expert plans": any(plan.expert is not None for plan in best.models.values()),
        "HBM sizes": best.accelerator is not None,
        "micro-batch sizes": True,
    }
    return [what for what, is_there in there.items() if is_there]


def _comparisons(
    run: FinishedRun, best: DesignPoint, points: list[PointsOfModel]
) -> Iterator[Part]:
    result = run.result
    if result.references:
        known = reference_table(result.references, unit_of(best), beyond_limits(result))
        yield Part("", sentences(better_beyond(result)), (), (titled(known),))
    experts = size_figures.expert_table(best)
    if experts.rows:
        yield Part(tables=(experts,))
    figures = drawn(*map(size_figures.size_figure, points))
    tables = titled(optimum_table(result)), titled(size_table(result))
    yield Part("", sentences(missing_sizes(result)), figures, tables)


def titled(table: Table) -> Table:
    """A table of the terminal as the page has it: its title begins as a sentence does."""
    return replace(table, title=capitalised(table.title))


def sentences(sentence: str) -> tuple[str, ...]:
    """A sentence with its capital and full stop, where there is one."""
    if sentence:
        return (f"{capitalised(sentence)}.",)
    return ()


def _numbers(
    run: FinishedRun, best: DesignPoint, points: list[PointsOfModel]
) -> Iterator[KeyNumber]:
    unit, chip, tight = unit_of(best), best.accelerator, run.result.tight_memory
    first = points[0].plan
    read = len(points) == 1 and first.sequence_length > 1
    tokens = f", {number(first.tokens_per_s)} tokens/s" if read else ""
    value = f"{number(best.value)} {unit}"
    yield KeyNumber(best.objective.value.replace("_", " "), value, f"{proof_text(best)}{tokens}")
    named = [(f" of {label(each.model)}" if len(points) > 1 else "", each.plan) for each in points]
    for of, plan in named:
        if plan.share_of_own_best is not None:
            note = (
                f"{number(plan.throughput_samples_per_s)} samples/s; the best that it reaches "
                "on hardware of its own is 100%"
            )
            yield KeyNumber(f"share of own best{of}", share(plan.share_of_own_best), note)
        left, counted = plan.model_flops_utilization, plan.all_scores_flops_utilization
        yield KeyNumber(f"MFU{of}", mfu_share(left), mfu_note(left, counted, plan.sequence_length))
        filled = share(plan.memory_bytes / best.hbm_bytes)
        free = f"of {gib(best.hbm_bytes)} GiB ({filled}) in the fullest stage"
        yield KeyNumber(f"memory used{of}", f"{gib(plan.memory_bytes)} GiB", free)
    if tight is not None and tight.runner_up is not None:
        used = max(plan.memory_bytes for plan in tight.runner_up.models.values()) / best.hbm_bytes
        what = f"best within {percent(tight.most_share)} of the memory"
        yield KeyNumber(
            what, f"{number(tight.runner_up.value)} {unit}", f"uses {share(used)} of it"
        )
    if chip is not None:
        yield KeyNumber("area of the chip", f"{chip.area_mm2:.1f} mm²", accelerator_text(chip))
    faster = {each.name: each.best_over_reference for each in points[0].references}
    known = [(ratio, name) for name, ratio in faster.items() if ratio is not None]
    if known:
        ratio, name = min(known, key=lambda each: each[0])
        yield KeyNumber("over the best known chip", f"{ratio:.2f}x", name)
    for of, plan in named:
        if plan.speedup_over_expert is not None and plan.expert is not None:
            on = "devices" if run.on_device else "chip"
            degrees = f"{degrees_text(plan.expert)} on the same {on}"
            ratio = plan.speedup_over_expert
            yield KeyNumber(f"over the expert's plan{of}", f"{ratio:.2f}x", degrees)
        devices = f"{plan.devices_used:,} devices of {run.result.hardware.cluster}"
        note = f"{devices}, micro-batch {plan.micro_batch_size}{_extras(plan)}"
        yield KeyNumber(f"tp x pp x dp{of}", degrees_text(plan), note)
        largest, seconds = next(iter(exposed_s(plan.breakdown_s).items()))
        most = f"{share(seconds / plan.time_per_batch_s)} {part_text(largest)}"
        yield KeyNumber(f"an iteration{of}", time_text(plan.time_per_batch_s), most)


def _asked(run: FinishedRun) -> list[str]:
    asked = run.settings.get("model", [])
    return [str(name).split("=")[0] for name in (asked if isinstance(asked, list) else [asked])]
