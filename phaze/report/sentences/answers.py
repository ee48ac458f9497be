"""The answer of a search and what it rests on, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from Estimator.coverage import words_of
from Estimator.plans.axes import BY_ITSELF, plan_axis
from GraphExtractor.names import label
from phaze.report.sentences.designs import (
    ALONG_THE_CRITICAL_PATH,
    bought_text,
    exposed_s,
    hardware_text,
    hidden_s,
    part_text,
    tight_memory_text,
    unit_of,
    whole_plan_text,
)
from phaze.report.sentences.known_chips import better_beyond
from phaze.report.sentences.utilization import mfu_note, mfu_share
from phaze.settings.request import uneven_batch
from phaze_common.numbers import FINE_DIGITS, gib, number, percent, stage_memory_text, time_text
from Solver.chip_records import ChipPart, ChipReport
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint, PlansInNoise, SearchResult

GIGA = 1e9
SWITCHED = {"True": "on", "False": "off"}
WORTH_A_WORD = 0.0005  # of an iteration: what is 0.1% when rounded


def answer_sentences(result: SearchResult, best: DesignPoint) -> Iterator[str]:
    """The answer and what it rests on."""
    hardware = hardware_text(best.accelerator, result.hardware)
    memory = f" with {gib(best.hbm_bytes)} GiB"  # which a title says where it was asked for
    yield (
        f"best: {hardware if memory in hardware else f'{hardware}{memory} HBM'}, "
        f"{best.objective.value.replace('_', ' ')} {number(best.value, FINE_DIGITS)} "
        f"{unit_of(best)}, {proof_text(best)}"
    )
    if beyond := better_beyond(result):
        yield beyond
    plans = [(label(name), plan) for name, plan in best.models.items()]
    for name, plan in plans:
        memory = stage_memory_text(plan.memory_bytes, plan.hbm_bytes)
        utilization = plan.model_flops_utilization
        note = mfu_note(utilization, plan.all_scores_flops_utilization, plan.sequence_length)
        yield (
            f"{name}: {whole_plan_text(plan)}; MFU {mfu_share(utilization)}, {note}; "
            f"the fullest stage uses {memory}"
        )
    if result.tight_memory is not None:
        yield f"warning: {tight_memory_text(result.tight_memory, best)}"
    for name, plan in plans:
        if uneven := uneven_batch(plan.global_batch_size, plan.micro_batch_size, plan.dp):
            yield (
                f"{name}: {uneven}; training frameworks refuse such plans "
                "(--whole-micro-batches leaves them out)"
            )
        if plan.placement is not None:
            yield from (f"{name}: {sentence}" for sentence in plan.placement.sentences)
    for name, plan in plans:
        yield _explained(name, plan)
        for interval in plan.time_intervals[:1]:
            ends = (plan.global_batch_size / each for each in (interval.high_s, interval.low_s))
            low, high = (number(end, 3) for end in ends)
            yield (
                f"{name}: {low} to {high} samples/s are measured with {interval.nominal:.0%} "
                f"certainty, by {'; '.join(interval.reasons)}"
            )
    if best.chip is not None:
        yield from chip_sentences(best.chip)
    if best.accelerator is not None:
        yield ALONG_THE_CRITICAL_PATH
    for name, plan in plans:
        if plan.price_sources is not None:
            yield f"{name}: {plan.price_sources.words}"
        if plan.priced_by_bytes:
            yield f"{name}: priced by bytes alone: {words_of(plan.priced_by_bytes)}"
    yield from (f"{name}: {plan.plans_omitted}" for name, plan in plans if plan.plans_omitted)
    if result.in_noise is not None:
        yield in_noise_text(result.in_noise)
    yield counts_text(result)
    yield f"files: {result.run_directory}"


def chip_sentences(report: ChipReport) -> Iterator[str]:
    """The chip as a whole, and its use by every model."""
    dies = "one die" if report.dies == 1 else f"{report.dies} dies"
    clock = f"{number(report.frequency_hz / GIGA)} GHz at {report.voltage_v:.2f} V"
    has_server = any(part.name == "server" for part in report.embodied_kg)
    yield (
        f"chip: {number(total_of(report.area_mm2))} mm² in {dies}, {clock}; at most "
        f"{number(total_of(report.peak_w))} W; {number(total_of(report.cost_usd))} $ by itself, "
        f"{number(report.owning_usd)} $ with its share of servers and network; "
        f"{number(total_of(report.embodied_kg))} kg CO2e embodied"
        f"{' with its share of the server' if has_server else ''}"
    )
    for model, use in report.uses.items():
        others = "for the optimizer, gradients and messages between stages"
        beside = f" and {number(use.beside_j)} J {others}" if use.beside_j else ""
        yield (
            f"{label(model)}: {number(use.average_w)} W per chip on average, "
            f"{number(use.sample_j)} J per sample{beside}; "
            f"a million tokens cost {number(use.usd_per_million_tokens)} $ and "
            f"{number(use.kg_per_million_tokens)} kg CO2e on the whole cluster"
        )
        if use.bought is not None:
            yield f"{label(model)}: {bought_text(use.bought)}"


def total_of(parts: tuple[ChipPart, ...]) -> float:
    """The whole of its parts."""
    return sum(part.amount for part in parts)


def proof_text(point: DesignPoint) -> str:
    """How sure it is that nothing is better."""
    if point.optimal:
        return "proven optimal over the whole space"
    bound = point.certificate.best_open_bound if point.certificate else None
    within = ""
    if bound is not None and any(plan.plans_omitted for plan in point.models.values()):
        within = f", within {percent(1.0 - point.value / bound)} of the best there can be"
    return f"not proven optimal ({point.status.value}{within})"


def in_noise_text(close: PlansInNoise) -> str:
    """How many plans cannot be told from the best, and what they have in common, in a sentence."""
    noise = percent(close.noise)
    if close.plans <= 1 and not close.closed_shapes:
        return (
            f"no other plan is within {noise} of the best, which is as far as predictions can "
            "tell plans apart"
        )
    alike = [
        _values_text(name, (value,))
        for name, value in close.alike.items()
        if value not in (str(plan_axis(name).of(BY_ITSELF)), "False")
    ]
    varied = [_values_text(name, values) for name, values in close.varied.items()]
    those, closed = "the best plan alone is", ""
    if close.plans > 1:
        those = f"{close.plans:,} plans (the best among them) are"
    if close.closed_shapes:
        shapes = f"{close.closed_shapes:,} shapes of which only a bound is known"
        closed = f", and perhaps those of {shapes}"
    said = [f"all have {', '.join(alike)}"] if alike else []
    said += [f"they differ in {', '.join(varied)}"] if varied else []
    return (
        f"{those} within {noise} of the best as far as is known{closed}; predictions cannot tell "
        f"these apart{': ' if said else ''}{'; '.join(said)}"
    )


def _values_text(key: str, values: Sequence[str]) -> str:
    """Values of an axis behind its name: ``pp 4 or 8``, ``overlap of gradients off or on``."""
    axis = plan_axis(key)
    shown = " or ".join(SWITCHED.get(value, value) for value in values)
    return f"{key if axis.is_symbol else axis.axis.title} {shown}"


def _explained(name: str, plan: PlanReport) -> str:
    """Where the time of an iteration goes, the largest part first; hidden communication apart."""
    total_s, exposed = plan.time_per_batch_s, exposed_s(plan.breakdown_s)

    def shares(parts: dict[str, float]) -> str:
        return ", ".join(f"{part_text(part)} {each / total_s:.1%}" for part, each in parts.items())

    shown = {part: each for part, each in exposed.items() if each >= WORTH_A_WORD * total_s}
    hidden = shares(hidden_s(plan.breakdown_s))
    beside = f"; hidden beside computation: {hidden}" if hidden else ""
    return f"{name}: {time_text(total_s)} per batch = {shares(shown)}{beside}"


def counts_text(result: SearchResult) -> str:
    """How many design points there were, and what became of them."""
    counts = result.counts
    points = "design point" if counts.space == 1 else "design points"
    what = "shapes" if result.hardware.device is not None else "points"
    unlisted = f"; all plans of {counts.unlisted:,} {what} closed by one bound"
    return (
        f"{counts.space:,} {points}: {counts.evaluated:,} evaluated, {counts.dominated:,} "
        f"dominated, {counts.pruned:,} pruned by bounds, {counts.infeasible:,} infeasible; "
        f"{counts.plans:,} plans compared per configuration{unlisted if counts.unlisted else ''}"
    )
