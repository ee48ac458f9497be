"""Where numbers of a report come from: inputs, versions, solvers, the search, its certificate."""

import json
from collections.abc import Mapping

from GraphExtractor.names import label
from phaze.report.pages.figures import Part
from phaze.report.sentences.designs import capitalised, listed, unit_of
from phaze.report.table import Table
from phaze.runs.finished_run import FinishedRun
from phaze.runs.run_directory import Manifest
from phaze_common.numbers import number, time_text
from phaze_common.units import GIB
from Solver.results import Certificate, Counts, DesignPoint

CERTIFICATE_MEANING = (
    "Every design point is either evaluated with its best plan, dominated by a chip that is no "
    "larger and in no layer slower or more wasteful, pruned because a proven bound shows that it "
    "is no better than an evaluated one in throughput, area and energy, or infeasible; the counts "
    "add up to the space."
)


def provenance(run: FinishedRun) -> tuple[Part, ...]:
    """Inputs, what was searched, certificate, versions and phases of a run."""
    manifest, best, hardware = run.manifest, run.result.best, run.result.hardware
    searched = (
        f"{capitalised(manifest.point_meaning)}.",
        CERTIFICATE_MEANING,
        f"Hardware: {hardware.title} on {hardware.cluster}, software model {hardware.software}.",
        *_certificate_text(best),
        *_solver_text(manifest),
    )
    tables = [counts_table(manifest.counts)]
    if best is not None and best.certificate is not None and best.certificate.schedules:
        tables.append(_confirmations(best.certificate))
    rows = [(each.name, each.seconds, f"{each.peak_bytes / GIB:.2f}") for each in manifest.phases]
    rows.append(("all", sum(phase.seconds for phase in manifest.phases), ""))
    phases = (
        {"phase": name, "seconds": f"{seconds:.2f}", "peak memory GiB": peak}
        for name, seconds, peak in rows
    )
    settings = {key: _plain(value) for key, value in run.settings.items()}
    origin = (
        _pairs("Inputs, as in study.yaml", "setting", "value", settings),
        _pairs("Versions", "package", "version", manifest.versions),
        Table.of("Phases of the run", phases, words={"phase"}),
    )
    machine = (_code(manifest.git_commit), f"Machine: {manifest.machine}.")
    return (
        Part("What was searched, and how sure the answer is", searched, (), tuple(tables)),
        Part("Inputs, versions and time", machine, (), origin),
    )


def _pairs(title: str, what: str, value: str, pairs: Mapping[str, str]) -> Table:
    rows = ({what: key, value: each} for key, each in pairs.items())
    return Table.of(title, rows, columns=(what, value), words={what, value})


def _solver_text(manifest: Manifest) -> tuple[str, ...]:
    """Who made the schedules of operators; nothing where no cores are scheduled."""
    if not manifest.schedule_solver:
        return ()
    confirmed = manifest.confirmation_solvers
    also = f" and confirmed as integer programs by {listed(confirmed)}" if confirmed else ""
    return (f"Operator schedules were searched with the {manifest.schedule_solver} solver{also}.",)


def counts_table(counts: Counts) -> Table:
    """How many design points there are, and what became of them."""
    found = {
        "evaluated": counts.evaluated,
        "dominated by another chip": counts.dominated,
        "pruned by a proven bound": counts.pruned,
        "infeasible": counts.infeasible,
        "design points of the space": counts.space,
        "plans compared per configuration": counts.plans,
    }
    if counts.unlisted:
        found["shapes of plans closed by a bound before these were listed"] = counts.unlisted
    rows = ({"what": what, "number": count} for what, count in found.items())
    return Table.of("Design points", rows, words={"what"})


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
    words = (
        f"No point that was pruned can reach more than {number(bound or 0.0)} {unit}; the optimum "
        f"has {number(best.value)} {unit}."
    )
    if bound is None:
        words = "How much better another point could be is not known."
        if best.optimal:
            words = "No point was left to a bound."
    plans = ((label(name), plan.plans_omitted) for name, plan in best.models.items())
    return words, *(f"{name}: {omitted}." for name, omitted in plans if omitted)


def _confirmations(certificate: Certificate) -> Table:
    rows = (
        {
            "model": label(each.model),
            "layer": each.layer,
            "pass": each.graph.replace("_", " "),
            "searched": time_text(each.native_makespan_s),
            "as an integer program": time_text(each.ilp_makespan_s),
            "gap": f"{each.ilp_gap:.1g}",
            "solver": each.ilp_solver,
            "agree": "yes" if each.agrees else "no",
        }
        for each in certificate.schedules
    )
    words = {"model", "layer", "pass", "solver", "agree"}
    return Table.of("Schedules of the optimum, solved again", rows, words=words)
