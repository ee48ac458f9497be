"""The shortest schedule of moldable operators: branch and bound per series component, from the list
schedules found first.

An operator starts at the beginning or when another ends (start it earlier otherwise). At each such
moment the search starts further ready operators in some mode, or goes on to the next end. Every
rule keeps at least one shortest schedule:

* of interchangeable operators the one ready first, and followed by more, starts first (swap them);
* time does not pass the end of a ready operator that fits in some mode (start it: its cores are
  free until it ends);
* a mode is *barred* that would have fitted since the moment before, when its operator was ready
  (start it then);
* an operator with nothing to follow has the chip to itself only when all else is done (moved there,
  nothing is delayed);
* a state is left when weights (``moldable_bounds``), longest paths or an equal state that was no
  later prove it hopeless.

It ends after a number of nodes, never of seconds, so that results do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from Estimator.plans.results import Status
from Solver.schedule.moldable import CoreGroup, MoldableProblem, MoldableSchedule, Placed
from Solver.schedule.moldable_bounds import WeightBound, path_bound, weight_bound, work_bound
from Solver.schedule.structure import Component, members, series_components

NODE_LIMIT = 200_000  # per component: some ten seconds
PROVEN = 1e-9  # relative: optimal means within it
KEPT_STATES = 200_000
LISTS = 60  # list schedules tried before the search

Starts = dict[int, tuple[float, int]]  # start and number of the mode by operator


@dataclass(frozen=True)
class _Component:
    """A component with its modes and what bounds it."""

    component: Component
    modes: tuple[tuple[CoreGroup, ...], ...]
    num_tc: int
    num_vc: int

    def alone(self, mode: CoreGroup) -> bool:
        """Whether nothing may run beside."""
        return mode.tc == self.num_tc and mode.vc == self.num_vc


def schedule_moldable(
    problem: MoldableProblem, known: Sequence[Placed] = (), node_limit: int = NODE_LIMIT
) -> MoldableSchedule:
    """The shortest schedule, or the best that ``node_limit`` nodes per component find, no longer
    than ``known``."""
    durations = [max(mode.seconds for mode in modes) for modes in problem.modes]
    idle = [
        min(range(len(modes)), key=lambda number: modes[number].seconds) for modes in problem.modes
    ]
    works = [modes[number].seconds > 0 for modes, number in zip(problem.modes, idle, strict=True)]
    kept = sum(1 << place for place, each in enumerate(works) if each and durations[place] > 0)
    before = {each.operator: each for each in known}
    starts: Starts = {}
    clock_s = bound_s = 0.0
    nodes, proven = 0, True
    for component in series_components(problem.structure, kept):
        modes = tuple(problem.modes[place] for place in component.operators)
        part = _Component(component, modes, problem.num_tc, problem.num_vc)
        found = _solve(part, _part_of(before, component, modes), node_limit)
        for place, (start_s, mode) in found.starts.items():
            starts[component.operators[place]] = (clock_s + start_s, mode)
        clock_s += found.makespan_s
        bound_s += found.bound_s
        nodes += found.nodes
        proven &= found.bound_s >= found.makespan_s * (1.0 - PROVEN)
    placed = _with_instant(problem, starts, idle)
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    return MoldableSchedule(status, clock_s, min(bound_s, clock_s), placed, nodes)


def bounds_of(problem: MoldableProblem) -> tuple[float, float, float]:
    """What longest paths, core-seconds, and weights prove of the makespan, over all components."""
    kept = sum(
        1 << place
        for place, modes in enumerate(problem.modes)
        if min(mode.seconds for mode in modes) > 0
    )
    path = work = weighted = 0.0
    for component in series_components(problem.structure, kept):
        modes, cores = (
            [problem.modes[place] for place in component.operators],
            (problem.num_tc, problem.num_vc),
        )
        path += path_bound(component, modes)
        work += work_bound(modes, *cores)
        weighted += weight_bound(component, modes, *cores).bound_s
    return path, work, weighted


def _with_instant(
    problem: MoldableProblem, starts: Starts, fastest: Sequence[int]
) -> tuple[Placed, ...]:
    """All operators, those that take no time where their predecessors end."""
    from Solver.schedule.structure import closure

    order = closure(problem.structure)
    placed: dict[int, Placed] = {}
    for place in order.topological():
        ready_s = max(
            (placed[before].end_s for before in members(order.before[place])), default=0.0
        )
        start_s, mode = starts.get(place, (ready_s, fastest[place]))
        placed[place] = Placed(place, problem.modes[place][mode], start_s)
    return tuple(placed[place] for place in range(len(problem.modes)))


def _part_of(
    known: dict[int, Placed], component: Component, modes: Sequence[tuple[CoreGroup, ...]]
) -> Starts | None:
    """The stretch of a known schedule that runs ``component``, None where a mode of it is not among
    ``modes``."""
    parts = [known.get(place) for place in component.operators]
    begin_s = min((each.start_s for each in parts if each is not None), default=0.0)
    starts: Starts = {}
    for place, (each, mine) in enumerate(zip(parts, modes, strict=True)):
        if each is None:
            return None
        same = [
            n for n, mode in enumerate(mine) if (mode.tc, mode.vc) == (each.mode.tc, each.mode.vc)
        ]
        better = [
            n for n, mode in enumerate(mine) if mode.tc <= each.mode.tc and mode.vc <= each.mode.vc
        ]
        close = [n for n in same + better if mine[n].seconds <= each.mode.seconds * (1.0 + 1e-9)]
        if not close:
            return None
        starts[place] = (each.start_s - begin_s, close[0])
    return starts


@dataclass(frozen=True)
class _Found:
    starts: Starts
    makespan_s: float
    bound_s: float
    nodes: int


def _solve(part: _Component, known: Starts | None, node_limit: int) -> _Found:
    weights = weight_bound(part.component, part.modes, part.num_tc, part.num_vc)
    bounds = (
        path_bound(part.component, part.modes),
        work_bound(part.modes, part.num_tc, part.num_vc),
        weights.bound_s,
    )
    search = _Search(part, weights, max(bounds), node_limit)
    if known is not None:
        search.offer(_left_shifted(part, known))
    search.offer_lists()
    if not search.done:
        search.run()
    exhausted = search.nodes <= node_limit
    makespan_s = search.best_s
    bound_s = makespan_s if exhausted or search.done else search.bound_s
    return _Found(search.best, makespan_s, min(bound_s, makespan_s), min(search.nodes, node_limit))


def _left_shifted(part: _Component, starts: Starts) -> Starts:
    """The same modes placed one by one in the order of their starts, each as early as the cores
    allow: free of rounding."""
    order = sorted(
        starts,
        key=lambda place: (starts[place][0], part.component.order.before[place].bit_count(), place),
    )
    return _placed_in(part, order, {place: mode for place, (_, mode) in starts.items()})


def _placed_in(part: _Component, order: Sequence[int], chosen: dict[int, int]) -> Starts:
    """Operators one by one in ``order``, each as early as its predecessors and the cores allow."""
    placed: Starts = {}
    ends: dict[int, float] = {}
    for place in order:
        mode = part.modes[place][chosen[place]]
        ready = max(
            (ends[before] for before in members(part.component.order.before[place])), default=0.0
        )
        for start in sorted({ready, *(end for end in ends.values() if end > ready)}):
            if _fits(part, placed, ends, mode, start):
                break
        placed[place], ends[place] = (start, chosen[place]), start + mode.seconds
    return placed


def _fits(
    part: _Component, placed: Starts, ends: dict[int, float], mode: CoreGroup, start: float
) -> bool:
    end = start + mode.seconds
    beside = [place for place in placed if placed[place][0] < end and ends[place] > start]
    for moment in {start, *(placed[place][0] for place in beside if placed[place][0] > start)}:
        now = [part.modes[p][placed[p][1]] for p in beside if placed[p][0] <= moment < ends[p]]
        if (
            sum(each.tc for each in now) + mode.tc > part.num_tc
            or sum(each.vc for each in now) + mode.vc > part.num_vc
        ):
            return False
    return True


@dataclass
class _Search:
    part: _Component
    weights: WeightBound
    bound_s: float
    node_limit: int
    best: Starts = field(default_factory=dict)
    best_s: float = float("inf")
    nodes: int = 0

    def __post_init__(self) -> None:
        component, modes = self.part.component, self.part.modes
        count = len(modes)
        self.before = component.order.before
        self.followed = [after != 0 for after in component.order.after]
        fastest = [min(mode.seconds for mode in each) for each in modes]
        self.path = [0.0] * count
        for place in reversed(component.order.topological()):
            after = max(
                (self.path[later] for later in members(component.order.after[place])), default=0.0
            )
            self.path[place] = after + fastest[place]
        self.tail = [path - least for path, least in zip(self.path, fastest, strict=True)]
        topological = component.order.topological()
        self.priority = sorted(
            topological, key=lambda place: (-self.path[place], topological.index(place))
        )
        self.earlier = [
            sum(1 << j for j in members(mask) if modes[j] == modes[i])
            for i, mask in enumerate(component.earlier)
        ]
        self.weight = [float(each) for each in self.weights.weights_s]
        # modes in the order of what they get done beside what else could run: the mix's first, then
        # the least waste of weight
        self.tried = [
            sorted(range(len(each)), key=lambda n, mix=mix, each=each: (-mix[n], each[n].seconds))  # type: ignore[misc]
            for mix, each in zip(self.weights.mix_s, modes, strict=True)
        ]
        self.full = (1 << count) - 1
        self.seen: dict[tuple[int, tuple[tuple[int, int], ...]], list[_Seen]] = {}
        self.kept = 0

    @property
    def done(self) -> bool:
        return self.best_s <= self.bound_s * (1.0 + PROVEN)

    @property
    def cutoff(self) -> float:
        return self.best_s * (1.0 - PROVEN / 2)

    def offer(self, starts: Starts) -> None:
        """Keep a schedule if it is the shortest so far."""
        end = max(
            start + self.part.modes[place][mode].seconds for place, (start, mode) in starts.items()
        )
        if end < self.best_s:
            self.best, self.best_s = dict(starts), end

    def offer_lists(self) -> None:
        """List schedules: each operator alone at its fastest, in the modes of the mix, and in drawn
        ones."""
        modes, random = self.part.modes, np.random.default_rng(0)
        topological = self.part.component.order.topological()
        fastest = {
            place: min(range(len(each)), key=lambda n: each[n].seconds)
            for place, each in enumerate(modes)
        }
        self.offer(_placed_in(self.part, topological, fastest))
        mixed = {place: self.tried[place][0] for place in range(len(modes))}
        for number in range(LISTS):
            chosen = dict(mixed)
            if number:
                for place, mix in enumerate(self.weights.mix_s):
                    if mix.sum() > 0:
                        chosen[place] = int(random.choice(len(mix), p=mix / mix.sum()))
            if self.done:
                return
            self.offer(_placed_in(self.part, self._drawn_order(random if number else None), chosen))

    def _drawn_order(self, random: np.random.Generator | None) -> list[int]:
        """Operators in an order that keeps precedence, those with the longest paths first, or drawn
        ones."""
        keys = [
            self.path[place] * (1.0 if random is None else random.uniform(0.5, 1.5))
            for place in range(len(self.path))
        ]
        order: list[int] = []
        done = 0
        while done != self.full:
            ready = [
                p for p in range(len(keys)) if not done >> p & 1 and not self.before[p] & ~done
            ]
            order.append(max(ready, key=lambda place: keys[place]))
            done |= 1 << order[-1]
        return order

    def run(self) -> None:
        """Search everything."""
        rest = sum(self.weight)
        stack = [
            self._children(
                _State(0.0, 0, (), self.part.num_tc, self.part.num_vc, -1, 0, 0, 0, rest), {}
            )
        ]
        trail: list[int | None] = []
        starts: Starts = {}
        while stack:
            step = next(stack[-1], None)
            if step is None or self.done or self.nodes > self.node_limit:
                stack.pop()
                if trail:
                    last = trail.pop()
                    if last is not None:
                        del starts[last]
                continue
            state, started, mode = step
            if started is not None:
                starts[started] = (state.now, mode)
                if state.started == self.full:
                    self.offer(starts)
            trail.append(started)
            stack.append(self._children(state, starts))

    def _children(self, state: _State, starts: Starts):  # type: ignore[no-untyped-def]
        """What can be done next: (state, operator that starts or None, number of its mode)."""
        self.nodes += 1
        if state.started == self.full or self._hopeless(state):
            return
        part, finished = self.part, state.started
        for _, place, _ in state.running:
            finished &= ~(1 << place)
        ready = [
            p
            for p in self.priority
            if not state.started >> p & 1 and not self.before[p] & ~finished
        ]
        after_all = not state.running and all(
            not self.followed[p] for p in members(self.full & ~state.started)
        )
        next_end = min((end for end, _, _ in state.running), default=0.0)
        passes = bool(state.running)
        for position, place in enumerate(self.priority):
            if place not in ready:
                continue
            free_before = state.ready_before >> place & 1
            for number in self.tried[place]:
                mode = part.modes[place][number]
                if mode.tc > state.free_tc or mode.vc > state.free_vc:
                    continue
                barred = (
                    free_before
                    and mode.tc <= state.free_tc_before
                    and mode.vc <= state.free_vc_before
                )
                if passes and state.now + mode.seconds <= next_end:
                    passes = False
                if position <= state.position or barred or self.earlier[place] & ~state.started:
                    continue
                if part.alone(mode) and not self.followed[place] and not after_all:
                    continue
                end = state.now + mode.seconds
                if end + self.tail[place] >= self.cutoff:
                    continue
                yield (
                    _State(
                        state.now,
                        state.started | 1 << place,
                        (*state.running, (end, place, number)),
                        state.free_tc - mode.tc,
                        state.free_vc - mode.vc,
                        position,
                        state.ready_before,
                        state.free_tc_before,
                        state.free_vc_before,
                        state.rest - self.weight[place],
                    ),
                    place,
                    number,
                )
        if passes:
            going = tuple(each for each in state.running if each[0] > next_end)
            free_tc = state.free_tc + sum(
                part.modes[p][n].tc for end, p, n in state.running if end <= next_end
            )
            free_vc = state.free_vc + sum(
                part.modes[p][n].vc for end, p, n in state.running if end <= next_end
            )
            waiting = sum(1 << place for place in ready)
            yield (
                _State(
                    next_end,
                    state.started,
                    going,
                    free_tc,
                    free_vc,
                    -1,
                    waiting,
                    state.free_tc,
                    state.free_vc,
                    state.rest,
                ),
                None,
                0,
            )

    def _hopeless(self, state: _State) -> bool:
        cutoff = self.cutoff
        reach = state.now + state.rest
        for end, place, number in state.running:
            reach += self.weight[place] * (end - state.now) / self.part.modes[place][number].seconds
            if end + self.tail[place] >= cutoff:
                return True
        if reach >= cutoff:
            return True
        for place in members(self.full & ~state.started):
            if state.now + self.path[place] >= cutoff:
                return True
        return state.position < 0 and self._seen_before(state)

    def _seen_before(self, state: _State) -> bool:
        """Whether a state no later, with no more barred, was searched; else ``state`` is kept."""
        order = sorted(state.running, key=lambda each: each[1])
        key = state.started, tuple((place, number) for _, place, number in order)
        ends = tuple(end for end, _, _ in order)
        mine = _Seen(
            state.now, ends, state.ready_before, state.free_tc_before, state.free_vc_before
        )
        others = self.seen.setdefault(key, [])
        if any(other.covers(mine) for other in others):
            return True
        if self.kept < KEPT_STATES:
            others.append(mine)
            self.kept += 1
        return False


@dataclass(frozen=True, slots=True)
class _State:
    now: float
    started: int
    running: tuple[tuple[float, int, int], ...]  # end, operator, number of its mode
    free_tc: int
    free_vc: int
    position: int  # of the operator that was last started now, -1 for none
    ready_before: int  # operators that were ready at the moment before
    free_tc_before: int  # cores that stayed free since then
    free_vc_before: int
    rest: float  # weights of what has not started


@dataclass(frozen=True, slots=True)
class _Seen:
    now: float
    ends: tuple[float, ...]
    ready_before: int
    free_tc_before: int
    free_vc_before: int

    def covers(self, other: _Seen) -> bool:
        """Whether whatever is possible from ``other`` is from here, no later."""
        if self.now > other.now or any(
            mine > its for mine, its in zip(self.ends, other.ends, strict=True)
        ):
            return False
        if not self.ready_before:
            return True
        alike = all(
            mine - self.now == its - other.now
            for mine, its in zip(self.ends, other.ends, strict=True)
        )
        fewer = not self.ready_before & ~other.ready_before
        return (
            alike
            and fewer
            and self.free_tc_before <= other.free_tc_before
            and self.free_vc_before <= other.free_vc_before
        )
