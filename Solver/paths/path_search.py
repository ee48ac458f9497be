"""Compiled search through all plans whose stages differ, depth first from the first stage under the
tables of ``bounds``."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.compiled import inner, outer
from Estimator.plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s
from Solver.paths.bounds import BEHIND_LARGEST, WITH_LARGEST, StageSpace, weights

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FORWARD, BACKWARD, AFTER, STEP = range(4)  # columns of ``OptionSpace.priced``
DEVICES, PARTS, TENSOR, GRAPH, SIZE = range(5)  # columns of ``OptionSpace.faces``
ROUNDING = 1e-12  # relative: bounds this close to a value cannot beat it


class OptionSpace(NamedTuple):
    """Options of stages, in the order of their sizes: those of size i are ``first[i]`` to ``first[i
    + 1]``.

    ``priced`` (options, classes, most stages, 4) are seconds; ``faces`` (options, 5) what messages
    depend on, see ``Estimator.plans.heterogeneous.messages``. ``rows_bytes`` (graphs, 2, nodes)
    cross into every node forward, and back; a target gathers them in ``gather_s`` (options, graphs,
    2, nodes). ``tier_sizes`` (tiers,) are devices of their blocks. ``tied`` (options,) ranks what
    an end of the pipeline shares with the other, in ``tied_s`` (ranks, devices) seconds over each
    stride.
    """

    first: IntArray
    priced: FloatArray
    faces: IntArray
    rows_bytes: FloatArray
    gather_s: FloatArray
    tier_sizes: IntArray
    latency_s: FloatArray
    per_byte_s: FloatArray
    tied: IntArray
    tied_s: FloatArray


@inner
def message_s(
    options: OptionSpace, source: int, target: int, way: int, node: int, first: int, last: int
) -> float:
    """Seconds of what crosses into ``node``, forward (``way`` 0) or back, between stages on the
    devices ``first`` to ``last``."""
    rows_bytes = options.rows_bytes[options.faces[source, GRAPH], way, node]
    if rows_bytes <= 0.0:
        return 0.0
    tier = len(options.tier_sizes) - 1
    for number in range(len(options.tier_sizes) - 1):
        if first // options.tier_sizes[number] == last // options.tier_sizes[number]:
            tier = number
            break
    needed = rows_bytes / options.faces[target, PARTS]
    more = max(1.0, options.faces[target, DEVICES] / options.faces[source, DEVICES])
    seconds = options.latency_s[tier] + options.per_byte_s[tier] * needed * more
    tensor = options.faces[target, TENSOR]
    if tensor > 1:
        scattered = options.latency_s[tier] + options.per_byte_s[tier] * (needed / tensor) * more
        seconds = min(
            seconds, scattered + options.gather_s[target, options.faces[source, GRAPH], way, node]
        )
    return seconds


class Searched(NamedTuple):
    """Seconds of the best plan found (what was known before, where none is better), and whether
    every plan was looked at."""

    seconds: float
    complete: bool
    stages: int
    steps: int


@outer
def search_paths(
    space: StageSpace,
    options: OptionSpace,
    tables: FloatArray,
    least_s: float,
    most_s: float,
    best_s: float,
    most_steps: int,
    path: IntArray,
) -> Searched:
    """The best plan that beats ``best_s`` with the largest load from ``least_s`` to ``most_s``, as
    ``tables`` were made for.

    Fills ``path`` (most stages, 3) with edge, option and first device of every stage.
    """
    most_stages, everything = tables.shape[1], len(space.first) - 2
    edge, option = np.empty(most_stages, np.int64), np.empty(most_stages, np.int64)
    node, device = np.zeros(most_stages + 1, np.int64), np.zeros(most_stages + 1, np.int64)
    forward_s, backward_s, after_s, step_s, load_s = np.zeros((5, most_stages))
    scratch = np.empty((SCRATCH_ROWS + 1, most_stages))
    steps, found = 0, 0
    for stages in range(1, most_stages + 1):
        if not space.stage_counts[stages]:
            continue
        limit_s = best_s * (1.0 - ROUNDING)
        if tables[WITH_LARGEST, stages - 1, everything, 0] >= limit_s:
            continue
        place, node[0], device[0] = 0, everything, 0
        edge[0], option[0] = space.first[everything], -1
        while place >= 0:
            option[place] += 1
            if option[place] == len(options.faces):
                option[place] = -1
                edge[place] += 1
                if edge[place] == space.first[node[place] + 1]:
                    place -= 1
                    continue
                continue
            behind = stages - 1 - place
            part, chosen = space.part[edge[place]], option[place]
            if (part == 0) != (behind == 0) or (behind > 0 and space.depth[part] < behind):
                option[place] = len(options.faces) - 1  # the next edge
                continue
            size, begin = options.faces[chosen, SIZE], device[place]
            end = begin + space.sizes[size]
            ends_there = end < space.devices if behind > 0 else end <= space.devices
            if behind == 0 and space.all_devices:
                ends_there = end == space.devices
            if not ends_there or not space.lies[size, begin]:
                option[place] = options.first[size + 1] - 1  # the next size
                continue
            number = space.class_of[edge[place]]
            priced = options.priced[chosen, number, behind]
            if priced[FORWARD] == np.inf:
                continue
            rest_s = tables[BEHIND_LARGEST, behind - 1, part, end] if behind > 0 else 0.0
            least_rest_s = tables[WITH_LARGEST, behind - 1, part, end] if behind > 0 else np.inf
            if rest_s == np.inf:
                continue
            steps += 1
            if steps > most_steps:
                return Searched(best_s, False, found, steps)
            forward_s[place], backward_s[place] = priced[FORWARD], priced[BACKWARD]
            after_s[place], step_s[place] = priced[AFTER], priced[STEP]
            if place > 0:
                before = option[place - 1]
                ahead_s = message_s(
                    options, before, chosen, 0, node[place], device[place - 1], end - 1
                )
                earlier = options.priced[before, space.class_of[edge[place - 1]], behind + 1]
                forward_s[place - 1] = earlier[FORWARD] + ahead_s
                backward_s[place] += message_s(
                    options, chosen, before, 1, node[place], device[place - 1], end - 1
                )
                load_s[place - 1] = forward_s[place - 1] + backward_s[place - 1]
                if load_s[place - 1] > most_s * (1.0 + ROUNDING):
                    continue
            load_s[place] = forward_s[place] + backward_s[place]
            if behind > 0:
                load_s[place] += space.forward_s[space.tier_at[end], size, part]
            if load_s[place] > most_s * (1.0 + ROUNDING):
                continue
            once_s = after_s[0]
            largest_step_s = 0.0
            for each in range(place + 1):
                largest_step_s = max(largest_step_s, step_s[each])
            if (
                _bound(space, load_s, place, behind, rest_s, least_rest_s, least_s)
                + once_s
                + largest_step_s
                >= limit_s
            ):
                continue
            if behind == 0:
                if stages > 1:
                    shared_s = options.tied_s[
                        max(options.tied[option[0]], options.tied[chosen]), device[place]
                    ]
                    after_s[0], after_s[place] = once_s + shared_s, after_s[place] + shared_s
                for each in range(1, stages):
                    # what a stage sends back after its last backward pass is not waited for
                    after_s[each] -= message_s(
                        options,
                        option[each],
                        option[each - 1],
                        1,
                        node[each],
                        device[each - 1],
                        device[each] + space.sizes[options.faces[option[each], SIZE]] - 1,
                    )
                seconds = (
                    finish_in_s(
                        forward_s[:stages],
                        backward_s[:stages],
                        after_s[:stages],
                        space.micro_batches,
                        scratch[:, :stages],
                    )
                    + largest_step_s
                )
                for each in range(stages):
                    after_s[each] = options.priced[
                        option[each], space.class_of[edge[each]], stages - 1 - each, AFTER
                    ]
                if seconds < best_s:
                    best_s, found = seconds, stages
                    limit_s = best_s * (1.0 - ROUNDING)
                    for each in range(stages):
                        path[each, 0], path[each, 1], path[each, 2] = (
                            edge[each],
                            option[each],
                            device[each],
                        )
                continue
            place += 1
            node[place], device[place] = part, end
            edge[place], option[place] = space.first[part], -1
    return Searched(best_s, True, found, steps)


@inner
def _bound(
    space: StageSpace,
    load_s: FloatArray,
    place: int,
    behind: int,
    rest_s: float,
    least_rest_s: float,
    least_s: float,
) -> float:
    """Seconds that no plan beats that begins with the stages up to ``place``, what follows their
    last passes left out.

    By any of these as the one with the largest load, and by where that can be.
    """
    before_s = 0.0
    for each in range(place + 1):
        before_s += load_s[each]
    whole_s, after_s, bound_s, has_largest = before_s, rest_s, 0.0, False
    for each in range(place, -1, -1):
        before_s -= load_s[each]
        times, twice = weights(behind + place - each, space.micro_batches)
        if rest_s < np.inf or twice == 0.0:
            bound_s = max(
                bound_s, before_s + times * load_s[each] + (twice * after_s if twice > 0.0 else 0.0)
            )
        after_s += 2.0 * load_s[each]
        if each < place and load_s[each] >= least_s:
            has_largest = True
    if not has_largest:
        times, twice = weights(behind, space.micro_batches)
        here_s = (
            whole_s
            - load_s[place]
            + times * max(load_s[place], least_s)
            + (twice * rest_s if twice > 0.0 else 0.0)
        )
        bound_s = max(bound_s, min(here_s, whole_s + least_rest_s))
    return bound_s
