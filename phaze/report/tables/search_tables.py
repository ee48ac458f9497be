"""A finished search as tables, and in sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TextIO

from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.sentences import designs
from phaze.report.sentences.answers import answer_sentences, counts_text
from phaze.report.sentences.designs import (
    degrees_text,
    hardware_text,
)
from phaze.report.sentences.known_chips import beyond_limits, missing_sizes
from phaze.report.sentences.stages import heterogeneous_text
from phaze.report.sentences.utilization import mfu_share
from phaze.report.table import Table
from phaze.report.tables.breakdown_table import breakdown_table
from phaze.report.tables.chip_tables import chip_table
from phaze.report.tables.front_tables import front_tables
from phaze.report.tables.heterogeneous_tables import stages_table
from phaze.report.terminal import print_lines, print_tables
from phaze_common import numbers
from phaze_common.numbers import gib, rate
from phaze_common.units import GIB
from Solver.plan_report import PlanReport
from Solver.results import ReferencePoint, SearchResult, SpaceSize

FOUND = frozenset({Status.OPTIMAL, Status.FEASIBLE})


def print_result(result: SearchResult, stream: TextIO, *, wide: bool = False) -> None:
    """Write the answer: optima by size, known chips, where the time goes, what it rests on."""
    best = result.best
    if best is None:
        reason = result.reason or "no design point fits"
        head = f"{result.study}: {result.status.value}; {reason}"
        print_lines([head, counts_text(result)], stream)
    else:
        optimum = optimum_table(result)
        optimum = replace(optimum, title=f"{result.study}: {optimum.title}")
        print_tables([optimum], stream, wide=wide)
        if lacking := missing_sizes(result):
            print_lines([lacking, ""], stream)
        tables = [size_table(result)]
        if result.references:
            known = reference_table(result.references, designs.unit_of(best), beyond_limits(result))
            tables.append(known.without("area mm²", "source"))
        for name, plan in best.models.items():
            tables.append(breakdown_table(plan.breakdown_s, label(name)))
        if best.chip is not None:
            tables.append(chip_table(best.chip))
        print_tables([*tables, *front_tables(result)], stream, wide=wide)
        print_lines(answer_sentences(result, best), stream)
    answer = result.heterogeneous
    if answer is not None and answer.best is not None:
        name = f"{label(answer.model)}, stages that differ"
        stages = stages_table(answer.best.plan, answer.best.stages)
        print_tables([stages, breakdown_table(answer.best.breakdown_s, name)], stream, wide=wide)
    if answer is not None:
        print_lines([heterogeneous_text(answer)], stream)


def optimum_table(result: SearchResult) -> Table:
    """The best accelerator and plan per memory size, one row per model."""
    designed = any(point.accelerator is not None for point in result.per_hbm)
    several = any(len(point.models) > 1 for point in result.per_hbm)
    plans = [plan for point in result.per_hbm for plan in point.models.values()]
    further = any(map(designs.plan_extras, plans))
    rows = []
    for point in result.per_hbm:
        for name, plan in point.models.items():
            own, chip = plan.share_of_own_best, point.accelerator
            cells = {
                "HBM GiB": gib(point.hbm_bytes),
                "accelerator": hardware_text(chip, result.hardware),
                "area mm²": designed and chip is not None and f"{chip.area_mm2:.2f}",
                "model": label(name),
                "micro-batch": str(plan.micro_batch_size),
                "recompute": plan.recompute,
                "tp x pp x dp": degrees_text(plan),
                "further": further and ", ".join(designs.plan_extras(plan)),
                "samples/s": rate(plan.throughput_samples_per_s),
                "of own best": several and ("-" if own is None else numbers.share(own)),
                "MFU": mfu_share(plan.model_flops_utilization),
                "used GiB": f"{plan.memory_bytes / GIB:,.2f}",
                "vs expert": designed and _against_expert(plan),
                "proven": "yes" if point.optimal else "no",
            }
            rows.append({key: cell for key, cell in cells.items() if cell is not False})
    cluster = f"best plan on {result.hardware.cluster}"
    least = ("vs expert", "area mm²", "further", "recompute", "micro-batch", "proven", "used GiB")
    return Table.of(
        "best accelerator and plan per HBM size" if designed else cluster,
        rows,
        words={"accelerator", "model", "recompute", "further"},
        spared=(*([] if several else ["model"]), *least, "MFU"),
    ).merged("HBM GiB")


def size_table(result: SearchResult) -> Table:
    """The best hardware of each model for every memory and micro-batch size."""
    rows: list[dict[str, object]] = []
    for row in result.rows:
        found = row.status in FOUND
        why = f"{row.status.value}: {row.reason}" if row.reason else row.status.value
        rows.append(
            {
                "model": label(row.model),
                "HBM GiB": gib(row.hbm_bytes),
                "micro-batch": str(row.micro_batch_size),
                "accelerator": hardware_text(row.accelerator, result.hardware) if found else why,
                "recompute": row.recompute if found else "",
                "tp x pp x dp": degrees_text(row) if found else "",
                "samples/s": rate(row.throughput_samples_per_s) if found else "",
            }
        )
    one = ["model"] if len({row.model for row in result.rows}) == 1 else []
    return Table.of(
        "per HBM and micro-batch size",
        rows,
        words={"model", "accelerator", "recompute"},
        spared=(*one, "recompute", "tp x pp x dp"),
    ).merged("HBM GiB")


def reference_table(
    references: Sequence[ReferencePoint], unit: str, beyond: Collection[str] = ()
) -> Table:
    """Known chips with their best plans; those ``beyond`` a limit of the study say so."""
    rows = []
    for point in references:
        better, limit = point.best_over_reference, ", beyond a limit" * (point.name in beyond)
        rows.append(
            {
                "chip": point.name,
                "accelerator": designs.accelerator_text(point.accelerator),
                "area mm²": f"{point.accelerator.area_mm2:.2f}",
                "HBM GiB": gib(point.hbm_bytes),
                unit: rate(point.value) if point.status in FOUND else point.status.value,
                "optimum is better by": "-" if better is None else f"{better:.2f}x{limit}",
                "source": point.source,
            }
        )
    return Table.of(
        "known chips, priced the same way",
        rows,
        words={"chip", "accelerator", "source"},
        spared=("accelerator",),
    ).merged("HBM GiB")


def space_table(size: SpaceSize) -> Table:
    """What a study would evaluate."""
    shapes = "layout, degrees in a layer and their places, micro-batch size, recomputation"
    rows: dict[str, object] = {
        "accelerators": size.configurations,
        "memory sizes": size.memory_sizes,
        "micro-batch sizes": size.micro_batch_sizes,
        "models": size.models,
        f"shapes of plans ({shapes})": size.shapes,
        "design points": size.points,
    }
    if size.parts is not None and size.largest_part is not None:
        rows |= {"parts": size.parts, "accelerators of the largest part": size.largest_part}
    plans = "known once the model is traced" if size.plans is None else size.plans
    rows["plans per accelerator and memory size"] = plans
    cells = ({"what": name, "number": count} for name, count in rows.items())
    return Table.of("size of the space", cells, words={"what"})


def _against_expert(plan: PlanReport) -> str:
    if plan.expert is None:
        return "-"
    faster = plan.speedup_over_expert
    if faster is None:
        return plan.expert.status.value
    return f"{faster:.2f}x"
