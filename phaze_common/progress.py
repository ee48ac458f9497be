"""Progress of long phases: a bar on a terminal, plain log lines with done, total and time left
elsewhere, or nothing."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from phaze_common.echo import on_one_line
from phaze_common.numbers import number

logger = logging.getLogger(__name__)

Advance = Callable[[int], None]
"""Tells that so many more units are done."""

LOG_INTERVAL_S = 5.0


class Progress(Protocol):
    """What a long computation reports to.

    Use: ``with progress.phase("design points", total=29360) as advance: ...; advance(512)``. Phases
    follow each other.
    """

    def phase(self, name: str, total: int) -> AbstractContextManager[Advance]:
        """Open a phase of ``total`` units; it ends with the block, complete or not."""
        ...


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Advance]:
        """As ``Progress.phase``."""
        yield lambda count: None


class LoggedProgress:
    """At most a log line per ``interval_s`` and phase, and one when the phase ends.

    What is left is told by what comes after the first step, which also imports and compiles."""

    def __init__(
        self, interval_s: float = LOG_INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Advance]:
        """As ``Progress.phase``."""
        start = last = self._clock()
        done, at_first, first_s = 0, 0, start

        def advance(count: int) -> None:
            nonlocal done, last, at_first, first_s
            done += count
            now = self._clock()
            if not at_first:
                at_first, first_s = done, now
            if now - last >= self._interval_s and 0 < done < total:
                last, left = now, ""
                if done > at_first:
                    left_s = (now - first_s) * (total - done) / (done - at_first)
                    left = f", about {duration(left_s)} left"
                logger.info("%s: %s of %s%s", name, number(done), number(total), left)

        yield advance
        logger.info(
            "%s: %s of %s in %s", name, number(done), number(total), duration(self._clock() - start)
        )


class BarProgress:
    """A bar per phase on the terminal behind ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Advance]:
        """As ``Progress.phase``."""
        from rich import progress as rich
        from rich.console import Console

        columns = (
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
        )
        console = Console(file=self._stream)
        with rich.Progress(*columns, console=console, redirect_stdout=False) as bars:
            task = bars.add_task(on_one_line(name), total=total)
            yield lambda count: bars.advance(task, count)


@contextmanager
def said_while(words: Callable[[], str], interval_s: float = LOG_INTERVAL_S) -> Iterator[None]:
    """Log what ``words()`` says and the time so far while the block runs."""
    start, ended = time.monotonic(), threading.Event()

    def say() -> None:
        while not ended.wait(interval_s):
            logger.info("%s, %s", words(), duration(time.monotonic() - start))

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        ended.set()
        speaker.join()


def progress_for(stream: TextIO, *, quiet: bool) -> Progress:
    """A bar where ``stream`` is a terminal, else log lines; nothing when ``quiet``."""
    if quiet:
        return SilentProgress()
    return BarProgress(stream) if stream.isatty() else LoggedProgress()


def duration(seconds: float) -> str:
    """Seconds as people say them: ``4.2 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
