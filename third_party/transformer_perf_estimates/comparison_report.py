"""A comparison as JSON and as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from Estimator.plans.plan import plan_mapping
from phaze_common.numbers import number
from phaze_common.units import GIGA

from .comparison import Comparison, Price, PricedPlan, as_uniform
from .configurations import Configuration, Strategy, Training
from .own_parts import ROUNDING, Parts
from .spaces import panel_counts

PARTS = {  # of ``Parts`` -> what people call them
    "products_s": "arithmetic of layers",
    "attention_s": "arithmetic of attention",
    "memory_bound_s": "memory-bound work",
    "starts_s": "starts of operators",
    "tensor_s": "tensor-parallel messages",
    "context_s": "keys and values",
    "ends_s": "embedding, head, loss",
    "data_s": "data-parallel messages",
    "pipeline_s": "messages between stages",
    "bubble_s": "bubble",
    "optimizer_s": "optimizer",
}
HIDDEN = {"hidden_tensor_s": "hidden: tensor-parallel", "hidden_data_s": "hidden: data-parallel"}
MEMORY = {
    "state_bytes": "weights, gradients, optimizer",
    "kept_bytes": "kept activations",
    "workspace_bytes": "workspace",
    "reserved_bytes": "reserved by the framework",
}
NAME = "transformer-perf-estimates"
WHAT_DIFFERS = (
    f"{NAME}: 20 us and 80% of the peak for every operator, whole attention matrices, equal "
    "stages, gathered inputs of products kept by every device, dropout masks kept, 2-byte "
    "gradients, the optimizer's step free, tensor-parallel messages hidden by SUMMA alone.",
    "ours: what each operator of a traced step reaches on the device, half the scores under a "
    "causal mask, embedding, head and loss, stages cut where it is fastest, inputs gathered again "
    "for the backward pass, gradients, and messages hidden behind products, as the framework has "
    "them, its reserve and temporaries in memory.",
)


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Everything, as a JSON object; seconds and bytes."""
    question = comparison.question
    return {
        "own": {
            "model": question.model,
            "device": question.hardware.device,
            "software": question.hardware.software,
            "micro_batch_sizes": list(comparison.micro_batch_sizes),
            "proven": comparison.proven,
            "counts": vars(comparison.searched.counts),
            "reason": comparison.searched.reason,
        },
        "candidates": comparison.candidates,
        "published_best": _plan_document(comparison.published_best),
        "own_best": _plan_document(comparison.own_best),
    }


def _plan_document(each: PricedPlan | None) -> dict[str, Any] | None:
    if each is None:
        return None
    return {
        "configuration": None if each.configuration is None else vars(each.configuration),
        "plan": None if each.plan is None else plan_mapping(as_uniform(each.plan)),
        "refused": each.refused,
        "published": _price_document(each.published),
        "own": _price_document(each.own),
    }


def _price_document(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    parts = {field.name: float(getattr(price.parts, field.name)) for field in fields(Parts)}
    return vars(price) | {"parts": parts}


def comparison_lines(comparison: Comparison, title: str) -> list[str]:
    """Tables and sentences."""
    bests = ((NAME, comparison.published_best), ("ours", comparison.own_best))
    found = [(name, each) for name, each in bests if each is not None]
    heads = ("best of", "plan", "s there", "GB there", "s here", "GB here")
    rows = [heads, *((name, *_row(comparison.question.training, each)) for name, each in found)]
    lines = [title, "", *aligned(rows, words=2), ""]
    lines += [f"there: {NAME}; here: our own physics; (no): does not fit", ""] if found else []
    if comparison.published_best is None:
        lines += [f"{NAME}: none of its {comparison.candidates:,} configurations fits"]
    if comparison.own_best is None:
        lines += [f"ours: {comparison.searched.reason}"]
    else:
        sizes = ", ".join(map(str, comparison.micro_batch_sizes))
        proven = "proven" if comparison.proven else "not proven"
        lines += [f"ours: {proven} among micro-batches of {sizes} ({comparison.question.model})"]
    lines += [f"{name}: {each.refused}" for name, each in found if each.refused]
    lines += [
        words for _, each in found for words in _untried_panels(comparison.question.training, each)
    ]
    for name, each in found:
        lines += [
            "",
            f"where the best plan of {name} spends its time and memory",
            "",
            *aligned(list(_parts(each)), words=1),
        ]
    return [*lines, "", *WHAT_DIFFERS]


def _row(training: Training, each: PricedPlan) -> tuple[str, str, str, str, str]:
    return (_plan_text(training, each), *_cells(each.published), *_cells(each.own))


def _cells(price: Price | None) -> tuple[str, str]:
    if price is None:
        return "-", "-"
    return number(
        price.seconds
    ), f"{number(price.memory_bytes / GIGA)}{'' if price.feasible else ' (no)'}"


def _plan_text(training: Training, each: PricedPlan) -> str:
    if each.configuration is None:
        assert each.plan is not None
        return f"{len(each.plan.stages)} stages, {each.plan.group_order}"
    text = configuration_text(training, each.configuration)
    inner = set(each.stages[1:-1])
    return f"{text}, unequal stages" if len(inner) > 1 else text


def configuration_text(training: Training, each: Configuration) -> str:
    """Degrees, with those of a fast domain behind a slash."""
    second = "" if training.strategy is Strategy.ONE_D else f" x tp2 {each.tp2}/{each.nv_tp2}"
    degrees = (
        f"tp {each.tp1}/{each.nv_tp1}{second} x pp {each.pp}/{each.nv_pp} x dp "
        f"{each.dp}/{each.nv_dp}"
    )
    if training.strategy is Strategy.TWO_D:
        panels = f", {each.panels} panel{'s' if each.panels > 1 else ''}"
    else:
        panels = ""
    return f"{degrees}, micro-batch {each.micro_batch}{panels}"


def _untried_panels(training: Training, each: PricedPlan) -> Iterator[str]:
    """Where a plan has panels in a number that no configuration has."""
    if each.configuration is None or training.strategy is not Strategy.TWO_D:
        return
    configuration = each.configuration
    tried = [int(count) for count in panel_counts(training, configuration.tp1, configuration.tp2)]
    if configuration.panels not in tried:
        yield (
            f"ours: {NAME} tries {', '.join(map(str, tried))} panels on {configuration.tp1} x "
            f"{configuration.tp2} GPUs; its formulas price {configuration.panels} all the same"
        )


def _parts(each: PricedPlan) -> Iterator[tuple[str, ...]]:
    yield ("s", "there", "here", "here - there")
    prices = (each.published, each.own)
    for name, label in PARTS.items():
        yield from _part(label, _values(prices, name), 1.0)
    yield from _part(
        "iteration", [None if price is None else price.seconds for price in prices], 1.0
    )
    for name, label in HIDDEN.items():
        yield from _part(label, _values(prices, name), 1.0)
    yield ("",) * 4
    yield ("GB", "", "", "")
    for name, label in MEMORY.items():
        yield from _part(label, _values(prices, name), GIGA)
    yield from _part(
        "fullest GPU", [None if price is None else price.memory_bytes for price in prices], GIGA
    )


def _values(prices: Sequence[Price | None], part: str) -> list[float | None]:
    return [None if price is None else float(getattr(price.parts, part)) for price in prices]


def _part(label: str, values: Sequence[float | None], unit: float) -> Iterator[tuple[str, ...]]:
    """A row, unless the part is zero in both."""
    if not any(values):
        return
    there, here = (None if value is None else value / unit for value in values)
    yield (
        label,
        *("-" if value is None else number(value) for value in (there, here)),
        _difference(there, here),
    )


def _difference(there: float | None, here: float | None) -> str:
    if there is None or here is None:
        return "-"
    if abs(here - there) <= ROUNDING * max(there, here):
        return "0"
    return f"{'+' if here > there else ''}{number(here - there)}"


def aligned(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Rows as columns, the first ``words`` of which go to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def cells(row: Iterable[str]) -> Iterator[str]:
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            yield cell.ljust(width) if column < words else cell.rjust(width)

    return [f"  {'   '.join(cells(row))}".rstrip() for row in rows]
