"""A finished search as tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TextIO

from Estimator.coverage import words_of
from Estimator.plans.results import Breakdown, Status
from GraphExtractor.names import label
from phaze.report.conventions import mfu_note, mfu_share
from phaze.report.tables.chip_tables import chip_sentences, chip_table
from phaze.report.tables.front_tables import front_tables
from phaze.report.tables.heterogeneous_tables import stages_table
from phaze.report.tables.text_tables import TextTable, new_table, print_lines, print_tables
from phaze.settings.request import uneven_batch
from phaze.studies.remarks import better_beyond, beyond_limits, missing_sizes
from phaze.studies.stages_in_words import heterogeneous_text
from phaze.studies.wording import (
    ALONG_THE_CRITICAL_PATH,
    NEGLIGIBLE,
    accelerator_text,
    degrees_text,
    exposed_s,
    hardware_text,
    hidden_s,
    part_text,
    plan_extras,
    tight_memory_text,
    unit_of,
    whole_plan_text,
)
from phaze_common.numbers import (
    FINE_DIGITS,
    gib,
    number,
    percent,
    rate,
    share,
    stage_memory_text,
    time_text,
)
from phaze_common.units import GIB
from Solver.results import (
    DesignPoint,
    HeterogeneousAnswer,
    ModelPlan,
    PlansInNoise,
    ReferencePoint,
    SearchResult,
    SizeRow,
    SpaceSize,
)

MS = 1e-3
WORTH_A_WORD = 0.0005  # of an iteration: what is 0.1% when rounded
FOUND = frozenset({Status.OPTIMAL, Status.FEASIBLE})
_SAYS_MEMORY = re.compile(r" with [\d.,]+ GiB\b")


def print_result(result: SearchResult, stream: TextIO, *, wide: bool = False) -> None:
    """Write the answer: the optimum per memory size, per micro-batch size, references, where the
    time goes, what it rests on."""
    differing = result.heterogeneous
    if result.best is None:
        print_lines(
            [
                f"{result.study}: {result.status.value}; {result.reason or 'no design point fits'}",
                _counted(result),
            ],
            stream,
        )
        if differing is not None:
            _print_stages_that_differ(differing, stream, wide=wide)
        return
    best = result.best
    print_tables([optimum_table(result)], stream, wide=wide)
    lacking = missing_sizes(result)
    if lacking:
        print_lines([lacking, ""], stream)
    tables = [size_table(result)]
    if result.references:
        tables.append(reference_table(result.references, unit_of(best), beyond_limits(result)))
    tables += [breakdown_table(plan.breakdown_s, label(name)) for name, plan in best.models.items()]
    if best.chip is not None:
        tables.append(chip_table(best.chip))
    tables += front_tables(result)
    print_tables(tables, stream, wide=wide)
    print_lines(_sentences(result, best), stream)
    if differing is not None:
        _print_stages_that_differ(differing, stream, wide=wide)


def _print_stages_that_differ(answer: HeterogeneousAnswer, stream: TextIO, *, wide: bool) -> None:
    if answer.best is not None:
        tables = [
            stages_table(answer.best.plan, answer.best.stages),
            breakdown_table(answer.best.breakdown_s, f"{label(answer.model)}, stages that differ"),
        ]
        print_tables(tables, stream, wide=wide)
    print_lines([heterogeneous_text(answer)], stream)


def _sentences(result: SearchResult, best: DesignPoint) -> Iterator[str]:
    """The answer and what it rests on."""
    yield (
        f"best: {_equipped(hardware_text(best.accelerator, result.hardware), best.hbm_bytes)}, "
        f"{best.objective.value.replace('_', ' ')} {number(best.value, FINE_DIGITS)} "
        f"{unit_of(best)}, {_proof(best)}"
    )
    beyond = better_beyond(result)
    if beyond:
        yield beyond
    for name, plan in best.models.items():
        memory = stage_memory_text(plan.memory_bytes, plan.hbm_bytes)
        note = mfu_note(
            plan.model_flops_utilization, plan.all_scores_flops_utilization, plan.sequence_length
        )
        utilised = f"MFU {mfu_share(plan.model_flops_utilization)}, {note}"
        yield f"{label(name)}: {whole_plan_text(plan)}; {utilised}; the fullest stage uses {memory}"
    if result.tight_memory is not None:
        yield f"warning: {tight_memory_text(result.tight_memory, best)}"
    for name, plan in best.models.items():
        uneven = uneven_batch(plan.global_batch_size, plan.micro_batch_size, plan.dp)
        if uneven:
            yield (
                f"{label(name)}: {uneven}; training frameworks refuse such plans "
                "(--whole-micro-batches leaves them out)"
            )
        if plan.placement is not None:
            yield from (f"{label(name)}: {sentence}" for sentence in plan.placement.sentences)
    for name, plan in best.models.items():
        yield _explained(label(name), plan)
        yield from _sure(label(name), plan)
    if best.chip is not None:
        yield from chip_sentences(best.chip)
    if best.accelerator is not None:
        yield ALONG_THE_CRITICAL_PATH
    for name, plan in best.models.items():
        if plan.price_sources is not None:
            yield f"{label(name)}: {plan.price_sources.words}"
        if plan.priced_by_bytes:
            yield f"{label(name)}: priced by bytes alone: {words_of(plan.priced_by_bytes)}"
    yield from (
        f"{label(name)}: {plan.plans_omitted}"
        for name, plan in best.models.items()
        if plan.plans_omitted
    )
    if result.in_noise is not None:
        yield in_noise_text(result.in_noise)
    yield _counted(result)
    yield f"files: {result.run_directory}"


def _equipped(hardware: str, memory_bytes: float) -> str:
    """Hardware with its memory, which the title of a device says already where its size was asked
    for."""
    return (
        hardware
        if _SAYS_MEMORY.search(hardware)
        else f"{hardware} with {memory_text(memory_bytes)} GiB HBM"
    )


def memory_text(size_bytes: float) -> str:
    """Memory of a device in GiB."""
    return gib(size_bytes)


def merged(rows: Sequence[tuple[str, ...]], column: int) -> list[tuple[str, ...]]:
    """Rows that differ in one column alone as one, with all its values, where the first of them
    stands."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        alike.setdefault((*row[:column], *row[column + 1 :]), []).append(row[column])
    return [
        (*rest[:column], ", ".join(dict.fromkeys(values)), *rest[column:])
        for rest, values in alike.items()
    ]


def optimum_table(result: SearchResult) -> TextTable:
    """The best accelerator and plan per memory size, one row per model."""
    designed = any(point.accelerator is not None for point in result.per_hbm)
    several = any(len(point.models) > 1 for point in result.per_hbm)
    further = any(plan_extras(plan) for point in result.per_hbm for plan in point.models.values())
    columns = (
        "HBM GiB",
        "accelerator",
        *(["area mm²"] if designed else []),
        "model",
        "micro-batch",
        "recompute",
        "tp x pp x dp",
        *(["further"] if further else []),
        "samples/s",
        *(["of own best"] if several else []),
        "MFU",
        "used GiB",
        *(["vs expert"] if designed else []),
        "proven",
    )
    what = (
        "best accelerator and plan per HBM size"
        if designed
        else f"best plan on {result.hardware.cluster}"
    )
    one = [] if several else ["model"]
    spared = (
        *one,
        "vs expert",
        "area mm²",
        "further",
        "recompute",
        "micro-batch",
        "proven",
        "used GiB",
        "MFU",
    )
    words = {"accelerator", "model", "recompute", "further"}
    table = new_table(f"{result.study}: {what}", columns, words=words, spared=spared)
    rows = [
        (
            memory_text(point.hbm_bytes),
            hardware_text(point.accelerator, result.hardware),
            *([f"{point.accelerator.area_mm2:.2f}"] if point.accelerator is not None else []),
            label(name),
            str(plan.micro_batch_size),
            plan.recompute,
            degrees_text(plan),
            *([", ".join(plan_extras(plan))] if further else []),
            rate(plan.throughput_samples_per_s),
            *(
                ["-" if plan.share_of_own_best is None else share(plan.share_of_own_best)]
                if several
                else []
            ),
            mfu_share(plan.model_flops_utilization),
            f"{plan.memory_bytes / GIB:,.2f}",
            *([_against_expert(plan)] if designed else []),
            "yes" if point.optimal else "no",
        )
        for point in result.per_hbm
        for name, plan in point.models.items()
    ]
    for row in merged(rows, columns.index("HBM GiB")):
        table.add_row(*row)
    return table


def size_table(result: SearchResult) -> TextTable:
    """The best hardware of each model for every memory and micro-batch size."""
    columns = (
        "model",
        "HBM GiB",
        "micro-batch",
        "accelerator",
        "recompute",
        "tp x pp x dp",
        "samples/s",
    )
    one = ["model"] if len({row.model for row in result.rows}) == 1 else []
    words = {"model", "accelerator", "recompute"}
    table = new_table(
        "per HBM and micro-batch size",
        columns,
        words=words,
        spared=(*one, "recompute", "tp x pp x dp"),
    )
    for cells in merged(
        [_size_cells(result, row) for row in result.rows], columns.index("HBM GiB")
    ):
        table.add_row(*cells)
    return table


def _size_cells(result: SearchResult, row: SizeRow) -> tuple[str, ...]:
    size = (label(row.model), memory_text(row.hbm_bytes), str(row.micro_batch_size))
    if row.status not in FOUND:
        return (
            *size,
            f"{row.status.value}: {row.reason}" if row.reason else row.status.value,
            "",
            "",
            "",
        )
    plan = (row.recompute, degrees_text(row), rate(row.throughput_samples_per_s))
    return (*size, hardware_text(row.accelerator, result.hardware), *plan)


def reference_table(
    references: Sequence[ReferencePoint], unit: str, beyond: Collection[str] = ()
) -> TextTable:
    """Known chips under the same model, each with the best plan on it; those ``beyond`` a limit of
    the study say so."""
    columns = ("chip", "accelerator", "HBM GiB", unit, "optimum is better by")
    table = new_table(
        "known chips, priced the same way",
        columns,
        words={"chip", "accelerator"},
        spared=("accelerator",),
    )
    rows = [
        (
            point.name,
            accelerator_text(point.accelerator),
            memory_text(point.hbm_bytes),
            rate(point.value) if point.status in FOUND else point.status.value,
            _better_by(point, beyond),
        )
        for point in references
    ]
    for row in merged(rows, columns.index("HBM GiB")):
        table.add_row(*row)
    return table


def _better_by(point: ReferencePoint, beyond: Collection[str]) -> str:
    if point.best_over_reference is None:
        return "-"
    return f"{point.best_over_reference:.2f}x{', beyond a limit' if point.name in beyond else ''}"


def breakdown_table(breakdown: Breakdown, model: str) -> TextTable:
    """Seconds of the busiest stage, the largest part first, and what they add up to; below, what
    costs no time.

    Each number is rounded by itself, so that it is the one of the file; where their sum seems a
    digit off, the title says so.
    """
    total_s = breakdown.total_s
    decimals = milliseconds_decimals(total_s)
    parts = {
        name: seconds
        for name, seconds in exposed_s(breakdown).items()
        if seconds > NEGLIGIBLE * total_s
    }
    off = round(
        sum(round(seconds / MS, decimals) for seconds in parts.values())
        - round(total_s / MS, decimals),
        decimals,
    )
    title = f"{model}: where the time goes" + (", each number rounded by itself" if off else "")
    table = new_table(title, ("part", "ms", "share"), words={"part"})
    for name, seconds in parts.items():
        table.add_row(part_text(name), f"{seconds / MS:,.{decimals}f}", f"{seconds / total_s:.1%}")
    table.add_section()
    table.add_row("iteration", f"{total_s / MS:,.{decimals}f}", "100.0%")
    table.add_section()
    for name, seconds in hidden_s(breakdown).items():
        table.add_row(
            f"hidden {part_text(name)}", f"{seconds / MS:,.{decimals}f}", f"{seconds / total_s:.1%}"
        )
    return table


def milliseconds_decimals(seconds: float) -> int:
    """Decimals of milliseconds that show ``seconds`` to about five figures."""
    milliseconds = seconds / MS
    return next((decimals for decimals in range(6) if milliseconds * 10**decimals >= 1e4), 6)


def space_table(size: SpaceSize) -> TextTable:
    """What a study would evaluate."""
    table = new_table("size of the space", ("what", "number"), words={"what"})
    rows = {
        "accelerators": size.configurations,
        "memory sizes": size.memory_sizes,
        "micro-batch sizes": size.micro_batch_sizes,
        "models": size.models,
        "shapes of plans (layout, degrees in a layer and their places, micro-batch size, "
        "recomputation)": size.shapes,
        "design points": size.points,
    }
    if size.parts is not None and size.largest_part is not None:
        rows |= {"parts": size.parts, "accelerators of the largest part": size.largest_part}
    for name, count in rows.items():
        table.add_row(name, f"{count:,}")
    plans = "known once the model is traced" if size.plans is None else f"{size.plans:,}"
    table.add_row("plans per accelerator and memory size", plans)
    return table


def _against_expert(plan: ModelPlan) -> str:
    if plan.expert is None:
        return "-"
    return (
        f"{plan.speedup_over_expert:.2f}x"
        if plan.speedup_over_expert is not None
        else plan.expert.status.value
    )


def _proof(point: DesignPoint) -> str:
    if point.optimal:
        return "proven optimal over the whole space"
    bound = point.certificate.best_open_bound if point.certificate else None
    if bound is not None and any(plan.plans_omitted for plan in point.models.values()):
        return (
            f"not proven optimal ({point.status.value}, within "
            f"{percent(1.0 - point.value / bound)} of the best there can be)"
        )
    return f"not proven optimal ({point.status.value})"


def in_noise_text(close: PlansInNoise) -> str:
    """How many plans cannot be told from the best, and what they have in common, in a sentence."""
    if close.plans <= 1 and not close.closed_shapes:
        return (
            f"no other plan is within {percent(close.noise)} of the best, which is as far as "
            "predictions can tell plans apart"
        )
    alike = ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in close.alike.items()
        if value not in ("1", "False")
    )
    varied = ", ".join(
        f"{name.replace('_', ' ')} {' or '.join(values)}" for name, values in close.varied.items()
    )
    closed = f", and perhaps those of {close.closed_shapes:,} shapes of which only a bound is known"
    shapes = closed if close.closed_shapes else ""
    count = (
        f"{close.plans:,} plans (the best among them) are"
        if close.plans > 1
        else "the best plan alone is"
    )
    return (
        f"{count} within {percent(close.noise)} of the best as far as is known{shapes}; "
        "predictions cannot tell these apart: "
        f"all have {alike or 'nothing in common'}"
        + (f"; they differ in {varied}" if varied else "")
    )


def _sure(name: str, plan: ModelPlan) -> Iterator[str]:
    """How sure the time is, in one sentence."""
    if plan.time_intervals:
        first = plan.time_intervals[0]
        low, high = (
            number(plan.global_batch_size / each, 3) for each in (first.high_s, first.low_s)
        )
        yield (
            f"{name}: {low} to {high} samples/s are measured with {first.nominal:.0%} "
            f"certainty, by {'; '.join(first.reasons)}"
        )


def _explained(name: str, plan: ModelPlan) -> str:
    """Where the time of an iteration goes, the largest part first; communication that costs no time
    apart."""
    total_s = plan.time_per_batch_s
    shown = {
        part: seconds
        for part, seconds in exposed_s(plan.breakdown_s).items()
        if seconds >= WORTH_A_WORD * total_s
    }
    shares = ", ".join(
        f"{part_text(part)} {seconds / total_s:.1%}" for part, seconds in shown.items()
    )
    hidden = ", ".join(
        f"{part_text(part)} {seconds / total_s:.1%}"
        for part, seconds in hidden_s(plan.breakdown_s).items()
    )
    return f"{name}: {time_text(total_s)} per batch = {shares}" + (
        f"; hidden beside computation: {hidden}" if hidden else ""
    )


def _counted(result: SearchResult) -> str:
    counts = result.counts
    closed = (
        f"{counts.evaluated:,} evaluated, {counts.dominated:,} dominated, {counts.pruned:,} "
        "pruned by bounds, "
        f"{counts.infeasible:,} infeasible"
    )
    points = "design point" if counts.space == 1 else "design points"
    what = "shapes" if result.hardware.device is not None else "points"
    unlisted = (
        f"; all plans of {counts.unlisted:,} {what} closed by one bound" if counts.unlisted else ""
    )
    return (
        f"{counts.space:,} {points}: {closed}; {counts.plans:,} plans compared per "
        f"configuration{unlisted}"
    )
