"""Progress lines and durations."""

import io
import logging

import pytest

from phaze_common.progress import (
    BarProgress,
    LoggedProgress,
    SilentProgress,
    duration,
    progress_for,
)


def test_log_lines_come_at_intervals_with_done_total_and_time_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    caplog.set_level(logging.INFO, "phaze_common.progress")
    with LoggedProgress(interval_s=10, clock=lambda: now[0]).phase("points", 100) as advance:
        for took_s in (15, 5, 5, 5):  # the first imports what the others need
            now[0] += took_s
            advance(20)
    assert caplog.messages == [
        "points: 20 of 100",
        "points: 60 of 100, about 10.0 s left",
        "points: 80 of 100 in 30.0 s",
    ]


def test_the_kind_fits_the_stream() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(progress_for(io.StringIO(), quiet=False), LoggedProgress)
    assert isinstance(progress_for(io.StringIO(), quiet=True), SilentProgress)
    terminal = Terminal()
    bars = progress_for(terminal, quiet=False)
    assert isinstance(bars, BarProgress)
    with bars.phase("points", 3) as advance:
        advance(3)
    assert "points" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (3599.9, "1 h 00 min"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
