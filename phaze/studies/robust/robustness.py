"""Whether the best design is still the best when constants are not what they are stated to be.

Constants are sampled by a Latin hypercube (McKay et al. 1979), each between the ends of its range
with its stated value in the middle of the distribution. Under every sample the whole space is
searched again: what bounds do not close is evaluated, and what is the best of a sample is followed
under all of them. Choosing a design costs its regret: what it loses to the best of a sample, as a
share. Besides, every constant is moved alone to the ends of its range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator
from phaze.runs.finished_run import FinishedRun
from phaze.runs.robustness import Contender, Influence, Robustness, Searched
from phaze.studies.robust.contenders import contenders_of
from phaze.studies.robust.sampled_space import TIE
from phaze.studies.robust.sampling import (
    Sampler,
    SearchedSamples,
    Switch,
    physics_of,
    sampled_factors,
    searched_again,
    spaces,
)
from phaze.studies.robust.uncertain import UncertainConstant, uncertain_constants
from phaze_common.errors import InputError
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.search_context import SearchContext

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

HARD_SAMPLES = 24  # in which chips that might have the least regret are evaluated
MOST_FOLLOWED = 32  # of those that all of these leave
RIVALS = 6  # contenders among which the switching value of a constant is looked for


def robustness(
    run: FinishedRun,
    *,
    samples: int,
    contenders: int,
    seed: int,
    workers: int,
    progress: Progress | None = None,
) -> Robustness:
    """How the best design of ``run``, and ``contenders`` others, fare under ``samples``.

    Raises: InputError: the run is of a device that exists, or found nothing, or cannot be repeated,
        or nothing works in any sample.
    """
    best = run.result.best
    if best is None or best.accelerator is None:
        raise InputError(
            f"{run.folder} is not a search of accelerators that found one, whose choice could be "
            "wrong; give the folder of one"
        )
    if best.chip is not None and any(use.bought is not None for use in best.chip.uses.values()):
        devices = max(plan.devices_used for plan in best.models.values())
        raise InputError(
            f"{run.folder} bought its devices with max_cluster_cost, which robust does not "
            f"sample; search with --devices {devices} instead, and ask again"
        )
    again, sampler = searched_again(run), Sampler(run, workers, progress or SilentProgress())
    physics = physics_of(again)
    constants = uncertain_constants(physics)
    sampled = sampled_factors(constants, samples, seed)
    study = _Study(sampler, again, sampled, contenders_of(run, again, physics, contenders))
    ends = np.ones((1 + 2 * len(constants), len(constants)))
    for place, constant in enumerate(constants):
        ends[2 * place + 1, place], ends[2 * place + 2, place] = constant.low, constant.high
    alone = sampler.values(study.rows, ends, "each constant alone")
    works = study.best > 0.0
    if not works.any():
        raise InputError(
            f"{run.folder}: in none of {samples:,} samples does any design of its space keep the "
            "limits and hold a plan, so that nothing could be regretted; search with wider "
            "limits, and ask again"
        )
    regrets, values = _regrets(study.values, study.best)[works], study.values[works]
    chips = [again.hardware.accelerator(int(row)) for row in study.rows]
    each = [
        _contender(chip, regrets[:, place], values[:, place])
        for place, chip in enumerate(chips)
        if chip is not None
    ]
    influences = _influences(sampler, study.rows, constants, alone)
    influences.sort(key=lambda one: -max(one.regret_low, one.regret_high, _span(one) * TIE))
    return Robustness(
        run=str(run.folder),
        samples=samples,
        samples_without_any=int((~works).sum()),
        seed=seed,
        chosen=each[0],
        least_regret=min(each, key=lambda one: (one.worst_regret, one.expected_regret)),
        contenders=tuple(sorted(each, key=lambda one: one.expected_regret)),
        influences=tuple(influences),
        searched=study.searched,
    )


class _Study:
    """Chips ``rows``, the chosen one first, ``values`` (samples, rows) and each sample's best."""

    def __init__(
        self, sampler: Sampler, run: SearchContext, factors: FloatArray, rows: IntArray
    ) -> None:
        self._sampler, self._run, self._factors, self.rows = sampler, run, factors, rows
        self._found: SearchedSamples = sampler.searched(rows, factors)
        self.values = self._found.values
        self.best = np.array([each.value for each in self._found.bests])
        winners = [each.row for each in self._found.bests if each.row >= 0]
        self._follow(winners, "designs that win under samples")
        left = self._rivals()
        self._follow(left[:MOST_FOLLOWED].tolist(), "designs of little regret")
        self._undecided = left[MOST_FOLLOWED:]

    @property
    def searched(self) -> Searched:
        """How the space was searched."""
        bests = self._found.bests
        least = np.delete(self._found.least_regret, self.rows)
        worst = self._worst
        undecided = self._undecided[self._found.least_regret[self._undecided] < worst - TIE]
        bound = float(self._found.least_regret[undecided].min(initial=min(worst, 1.0)))
        return Searched(
            designs=len(least) + len(self.rows),
            scheduled=float(np.mean([each.scheduled for each in bests])),
            evaluated=float(np.mean([each.evaluated for each in bests])),
            proven=sum(each.proven for each in bests),
            least_regret_bound=bound,
            undecided=len(undecided),
        )

    @property
    def _worst(self) -> float:
        """The least regret at worst of all that are followed."""
        return float(_regrets(self.values, self.best).max(axis=0).min())

    def _follow(self, rows: list[int], what: str) -> None:
        new = np.setdiff1d(np.array(rows, dtype=np.int64), self.rows)
        if len(new):
            more = self._sampler.values(new, self._factors, what)
            self.rows = np.concatenate([self.rows, new])
            self.values = np.hstack([self.values, more])
            self.best = np.maximum(self.best, more.max(axis=1))

    def _rivals(self) -> IntArray:
        """Other chips that might have less regret at worst, the most promising first.

        They are evaluated under the samples in which contenders have the most, where most of them
        lose as much.
        """
        bound, worst = self._found.least_regret, self._worst
        regrets = _regrets(self.values, self.best)
        left = np.setdiff1d(np.flatnonzero(bound < worst - TIE), self.rows)
        order = np.argsort(regrets.max(axis=0), kind="stable")
        worst_of_each = regrets[:, order].argmax(axis=0)
        most_lost = np.argsort(-regrets.mean(axis=1), kind="stable")
        hard = list(dict.fromkeys([*worst_of_each.tolist(), *most_lost.tolist()]))[:HARD_SAMPLES]
        with self._sampler.progress.phase("regret of other designs", len(hard)) as advance:
            for sample, space in zip(hard, spaces(self._run, self._factors[hard]), strict=True):
                if len(left) > MOST_FOLLOWED:
                    left = left[space.reaching(left, self.best[sample] * (1.0 - worst))]
                advance(1)
        return left[np.argsort(bound[left], kind="stable")]


def _regrets(values: FloatArray, best: FloatArray) -> FloatArray:
    """What each chip loses, (samples, chips); nothing where there is nothing to lose."""
    lost = 1.0 - values / np.where(best > 0.0, best, 1.0)[:, None]
    return np.where(best[:, None] > 0.0, np.maximum(lost, 0.0), 0.0)


def _span(influence: Influence) -> float:
    return abs(influence.value_high - influence.value_low)


def _distance(factor: float) -> float:
    """How far a factor is from 1."""
    return float(abs(np.log(max(factor, 1e-9))))


def _contender(chip: Accelerator, regrets: FloatArray, values: FloatArray) -> Contender:
    wins, fails = (regrets <= TIE) & (values > 0.0), values == 0.0
    shares = (wins.mean(), fails.mean(), regrets.mean(), regrets.max())
    return Contender(chip, *map(float, shares))


def _influences(
    sampler: Sampler, rows: IntArray, constants: Sequence[UncertainConstant], alone: FloatArray
) -> list[Influence]:
    """What each constant does; ``alone`` are values as stated, then at both ends of each range."""
    nominal, lost = alone[0, 0], _regrets(alone, alone.max(axis=1))[:, 0]
    switches = []
    for place, constant in enumerate(constants):
        for row, end in enumerate((constant.low, constant.high), start=1 + 2 * place):
            if lost[row] > TIE:
                rivals = np.argsort(-alone[row], kind="stable")[:RIVALS]
                switches.append(Switch(place, end, rows[[0, *rivals.tolist()]]))
    factors = dict[int, list[float]]()
    for switch, factor in zip(switches, sampler.switches(switches), strict=True):
        factors.setdefault(switch.place, []).append(factor)
    return [
        Influence(
            name=constant.name,
            low=constant.low,
            high=constant.high,
            value_low=float(alone[1 + 2 * place, 0] / nominal),
            value_high=float(alone[2 + 2 * place, 0] / nominal),
            regret_low=float(lost[1 + 2 * place]),
            regret_high=float(lost[2 + 2 * place]),
            switches_at=min(factors.get(place, ()), key=_distance, default=None),
            source=constant.source,
        )
        for place, constant in enumerate(constants)
    ]
