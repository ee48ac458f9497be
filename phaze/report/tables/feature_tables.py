"""What features of the software are worth to a plan, as tables and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.sentences.designs import plan_extras, plan_text
from phaze.report.table import Table
from phaze.report.tables.training_tables import (
    devices_text,
    evaluation_mapping,
    fullest_memory_text,
    panel,
    plain,
)
from phaze_common.numbers import FINE_DIGITS, number
from phaze_common.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phaze.settings.launched import LaunchReading
    from phaze.studies.explain.features import FeatureChange, PlanFeatures
    from phaze.studies.explain.worst_load import MostLoad

ROUNDS = "changes number formats"


def features_json(found: PlanFeatures, launch: LaunchReading | None = None) -> str:
    """The plan as ``evaluate`` writes it, and what each change makes of it."""
    whole = {
        "evaluated": evaluation_mapping(found.plan, None, launch),
        "changes": plain(found.changes),
        "together": plain(found.together),
        "impossible": plain(found.impossible),
        "without_effect": found.without_effect,
        "most_load": plain(found.most_load),
    }
    return json.dumps(whole, indent=2)


def features_tables(found: PlanFeatures) -> list[Table]:
    """The plan, the changes that help most together, and every change alone."""
    tables = [_plan_table(found)]
    if found.together:
        title = "what helps most, each change with those above it"
        tables.append(changes_table(title, found.together))
    if found.changes:
        tables.append(changes_table("every feature changed alone", found.changes))
    return tables


def changes_table(title: str, changes: Sequence[FeatureChange]) -> Table:
    """A row for each change: what it was and is, its seconds and its memory."""
    rows = []
    for each in changes:
        if each.iteration_s is None or each.faster is None or each.memory_bytes is None:
            continue
        row = {
            "feature": each.title,
            "has": each.now,
            "instead": each.instead,
            "iteration s": number(each.iteration_s, FINE_DIGITS),
            "time": f"{1.0 / each.faster - 1.0:+.1%}",
            "memory GiB": f"{each.memory_bytes / GIB:,.1f}",
            "fits": "yes" if each.fits else "no",
        }
        rows.append(row | {"and": ROUNDS if each.rounds else ""})
    spared = () if any(row["and"] for row in rows) else ("and",)
    if spared:
        rows = [{name: text for name, text in row.items() if name != "and"} for row in rows]
    return Table.of(title, rows, words={"feature", "has", "instead", "fits", "and"})


def _plan_table(found: PlanFeatures) -> Table:
    evaluation = found.plan
    iteration, hardware = evaluation.iteration, evaluation.hardware
    plan = evaluation.uniform
    reason = f": {iteration.reason}" if iteration.status is Status.INFEASIBLE else ""
    used = iteration.memory_bytes, evaluation.machine.memory_bytes, iteration.allocated_bytes
    chosen = ", ".join([plan_text(plan), *plan_extras(plan)])
    rows = {
        "status": f"{iteration.status.value}{reason}",
        "devices": f"{devices_text(iteration.devices, hardware, plan)}: {chosen}",
        "iteration": f"{number(iteration.iteration_s, FINE_DIGITS)} s",
        "memory of the fullest stage": fullest_memory_text(*used),
    }
    if found.most_load is not None:
        rows["memory lasts to"] = _load_text(found.most_load)
    if iteration.status is Status.INFEASIBLE and not found.together:
        rows["what helps"] = _no_single_change(found)
    if found.without_effect:
        rows["without effect here"] = ", ".join(found.without_effect)
    if found.impossible:
        some = (f"{each.key} {each.instead}" for each in found.impossible)
        rows["not possible here"] = f"{', '.join(some)} (--format json says why)"
    return panel(f"{label(evaluation.plan.model)} under {hardware.software}", rows)


def _load_text(most: MostLoad) -> str:
    if most.every:
        return "any routing, all tokens on one device of each expert-parallel group too"
    return (
        f"{most.load:g} times the mean of tokens on the busiest device of an expert-parallel group "
        "(--expert-load)"
    )


def _no_single_change(found: PlanFeatures) -> str:
    """That no change makes a plan fit, which comes nearest, and what else may."""
    capacity = found.plan.machine.memory_bytes
    sized = [each for each in found.changes if each.memory_bytes is not None]
    least = min(sized, key=lambda each: each.memory_bytes or 0.0, default=None)
    nearest = ""
    if least is not None and least.memory_bytes is not None:
        sizes = f"{least.memory_bytes / GIB:,.1f} of {capacity / GIB:,.1f} GiB"
        nearest = f"; {least.title} {least.instead} comes nearest, with {sizes}"
    return (
        f"no change of one feature makes the plan fit{nearest}: change its degrees or its "
        "micro-batch, or let evaluate --best search a plan"
    )
