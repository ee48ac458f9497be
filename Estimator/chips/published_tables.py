"""Published figures of dies beside the model's, and the tables of the manual (Markdown)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from Estimator.chips.published import (
    Evidence,
    PublishedDie,
    published_dies,
    published_parts,
    published_power_w,
    searched_parts,
)


@dataclass(frozen=True)
class Compared:
    """A published figure of a chip beside the model's, both in ``unit``."""

    name: str
    what: str
    unit: str  # mm2 or W
    evidence: Evidence
    published: float
    predicted: float
    source: str

    @property
    def error(self) -> float:
        """Prediction over publication, less one."""
        return self.predicted / self.published - 1


def compare_dies() -> tuple[Compared, ...]:
    """Area and power of every die, where published, beside the model's."""
    return tuple(each for die in published_dies() for each in _compared(die))


def _compared(die: PublishedDie) -> Iterator[Compared]:
    if die.area is not None:
        area = float(published_parts(die).total_mm2[0])
        yield Compared(
            die.title, "area", "mm2", die.evidence, die.area.value, area, die.area.source
        )
    for work in die.powers:
        power, known = float(published_power_w(die, work)[0]), work.power
        what = f"power, {work.what}"
        yield Compared(die.title, what, "W", work.evidence, known.value, power, known.source)


def compare_floor_plans() -> tuple[Compared, ...]:
    """Parts of dies, where their areas are published, beside the same parts of the model."""
    return tuple(each for die in published_dies() for each in _compared_parts(die))


def _compared_parts(die: PublishedDie) -> Iterator[Compared]:
    parts = published_parts(die)
    for part in die.floor_plan:
        predicted = sum(float(getattr(parts, name)[0]) for name in part.parts)
        yield Compared(
            die.title, part.what, "mm2", die.evidence, part.area.value, predicted, part.area.source
        )


def comparison_table() -> str:
    """``compare_dies`` as the table of the manual."""
    rows = [
        "| chip | what | published | model | error | the row is |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    return "\n".join([*rows, *(f"{_row(each)} {each.evidence} |" for each in compare_dies())])


def floor_plan_table() -> str:
    """``compare_floor_plans`` as the table of the manual."""
    rows = ["| chip | part | published | model | error |", "| --- | --- | ---: | ---: | ---: |"]
    return "\n".join([*rows, *map(_row, compare_floor_plans())])


def _row(each: Compared) -> str:
    figures = (
        f"{each.published:.0f} {each.unit} | {each.predicted:.0f} {each.unit} | "
        f"{100 * each.error:+.1f} %"
    )
    return f"| {each.name} | {each.what} | {figures} |"


def searched_table() -> str:
    """Dies as a search builds chips of their sizes, beside their published area and what
    ``comparison_table`` has."""
    rows = [
        "| chip | published | as described | as searched | error | dies | network |",
        f"| --- |{' ---: |' * 6}",
    ]
    for die in published_dies():
        parts = searched_parts(die)
        if parts is not None and die.area is not None:
            published, described, searched = (
                die.area.value,
                *(float(each.total_mm2[0]) for each in (published_parts(die), parts)),
            )
            areas = " | ".join(f"{each:.0f} mm2" for each in (published, described, searched))
            network = f"{float(parts.on_chip_network[0]):.0f} mm2"
            rows.append(
                f"| {die.title} | {areas} | {100 * (searched / published - 1):+.1f} % | "
                f"{parts.dies[0]} | {network} |"
            )
    return "\n".join(rows)


def unpublished_table() -> str:
    """What the model says of dies whose size nobody published."""
    rows = ["| chip | technology | model |", "| --- | --- | ---: |"]
    for die in published_dies():
        if die.area is None:
            rows.append(
                f"| {die.title} | {die.technology} | "
                f"{float(published_parts(die).total_mm2[0]):.0f} mm2 |"
            )
    return "\n".join(rows)
