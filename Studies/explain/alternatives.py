"""The best design that has what was asked for, beside the best of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Common.errors import InputError
from Common.units import GIB
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.area import area_mm2
from Estimator.chips.design_space import load_design_space
from Solver.placement.problem import FloatArray
from Solver.results import DesignPoint, Status
from Solver.search.inputs import Degrees
from Solver.search.what_if import PricedAccelerators
from Studies.explain.asking import Asker, Designed, with_values
from Studies.explain.designs import AXES, accelerator_values
from Studies.explain.reasons import reasons, terms_of
from Studies.explain.records import Alternative
from Studies.explain.wishes import Wish
from Studies.study import Study
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


def alternative(asker: Asker, wish: Wish) -> Alternative:
    """The best design with what ``wish`` names, everything else chosen anew.

    Without a value for an accelerator it is the winning one. A chip whose every axis is named need not be in the space.

    Raises:
        InputError: no accelerator, width or chip has what was asked for; says what there is.
    """
    best = asker.best
    if has_what_is_asked(best.point, wish, asker):
        sentence = "The best design of all has what was asked for."
        return Alternative(wish.asked, best.point.status, best.point, 1.0, terms_of(best.point, best.point), (sentence,))
    candidates = _candidates(asker, wish)
    study = with_values(asker.study, micro_batch_size=wish.micro_batch_size, recompute=wish.recompute, tp=wish.tp)
    _check(study, wish)
    degrees = Degrees(wish.pp, wish.dp)
    found, priced = _best(asker, study, candidates, _hbm_sizes(study, wish), degrees)
    if found is None:
        reason = priced.why_infeasible(_hbm_sizes(study, wish)[-1], degrees)
        return Alternative(wish.asked, Status.INFEASIBLE, None, None, (), (), reason)
    notes = [note for note in (candidates.note, _not_searched(asker.study, wish)) if note]
    sentences = (*notes, *reasons(best, found))
    return Alternative(
        wish.asked,
        found.point.status,
        found.point,
        best.point.value / found.point.value,
        terms_of(best.point, found.point),
        sentences,
    )


def has_what_is_asked(point: DesignPoint, wish: Wish, asker: Asker) -> bool:
    """Whether ``point`` satisfies ``wish``, the plans of all its models included."""
    chip = point.accelerator
    axes = _chip_named(asker, wish.chip) if wish.chip is not None else wish.axes
    return (
        all(getattr(chip, name) == value for name, value in axes.items())
        and wish.hbm_bytes in {None, point.hbm_bytes}
        and all(getattr(plan, name) == value for plan in point.models.values() for name, value in wish.of_the_plan.items())
    )


def _hbm_sizes(study: Study, wish: Wish) -> tuple[int, ...]:
    """In ascending order, so that of equals the smallest is found."""
    return tuple(sorted(study.hbm_sizes_bytes)) if wish.hbm_bytes is None else (wish.hbm_bytes,)


def _unsearched(study: Study, wish: Wish) -> list[str]:
    """Sizes and widths that the wish names and the study leaves out."""
    named = {
        f"tensor parallel width {wish.tp}": wish.tp in {None, *study.tp_widths},
        f"micro-batch size {wish.micro_batch_size}": wish.micro_batch_size in {None, *study.micro_batch_sizes},
        f"recomputation {wish.recompute}": wish.recompute in {None, *(mode.value for mode in study.recompute)},
        f"{(wish.hbm_bytes or 0) / GIB:g} GiB of HBM": wish.hbm_bytes in {None, *study.hbm_sizes_bytes},
    }
    return [words for words, searched in named.items() if not searched]


def _not_searched(study: Study, wish: Wish) -> str:
    left_out = _unsearched(study, wish)
    return f"The run did not search {listed(left_out)}; it is priced all the same." if left_out else ""


def _best(
    asker: Asker, study: Study, candidates: _Candidates, hbm_sizes: tuple[int, ...], degrees: Degrees
) -> tuple[Designed | None, PricedAccelerators]:
    """The best of the candidates: those that could reach most are priced first, until no other can beat the best of them."""
    order = np.lexsort((candidates.accelerators.area_mm2, -candidates.reach))
    best: Designed | None = None
    first, size = 0, FIRST_BATCH
    with asker.run.progress.phase("accelerators with what was asked for", len(order)) as advance:
        while True:
            rows = order[first : first + size]
            chips = AcceleratorSet.of([candidates.accelerators.accelerator(row) for row in rows.tolist()])
            priced = asker.price(chips, study)
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


def _candidates(asker: Asker, wish: Wish) -> _Candidates:
    space = asker.run.hardware.accelerators
    if wish.chip is not None:
        axes = _chip_named(asker, wish.chip)
    elif not wish.axes:
        return _Candidates(AcceleratorSet.of([asker.best.point.accelerator]), np.array([np.inf]))
    else:
        axes = wish.axes
    chosen = np.logical_and.reduce([getattr(space, name) == value for name, value in axes.items()])
    if chosen.any():
        rows = np.flatnonzero(chosen)
        accelerators = AcceleratorSet.of([space.accelerator(row) for row in rows.tolist()])
        return _Candidates(accelerators, _reach(asker, wish, accelerators))
    if len(axes) == len(AXES):
        chip = _outside(asker, axes)
        return _Candidates(
            AcceleratorSet.of([chip]), np.array([np.inf]), "This chip is not in the design space; it is priced all the same."
        )
    raise InputError(_nobody_has(space, wish, axes))


def _reach(asker: Asker, wish: Wish, accelerators: AcceleratorSet) -> FloatArray:
    """What no plan exceeds on each accelerator: as the run found, where it is about such plans; else infinity."""
    reach = np.full(len(accelerators), np.inf)
    if _unsearched(asker.study, wish) or not asker.unchanged:
        return reach
    designs = asker.finished.designs
    chosen = designs["hbm_bytes"].isin(_hbm_sizes(asker.study, wish))
    for name in ("micro_batch_size", "tp", "recompute"):
        if getattr(wish, name) is not None:
            chosen &= designs[name] == getattr(wish, name)
    for name, value in wish.axes.items():
        chosen &= designs[name] == value
    values = accelerator_values(asker.finished, designs[chosen])
    known = {values.accelerators.accelerator(row): values.reach[row] for row in range(len(values.accelerators))}
    return np.array([known.get(accelerators.accelerator(row), np.inf) for row in range(len(accelerators))])


def _chip_named(asker: Asker, name: str) -> dict[str, int]:
    known = {chip.name: chip.accelerator for chip in asker.run.hardware.references}
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InputError(f"the design space {asker.study.design_space} has no known chip {name!r}; it has {names}")
    return {key: value for key, value in vars(known[name]).items() if key != "area_mm2"}


def _outside(asker: Asker, axes: dict[str, int]) -> Accelerator:
    platform = load_design_space(asker.study.design_space, asker.study.technology).platform
    num_tc, num_vc, width, depth, width_vc, glb_bytes = (axes[name] for name in AXES)
    area = float(area_mm2(num_tc, num_vc, width, depth, width_vc, glb_bytes, platform))
    return Accelerator(num_tc, num_vc, width, depth, width_vc, glb_bytes, area)


def _nobody_has(space: AcceleratorSet, wish: Wish, axes: dict[str, int]) -> str:
    for name, value in axes.items():
        there = np.unique(getattr(space, name))
        if value not in there:
            shown = ", ".join(map(str, there.tolist()))
            return f"--instead {wish.asked}: no accelerator of the design space has {name} {value}; it has {shown}"
    asked = listed([f"{name} {value}" for name, value in axes.items()])
    return (
        f"--instead {wish.asked}: no accelerator of the design space has {asked} together, within its area; "
        "leave one of them open, or name all axes to price a chip outside the space"
    )


def _check(study: Study, wish: Wish) -> None:
    """Refuse widths and sizes that a model or the study cannot have."""
    from Estimator.hardware_files import load_cluster
    from GraphExtractor.models.registry import find_model
    from GraphExtractor.widths import check_key

    devices = load_cluster(study.cluster).num_devices
    if wish.tp is not None and wish.tp > devices:
        raise InputError(f"--instead {wish.asked}: tp {wish.tp} exceeds the {devices} devices of the cluster; make it smaller")
    if wish.micro_batch_size is not None and wish.micro_batch_size > study.global_batch_size:
        raise InputError(
            f"--instead {wish.asked}: micro-batch size {wish.micro_batch_size} exceeds the global batch size "
            f"{study.global_batch_size}; make it smaller"
        )
    for model in study.models:
        for width in study.tp_widths:
            check_key(study.graph_key(model.name, 1, width), find_model(model.name))
