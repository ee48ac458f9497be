"""The best design that has what was asked for, beside the best of all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from Solver.placement.problem import FloatArray
from Solver.search.inputs import Degrees
from Solver.search.what_if import PricedAccelerators

from Common.choices import Recompute
from Common.errors import InputError
from Common.units import GIB
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.area import area_mm2
from GraphExtractor.models.registry import find_model
from Plans.results import Status
from Solver.results import DesignPoint
from Studies.checks import check_request
from Studies.explain.constraints import DesignConstraint
from Studies.explain.designs import AXES, accelerator_values
from Studies.explain.reasons import reasons, terms_of
from Studies.explain.records import Alternative
from Studies.explain.repeat import Designed, RepeatedSearch
from Studies.hardware import chip_named, design_space_of
from Studies.request import Request
from Studies.words import listed

FIRST_BATCH = 32  # accelerators priced together; the next batch is larger, because the bounds seem to tell little
GROWTH = 4
EQUAL = 1e-12


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Accelerators that have what was asked for, and what none of their plans exceeds, shape (accelerators,)."""

    accelerators: AcceleratorSet
    reach: FloatArray
    note: str = ""


def alternative(search: RepeatedSearch, constraint: DesignConstraint) -> Alternative:
    """The best design with what ``constraint`` names, everything else chosen anew.

    Without a value for an accelerator it is the winning one. A chip whose every axis is named need not be in the space.

    Raises:
        InputError: no accelerator, width or chip has what was asked for; says what there is.
    """
    best = search.best
    if has_what_is_asked(best.point, constraint, search):
        sentence = "The best design of all has what was asked for."
        return Alternative(constraint.asked, best.point.status, best.point, 1.0, terms_of(best.point, best.point), (sentence,))
    candidates = _candidates(search, constraint)
    request = _with_values(search.request, constraint)
    _check(request, constraint)
    degrees = Degrees(constraint.pp, constraint.dp)
    found, priced = _best(search, request, candidates, _hbm_sizes(request, constraint), degrees)
    if found is None:
        reason = priced.why_infeasible(_hbm_sizes(request, constraint)[-1], degrees)
        return Alternative(constraint.asked, Status.INFEASIBLE, None, None, (), (), reason)
    notes = [note for note in (candidates.note, _not_searched(search.request, constraint)) if note]
    sentences = (*notes, *reasons(best, found))
    return Alternative(
        constraint.asked,
        found.point.status,
        found.point,
        best.point.value / found.point.value,
        terms_of(best.point, found.point),
        sentences,
    )


def has_what_is_asked(point: DesignPoint, constraint: DesignConstraint, search: RepeatedSearch) -> bool:
    """Whether ``point`` satisfies ``constraint``, the plans of all its models included."""
    chip = point.accelerator
    axes = _axes_of(search, constraint.chip) if constraint.chip is not None else constraint.axes
    return (
        all(getattr(chip, name) == value for name, value in axes.items())
        and constraint.hbm_bytes in {None, point.hbm_bytes}
        and all(getattr(plan, name) == value for plan in point.models.values() for name, value in constraint.of_the_plan.items())
    )


def _hbm_sizes(request: Request, constraint: DesignConstraint) -> tuple[int, ...]:
    """In ascending order, so that of equals the smallest is found."""
    return tuple(sorted(request.hbm_sizes_bytes)) if constraint.hbm_bytes is None else (constraint.hbm_bytes,)


def _unsearched(request: Request, constraint: DesignConstraint) -> list[str]:
    """Sizes and widths that the constraint names and the study leaves out."""
    named = {
        f"tensor parallel width {constraint.tp}": constraint.tp in {None, *request.tp},
        f"micro-batch size {constraint.micro_batch_size}": constraint.micro_batch_size in {None, *request.micro_batch_size},
        f"recomputation {constraint.recompute}": constraint.recompute in {None, *(mode.value for mode in request.recompute)},
        f"{(constraint.hbm_bytes or 0) / GIB:g} GiB of HBM": constraint.hbm_bytes in {None, *request.hbm_sizes_bytes},
    }
    return [words for words, searched in named.items() if not searched]


def _not_searched(request: Request, constraint: DesignConstraint) -> str:
    left_out = _unsearched(request, constraint)
    return f"The run did not search {listed(left_out)}; it is priced all the same." if left_out else ""


def _best(
    search: RepeatedSearch, request: Request, candidates: _Candidates, hbm_sizes: tuple[int, ...], degrees: Degrees
) -> tuple[Designed | None, PricedAccelerators]:
    """The best of the candidates: those that could reach most are priced first, until no other can beat the best of them."""
    order = np.lexsort((candidates.accelerators.area_mm2, -candidates.reach))
    best: Designed | None = None
    first, size = 0, FIRST_BATCH
    with search.run.progress.phase("accelerators with what was asked for", len(order)) as advance:
        while True:
            rows = order[first : first + size]
            chips = AcceleratorSet.of([candidates.accelerators.accelerator(row) for row in rows.tolist()])
            priced = search.price(chips, request)
            for hbm_bytes in hbm_sizes:
                optimum = priced.optimum(hbm_bytes, degrees)
                if optimum is not None and (best is None or optimum.value > best.point.value * (1 + EQUAL)):
                    best = Designed(*priced.design(optimum, hbm_bytes))
            first, size = first + len(rows), size * GROWTH
            nobody_fits = best is None  # whether a model fits does not depend on the accelerator
            beaten = best is not None and first < len(order) and candidates.reach[order[first]] <= best.point.value * (1 + EQUAL)
            if first >= len(order) or nobody_fits or beaten:
                advance(len(order) - first + len(rows))
                return best, priced
            advance(len(rows))


def _candidates(search: RepeatedSearch, constraint: DesignConstraint) -> _Candidates:
    space = search.run.hardware.accelerators
    if constraint.chip is not None:
        axes = _axes_of(search, constraint.chip)
    elif not constraint.axes:
        return _Candidates(AcceleratorSet.of([search.best.point.accelerator]), np.array([np.inf]))
    else:
        axes = constraint.axes
    chosen = np.logical_and.reduce([getattr(space, name) == value for name, value in axes.items()])
    if chosen.any():
        rows = np.flatnonzero(chosen)
        accelerators = AcceleratorSet.of([space.accelerator(row) for row in rows.tolist()])
        return _Candidates(accelerators, _reach(search, constraint, accelerators))
    if len(axes) == len(AXES):
        chip = _outside(search, axes)
        return _Candidates(
            AcceleratorSet.of([chip]), np.array([np.inf]), "This chip is not in the design space; it is priced all the same."
        )
    raise InputError(_nobody_has(space, constraint, axes))


def _reach(search: RepeatedSearch, constraint: DesignConstraint, accelerators: AcceleratorSet) -> FloatArray:
    """What no plan exceeds on each accelerator: as the run found, where it is about such plans; else infinity."""
    reach = np.full(len(accelerators), np.inf)
    if _unsearched(search.request, constraint) or not search.unchanged:
        return reach
    designs = search.finished.designs
    chosen = designs["hbm_bytes"].isin(_hbm_sizes(search.request, constraint))
    for name in ("micro_batch_size", "tp", "recompute"):
        if getattr(constraint, name) is not None:
            chosen &= designs[name] == getattr(constraint, name)
    for name, value in constraint.axes.items():
        chosen &= designs[name] == value
    values = accelerator_values(search.finished, designs[chosen])
    known = {values.accelerators.accelerator(row): values.reach[row] for row in range(len(values.accelerators))}
    return np.array([known.get(accelerators.accelerator(row), np.inf) for row in range(len(accelerators))])


def _axes_of(search: RepeatedSearch, chip: str) -> dict[str, int]:
    """Axes of a known chip of the design space."""
    found = chip_named(chip, design_space_of(search.request))
    return {key: value for key, value in vars(found).items() if key != "area_mm2"}


def _outside(search: RepeatedSearch, axes: dict[str, int]) -> Accelerator:
    platform = search.run.hardware.platform
    num_tc, num_vc, width, depth, width_vc, glb_bytes = (axes[name] for name in AXES)
    area = float(area_mm2(num_tc, num_vc, width, depth, width_vc, glb_bytes, platform))
    return Accelerator(num_tc, num_vc, width, depth, width_vc, glb_bytes, area)


def _nobody_has(space: AcceleratorSet, constraint: DesignConstraint, axes: dict[str, int]) -> str:
    for name, value in axes.items():
        there = np.unique(getattr(space, name))
        if value not in there:
            shown = ", ".join(map(str, there.tolist()))
            return f"--instead {constraint.asked}: no accelerator of the design space has {name} {value}; it has {shown}"
    asked = listed([f"{name} {value}" for name, value in axes.items()])
    return (
        f"--instead {constraint.asked}: no accelerator of the design space has {asked} together, within its area; "
        "leave one of them open, or name all axes to price a chip outside the space"
    )


def _with_values(request: Request, constraint: DesignConstraint) -> Request:
    """``request`` with single values of its plans instead of its lists, where they are given."""
    return replace(
        request,
        micro_batch_size=(constraint.micro_batch_size,) if constraint.micro_batch_size else request.micro_batch_size,
        recompute=(Recompute(constraint.recompute),) if constraint.recompute else request.recompute,
        tp=(constraint.tp,) if constraint.tp else request.tp,
    )


def _check(request: Request, constraint: DesignConstraint) -> None:
    """Refuse widths and sizes that a model or the study cannot have."""
    try:
        check_request(request, {model.name: find_model(model.name) for model in request.models})
    except InputError as error:
        raise InputError(f"--instead {constraint.asked}: {error}") from error
