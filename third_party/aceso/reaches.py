"""How many operators a stage can hold within a time at most, as a bound that grows with every
operator.

What a stage receives, sends and keeps of its input is left out, and what its last operator keeps
(which would be made again if the stage went on). All else only adds, so that no stage gets faster
by more operators at either end, and the furthest reach from an operator says it of all stages that
end or begin there. Memory is priced by multipliers as in ``relaxed_stages``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .chains import Chain
from .compiled import inner
from .spaces import NEVER, StageSpace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Choices(NamedTuple):
    """The arrays of ``StageArrays`` of all numbers of devices (D), as far as they are used; absent
    choices take forever."""

    devices: Integers  # (D)
    base_us: Floats  # (D, U, C)
    recompute_us: Floats  # (D, U, C)
    activations: Floats  # (D, U, C)
    weights: Floats  # (D, U, C)
    resharding_us: Floats  # (D, P, C, C)
    least_forward: Floats  # (D, U)
    least_backward: Floats  # (D, U)
    free: Flags  # (P) no change costs anything on any number of devices
    before_layer: Flags  # (P)
    weight_copies: float
    rows: Integers  # (operators) of the model
    pairs: Integers  # (operators) which pair each ends
    densities: Floats  # multipliers times (stages behind + 1), us per MiB
    limit_mib: float


def choices_of(
    spaces: tuple[StageSpace, ...], chain: Chain, limit_mib: float, densities: Floats
) -> Choices:
    """The choices on every number of devices, side by side; stages keep to ``limit_mib`` by these
    multipliers."""
    arrays = [space.arrays for space in spaces]
    most = max(each.base_us.shape[1] for each in arrays)

    def beside(name: str, fill: float, axes: int) -> Floats:
        padded = []
        for each in arrays:
            values = getattr(each, name)
            more = [(0, 0)] * (values.ndim - axes) + [(0, most - values.shape[-1])] * axes
            padded.append(np.pad(np.maximum(values, 0.0), more, constant_values=fill))
        return np.ascontiguousarray(np.stack(padded))

    return Choices(
        devices=np.array([space.devices for space in spaces], dtype=np.int64),
        base_us=beside("base_us", NEVER, 1),
        recompute_us=beside("recompute_us", 0.0, 1),
        activations=beside("activations", 0.0, 1),
        weights=beside("weights", 0.0, 1),
        resharding_us=beside("resharding_us", NEVER, 2),
        least_forward=np.stack([each.least_forward for each in arrays]),
        least_backward=np.stack([each.least_backward for each in arrays]),
        free=np.logical_and.reduce([each.free for each in arrays]),
        before_layer=arrays[0].before_layer,
        weight_copies=arrays[0].weight_copies,
        rows=chain.row_array,
        pairs=chain.pair_array,
        densities=densities,
        limit_mib=limit_mib,
    )


@inner
def reach_back(choices: Choices, at: int, last: int, behind: int, limit_us: float) -> int:
    """The first operator that a stage up to ``last`` may begin with; ``last`` + 1 where it cannot
    even hold that."""
    return int(_furthest(choices, at, last, 0, -1, behind, limit_us) + 1)


@inner
def reach_on(choices: Choices, at: int, first: int, behind: int, limit_us: float) -> int:
    """The first operator that a stage from ``first`` can no longer hold."""
    return int(_furthest(choices, at, first, len(choices.rows) - 1, 1, behind, limit_us))


@inner
def _furthest(
    choices: Choices, at: int, begin: int, end: int, way: int, behind: int, limit_us: float
) -> int:
    """The first operator, from ``begin`` to ``end`` on the ``way`` forwards (1) or back (-1), that
    goes beyond the limit by any multiplier. One beyond ``end`` where none does."""
    for step in range(len(choices.densities)):
        multiplier = choices.densities[step] / (behind + 1)
        for reserved in range(2 if multiplier > 0.0 else 1):
            keep = multiplier * (behind + 1)
            end = _chain(choices, at, begin, end, way, keep, multiplier, reserved, limit_us) - way
    return end + way


@inner
def _chain(
    choices: Choices,
    at: int,
    begin: int,
    end: int,
    way: int,
    keep: float,
    multiplier: float,
    reserved: int,
    limit_us: float,
) -> int:
    """As ``_furthest`` for one multiplier, ``keep`` of it for all micro-batches in flight."""
    count = choices.base_us.shape[2]
    heavy = multiplier * (choices.weight_copies + reserved)
    now, after = np.empty((2, count)), np.empty((2, count))
    saved = np.empty(count)
    forward = backward = 0.0
    k = begin
    while (end - k) * way >= 0:
        u = choices.rows[k]
        all_plain = all_again = 0.0
        p = 0
        saves = False
        if k != begin:
            p = choices.pairs[max(k, k - way)]
            saves = not choices.before_layer[p]
            all_plain = all_again = NEVER
            for d in range(count):
                saved[d] = now[1, d]
                if (
                    saves and way > 0
                    # kept by the operator before, which this one makes again where both are
                    # recomputed
                ):
                    saved[d] -= keep * choices.activations[at, choices.rows[k - 1], d]
                all_plain = min(all_plain, now[0, d], now[1, d])
                all_again = min(all_again, now[0, d], saved[d])
            # The last operator of a stage reserves nothing.
            ends = choices.rows[k - way] if way > 0 else u
            forward = max(forward, choices.least_forward[at, ends])
            backward = max(backward, choices.least_backward[at, ends])
        least = NEVER
        for c in range(count):
            kept = keep * choices.activations[at, u, c]
            plain, again = all_plain, all_again
            if k != begin and choices.free[p] and way < 0 and saves:
                again = NEVER
                for d in range(count):
                    again = min(again, now[0, d], now[1, d] - kept)
            elif k != begin and not choices.free[p]:
                plain = again = NEVER
                for d in range(count):
                    change = (
                        choices.resharding_us[at, p, d, c]
                        if way > 0
                        else choices.resharding_us[at, p, c, d]
                    )
                    other = saved[d] - (kept if saves and way < 0 else 0.0)
                    plain = min(plain, change + min(now[0, d], now[1, d]))
                    again = min(again, change + min(now[0, d], other))
            own = choices.base_us[at, u, c] + heavy * choices.weights[at, u, c]
            if way > 0 or k != begin:
                own += kept
            after[0, c] = own + plain
            after[1, c] = own + choices.recompute_us[at, u, c] + again
            least = min(least, min(after[0, c], after[1, c]) - (kept if way > 0 else 0.0))
        now, after = after, now
        if (
            least
            - multiplier * (choices.limit_mib - (forward + backward if reserved == 0 else 0.0))
            > limit_us
        ):
            return k
        k += way
    return end + way
