"""The best design that has what was asked for, beside the best of all."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.area import area_mm2
from Estimator.chips.axes import SIZES
from Estimator.plans.assignment import Assignment
from Estimator.plans.axes import plan_axis
from Estimator.plans.plan import group_order_of
from Estimator.plans.results import Status
from phaze.report.sentences.designs import listed
from phaze.report.sentences.differences import Designed, reasons, terms_of
from phaze.report.sentences.records import Alternative
from phaze.runs.accelerator_values import accelerator_values
from phaze.runs.design_tables import CONSECUTIVE, LAYER_GROUPS, UNSTATED
from phaze.settings.designed_chips import design_space_of
from phaze.settings.hardware import chip_named
from phaze.settings.problem import memory_sizes, plan_space
from phaze.settings.request import Request
from phaze.studies.explain.constraints import Constraint
from phaze.studies.explain.repeat import RepeatedSearch, best_design, request_of
from phaze_common.choices import GroupOrder, LayoutName
from phaze_common.errors import InputError
from phaze_common.numbers import number, size_text
from Solver.designs.re_solve import PricedHardware
from Solver.hardware import DesignedChips, Hardware
from Solver.plans.empty_spaces import why_empty
from Solver.results import DesignPoint

FloatArray = NDArray[np.float64]

# configurations priced together; the next batch is larger, because the bounds seem to tell little
FIRST_BATCH = 32
GROWTH = 4
EQUAL = 1e-12
OF_THE_BEST_PLAN = {"pp", "dp"}  # columns of designs that say what their best plan has
MOST_TIMES = 1024  # as much memory as there is, beyond which nobody looks for what would do


@dataclass(frozen=True, eq=False)
class _Points:
    """Hardware that has what was asked for, and what no plan exceeds on it, (configurations,)."""

    hardware: Hardware
    reach: FloatArray
    note: str = ""


def alternative(search: RepeatedSearch, constraint: Constraint) -> Alternative:
    """The best design with what ``constraint`` names, everything else chosen anew.

    Without a value for an accelerator the hardware is that of the best design. A chip whose every
    axis is named need not be in the space.

    Raises:
        InputError: no accelerator, chip or plan has what was asked for; says what there is.
    """
    # these refuse before anything is priced
    request = constrained(search, constraint)
    axes = _axes(search, constraint)
    best, asked = search.best, constraint.asked
    if has_what_is_asked(best.point, constraint, search):
        sentences: tuple[str, ...] = ("The best design of all has what was asked for.",)
        terms = terms_of(best.point, best.point)
        return Alternative(asked, best.point.status, best.point, 1.0, terms, sentences)
    points = _points(search, constraint, axes)
    found, priced = _best(search, request, points)
    if priced.without_plans:
        raise InputError(_no_plan(search, request, constraint, priced.without_plans[0]))
    if found is None:
        why = _why_infeasible(search, request)
        return Alternative(asked, Status.INFEASIBLE, None, None, (), (), why)
    notes = filter(None, (points.note, _not_searched(search.request, constraint)))
    sentences = (*notes, *reasons(best, found))
    ratio, terms = best.point.value / found.point.value, terms_of(best.point, found.point)
    return Alternative(asked, found.point.status, found.point, ratio, terms, sentences)


def has_what_is_asked(point: DesignPoint, constraint: Constraint, search: RepeatedSearch) -> bool:
    """Whether ``point`` satisfies ``constraint``, the plans of all its models included."""
    sizes = _axes(search, constraint).items()
    of_plans = (
        plan_axis(name).of(plan) == value
        for plan in point.models.values()
        for name, value in constraint.of_the_plan.items()
    )
    return (
        all(getattr(point.accelerator, name) == value for name, value in sizes)
        and constraint.hbm_bytes in {None, point.hbm_bytes}
        and all(of_plans)
    )


def constrained(search: RepeatedSearch, constraint: Constraint) -> Request:
    """The request of the run with the values of ``constraint``, which it need not have searched.

    Raises:
        InputError: the model or the devices cannot have them; says which they can.
    """
    settings = constraint.within(search.request.plan.layout)
    try:
        if constraint.of_the_plan.get("sequence_parallel"):
            tp = constraint.of_the_plan.get("tp")
            searched = search.request.plan.tp if tp is None else (tp,)
            settings["tp"] = [width for width in searched if width > 1]
            if not settings["tp"]:
                raise InputError(
                    "sequence parallelism splits what tensor parallelism leaves whole; ask for a "
                    "tp above 1 with it, such as tp=2"
                )
        return request_of(search.finished, settings)
    except InputError as error:
        raise InputError(f"--instead {constraint.asked}: {error}") from error


def _best(
    search: RepeatedSearch, request: Request, points: _Points
) -> tuple[Designed | None, PricedHardware]:
    """The best of the points, of equal ones the smallest; the most promising are priced first."""
    hardware, reach = points.hardware, points.reach
    waiting = np.lexsort((hardware.metrics.area_mm2, -reach))
    best: Designed | None = None
    size = FIRST_BATCH
    with search.run.progress.phase("designs with what was asked for", len(waiting)) as advance:
        while True:
            rows = waiting[:size]
            priced = search.price(_some(hardware, rows), request)
            found = best_design(priced, memory_sizes(request))
            if found is not None and (best is None or _precedes(found.point, best.point)):
                best = found
            left = waiting[size:]
            if best is None:
                left = left[:0]  # whether a model fits does not depend on the accelerator
            else:
                level, most = best.point.value, reach[left]
                smaller = hardware.metrics.area_mm2[left] < _area_mm2(best.point)
                better = most > level * (1 + EQUAL)
                left = left[better | ((most >= level * (1 - EQUAL)) & smaller)]
            advance(len(waiting) - len(left))
            waiting, size = left, size * GROWTH
            if not len(waiting):
                return best, priced


def _precedes(one: DesignPoint, other: DesignPoint) -> bool:
    """Whether ``one`` brings more, or as much on a smaller chip."""
    if one.value >= other.value * (1 - EQUAL) and _area_mm2(one) < _area_mm2(other):
        return True
    return one.value > other.value * (1 + EQUAL)


def _area_mm2(point: DesignPoint) -> float:
    return 0.0 if point.accelerator is None else point.accelerator.area_mm2


def _some(hardware: Hardware, rows: NDArray[np.int64]) -> Hardware:
    """Some configurations of ``hardware``."""
    if not isinstance(hardware, DesignedChips) or len(rows) == hardware.configurations == 1:
        return hardware
    return hardware.only([hardware.accelerators.accelerator(row) for row in rows.tolist()])


def _points(search: RepeatedSearch, constraint: Constraint, axes: Mapping[str, int]) -> _Points:
    hardware = search.run.hardware
    if not axes or not isinstance(hardware, DesignedChips):
        return _Points(search.hardware, np.array([np.inf]))
    space = hardware.accelerators
    chosen = _having(space, axes)
    if chosen.any():
        some = hardware.only([space.accelerator(row) for row in np.flatnonzero(chosen).tolist()])
        return _Points(some, _reach(search, constraint, some.accelerators))
    note = "This chip is not in the design space; it is priced all the same."
    return _Points(hardware.only([_outside(hardware, axes)]), np.array([np.inf]), note)


def _reach(
    search: RepeatedSearch, constraint: Constraint, accelerators: AcceleratorSet
) -> FloatArray:
    """What no plan exceeds on each accelerator by the run; infinity where it did not look."""
    reach = np.full(len(accelerators), np.inf)
    if _unsearched(search.request, constraint) or not search.unchanged:
        return reach
    designs = search.finished.designs
    chosen = np.ones(len(designs), dtype=bool)
    asked = {"hbm_bytes": constraint.hbm_bytes, **constraint.of_the_plan, **constraint.sizes}
    for name, value in asked.items():
        if value is not None and name in designs and name not in OF_THE_BEST_PLAN:
            chosen &= (designs[name] == value).to_numpy()
    order = constraint.of_the_plan.get("group_order")
    if order is not None:
        chosen &= designs[LAYER_GROUPS].isin({UNSTATED, _layer_groups(order)}).to_numpy()
    values = accelerator_values(search.finished, designs[chosen])
    known = dict(zip(_chips(values.accelerators), values.reach, strict=True))
    return np.array([known.get(chip, np.inf) for chip in _chips(accelerators)])


def _chips(accelerators: AcceleratorSet) -> list[Accelerator]:
    return [accelerators.accelerator(row) for row in range(len(accelerators))]


def _layer_groups(order: str) -> str:
    """Where the groups of a layer lie under an order, as rows of designs have it."""
    asked = group_order_of(order)
    return str(asked.groups) if isinstance(asked, Assignment) else CONSECUTIVE


def _axes(search: RepeatedSearch, constraint: Constraint) -> Mapping[str, int]:
    """Sizes that an accelerator must have; one of the space has them, or all are named.

    Raises:
        InputError: there is none.
    """
    if constraint.chip is not None:
        found = chip_named(constraint.chip, design_space_of(search.request))
        return {name: getattr(found, name) for name in SIZES}
    axes, hardware = constraint.sizes, search.run.hardware
    if not isinstance(hardware, DesignedChips) or len(axes) in {0, len(SIZES)}:
        return axes
    if not _having(hardware.accelerators, axes).any():
        raise InputError(_nobody_has(hardware.accelerators, constraint, axes))
    return axes


def _having(space: AcceleratorSet, axes: Mapping[str, int]) -> NDArray[np.bool_]:
    """Which accelerators have the values of ``axes``, one or more."""
    having: NDArray[np.bool_] = np.logical_and.reduce(
        [getattr(space, name) == value for name, value in axes.items()]
    )
    return having


def _outside(hardware: DesignedChips, axes: Mapping[str, int]) -> Accelerator:
    """A chip that is not in the space, with the memory, clock and links of the first that is."""
    first = hardware.accelerators.variants[0]
    chip = Accelerator(
        **axes,
        area_mm2=float(area_mm2(**axes, platform=hardware.platform)),
        memory_system=first.memory,
        frequency_hz=first.frequency_hz,
        links=first.links,
    )
    return chip if hardware.space is None else hardware.space.with_area(chip)


def _nobody_has(space: AcceleratorSet, constraint: Constraint, axes: Mapping[str, int]) -> str:
    none = f"--instead {constraint.asked}: no accelerator of the design space has"
    for name, value in axes.items():
        there = np.unique(getattr(space, name))
        if value not in there:
            return f"{none} {name} {value}; it has {', '.join(map(str, there.tolist()))}"
    asked = listed([f"{name} {value}" for name, value in axes.items()])
    return (
        f"{none} {asked} together, within its area; leave one of them open, or name all axes to "
        "price a chip outside the space"
    )


def _unsearched(request: Request, constraint: Constraint) -> list[str]:
    """Sizes and degrees that the constraint names and the study leaves out."""
    left_out = []
    everything = {"layout": LayoutName.AUTO, "group_order": GroupOrder.TIERS}
    for name, value in constraint.of_the_plan.items():
        searched = getattr(request.plan, name)
        if searched is not None and value not in searched and everything.get(name) not in searched:
            left_out.append(f"{name.replace('_', ' ')} {value}")
    if constraint.hbm_size is not None and constraint.hbm_bytes not in memory_sizes(request):
        left_out.append(f"{number(constraint.hbm_size)} GiB of HBM")
    return left_out


def _not_searched(request: Request, constraint: Constraint) -> str:
    left_out = listed(_unsearched(request, constraint))
    return f"The run did not search {left_out}; it is priced all the same." if left_out else ""


def _no_plan(search: RepeatedSearch, request: Request, constraint: Constraint, model: str) -> str:
    """Refusal where no plan of ``model`` has what was asked for."""
    layers = sum(len(stage.layers) for stage in search.best.point.models[model].stages)
    why = why_empty(plan_space(request, model), layers, request.records.cluster)
    return f"--instead {constraint.asked}: no plan has that; {why}"


def _why_infeasible(search: RepeatedSearch, request: Request) -> str:
    """How much memory the plans are short of, to two per cent; the accelerator does not matter."""
    chip, given = search.price(search.hardware, request), max(memory_sizes(request))
    short = f"no plan fits {size_text(given)} of memory per device, however its layers are cut"
    too_little, enough = given, 2 * given
    while chip.optimum(enough) is None:
        too_little, enough = enough, 2 * enough
        if enough > MOST_TIMES * given:
            return short
    while enough > 1.02 * too_little:
        middle = (too_little + enough) // 2
        if chip.optimum(middle) is None:
            too_little = middle
        else:
            enough = middle
    return f"{short}; {size_text(enough)} would do"
