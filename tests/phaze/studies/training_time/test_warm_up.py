"""Warm-up of the batch size: the iterations that Megatron-LM would run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.studies.training_time.warm_up import (
    MOST_LEVELS,
    BatchLevel,
    BatchSizeWarmUp,
    batch_levels,
    check_warm_up,
)
from phaze_common.errors import InputError


def one_by_one(samples: int, batch: int, warm_up: BatchSizeWarmUp) -> list[int]:
    """Batches of a training whose loop asks for the next batch size after every iteration, as
    Megatron-LM's does."""
    steps = (batch - warm_up.start) // warm_up.step
    consumed, batches = 0, []
    while consumed < samples:
        done = (
            consumed * steps // warm_up.samples
        )  # int(consumed / (samples / steps)) without rounding
        batches.append(
            batch if consumed > warm_up.samples else warm_up.start + min(done, steps) * warm_up.step
        )
        consumed += batches[-1]
    return batches


@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(1, 3000),
    st.integers(1, 5000),
)
def test_levels_are_the_batches_of_a_loop(
    start: int, step: int, steps: int, over: int, samples: int
) -> None:
    warm_up, batch = BatchSizeWarmUp(start, step, over), start + step * steps
    check_warm_up(warm_up, batch)
    levels = batch_levels(samples, batch, warm_up)
    assert [
        level.global_batch_size for level in levels for _ in range(level.iterations)
    ] == one_by_one(samples, batch, warm_up)
    assert sum(level.samples for level in levels) >= samples


def test_without_a_warm_up_there_is_one_level_and_its_last_iteration_is_whole() -> None:
    assert batch_levels(1000, 64) == (BatchLevel(64, 16),)
    assert batch_levels(1024, 64) == (BatchLevel(64, 16),)


def test_a_warm_up_in_numbers() -> None:
    """16, 32, 48 for a third of 999 samples each; 333 samples take 21, 11 and 7 iterations or what
    is left of them."""
    assert batch_levels(2000, 64, BatchSizeWarmUp(16, 16, 999)) == (
        BatchLevel(16, 21),  # 336
        BatchLevel(32, 11),  # 688, of 666
        BatchLevel(48, 7),  # 1,024, of 999
        BatchLevel(64, 16),  # 2,048
    )


@pytest.mark.parametrize(
    ("warm_up", "batch", "said"),
    [
        (
            (64, 16, 1000),
            64,
            "batch_size_warmup is 64 16 1000, but the global batch size is 64; start below it",
        ),
        (
            (16, 20, 1000),
            64,
            "steps of 20 lead there from 24; start there, or give a step that divides 48",
        ),
        (
            (1, 1, 1000),
            MOST_LEVELS + 2,
            "takes 2,001 steps to 2002, at most 2,000 are possible; give a larger step",
        ),
    ],
)
def test_a_warm_up_that_leads_elsewhere_is_refused(
    warm_up: tuple[int, int, int], batch: int, said: str
) -> None:
    with pytest.raises(InputError) as refused:
        check_warm_up(BatchSizeWarmUp(*warm_up), batch)
    assert said in str(refused.value)
