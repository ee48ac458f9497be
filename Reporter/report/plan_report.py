"""The report of a search for the best plan on devices that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from Common.units import GB
from GraphExtractor.names import label
from Reporter.report import placement_figures, plan_figures, time_figures
from Reporter.report.charts import REACH_WORDS
from Reporter.report.figures import KeyNumber, Part, Reasons, Report, Section
from Reporter.report.pipeline_figures import pipeline_figures
from Reporter.report.provenance import plan_provenance
from Reporter.report.stages import stages_of
from Reporter.report.words import duration, share
from Studies.explain.explanation import explain
from Studies.words import number, part_words

if TYPE_CHECKING:
    from Solver.plan_search.results import FoundPlan
    from Studies.finished_run import FinishedPlanSearch


def plan_report(run: FinishedPlanSearch) -> Report:
    """The page of ``run``; one that found nothing says why."""
    answer, explanation = run.answer, explain(run)
    provenance = Section("provenance", "Provenance", plan_provenance(run))
    where = f"{answer.device_title}, {answer.cluster}"
    if not answer.models:
        title = f"No plan for {label(str(run.settings.get('model', 'the model')))} fits"
        return Report(title, f"Run {run.folder.name}, {where}, {answer.status.value}", explanation.answer, (), (), (provenance,))
    ((model, plan),) = answer.models.items()
    reasons = (
        Reasons("By how much", explanation.lead),
        Reasons("What limits it", explanation.limits_in_words),
        Reasons("Where the time goes", explanation.time_in_words),
    )
    return Report(
        f"The best plan for {label(model)}",
        f"Run {run.folder.name}, {plan.devices_used:,} x {where}",
        explanation.answer,
        tuple(_numbers(run, plan)),
        tuple(reason for reason in reasons if reason.sentences),
        (*_sections(run, plan), provenance),
    )


def _sections(run: FinishedPlanSearch, plan: FoundPlan) -> Iterator[Section]:
    yield Section("plans", "Throughput and memory of the plans", (Part("", (), (plan_figures.plan_scatter(run, plan),)),))
    choices = plan_figures.choice_figures(run, plan)
    if choices:
        part = Part("", (REACH_WORDS.format(what="plan"),), choices, (plan_figures.choice_table(run),))
        yield Section("choices", "What each choice of the plan allows", (part,))
    stages, limit = stages_of(plan), run.answer.device_memory_bytes
    figures = (
        placement_figures.load_figure(stages, ""),
        placement_figures.memory_figure(stages, limit, "GB", GB, ""),
    )
    tables = (placement_figures.stage_table(stages, limit, "GB", GB),)
    yield Section("placement", "Placement on the devices", (Part("", (), figures, tables),))
    bar = time_figures.IterationBar("optimum", time_figures.term_seconds(plan.breakdown_s), plan.throughput_samples_per_s)
    hidden = {
        "tensor-parallel": plan.breakdown_s.hidden_tensor_communication_s,
        "data-parallel": plan.breakdown_s.hidden_data_communication_s,
    }
    beside = tuple(
        f"{duration(seconds)} of {what} communication runs beside computation." for what, seconds in hidden.items() if seconds
    )
    yield Section(
        "iteration", "Where the time of an iteration goes", (Part("", beside, (time_figures.breakdown_figure([bar], ""),)),)
    )
    yield Section("pipeline", "Pipeline timeline", (Part("", (), pipeline_figures(plan, "")),))


def _numbers(run: FinishedPlanSearch, plan: FoundPlan) -> Iterator[KeyNumber]:
    proof = "proven optimal" if run.answer.optimal else "not proven"
    yield KeyNumber("throughput", f"{number(plan.throughput_samples_per_s)} samples/s", proof)
    degrees = f"{plan.tp} x {plan.pp} x {plan.dp}"
    chunks = f", {plan.interleave} chunks per stage" if plan.interleave > 1 else ""
    yield KeyNumber("tp x pp x dp", degrees, f"micro-batch {plan.micro_batch_size}{chunks}")
    terms = time_figures.term_seconds(plan.breakdown_s)
    largest = max(terms, key=lambda term: terms[term])
    most = f"{share(terms[largest] / plan.time_per_batch_s)} {part_words(largest)}"
    yield KeyNumber("an iteration", duration(plan.time_per_batch_s), most)
    yield KeyNumber("model FLOPs utilisation", share(plan.model_flops_utilization), f"{plan.tokens_per_s:,.0f} tokens/s")
    fullest = max(chunk.memory_bytes for chunk in plan.stages)
    limit = run.answer.device_memory_bytes
    yield KeyNumber("memory of the fullest stage", f"{fullest / GB:.1f} GB", f"{share(fullest / limit)} of {limit / GB:.4g} GB")
