"""Work of unknown length says how far it is."""

import logging
import threading

from phaze_common.progress import said_while


def test_words_are_said_again_and_again_while_the_work_runs_and_not_after(caplog):
    said, enough = [], threading.Event()

    def words() -> str:
        said.append(len(said))
        if len(said) == 3:
            enough.set()
        return f"tracing: {len(said)} operators"

    with caplog.at_level(logging.INFO, logger="phaze_common"):
        with said_while(words, interval_s=0.001):
            assert enough.wait(60)
        at_the_end = len(said)
    assert "tracing: 1 operators, 0.0 s" in caplog.text
    assert len(said) == at_the_end == len(caplog.records)


def test_short_work_says_nothing(caplog):
    with (
        caplog.at_level(logging.INFO, logger="phaze_common"),
        said_while(lambda: "tracing", interval_s=3600),
    ):
        pass
    assert not caplog.records
