"""Curves over the number of GPUs: the best of every case of a product of lists, as a table for
people and as CSV.

The CSV has the columns that ``phaze report SWEEP --beside FILE.csv`` reads: whose answer it is,
settings of ours that ask the same (model, device, fast domain, global batch), devices and seconds.
Where nothing fits there is no row.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from phaze_common.errors import InputError
from phaze_common.numbers import number

from .case_files import QUESTION, read_training
from .comparison_report import NAME, aligned, configuration_text
from .configurations import Training
from .corrections import AS_PUBLISHED, CORRECTED, Corrections
from .estimates import Estimate, estimate_at
from .own_hardware import own_device
from .own_requests import own_model
from .search import best_of
from .spaces import space
from .totals import estimate

MOST_CASES = 1000
HEADINGS = (
    *("layout", "model", "system", "best plan", "fast domain"),
    *("GPUs", "batch", "s", "GB", "s as published"),
)
COLUMNS = ("source", "model", "device", "fast_domain", "global_batch_size", "devices", "seconds")


@dataclass(frozen=True)
class CurvePoint:
    """The best of a space under the corrected and under the published formulas, None where nothing
    fits.

    ``model`` and ``device`` are those of ours that stand for its own; where none does, what the
    case calls them.
    """

    training: Training
    model: str
    device: str
    system: str
    corrected: Estimate | None
    published: Estimate | None


def cases_of(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A case for every combination of the values of the question's lists. Raises InputError: a list
    is empty, or there are too many combinations."""
    lists = {key: case[key] for key in QUESTION if isinstance(case.get(key), list)}
    for key, values in lists.items():
        if not values:
            raise InputError(f"{key} is an empty list; give a value, or several")
    count = math.prod(map(len, lists.values()))
    if count > MOST_CASES:
        raise InputError(
            f"the lists have {count:,} combinations, at most {MOST_CASES:,} are searched at once; "
            "give shorter ones"
        )
    for values in product(*lists.values()):
        yield {**case, **dict(zip(lists, values, strict=True))}


def curve_points(case: Mapping[str, Any], folder: Path) -> list[CurvePoint]:
    """The points of a case whose values may be lists. Raises InputError: one of its cases cannot
    be, or its space is too large."""
    return [_point(each, folder) for each in cases_of(case)]


def _point(case: Mapping[str, Any], folder: Path) -> CurvePoint:
    training = read_training(case, folder)
    configurations = space(training)

    def best(corrections: Corrections) -> Estimate | None:
        found = best_of(estimate(training, configurations, corrections), 1)
        return estimate_at(found.estimates, int(found.best[0])) if len(found.best) else None

    system = str(case.get("system_name", "its system"))
    return CurvePoint(
        training=training,
        model=own_model(training.model),
        device=own_device(training.system) or system,
        system=system,
        corrected=best(CORRECTED),
        published=best(AS_PUBLISHED),
    )


def curve_csv(points: Iterable[CurvePoint]) -> str:
    """The points as CSV, a row for each of the two formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in points:
        training = point.training
        settings = (
            point.model,
            point.device,
            training.nvlink_size,
            training.global_batch,
            training.gpus,
        )
        for words, best in (("", point.corrected), (", as published", point.published)):
            if best is not None:
                writer.writerow((f"{NAME} {training.strategy}{words}", *settings, best.seconds))
    return text.getvalue()


def curve_lines(points: Iterable[CurvePoint]) -> list[str]:
    """The points as a table."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for point in points:
        training, best = point.training, point.corrected
        rows.append(
            (
                str(training.strategy),
                point.model,
                point.system,
                configuration_text(training, best.configuration)
                if best is not None
                else "nothing fits",
                *(
                    f"{count:,}"
                    for count in (training.nvlink_size, training.gpus, training.global_batch)
                ),
                "-" if best is None else number(best.seconds),
                "-" if best is None else number(best.memory_gb),
                "-" if point.published is None else number(point.published.seconds),
            )
        )
    return aligned(rows, words=4)
