"""Compiled search through all plans whose stages differ, depth first from the first stage under the
tables of ``bounds``."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, inner, outer
from Estimator.plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.bounds import DOWNSTREAM_OF_LARGEST, ROUNDING, WITH_LARGEST, StageSpace, weights
from Solver.paths.option_tables import AFTER, BACKWARD, FORWARD, STEP

DEVICES, PARTS, TENSOR, GRAPH, SIZE = range(5)  # columns of ``OptionSpace.meshes``
TO_NEXT, TO_PREVIOUS = range(2)  # directions of messages
EDGE, OPTION, DEVICE, NODE = range(4)  # columns of a path: of each stage, and where it begins


class OptionSpace(NamedTuple):
    """Options of stages, in the order of their sizes: those of size i are ``first[i]`` to ``first[i
    + 1]``.

    ``priced`` (options, classes, most stages, 4) are those of ``OptionTables``; ``meshes``
    (options, 5) what messages depend on, see ``Estimator.plans.heterogeneous.messages``.
    ``rows_bytes`` (graphs, 2, nodes) cross into every node forward, and back; a target gathers them
    in ``gather_s`` (options, graphs, 2, nodes). ``tier_sizes`` (tiers,) are devices of their
    blocks. ``tied`` (options,) ranks what an end of the pipeline shares with the other, in
    ``tied_s`` (ranks, devices) seconds over each stride.
    """

    first: IntArray
    priced: FloatArray
    meshes: IntArray
    rows_bytes: FloatArray
    gather_s: FloatArray
    tier_sizes: IntArray
    latency_s: FloatArray
    per_byte_s: FloatArray
    tied: IntArray
    tied_s: FloatArray


@borrowing_inner
def message_s(
    options: OptionSpace, source: int, target: int, direction: int, node: int, first: int, last: int
) -> float:
    """Seconds of what crosses into ``node`` in a ``direction`` between stages on the devices
    ``first`` to ``last``."""
    rows_bytes = options.rows_bytes[options.meshes[source, GRAPH], direction, node]
    if rows_bytes <= 0.0:
        return 0.0
    tier = len(options.tier_sizes) - 1
    for number in range(len(options.tier_sizes) - 1):
        if first // options.tier_sizes[number] == last // options.tier_sizes[number]:
            tier = number
            break
    message_bytes = rows_bytes / options.meshes[target, PARTS]
    more = max(1.0, options.meshes[target, DEVICES] / options.meshes[source, DEVICES])
    latency_s, per_byte_s = options.latency_s[tier], options.per_byte_s[tier]
    seconds = latency_s + per_byte_s * message_bytes * more
    tensor = options.meshes[target, TENSOR]
    if tensor > 1:
        scattered_s = latency_s + per_byte_s * (message_bytes / tensor) * more
        gather_s = options.gather_s[target, options.meshes[source, GRAPH], direction, node]
        seconds = min(seconds, scattered_s + gather_s)
    return seconds


class Searched(NamedTuple):
    """Seconds of the best plan found (what was known before, where none is better), and whether
    every plan was looked at."""

    seconds: float
    complete: bool
    stages: int
    steps: int


@inner
def plan_s(
    space: StageSpace,
    options: OptionSpace,
    path: IntArray,
    stages: int,
    forward_s: FloatArray,
    backward_s: FloatArray,
    scratch: FloatArray,
) -> float:
    """Seconds of a whole plan but for its optimizer step; passes (stages,) are with messages."""
    after_s = np.empty(stages)
    for place in range(stages):
        option, number = path[place, OPTION], space.class_of[path[place, EDGE]]
        after_s[place] = options.priced[option, number, stages - 1 - place, AFTER]
        if place > 0:  # what a stage sends back after its last backward pass is not waited for
            last = path[place, DEVICE] + space.sizes[options.meshes[option, SIZE]] - 1
            before, first = path[place - 1, OPTION], path[place - 1, DEVICE]
            after_s[place] -= message_s(
                options, option, before, TO_PREVIOUS, path[place, NODE], first, last
            )
    if stages > 1:
        rank = max(options.tied[path[0, OPTION]], options.tied[path[stages - 1, OPTION]])
        shared_s = options.tied_s[rank, path[stages - 1, DEVICE]]
        after_s[0] += shared_s
        after_s[stages - 1] += shared_s
    return finish_in_s(
        forward_s[:stages], backward_s[:stages], after_s, space.micro_batches, scratch[:, :stages]
    )


@outer
def search_paths(
    space: StageSpace,
    options: OptionSpace,
    tables: FloatArray,
    least_s: float,
    most_s: float,
    best_s: float,
    most_steps: int,
    best: IntArray,
) -> Searched:
    """The best plan that beats ``best_s`` with the largest load from ``least_s`` to ``most_s``, as
    ``tables`` were made for.

    Fills ``best`` (most stages, 3) with edge, option and first device of every stage.
    """
    most_stages, everything = tables.shape[1], len(space.first) - 2
    path = np.zeros((most_stages + 1, 4), np.int64)
    forward_s, backward_s, load_s = np.zeros((3, most_stages))
    step_s = np.zeros(most_stages + 1)  # the largest of the stages before
    scratch = np.empty((SCRATCH_ROWS + 1, most_stages))
    steps, found = 0, 0
    for stages in range(1, most_stages + 1):
        if not space.stage_counts[stages]:
            continue
        limit_s = best_s * (1.0 - ROUNDING)
        if tables[WITH_LARGEST, stages - 1, everything, 0] >= limit_s:
            continue
        place, once_s = 0, 0.0
        path[0, NODE], path[0, DEVICE] = everything, 0
        path[0, EDGE], path[0, OPTION] = space.first[everything], -1
        while place >= 0:
            downstream, node, device = stages - 1 - place, path[place, NODE], path[place, DEVICE]
            path[place, OPTION] += 1
            if path[place, OPTION] == len(options.meshes):
                path[place, OPTION] = -1
                path[place, EDGE] += 1
                if path[place, EDGE] == space.first[node + 1]:
                    place -= 1
                continue
            edge, option = path[place, EDGE], path[place, OPTION]
            part = space.part[edge]
            if (part == 0) != (downstream == 0) or (
                downstream > 0 and space.depth[part] < downstream
            ):
                path[place, OPTION] = len(options.meshes) - 1  # the next edge
                continue
            size = options.meshes[option, SIZE]
            end = device + space.sizes[size]
            ends_there = end < space.devices if downstream > 0 else end <= space.devices
            if downstream == 0 and space.all_devices:
                ends_there = end == space.devices
            if not ends_there or not space.lies[size, device]:
                path[place, OPTION] = options.first[size + 1] - 1  # the next size
                continue
            priced = options.priced[option, space.class_of[edge], downstream]
            if priced[FORWARD] == np.inf:
                continue
            rest_s = (
                tables[DOWNSTREAM_OF_LARGEST, downstream - 1, part, end] if downstream > 0 else 0.0
            )
            least_rest_s = (
                tables[WITH_LARGEST, downstream - 1, part, end] if downstream > 0 else np.inf
            )
            if rest_s == np.inf:
                continue
            steps += 1
            if steps > most_steps:
                return Searched(best_s, False, found, steps)
            forward_s[place], backward_s[place] = priced[FORWARD], priced[BACKWARD]
            step_s[place + 1] = max(step_s[place], priced[STEP])
            if place == 0:
                once_s = priced[AFTER]
            else:
                before, first = path[place - 1, OPTION], path[place - 1, DEVICE]
                number = space.class_of[path[place - 1, EDGE]]
                forward_s[place - 1] = options.priced[
                    before, number, downstream + 1, FORWARD
                ] + message_s(options, before, option, TO_NEXT, node, first, end - 1)
                backward_s[place] += message_s(
                    options, option, before, TO_PREVIOUS, node, first, end - 1
                )
                load_s[place - 1] = forward_s[place - 1] + backward_s[place - 1]
                if load_s[place - 1] > most_s * (1.0 + ROUNDING):
                    continue
            load_s[place] = forward_s[place] + backward_s[place]
            if downstream > 0:
                load_s[place] += space.forward_s[space.tier_at[end], size, part]
            if load_s[place] > most_s * (1.0 + ROUNDING):
                continue
            bound_s = _bound(space, load_s, place, downstream, rest_s, least_rest_s, least_s)
            if bound_s + once_s + step_s[place + 1] >= limit_s:
                continue
            if downstream == 0:
                seconds = step_s[stages] + plan_s(
                    space, options, path, stages, forward_s, backward_s, scratch
                )
                if seconds < best_s:
                    best_s, found = seconds, stages
                    limit_s = best_s * (1.0 - ROUNDING)
                    for each in range(stages):
                        for column in range(3):
                            best[each, column] = path[each, column]
                continue
            place += 1
            path[place, NODE], path[place, DEVICE] = part, end
            path[place, EDGE], path[place, OPTION] = space.first[part], -1
    return Searched(best_s, True, found, steps)


@borrowing_inner
def _bound(
    space: StageSpace,
    load_s: FloatArray,
    place: int,
    downstream: int,
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
        times, twice = weights(downstream + place - each, space.micro_batches)
        if twice == 0.0:
            bound_s = max(bound_s, before_s + times * load_s[each])
        elif rest_s < np.inf:
            bound_s = max(bound_s, before_s + times * load_s[each] + twice * after_s)
        after_s += 2.0 * load_s[each]
        if each < place and load_s[each] >= least_s:
            has_largest = True
    if not has_largest:
        times, twice = weights(downstream, space.micro_batches)
        here_s = whole_s - load_s[place] + times * max(load_s[place], least_s)
        if twice > 0.0:
            here_s += twice * rest_s
        bound_s = max(bound_s, min(here_s, whole_s + least_rest_s))
    return bound_s
