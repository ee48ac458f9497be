"""What the plans that were not chosen take on the best hardware, axis by axis, as the run found."""

from __future__ import annotations

from collections.abc import Iterator

from Estimator.plans.axes import plan_axis
from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.sentences.designs import EQUAL, axis_value_text, capitalised, listed
from phaze_common.numbers import at_least, percent
from Solver.results import AxisValue, AxisValues, DesignPoint

FEW = 5  # values of an axis that are named
SWITCHED = {"true": "on", "false": "off"}
SAID_WITH_DESIGNS = frozenset({"micro_batch_size"})  # each size with the best design for it


def other_plans(best: DesignPoint) -> Iterator[str]:
    """How much longer the fastest plans with other values take, for every axis of the plan."""
    for axis in best.axes:
        if axis.model is not None and axis.axis not in SAID_WITH_DESIGNS:
            yield _other_values(axis, f" of {label(axis.model)}" if len(best.models) > 1 else "")


def _other_values(axis: AxisValues, of_the_model: str) -> str:
    words, best = f"{plan_axis(axis.axis).axis.title}{of_the_model}", axis.optimum.reached
    others = [value for value in axis.values if value.value != axis.chosen]
    others.sort(key=lambda value: -value.bound)
    named = others if len(others) <= FEW + 1 else others[:FEW]
    said = [f"{_shown(value)} {_longer(value, best)}" for value in named]
    if len(others) > len(named):
        nearest, rest = others[FEW], "do not fit"
        if nearest.status is not Status.INFEASIBLE:
            least = best / nearest.bound - 1
            rest = f"take {at_least(least, 'longer')}" if least > EQUAL else "are no faster"
        which = " compared" if len(axis.values) < axis.values_there_are else ""
        said.append(f"{len(others) - len(named)} others{which} {rest}")
    chosen = f"{capitalised(words)} {_shown(axis.optimum)}"
    return f"{chosen} is best, all else chosen anew: {listed(said)}."


def _longer(value: AxisValue, best: float) -> str:
    """How much longer the fastest plan with ``value`` takes than one that reaches ``best``."""
    if value.status is Status.INFEASIBLE:
        return "does not fit"
    least, most = best / value.bound - 1, best / value.reached - 1
    if most <= least + EQUAL:
        return f"takes {percent(most)} longer" if most > EQUAL else "takes as long"
    ends = percent(least), percent(most)
    if least <= EQUAL or ends[0].startswith("less") or ends[0] == ends[1]:
        return f"takes at most {ends[1]} longer"
    return f"takes {ends[0]} to {ends[1]} longer"


def _shown(value: AxisValue) -> str:
    """A value of an axis as people say it."""
    return SWITCHED.get(value.value, axis_value_text(value))
