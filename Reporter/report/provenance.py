"""Where the numbers of a report come from: inputs, versions, solvers, what was searched, and the certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from Common.units import GIB
from GraphExtractor.names import label
from Reporter.report.figures import PageTable, Part, table
from Reporter.report.words import duration
from Solver.results import Counts, DesignPoint
from Studies.finished_run import FinishedPlanSearch, FinishedSearch
from Studies.words import UNITS, listed, number

CERTIFICATE_MEANING = (
    "Every design point is either evaluated with its best placement, pruned because a proven bound shows that it is no better "
    "than an evaluated one in throughput, area and energy, or infeasible; the counts add up to the space."
)


def search_provenance(run: FinishedSearch) -> tuple[Part, ...]:
    """Inputs, what was searched, certificate, versions and phases of a search for accelerators."""
    manifest = run.manifest
    solvers = [f"Operator schedules were searched with the {manifest.schedule_solver} solver"]
    solvers += (
        [f"confirmed as integer programs by {listed(manifest.confirmation_solvers)}"] if manifest.confirmation_solvers else []
    )
    phases = [(phase.name, f"{phase.seconds:.2f}", f"{phase.peak_bytes / GIB:.2f}") for phase in manifest.phases]
    phases.append(("all", f"{sum(phase.seconds for phase in manifest.phases):.2f}", ""))
    searched = (
        f"{manifest.point_meaning[0].upper()}{manifest.point_meaning[1:]}.",
        CERTIFICATE_MEANING,
        *_certificate_words(run.result.best),
        f"{' and '.join(solvers)}.",
    )
    tables = [counts_table(manifest.counts)]
    if run.result.best is not None and run.result.best.certificate is not None:
        tables.append(_confirmations(run.result.best))
    return (
        Part("What was searched, and how sure the answer is", searched, (), tuple(tables)),
        Part(
            "Inputs, versions and time",
            (_code(manifest.git_commit), f"Machine: {manifest.machine}."),
            (),
            (
                inputs_table(run.settings),
                versions_table(manifest.versions),
                table("Phases of the run", ("phase", "seconds", "peak memory GiB"), phases, words={"phase"}),
            ),
        ),
    )


def plan_provenance(run: FinishedPlanSearch) -> tuple[Part, ...]:
    """The same for a search of plans on given devices."""
    manifest, answer = run.manifest, run.answer
    searched = (
        f"{manifest.point_meaning[0].upper()}{manifest.point_meaning[1:]}.",
        "Every plan is either evaluated, pruned because a proven bound shows that it is no faster than an evaluated one, or "
        "infeasible; the counts add up to the space.",
        f"Hardware: {answer.device_title} ({answer.device}) on {answer.cluster}, software model {answer.software}.",
    )
    took = f"The search took {duration(manifest.seconds)} and at most {manifest.peak_bytes / GIB:.2f} GiB of memory."
    return (
        Part("What was searched", searched, (), (counts_table(manifest.counts),)),
        Part(
            "Inputs, versions and time",
            (_code(manifest.git_commit), took),
            (),
            (inputs_table(run.settings), versions_table(manifest.versions)),
        ),
    )


def counts_table(counts: Counts) -> PageTable:
    """How many design points there are, and what became of them."""
    rows = [
        ("evaluated", f"{counts.evaluated:,}"),
        ("pruned by a proven bound", f"{counts.pruned:,}"),
        ("infeasible", f"{counts.infeasible:,}"),
        ("design points of the space", f"{counts.space:,}"),
    ]
    return table("Design points", ("what", "number"), rows, words={"what"})


def inputs_table(settings: Mapping[str, Any]) -> PageTable:
    """Settings as they were resolved."""
    rows = [(key, _plain(value)) for key, value in settings.items()]
    return table("Inputs, as in study.yaml", ("setting", "value"), rows, words={"setting", "value"})


def versions_table(versions: Mapping[str, str]) -> PageTable:
    """Versions of everything the numbers depend on."""
    return table("Versions", ("package", "version"), list(versions.items()), words={"package", "version"})


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value)


def _code(commit: str | None) -> str:
    if commit is None:
        return "The code was not run from a git checkout."
    changed = commit.endswith("+changes")
    return f"Code: commit {commit.removesuffix('+changes')}{', with changes that were not committed' if changed else ''}."


def _certificate_words(best: DesignPoint | None) -> tuple[str, ...]:
    if best is None or best.certificate is None:
        return ()
    bound, unit = best.certificate.best_open_bound, UNITS[best.objective]
    if bound is None:
        words = "No point was left to a bound." if best.optimal else "How much better another point could be is not known."
    else:
        words = (
            f"No point that was pruned can reach more than {number(bound)} {unit}; the optimum has {number(best.value)} {unit}."
        )
    return (words, *(f"{label(name)}: {plan.plans_lost}." for name, plan in best.models.items() if plan.plans_lost))


def _confirmations(best: DesignPoint) -> PageTable:
    assert best.certificate is not None
    rows = (
        (
            label(each.model),
            each.layer,
            each.graph.replace("_", " "),
            duration(each.native_makespan_s),
            duration(each.ilp_makespan_s),
            f"{each.ilp_gap:.1g}",
            each.ilp_solver,
            "yes" if each.agrees else "no",
        )
        for each in best.certificate.schedules
    )
    columns = ("model", "layer", "pass", "searched", "as an integer program", "gap", "solver", "agree")
    words = {"model", "layer", "pass", "solver", "agree"}
    return table("Schedules of the optimum, solved again", columns, rows, words=words)
