"""Compilation is counted while it is asked for, and only what is compiled then."""

import numba

from phaze_common.compile_time import CompileTime


def test_what_is_compiled_counts_once() -> None:
    @numba.njit
    def twice(number: float) -> float:
        return 2.0 * number

    with CompileTime.counted() as first:
        assert first.seconds == 0.0
        twice(1.0)
    with CompileTime.counted() as again:
        twice(2.0)
    counted = first.seconds
    assert counted > 0.0 == again.seconds
    twice(3)  # another type, compiled when nobody counts
    assert first.seconds == counted
