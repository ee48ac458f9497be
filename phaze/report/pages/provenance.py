"""Where the numbers of a report come from: inputs, versions, solvers, what was searched, and the
certificate."""

import json
from collections.abc import Mapping
from typing import Any

from GraphExtractor.names import label
from phaze.report.pages.figures import PageTable, Part, table
from phaze.report.pages.formats import duration
from phaze.runs.finished_run import FinishedRun
from phaze.runs.run_directory import Manifest
from phaze.studies.wording import listed, unit_of
from phaze_common.numbers import number
from phaze_common.units import GIB
from Solver.results import Certificate, Counts, DesignPoint

CERTIFICATE_MEANING = (
    "Every design point is either evaluated with its best plan, dominated by a chip that is no "
    "larger and in no layer slower or "
    "more wasteful, pruned because a proven bound shows that it is no better than an evaluated "
    "one in throughput, area and "
    "energy, or infeasible; the counts add up to the space."
)


def provenance(run: FinishedRun) -> tuple[Part, ...]:
    """Inputs, what was searched, certificate, versions and phases of a run."""
    manifest, best, hardware = run.manifest, run.result.best, run.result.hardware
    phases = [
        (phase.name, f"{phase.seconds:.2f}", f"{phase.peak_bytes / GIB:.2f}")
        for phase in manifest.phases
    ]
    phases.append(("all", f"{sum(phase.seconds for phase in manifest.phases):.2f}", ""))
    searched = (
        f"{manifest.point_meaning[0].upper()}{manifest.point_meaning[1:]}.",
        CERTIFICATE_MEANING,
        f"Hardware: {hardware.title} on {hardware.cluster}, software model {hardware.software}.",
        *_certificate_text(best),
        *_solver_text(manifest),
    )
    tables = [counts_table(manifest.counts)]
    if best is not None and best.certificate is not None and best.certificate.schedules:
        tables.append(_confirmations(best.certificate))
    return (
        Part("What was searched, and how sure the answer is", searched, (), tuple(tables)),
        Part(
            "Inputs, versions and time",
            (_code(manifest.git_commit), f"Machine: {manifest.machine}."),
            (),
            (
                inputs_table(run.settings),
                versions_table(manifest.versions),
                table(
                    "Phases of the run",
                    ("phase", "seconds", "peak memory GiB"),
                    phases,
                    words={"phase"},
                ),
            ),
        ),
    )


def _solver_text(manifest: Manifest) -> tuple[str, ...]:
    """Who made the schedules of operators; nothing where no cores are scheduled."""
    if not manifest.schedule_solver:
        return ()
    confirmed = manifest.confirmation_solvers
    also = f" and confirmed as integer programs by {listed(confirmed)}" if confirmed else ""
    return (f"Operator schedules were searched with the {manifest.schedule_solver} solver{also}.",)


def counts_table(counts: Counts) -> PageTable:
    """How many design points there are, and what became of them."""
    rows = [
        ("evaluated", f"{counts.evaluated:,}"),
        ("dominated by another chip", f"{counts.dominated:,}"),
        ("pruned by a proven bound", f"{counts.pruned:,}"),
        ("infeasible", f"{counts.infeasible:,}"),
        ("design points of the space", f"{counts.space:,}"),
        ("plans compared per configuration", f"{counts.plans:,}"),
        *(
            [("shapes of plans closed by a bound before these were listed", f"{counts.unlisted:,}")]
            if counts.unlisted
            else []
        ),
    ]
    return table("Design points", ("what", "number"), rows, words={"what"})


def inputs_table(settings: Mapping[str, Any]) -> PageTable:
    """Settings as they were resolved."""
    rows = [(key, _plain(value)) for key, value in settings.items()]
    return table("Inputs, as in study.yaml", ("setting", "value"), rows, words={"setting", "value"})


def versions_table(versions: Mapping[str, str]) -> PageTable:
    """Versions of everything the numbers depend on."""
    return table(
        "Versions", ("package", "version"), list(versions.items()), words={"package", "version"}
    )


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


def _code(commit: str | None) -> str:
    if commit is None:
        return "The code was not run from a git checkout."
    changed = commit.endswith("+changes")
    changes = ", with changes that were not committed" if changed else ""
    return f"Code: commit {commit.removesuffix('+changes')}{changes}."


def _certificate_text(best: DesignPoint | None) -> tuple[str, ...]:
    if best is None or best.certificate is None:
        return ()
    bound, unit = best.certificate.best_open_bound, unit_of(best)
    if bound is None:
        words = (
            "No point was left to a bound."
            if best.optimal
            else "How much better another point could be is not known."
        )
    else:
        words = (
            f"No point that was pruned can reach more than {number(bound)} {unit}; the "
            f"optimum has {number(best.value)} {unit}."
        )
    return (
        words,
        *(
            f"{label(name)}: {plan.plans_omitted}."
            for name, plan in best.models.items()
            if plan.plans_omitted
        ),
    )


def _confirmations(certificate: Certificate) -> PageTable:
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
        for each in certificate.schedules
    )
    columns = (
        "model",
        "layer",
        "pass",
        "searched",
        "as an integer program",
        "gap",
        "solver",
        "agree",
    )
    words = {"model", "layer", "pass", "solver", "agree"}
    return table("Schedules of the optimum, solved again", columns, rows, words=words)
