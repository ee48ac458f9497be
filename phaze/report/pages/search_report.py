"""The report of a search: the best accelerator and plan, or the best plan on a device that was
given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.report.conventions import mfu_note, mfu_share
from phaze.report.pages import choice_figures, placement_figures, size_figures, time_figures
from phaze.report.pages.axis_figures import Sensitivity, axis_figures, axis_table, sensitivity_words
from phaze.report.pages.chip_figures import (
    area_figure,
    energy_figure,
    roofline_figure,
    whole_chip_figures,
)
from phaze.report.pages.design_points import PointsOfModel, points_of
from phaze.report.pages.device_figures import devices_figure
from phaze.report.pages.figures import Figure, KeyNumber, Part, Reasons, Report, Section
from phaze.report.pages.formats import duration, share
from phaze.report.pages.heterogeneous_section import heterogeneous_section
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
from phaze.report.pages.why import why
from phaze.studies.explain.explanation import explain
from phaze.studies.remarks import better_beyond, beyond_limits, missing_sizes
from phaze.studies.wording import (
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
from phaze_common.numbers import gib, number, percent
from phaze_common.units import GIB

if TYPE_CHECKING:
    from Estimator.chips.accelerator import Accelerator
    from phaze.runs.finished_run import FinishedRun
    from Solver.results import DesignPoint, Limit, ModelPlan

COLLECTIVE = OperatorKind.COLLECTIVE.value


def search_report(run: FinishedRun) -> Report:
    """The page of ``run``; one that found nothing says why."""
    result, explanation = run.result, explain(run)
    models = listed([label(name) for name in (result.best.models if result.best else _asked(run))])
    what, where = ("plan", f", {result.hardware.title}") if run.on_device else ("accelerator", "")
    sources = Section("provenance", "Provenance", provenance(run))
    differing = (
        () if result.heterogeneous is None else (heterogeneous_section(result.heterogeneous),)
    )
    if result.best is None:
        tried = (
            Section(
                "sizes", "What was tried", (Part("", (), (), (size_figures.size_table(result),)),)
            ),
        )
        return Report(
            f"No {what} fits {models}",
            f"Run {result.study}{where}, {result.status.value}",
            explanation.answer,
            (),
            (),
            (
                *measured_sections((), trainings_of(run, ())),
                *(tried if result.rows else ()),
                *differing,
                sources,
            ),
        )
    best = result.best
    points = [points_of(run, best, name) for name in best.models]
    trainings = trainings_of(run, points)
    reasons = (
        Reasons("By how much", explanation.lead),
        Reasons("Why this one", why(best, points)),
        Reasons("What limits it", explanation.limits_in_words),
        Reasons("Where the time goes", explanation.time_in_words),
        Reasons(
            "What training it measured",
            tuple(training_words(each.trained.record) for each in trainings),
        ),
    )
    return Report(
        f"The best {what} for {models}",
        f"Run {result.study}{where}",
        explanation.answer,
        tuple(_numbers(run, best, points)),
        tuple(reason for reason in reasons if reason.sentences),
        (
            *measured_sections(points, trainings),
            *_sections(run, best, points, explanation.limits),
            *differing,
            sources,
        ),
        explanation.warnings,
    )


def _sections(
    run: FinishedRun, best: DesignPoint, points: list[PointsOfModel], limits: Sequence[Limit]
) -> Iterator[Section]:
    def of_each(part: Callable[[PointsOfModel, str], Part]) -> tuple[Part, ...]:
        return tuple(part(each, label(each.model) if len(points) > 1 else "") for each in points)

    chip = best.accelerator
    if chip is not None:
        title = scatter_title(run.manifest.front)
        yield Section(
            "design-space", title, of_each(lambda each, name: Part(name, (), (scatter(each),)))
        )
        of_the_chip = tuple(axis for axis in best.axes if axis.model is None)
        if of_the_chip:
            designs = Sensitivity(of_the_chip, "design", unit_of(best))
            yield Section(
                "axes", "What each axis of the accelerator allows", (_sensitivity(designs),)
            )
    else:
        title = "Throughput and memory of the plans"
        yield Section(
            "plans",
            title,
            of_each(lambda each, name: Part(name, (), (choice_figures.memory_scatter(each),))),
        )
    hardware = tuple(part for part in of_each(_hardware) if part.figures)
    if hardware:
        yield Section(
            "hardware",
            "What the device reaches" if chip is None else "What the chip spends and reaches",
            hardware,
        )
    choices = tuple(part for part in of_each(_choices) if part.figures or part.tables)
    if choices:
        yield Section("choices", "What each choice of the plan allows", choices)
    yield Section("placement", "Placement on the devices", of_each(_placement))
    yield Section("iteration", "Where the time of an iteration goes", of_each(_iteration))
    pipelines = of_each(
        lambda each, name: Part(name, (), pipeline_figures(each.plan.pipeline, each.suffix))
    )
    yield Section("pipeline", "Pipeline timeline", pipelines)
    if chip is not None:
        schedules = of_each(lambda each, name: _schedules(each, chip, name))
        yield Section("schedules", "Schedule of the operators on the cores", schedules)
    yield Section(
        "comparisons",
        capitalised(listed(_compared(run, best))),
        tuple(_comparisons(run, best, points)),
    )
    robust = drawn(robust_figure(points[0]))
    if robust:
        yield Section(
            "robustness", "Whether the choice survives what is not known", (Part("", (), robust),)
        )
    if limits:
        yield Section(
            "limits",
            "What limits the optimum",
            (Part("", (), (time_figures.limits_figure(limits),)),),
        )


def _sensitivity(sensitivity: Sensitivity, heading: str = "") -> Part:
    return Part(
        heading,
        sensitivity_words(sensitivity),
        axis_figures(sensitivity),
        (axis_table(sensitivity),),
    )


def _hardware(points: PointsOfModel, heading: str) -> Part:
    area = area_figure(points) if points.model == next(iter(points.best.models)) else None
    whole = [] if area is None else whole_chip_figures(points)
    return Part(heading, (), drawn(area, *whole, energy_figure(points), roofline_figure(points)))


def drawn(*figures: Figure | None) -> tuple[Figure, ...]:
    """Those that there are."""
    return tuple(figure for figure in figures if figure is not None)


def _choices(points: PointsOfModel, heading: str) -> Part:
    axes = tuple(axis for axis in points.best.axes if axis.model == points.model)
    fastest = choice_figures.fastest_plans(points)
    if not axes:
        return Part(heading, (), (), fastest)
    part = _sensitivity(Sensitivity(axes, "plan", "samples/s", points.suffix), heading)
    return replace(part, tables=(*part.tables, *fastest))


def _placement(points: PointsOfModel, heading: str) -> Part:
    plan = points.plan
    stages = stages_of(plan)
    extras = "".join(f", {words}" for words in plan_extras(plan))
    words = (
        f"{plan.devices_used:,} devices: {plan_text(plan)}{extras}; "
        f"{plan.micro_batches_per_pipeline} micro-batches of {plan.micro_batch_size} per pipeline, "
        f"recomputation {plan.recompute}."
    )
    tensors = [each for each in points.run.tensors if each.model == points.model]
    figures = (
        placement_figures.load_figure(stages, points.suffix),
        placement_figures.memory_figure(stages, plan.hbm_bytes, "GiB", GIB, points.suffix),
        *memory_over_time(plan, points.suffix),
        *drawn(layer_graph_figure(plan, tensors, points.suffix)),
        devices_figure(plan, points.run.result.hardware.records.cluster, points.suffix),
    )
    return Part(
        heading,
        (words,),
        figures,
        (placement_figures.stage_table(stages, plan.hbm_bytes, "GiB", GIB),),
    )


def _iteration(points: PointsOfModel, heading: str) -> Part:
    plan = points.plan
    bars = [_bar("optimum", plan)]
    bars += [_bar(point.name, point.models[points.model]) for point in points.references]
    expert = plan.expert
    if (
        expert is not None
        and expert.breakdown_s is not None
        and plan.speedup_over_expert is not None
    ):
        note = f"{degrees_text(expert)}, {expert.recompute}"
        seconds = exposed_s(expert.breakdown_s)
        bars.append(
            time_figures.IterationBar(
                "expert's plan", seconds, expert.throughput_samples_per_s, note
            )
        )
    words = [
        f"{duration(seconds)} of {part_text(part)} runs beside computation."
        for part, seconds in hidden_s(plan.breakdown_s).items()
    ]
    words += [ALONG_THE_CRITICAL_PATH] if points.best.accelerator is not None else []
    return Part(heading, tuple(words), (time_figures.breakdown_figure(bars, points.suffix),))


def _bar(name: str, plan: ModelPlan) -> time_figures.IterationBar:
    note = f"{degrees_text(plan)}, {plan.recompute}"
    return time_figures.IterationBar(
        name, exposed_s(plan.breakdown_s), plan.throughput_samples_per_s, note
    )


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
            f" Over a micro-batch the tensor cores are busy {share(plan.tc_utilization)} and the "
            "vector cores "
            f"{share(plan.vc_utilization)} of the time; products with a fused tail occupy both."
        )
    words: tuple[str, ...] = (
        f"Each distinct layer and pass on one chip of {chip.num_tc} tensor cores (TC) and "
        f"{chip.num_vc} vector cores (VC).{busy} "
        "An operator in a row of several cores uses all cores of that type.",
    )
    if any(operator.kind == COLLECTIVE for schedule in chosen for operator in schedule.operators):
        words += (
            "A collective between devices is drawn on a vector core, which it occupies while it "
            "runs.",
        )
    if any(operator.exposed_s for schedule in chosen for operator in schedule.operators):
        words += (
            "Operators that exchange pieces with other devices while they run hold their cores "
            "while they wait for them.",
        )
    return Part(heading, words, schedule_figures(chosen, chip, points.suffix))


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
    if run.result.references:
        beyond = sentences(better_beyond(run.result))
        yield Part(
            "",
            beyond,
            (),
            (
                size_figures.reference_table(
                    run.result.references, unit_of(best), beyond_limits(run.result)
                ),
            ),
        )
    experts = size_figures.expert_table(best)
    if experts.rows:
        yield Part("", (), (), (experts,))
    figures = [figure for each in points if (figure := size_figures.size_figure(each)) is not None]
    tables = (size_figures.hbm_table(run.result), size_figures.size_table(run.result))
    yield Part("", sentences(missing_sizes(run.result)), tuple(figures), tables)


def sentences(remark: str) -> tuple[str, ...]:
    """A remark as a sentence, where there is one."""
    return (f"{capitalised(remark)}.",) if remark else ()


def _numbers(
    run: FinishedRun, best: DesignPoint, points: list[PointsOfModel]
) -> Iterator[KeyNumber]:
    hardware = run.result.hardware
    read = len(points) == 1 and points[0].plan.sequence_length > 1
    tokens = f", {number(points[0].plan.tokens_per_s)} tokens/s" if read else ""
    value = f"{number(best.value)} {unit_of(best)}"
    yield KeyNumber(best.objective.value.replace("_", " "), value, f"{_proof(best)}{tokens}")
    for each in points:
        plan, name = each.plan, f" of {label(each.model)}" if len(points) > 1 else ""
        if plan.share_of_own_best is not None:
            note = (
                f"{number(plan.throughput_samples_per_s)} samples/s; the best that it reaches "
                "on hardware of its own is 100%"
            )
            yield KeyNumber(f"share of own best{name}", share(plan.share_of_own_best), note)
        left, counted = plan.model_flops_utilization, plan.all_scores_flops_utilization
        yield KeyNumber(
            f"MFU{name}", mfu_share(left), mfu_note(left, counted, plan.sequence_length)
        )
        free = (
            f"of {gib(best.hbm_bytes)} GiB ({share(plan.memory_bytes / best.hbm_bytes)}) in "
            "the fullest stage"
        )
        yield KeyNumber(f"memory used{name}", f"{gib(plan.memory_bytes)} GiB", free)
    tight = run.result.tight_memory
    if tight is not None and tight.runner_up is not None:
        used = max(plan.memory_bytes for plan in tight.runner_up.models.values()) / best.hbm_bytes
        value = f"{number(tight.runner_up.value)} {unit_of(best)}"
        yield KeyNumber(
            f"best within {percent(tight.most_share)} of the memory",
            value,
            f"uses {share(used)} of it",
        )
    if best.accelerator is not None:
        yield KeyNumber(
            "area of the chip",
            f"{best.accelerator.area_mm2:.1f} mm²",
            accelerator_text(best.accelerator),
        )
    known = [point for point in points[0].references if point.best_over_reference is not None]
    if known:
        nearest = min(known, key=lambda point: point.best_over_reference or 0.0)
        yield KeyNumber(
            "over the best known chip", f"{nearest.best_over_reference:.2f}x", nearest.name
        )
    for each in points:
        plan = each.plan
        name = f" of {label(each.model)}" if len(points) > 1 else ""
        if plan.speedup_over_expert is not None and plan.expert is not None:
            degrees = (
                f"{degrees_text(plan.expert)} on the same {'devices' if run.on_device else 'chip'}"
            )
            yield KeyNumber(
                f"over the expert's plan{name}", f"{plan.speedup_over_expert:.2f}x", degrees
            )
        extras = "".join(f", {words}" for words in plan_extras(plan))
        yield KeyNumber(
            f"tp x pp x dp{name}",
            degrees_text(plan),
            f"{plan.devices_used:,} devices of {hardware.cluster}, micro-batch "
            f"{plan.micro_batch_size}{extras}",
        )
        largest, seconds = next(iter(exposed_s(plan.breakdown_s).items()))
        most = f"{share(seconds / plan.time_per_batch_s)} {part_text(largest)}"
        yield KeyNumber(f"an iteration{name}", duration(plan.time_per_batch_s), most)


def _proof(best: DesignPoint) -> str:
    if best.optimal:
        return "proven optimal"
    bound = best.certificate.best_open_bound if best.certificate else None
    return "not proven" if bound is None else f"not proven, at most {number(bound)}"


def _asked(run: FinishedRun) -> list[str]:
    asked = run.settings.get("model", [])
    return [str(name).split("=")[0] for name in (asked if isinstance(asked, list) else [asked])]
