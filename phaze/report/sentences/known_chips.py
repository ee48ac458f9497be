"""What the tables of a search of chips leave out, and what is better beyond its space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from phaze.report.sentences.designs import EQUAL, listed, times_what
from phaze.settings.problem import DESIGNED
from phaze_common.numbers import gib, number
from phaze_common.units import MIB

if TYPE_CHECKING:
    from Estimator.chips.design_space import DesignSpace
    from Estimator.chips.whole_chip import WholeChips
    from Solver.results import SearchResult

GIGA = 1e9


def better_beyond(result: SearchResult) -> str:
    """That a known chip outside the space is better, and why it is not there; empty: none is.

    Chips that are beyond the limits of the study do not count.
    """
    best, space = result.best, _space_of(result)
    if best is None or space is None:
        return ""
    better = [
        point
        for point in result.references
        if point.value > best.value * (1.0 + EQUAL)
        and _allowed(point.accelerator, space)
        and absence(point.accelerator, space)
    ]
    if not better:
        return ""
    most = max(better, key=lambda point: point.value)
    others = sorted({point.name for point in better} - {most.name})
    besides = f", and {listed(others)} more than it too" if others else ""
    return (
        f"{most.name}, which is not in this space ({absence(most.accelerator, space)}), reaches "
        f"{times_what(most.value / best.value)} the best found here does{besides}; what is "
        f"proven is about the chips of the space {space.name} alone"
    )


def missing_sizes(result: SearchResult) -> str:
    """Which memory sizes of the space the tables lack, because bounds pruned them; empty: none."""
    space = _space_of(result)
    if result.best is None or space is None:
        return ""
    shown = {each.hbm_bytes for each in result.per_hbm} | {row.hbm_bytes for row in result.rows}
    lacking = {}
    for label in space.axes.memory or ():
        size = space.platform.memory(label).capacity_bytes
        if size not in shown:
            lacking[label] = size
    if not lacking:
        return ""
    sizes = listed([f"{gib(size)} GiB" for size in sorted({*lacking.values()})])
    return (
        f"not in these tables: {sizes}, which cannot be the best of all, as bounds show before "
        "more is known of them; a search of that memory alone tells it "
        f"(--memory {' '.join(lacking)})"
    )


def absence(chip: Accelerator, space: DesignSpace) -> str:
    """Why ``space`` has not a chip, in words; empty where it has it."""
    if not _whole(chip, space).buildable.all():
        return "by the model of dies its own cannot carry that memory"
    foreign = list(_foreign(chip, space))
    if foreign:
        return f"{listed(foreign)} {'is' if len(foreign) == 1 else 'are'} not on its axes"
    keep, area = space.keep, f"its {number(chip.area_mm2)} mm2"
    if chip.area_mm2 > space.budget_mm2:
        return f"{area} are beyond the budget of {number(space.budget_mm2)} mm2"
    one_tc = keep.any_single_tc and chip.num_tc == 1
    one_vc = keep.any_single_vc and chip.num_vc == 1
    least = keep.minimum_area_fraction * space.budget_mm2
    if one_tc or one_vc or chip.area_mm2 >= least:
        return ""
    return f"{area} are less than the {number(least)} mm2 it keeps"


def _foreign(chip: Accelerator, space: DesignSpace) -> Iterator[str]:
    """What of ``chip`` is no value of an axis of ``space``."""
    axes = space.axes
    lanes = (chip.width,) if axes.width_vc is None else axes.width_vc
    for words, value, axis in (
        ("tensor cores", chip.num_tc, axes.num_tc),
        ("vector cores", chip.num_vc, axes.num_vc),
        ("columns", chip.width, axes.width),
        ("rows", chip.depth, axes.depth),
        ("vector lanes", chip.width_vc, lanes),
        ("MiB of GLB", chip.glb_bytes / MIB, axes.glb_mib),
    ):
        if value not in axis:
            yield f"{number(value)} {words}"
    for text, texts in ((chip.memory_system, axes.memory), (chip.links, axes.links)):
        if text is not None and texts is not None and text not in texts:
            yield text
    clock_ghz = (chip.frequency_hz or space.platform.frequency_hz) / GIGA
    if clock_ghz not in (axes.frequency_ghz or (space.platform.frequency_hz / GIGA,)):
        yield f"{number(clock_ghz)} GHz"


def beyond_limits(result: SearchResult) -> frozenset[str]:
    """Known chips that exceed a limit of the study, by name."""
    space = _space_of(result)
    if space is None:
        return frozenset()
    return frozenset(
        point.name for point in result.references if not _allowed(point.accelerator, space)
    )


def _allowed(chip: Accelerator, space: DesignSpace) -> bool:
    whole = _whole(chip, space)
    return all(limit.holds(whole).all() for limit in space.limits.stated)


def _whole(chip: Accelerator, space: DesignSpace) -> WholeChips:
    return space.whole(AcceleratorSet.of([chip]))


def _space_of(result: SearchResult) -> DesignSpace | None:
    """The space that was searched; None on a device, or where one chip was given."""
    return result.hardware.records.space if result.hardware.title == DESIGNED else None
