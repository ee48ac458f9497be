"""Seconds that no plan of a shape is below on hardware of which only the work of all layers is
known.

Where all layers take W seconds of a device for a micro-batch, R of them in n layers that are alike,
the longest of pp stages takes V >= W / pp and V >= ceil(n / pp) R / n, since some stage has so many
of these. With m micro-batches, by ``Solver.plans.bounds``, an iteration takes at least what
messages, the first stage's exchanges and the step do, and

    m W                     on one stage
    2 W + (m - 1 - pp) V    where micro-batches outnumber stages; the longest's waits count once
    W + (m - 1) V / 2       where they do not, and imbalance could be waited for
    max(m V, W)             with interleaved stages

Where micro-batches outnumber stages, the stages exchange what is left of their gradients and
weights after that but for the backward passes of those before them. With ``a / n`` seconds of
exchanges for each of the like layers, B / n of backward passes, stage j with ``s_j`` of them adds
``s_j a / n - (s_1 + ... + s_{j-1}) B / n``. If none adds more than t, ``s_j`` grows by a factor of
``1 + B / a`` at most from stage to stage, and all are n only if

    t >= B / ((1 + B / a)^pp - 1) >= a / pp - B (pp - 1) / (2 pp),

the tangent of a convex function. If no stage has more than v = ceil(n / pp), at most v pp - n of
them have less, so that no more than (v - 1) (v pp - n) layers are before the first that has v:

    t >= v a / n - (v - 1) (v pp - n) B / n;

else V >= (v + 1) R / n. A second of a stage's passes hides h seconds of its exchanges, so a is less
by h R; the passes of other layers hide at most their length before it, and h times their length
within it.

So a plan's least time is that of a line in W, R and R's forward part, and the least of all plans
that fit in memory bounds a million chips."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from Estimator.compiled import borrowing_outer, outer
from Estimator.plans.layer_costs import LayerCosts, PassCosts
from Estimator.plans.stage_price import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from phaze_common.array_types import BoolArray, FloatArray, IntArray, fieldwise
from Solver.pareto import nondominated
from Solver.paths.cut_bounds import ROUNDING
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.shape_plans import ShapePlans

# Of work in like layers, for which plans that fit are told from those that do not
SHARES = (0.0, 0.5, 0.8, 0.9, 1.0)
# Lines that are all looked at; else steps, relative or of a second, of fewer ones
FEW, STEP, HIDDEN_STEPS = 32, 0.003, 16
ALL = 1e6  # seconds that a second hides where no exchange shows
# Of taking lines away whose plans do not fit; those that stay only make the bound weaker
MOST_ROUNDS = 24


@dataclass(frozen=True)
class LikeLayers:
    """Layers of a model that are alike: their places, and the parameters and experts of each."""

    places: tuple[int, ...]
    parameters: float
    expert_parameters: float

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.places)


@dataclass(frozen=True, eq=False)
class Work:
    """Seconds of all layers for a micro-batch, of like ones, and these forward; (chips,) each."""

    whole_s: FloatArray
    alike_s: FloatArray
    forward_s: FloatArray

    @classmethod
    def of(cls, costs: LayerCosts, alike: LikeLayers) -> Work:
        """That of chips whose layers have such ``costs``."""
        layers, like = costs.sizes.distinct, np.array(alike.places, dtype=np.int64)
        forward_s, recompute_s, backward_s = (
            each.arithmetic_s[:, layers]
            for each in (costs.forward, costs.recompute, costs.backward)
        )
        passes_s = forward_s + recompute_s + backward_s
        return cls(
            passes_s.sum(axis=1), passes_s[:, like].sum(axis=1), forward_s[:, like].sum(axis=1)
        )

    def or_less(self, other: Work) -> Work:
        """The least of both, number by number."""
        return fieldwise(np.minimum, self, other)

    def some(self, chips: BoolArray) -> Work:
        """That of some chips."""
        return fieldwise(lambda each: each[chips], self)


@dataclass(frozen=True, eq=False)
class LeastIterations:
    """The least of some lines, (lines,) each by rising ``constant_s``; none where no plan fits.

    A line is ``max(even W, fixed W + alike R) + max(sync_s - hidden (R - F) - hiding R - others (W
    - R), 0) + constant_s`` with F the forward part of R."""

    even: FloatArray
    fixed: FloatArray
    alike: FloatArray
    sync_s: FloatArray
    hidden: FloatArray  # by backward passes of like layers in stages before
    hiding: FloatArray  # by passes beside which the exchanges run
    others: FloatArray
    constant_s: FloatArray

    @classmethod
    def shared_out(cls, part: float) -> LeastIterations:
        """All work divided evenly: ``part`` of it, and nothing else."""
        nothing, everything = np.zeros(1), np.full(1, ALL)
        return cls(
            np.array([part]), nothing, nothing, nothing, nothing, everything, everything, nothing
        )

    def __len__(self) -> int:
        return len(self.constant_s)

    def of_parts(self, part: float) -> LeastIterations:
        """The same where ``part`` of the work told is done."""
        per_work = {
            name: getattr(self, name) * part
            for name in ("even", "fixed", "alike", "hidden", "hiding", "others")
        }
        return replace(self, **per_work)

    def seconds(self, work: Work) -> FloatArray:
        """Seconds that no plan is below where a micro-batch takes ``work``, shape (chips,);
        infinite where no plan fits.

        They grow with each number of ``work``, which so may be too small."""
        seconds: FloatArray = np.empty(len(work.whole_s))
        lines = self._few(work) if len(self) > FEW else self
        _fill_least(lines._columns, work.whole_s, work.alike_s, work.forward_s, seconds)
        return seconds

    def of_each(self, whole_s: float, alike_s: float, forward_s: float) -> FloatArray:
        """Every line where layers take so long, shape (lines,)."""
        like_s = min(alike_s, whole_s)
        shown_s = self.sync_s - self.hidden * max(like_s - forward_s, 0.0) - self.hiding * like_s
        shown_s -= self.others * (whole_s - like_s)
        fewest_s = np.maximum(self.even * whole_s, self.fixed * whole_s + self.alike * like_s)
        least_s: FloatArray = fewest_s + self.constant_s + np.maximum(shown_s, 0.0)
        return least_s

    def _few(self, work: Work) -> LeastIterations:
        """Fewer lines, nowhere higher, and hardly lower where there is at least ``work``."""
        least = np.empty(1)
        least_work = (
            getattr(work, each.name).min(keepdims=True, initial=np.inf) for each in fields(work)
        )
        _fill_least(self._columns, *least_work, least)
        if not np.isfinite(least[0]):
            return self
        step_s = STEP * least[0]
        return replace(
            self,
            even=_slightly_less(self.even),
            alike=_slightly_less(self.alike),
            sync_s=np.floor(self.sync_s / step_s) * step_s,
            hidden=np.ceil(self.hidden * HIDDEN_STEPS) / HIDDEN_STEPS,
            hiding=np.ceil(self.hiding * HIDDEN_STEPS) / HIDDEN_STEPS,
            others=np.ceil(self.others * HIDDEN_STEPS) / HIDDEN_STEPS,
            constant_s=np.floor(self.constant_s / step_s) * step_s,
        ).lowest()

    @property
    def _columns(self) -> tuple[FloatArray, ...]:
        return tuple(getattr(self, column.name) for column in fields(self))

    def lowest(self) -> LeastIterations:
        """These without those that are nowhere below another one.

        With B <= R <= W it is enough to compare lines where all work is in other layers, in like
        ones forward, or backward."""
        both = self.fixed + self.alike
        forms = self.even, both
        corners = [each - self.hiding - more for each in forms for more in (0.0, self.hidden)]
        corners += [each - self.others for each in (self.even, self.fixed)]
        less_is_better = np.stack(
            [*forms, self.fixed, *corners, self.sync_s, self.constant_s], axis=1
        )
        kept = np.flatnonzero(nondominated(-np.ascontiguousarray(less_is_better)))
        return self._some(kept[np.argsort(self.constant_s[kept], kind="stable")])

    def _some(self, rows: IntArray | BoolArray) -> LeastIterations:
        return fieldwise(lambda column: column[rows], self)


@dataclass(frozen=True, eq=False)
class PlanLines:
    """Two lines of every plan, (plans,) each in their order, one of which it is not below.

    Either no stage has more of the like layers than one of as many stages must have, or one has."""

    fewest: LeastIterations
    more: LeastIterations

    @classmethod
    def of(cls, plans: ShapePlans, memory_bytes: float, alike: LikeLayers) -> PlanLines:
        """Those of ``plans``, infinite where plans are known not to fit in ``memory_bytes``."""
        constant_s = ConfigurationPlans(
            plans, _no_work(plans), 0, memory_bytes
        ).first_stage_bounds_s()
        constant_s[plans.relaxed_bytes > memory_bytes * (1.0 + ROUNDING)] = np.inf
        return cls(*_lines(plans, alike, constant_s))

    def seconds(self, whole_s: float, alike_s: float, forward_s: float) -> FloatArray:
        """Seconds that each plan is not below where layers take so long, shape (plans,)."""
        return np.minimum(
            *(each.of_each(whole_s, alike_s, forward_s) for each in (self.fewest, self.more))
        )


def least_iterations(plans: ShapePlans, memory_bytes: float, alike: LikeLayers) -> LeastIterations:
    """Of the plans that fit, the lines least where much or little is in the layers ``alike``."""
    both = PlanLines.of(plans, memory_bytes, alike)
    lines, constant_s = both.fewest, both.fewest.constant_s
    fit = np.isfinite(constant_s)
    for share in SHARES:
        slope = np.maximum(lines.even, lines.fixed + lines.alike * share)
        for _ in range(MOST_ROUNDS):
            order = _in_order(slope, constant_s)
            order = order[fit[order]]
            corners = order[_envelope(slope[order], constant_s[order])]
            unfit = [place for place in corners.tolist() if not plans.may_fit(place, memory_bytes)]
            if not unfit:
                break
            fit[unfit] = False
    return least_of([lines._some(fit), both.more._some(fit)])


def least_of(several: Sequence[LeastIterations]) -> LeastIterations:
    """The least of all lines of ``several``."""
    return fieldwise(lambda *columns: np.concatenate(columns), *several).lowest()


def _slightly_less(slopes: FloatArray) -> FloatArray:
    rounded = np.exp(np.floor(np.log(np.maximum(slopes, STEP)) / STEP) * STEP)
    return np.where(slopes > STEP, rounded, 0.0)


def _in_order(slope: FloatArray, constant_s: FloatArray) -> IntArray:
    return np.lexsort((constant_s, -slope))


def _lines(
    plans: ShapePlans, alike: LikeLayers, constant_s: FloatArray
) -> tuple[LeastIterations, LeastIterations]:
    """Two lines of every plan, one of which holds: fewest like layers in a stage, or more."""
    pp, count = plans.plans.pp.astype(np.float64), plans.plans.micro_batches.astype(np.float64)
    several, outnumber = ~plans.interleaved & (pp > 1.0), count > pp
    of_longest = np.where(outnumber, count - 1.0 - pp, (count - 1.0) / 2.0)
    of_longest = np.where(several, of_longest, count)  # V is all of W on one stage
    fixed = np.where(several, np.where(outnumber, 2.0, 1.0), 0.0)
    even = fixed + of_longest / pp
    even[plans.interleaved] = np.maximum(even[plans.interleaved], 1.0)
    per_layer_s, hides = _exchanges(plans, alike)
    bounds, count_alike = plans.bounds, max(alike.count, 1)
    messages_s = (pp - 1.0) * bounds.least_messages_s + (count - 1.0) * bounds.least_one_way_s * (
        pp > 1.0
    )
    back_s = (pp - 1.0) * bounds.most_one_way_s
    after = ~plans.interleaved & (outnumber | (pp == 1.0))
    rest_s = np.where(after, messages_s + bounds.least_step_s - constant_s - back_s, -np.inf)
    most = np.ceil(alike.count / pp)
    before = (most - 1.0) * (most * pp - alike.count) / count_alike
    evenly = (pp - 1.0) / (2.0 * pp)

    def lines(layers: FloatArray, in_stage: FloatArray, hidden: FloatArray) -> LeastIterations:
        """``layers`` alike in the longest stage, ``in_stage`` whose exchanges are ``hidden``."""
        sync_s = per_layer_s * in_stage + rest_s
        shows = sync_s > 0.0
        return LeastIterations(
            even=even,
            fixed=fixed,
            alike=of_longest * layers / count_alike,
            sync_s=np.where(shows, sync_s, 0.0),
            hidden=np.where(shows, hidden, 0.0),
            hiding=np.where(shows, hides * in_stage / count_alike, ALL),
            others=np.where(shows, np.where(pp > 1.0, 1.0 + hides, hides), ALL),
            constant_s=constant_s,
        )

    whole = before < evenly
    fewest = lines(most, np.where(whole, most, alike.count / pp), np.where(whole, before, evenly))
    return fewest, lines(most + 1.0, alike.count / pp, evenly)


def _exchanges(plans: ShapePlans, alike: LikeLayers) -> tuple[FloatArray, FloatArray]:
    """Seconds of the exchanges of a like layer once per iteration, and how many of them a second of
    its passes hides; (plans,).

    Collectives of very much: what is fixed of them counts once a stage, and is left out."""
    seconds, hides = np.zeros((2, len(plans)))
    sent = {0: (ALL_REDUCE,), 1: (REDUCE_SCATTER, ALL_GATHER), 2: (ALL_GATHER,)}
    for rows, rates in plans.rates_in_parts():
        usable = np.isfinite(rates.groups.fixed_s)
        per_byte_s = np.where(usable, rates.groups.per_byte_s, np.inf).min(axis=-1).max(axis=-1)
        # What inner levels divide a tensor by
        left = np.cumprod(rates.groups.sizes, axis=-1) / rates.groups.sizes
        # (plans, kinds of collectives, of parameters)
        per_byte_s = (per_byte_s / left[:, None]).sum(axis=-1)[rates.group]
        experts = alike.expert_parameters if rates.expert_split else 0.0
        parameters = np.array([alike.parameters - experts, experts])
        bytes_each = dict.fromkeys((ALL_REDUCE, REDUCE_SCATTER), rates.gradient_bytes)
        bytes_each[ALL_GATHER] = rates.weight_bytes
        for stage, kinds in sent.items():
            here = rates.zero_stage == stage
            for kind in kinds:
                seconds[rows[here]] += per_byte_s[here, kind] @ parameters * bytes_each[kind]
        hides[rows] = np.where(rates.overlap_data, rates.hidden_part, 0.0)
    return seconds, hides


def _no_work(plans: ShapePlans) -> LayerCosts:
    nothing = np.zeros((1, len(plans.sizes.parameters)))
    idle = PassCosts.of_total(nothing)
    return LayerCosts(
        plans.graph, plans.plans.shape.recompute, plans.sizes, idle, idle, idle, nothing
    )


@outer
def _envelope(slope: FloatArray, constant_s: FloatArray) -> IntArray:
    """Lines that are the least somewhere; by falling slope, equal ones by rising constant."""
    kept = np.empty(len(slope), np.int64)
    count = 0
    # a steeper line is of use only where it starts below all that are less steep
    for line in range(len(slope) - 1, -1, -1):
        if (
            count > 0
            and slope[line] == slope[kept[count - 1]]
            and constant_s[line] <= constant_s[kept[count - 1]]
        ):
            count -= 1
        if count > 0 and constant_s[line] >= constant_s[kept[count - 1]]:
            continue
        while count > 1:
            near, far = kept[count - 1], kept[count - 2]
            with_far = (constant_s[far] - constant_s[line]) * (slope[line] - slope[near])
            with_near = (constant_s[near] - constant_s[line]) * (slope[line] - slope[far])
            if with_far > with_near:
                break
            count -= 1
        kept[count] = line
        count += 1
    return kept[:count][::-1].copy()


@borrowing_outer
def _fill_least(
    lines: tuple[FloatArray, ...],
    whole_s: FloatArray,
    alike_s: FloatArray,
    forward_s: FloatArray,
    seconds: FloatArray,
) -> None:
    """Lines by rising constant: none that starts above what was found is looked at."""
    even, fixed, alike, sync_s, hidden, hiding, others, constant_s = lines
    for chip in range(len(whole_s)):
        work, best = whole_s[chip], np.inf
        like = min(alike_s[chip], work)
        other, backward = work - like, max(like - forward_s[chip], 0.0)
        for line in range(len(even)):
            if constant_s[line] >= best:
                break
            shown_s = (
                sync_s[line] - hidden[line] * backward - hiding[line] * like - others[line] * other
            )
            least_s = (
                max(even[line] * work, fixed[line] * work + alike[line] * like) + constant_s[line]
            )
            best = min(best, least_s + max(shown_s, 0.0))
        seconds[chip] = best
