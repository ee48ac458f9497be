"""Logging of a command: our packages' records on standard error, nothing of other people's below a
warning."""

import contextlib
import logging
import sys

from phaze_common.echo import on_one_line, say

PACKAGES = ("phaze", "phaze_common", "GraphExtractor", "Estimator", "Solver", "third_party")


class _StderrHandler(logging.Handler):
    """Writes to the ``sys.stderr`` of the time, above a live progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        # a log that nobody can keep or read any more must not end the run
        with contextlib.suppress(OSError):
            say(sys.stderr, self.format(record).split("\n"))
            sys.stderr.flush()


class _Formatter(logging.Formatter):
    """Plain lines for information, else the level first; a message is one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        record.message = on_one_line(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}"


def configure_logs(*, verbose: bool = False, quiet: bool = False) -> None:
    """Log to standard error: warnings if ``quiet``, everything if ``verbose``.

    Called once by the command line; calling it again replaces what the earlier call set.
    """
    handler = _StderrHandler()
    handler.setFormatter(_Formatter("%(message)s"))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level)
