"""The closed forms against the simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from closed_forms import closed_form_s
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pipeline_reference import like_chunks

from Estimator.plans.pipeline.schedule import PipelineSchedule
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from phaze_common.errors import InputError

GPIPE, ONE_F_ONE_B, INTERLEAVED = PipelineSchedule
SECONDS = st.one_of(st.just(0.0), st.floats(0.001, 10.0))


@settings(max_examples=600, deadline=None)
@given(
    schedule=st.sampled_from(PipelineSchedule),
    pp=st.integers(1, 7),
    rounds=st.integers(2, 4),
    groups=st.integers(1, 7),
    odd=st.integers(0, 6),
    forward_s=SECONDS,
    backward_s=SECONDS,
    transfer_s=SECONDS,
    backward_transfer_s=SECONDS,
    overlap=st.booleans(),
)
def test_closed_forms_are_exact(
    schedule: PipelineSchedule,
    pp: int,
    rounds: int,
    groups: int,
    odd: int,
    forward_s: float,
    backward_s: float,
    transfer_s: float,
    backward_transfer_s: float,
    overlap: bool,
) -> None:
    micro_batches = groups * pp
    if schedule is INTERLEAVED:
        assume(pp > 1)
        # Within the closed form's reach: every transfer hides behind the other direction's pass.
        transfer_s, backward_transfer_s, overlap = (
            min(transfer_s, backward_s),
            min(backward_transfer_s, forward_s),
            True,
        )
    else:
        rounds, micro_batches = 1, micro_batches + odd
    seconds = (forward_s, backward_s, transfer_s, backward_transfer_s, overlap)
    simulated_s = simulate(like_chunks(pp, rounds, *seconds), schedule, micro_batches)[0]
    assert closed_form_s(schedule, pp, rounds, micro_batches, *seconds) == pytest.approx(
        simulated_s, rel=1e-9
    )


@settings(max_examples=100, deadline=None)
@given(
    pp=st.integers(2, 6), rounds=st.integers(2, 4), transfer_s=SECONDS, backward_transfer_s=SECONDS
)
def test_as_many_micro_batches_as_stages_hide_nothing_where_all_go_forward_first(
    pp: int, rounds: int, transfer_s: float, backward_transfer_s: float
) -> None:
    seconds = (1.0, 2.0, transfer_s, backward_transfer_s, True)
    costs = replace(like_chunks(pp, rounds, *seconds), whole_warm_up=True)
    simulated_s = simulate(costs, INTERLEAVED, pp)[0]
    assert closed_form_s(
        INTERLEAVED, pp, rounds, pp, *seconds, whole_warm_up=True
    ) == pytest.approx(simulated_s, rel=1e-9)


@pytest.mark.parametrize(
    "seconds", [(1.0, 2.0, 0.1, 0.1, False), (1.0, 2.0, 2.1, 0.0, True), (1.0, 2.0, 0.0, 1.1, True)]
)
def test_no_closed_form_is_claimed_where_none_holds(
    seconds: tuple[float, float, float, float, bool],
) -> None:
    forward_s, backward_s, transfer_s, backward_transfer_s, _ = seconds
    hidden_s = (16 * 2 + 3) * (forward_s + backward_s) + 7 * (transfer_s + backward_transfer_s)
    assert simulate(like_chunks(4, 2, *seconds), INTERLEAVED, 16)[0] > hidden_s * 1.0001
    with pytest.raises(InputError, match="simulate it"):
        closed_form_s(INTERLEAVED, 4, 2, 16, *seconds)


@settings(max_examples=100, deadline=None)
@given(
    pp=st.integers(2, 6),
    rounds=st.integers(2, 5),
    groups=st.integers(1, 6),
    forward_s=st.floats(0.1, 3.0),
    backward_s=st.floats(0.1, 3.0),
)
def test_chunks_divide_the_bubble(
    pp: int, rounds: int, groups: int, forward_s: float, backward_s: float
) -> None:
    """Narayanan et al. 2021, section 2.2.2: a stage in v equal chunks idles for 1 / v of the
    time."""
    micro_batches = groups * pp
    whole = simulate(like_chunks(pp, 1, forward_s, backward_s), ONE_F_ONE_B, micro_batches)
    cut = simulate(
        like_chunks(pp, rounds, forward_s / rounds, backward_s / rounds), INTERLEAVED, micro_batches
    )
    busy_s = micro_batches * (forward_s + backward_s)
    assert cut[0] - busy_s == pytest.approx((whole[0] - busy_s) / rounds)
    assert simulate(like_chunks(pp, 1, forward_s, backward_s), GPIPE, micro_batches)[
        0
    ] == pytest.approx(whole[0])


def test_in_flight_in_the_papers_words() -> None:
    """1F1B: no more micro-batches than stages (Narayanan et al. 2021, section 2.2.1); interleaved:
    1 + (pp - 1) / (pp v) times as much on the first stage (Korthikanti et al. 2022, section
    4.2.3)."""
    for pp in (2, 4, 8):
        assert held_bytes(np.ones(pp), pp, ONE_F_ONE_B, 64).tolist() == list(range(pp, 0, -1))
        assert held_bytes(np.ones(pp), pp, ONE_F_ONE_B, 1).tolist() == [1] * pp
        assert held_bytes(np.ones(pp), pp, GPIPE, 9).tolist() == [9] * pp
        for rounds in (2, 3):
            first = held_bytes(np.ones(pp * rounds), pp, INTERLEAVED, 64 * pp)[0]
            assert first == pytest.approx(pp * rounds * (1 + (pp - 1) / (pp * rounds)))
            alike = np.ones(pp * rounds)
            assert (
                held_bytes(alike, pp, INTERLEAVED, pp, whole_warm_up=True).tolist()
                == [pp * rounds] * pp
            )  # as GPipe
            assert held_bytes(alike, pp, INTERLEAVED, pp)[-1] == (rounds - 1) * pp + 1
