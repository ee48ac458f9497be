"""What a person or another program reads of an answer: config_summary.txt, tables, JSON
documents."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from phaze_common.numbers import number, size_text, time_text

from .breakdown import SECONDS_PER_DAY
from .catalogue import DEGREE_NAMES, Category, parameters
from .configuration import Origin, Setting
from .corrections import CORRECTIONS
from .estimate import Effect, Totals, TrainingTime
from .mapping import DEGREES
from .rules import MEMORY_BYTES
from .search import Permutation, SearchResult
from .summary import HEADINGS, SUMMARY_HEAD
from .times import PHASES, TOTAL_S, TimeQuantities
from .units import Kind, written

RECONSTRUCTED = (
    "AMPeD's repository holds no code; its parameters and formulas are those of a public "
    "derivative (amped_deepflow) and of that project's description of performance_model.py. They "
    "are as described there except what follows.",
    "efficiency: 0.51 as in the copy that was described; AMPeD's fitted curve of the micro-batch "
    "size is not public. Marked calculated it is limit x / (x + half size) of the micro-batch size "
    "x with efficiency_curve_limit and efficiency_curve_half_size given; the bound of 0.91 is as "
    "described.",
    "MoE all-to-all: reconstructed; n holders of experts (nodes or the accelerators of one node) "
    "each send (n - 1) / n of their "
    "activations to the others; there and back in every second layer.",
    "total MACs: reconstructed as those of forward and backward and weight updates; the peak as "
    "that at the weights' precision.",
    "gemm_breakdown.txt and visual_graph.txt: our layout.",
)


def config_summary(answer: TrainingTime) -> str:
    """Text of config_summary.txt: every parameter with its value, unit and origin, then corrections
    and reconstructions.

    A parameter's line begins "name : value", as the scripts of DeepFlow read it; ``summary`` reads
    the file back as a configuration. Without commas and quotation marks, since those scripts read
    it as a table.
    """
    settings = {each.parameter.name: each for each in answer.configuration.settings}
    rows = (
        f"Transformer: {answer.configuration.transformer or 'own'} | Accelerator: "
        f"{answer.configuration.accelerator or 'own'}"
    )
    lines = [SUMMARY_HEAD, "", _plain(rows), ""]
    for category in Category:
        of_category = (name for name, each in parameters().items() if each.category is category)
        names = [name for name in of_category if name in _values(answer.table)]
        names.sort(key=lambda name: name not in DEGREES)  # scripts take the first that ends alike
        width = max((len(name) for name in names), default=0) + 1
        lines += [
            HEADINGS[category],
            *(_line(name, settings.get(name), answer.table, width) for name in names),
            "",
        ]
    lines += ["# CORRECTIONS OF THE PUBLISHED FORMULAS"]
    for correction in CORRECTIONS:
        change = f"published: {correction.published}; corrected: {correction.corrected}"
        if correction.name in answer.kept:
            change = f"kept as published: {correction.published}"
        lines.append(f"# {correction.name}: {change}")
    lines += ["", "# RECONSTRUCTED FORMULAS", *(f"# {each}" for each in RECONSTRUCTED)]
    return "\n".join(_plain(line) if line.startswith("#") else line for line in lines) + "\n"


def _values(table: TimeQuantities) -> frozenset[str]:
    return frozenset((*table.given, *table.calculated))


def _line(name: str, setting: Setting | None, table: TimeQuantities, width: int) -> str:
    parameter = parameters()[name]
    origin = setting.origin if setting is not None else Origin.CALCULATED
    unit = "" if parameter.kind is Kind.NUMBER else f" {parameter.kind.value}"
    description = (setting.description if setting is not None else "") or parameter.description
    described = f" {_plain(description)}" if description else ""
    return f"{name:<{width}}: {written(table.number(name))}{unit}  # [{origin}]{described}"


def _plain(text: str) -> str:
    """Without what a reader of comma-separated values would trip over."""
    return text.replace(",", ";").replace('"', "'").replace("\n", " ")


def run_document(answer: TrainingTime, files: tuple[str, ...]) -> dict[str, Any]:
    """The answer as JSON: the numbers of the breakdown under its labels, parameters, times of a
    layer and batch, corrections."""
    table = answer.table
    known = parameters()
    names = [name for name in known if name in _values(table)]
    times = {
        name: table.number(name)
        for name in table.calculated
        if name not in known and name not in (TOTAL_S, *PHASES)
    }
    return {
        "total_time_s": answer.seconds,
        "total_time_days": answer.days,
        "breakdown": {line.label: line.value for line in answer.breakdown.lines},
        "memory": {
            "required_bytes": answer.totals.memory_bytes,
            "available_bytes": table.number("memory") if answer.fits is not None else None,
            "fits": answer.fits,
        },
        "transformer": answer.configuration.transformer or None,
        "accelerator": answer.configuration.accelerator or None,
        "parameters": {name: _whole(table.number(name)) for name in names},
        "layer_and_batch": times
        | table.forward.named("forward")
        | table.backward.named("backward"),
        "corrections": [_effect(each) for each in answer.effects],
        "kept_as_published": list(answer.kept),
        "as_published": None if answer.as_published is None else _totals(answer.as_published),
        "files": list(files),
    }


def _whole(value: float) -> float:
    """Whole numbers without a point, as far as floating-point numbers hold all of them."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _totals(totals: Totals) -> dict[str, float]:
    return {"total_time_s": totals.time_s, "required_memory_bytes": totals.memory_bytes}


def _effect(effect: Effect) -> dict[str, Any]:
    return asdict(effect.correction) | {"if_kept_as_published": _totals(effect.kept)}


def run_text(answer: TrainingTime, files: tuple[str, ...]) -> str:
    """The answer for a person: the breakdown, memory, corrections with what each alone would say as
    published."""
    lines = [answer.breakdown.text().rstrip("\n"), ""]
    fits = {None: "", True: ", which fits", False: ", which does not fit"}[answer.fits]
    available = f" of {size_text(answer.table.number('memory'))}" if answer.fits is not None else ""
    needed = size_text(answer.totals.memory_bytes)
    lines.append(f"Memory of an accelerator: {needed}{available}{fits}.")
    if answer.as_published is not None and answer.effects:
        lines.append(f"As published the whole would take {_days(answer.as_published.time_s)} days.")
    if answer.effects:
        lines += ["", f"Corrected ({_days(answer.seconds)} days); each alone kept as published:"]
    for effect in answer.effects:
        correction, days = effect.correction, _days(effect.kept.time_s)
        numbers = f"{days:>10} days  {size_text(effect.kept.memory_bytes):>9}"
        lines.append(f"  {correction.name:<18} {numbers}  {correction.published}")
    if answer.kept:
        lines += ["", f"Kept as published: {', '.join(answer.kept)}."]
    return "\n".join([*lines, *(f"Written: {name}" for name in files)])


def _days(seconds: float) -> str:
    return number(seconds / SECONDS_PER_DAY)


def search_document(result: SearchResult) -> dict[str, Any]:
    """The best permutations and the certificate as JSON."""
    certificate = result.certificate
    return {
        "best": [_point(each) for each in result.best],
        "certificate": {
            "permutations": certificate.permutations,
            "batch_sizes": list(certificate.batch_sizes),
            "accelerators_per_node": certificate.accelerators_per_node,
            "nodes": certificate.nodes,
            "splits_inside_a_node": certificate.splits_inside,
            "splits_between_nodes": certificate.splits_between,
            "infeasible": {each.rule: each.permutations for each in certificate.excluded},
            "feasible": certificate.feasible,
            "all_feasible_evaluated": True,
            "optimum_total_time_s": result.best[0].time_s,
        },
        "kept_as_published": list(result.kept),
    }


def _point(point: Permutation) -> dict[str, Any]:
    return {
        "total_time_s": point.time_s,
        "total_time_days": point.time_s / SECONDS_PER_DAY,
        "batch_size": point.batch_size,
        **dict(zip((*DEGREE_NAMES, *DEGREES), (*point.degrees, *point.total), strict=True)),
        MEMORY_BYTES: point.memory_bytes,
    }


def search_text(result: SearchResult) -> str:
    """The best permutations as a table and the certificate in words."""
    certificate = result.certificate
    lines = [
        "BEST PARALLELIZATIONS (inside x between nodes)",
        "",
        f"{'rank':>4} {'days':>10} {'time':>12} {'batch':>8} {'dp':>11} {'tp':>11} {'pp':>11} "
        f"{'memory':>10}",
    ]
    for rank, each in enumerate(result.best, start=1):
        inside, between = each.degrees[:3], each.degrees[3:]
        degrees = " ".join(
            f"{f'{one} x {two}':>11}" for one, two in zip(inside, between, strict=True)
        )
        memory = size_text(each.memory_bytes)
        lines.append(
            f"{rank:>4} {_days(each.time_s):>10} {time_text(each.time_s):>12} "
            f"{each.batch_size:>8} {degrees} {memory:>10}"
        )
    sizes = len(certificate.batch_sizes)
    lines += [
        "",
        f"{certificate.permutations:,} permutations: {sizes:,} batch "
        f"size{'' if sizes == 1 else 's'} x {certificate.splits_inside:,} splits of "
        f"{certificate.accelerators_per_node:,} accelerators x {certificate.splits_between:,} "
        f"splits of {certificate.nodes:,} nodes.",
        *(f"{each.permutations:,} of them break: {each.rule}." for each in certificate.excluded),
        f"All {certificate.feasible:,} others were evaluated; the best takes "
        f"{result.best[0].time_s!r} s.",
    ]
    return "\n".join(lines)
