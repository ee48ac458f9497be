"""An interruption ends with status 130 and one line wherever it falls: what libraries make of it
does not matter."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic
import pytest

import phaze
from phaze.cli import modes
from phaze.cli.exit_status import EVERYTHING_KEPT, INTERRUPTED, TERMINATED, Ended, Stopped
from phaze_common import files
from phaze_common.errors import InputError

REPOSITORY = Path(phaze.__file__).resolve().parents[1]
LINE = f"phaze: interrupted; {EVERYTHING_KEPT}\n"


def interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


class Interrupting:
    """What cannot be written without being asked."""


def in_a_serializer() -> None:
    pydantic.TypeAdapter(Any).dump_json(Interrupting(), fallback=interrupt)


def in_a_serializer_whose_error_is_reworded() -> None:
    try:
        in_a_serializer()
    except ValueError as error:
        raise InputError("the record cannot be written; give another") from error


def in_a_group() -> None:
    raise BaseExceptionGroup("of threads", [ValueError("no"), KeyboardInterrupt()])


def in_an_import() -> None:
    try:
        interrupt()
    except KeyboardInterrupt as stop:
        raise ImportError("a part of it failed to import") from stop


def in_a_cleanup() -> None:
    try:
        interrupt()
    finally:
        raise OSError("the folder is gone")


def _replace_doctor(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], Any]) -> None:
    monkeypatch.setitem(modes.MODES, "doctor", replace(modes.MODES["doctor"], run=run))


@pytest.mark.parametrize(
    "falls",
    [
        interrupt,
        in_a_serializer,
        in_a_serializer_whose_error_is_reworded,
        in_a_group,
        in_an_import,
        in_a_cleanup,
    ],
)
def test_what_libraries_make_of_an_interruption_is_one(
    falls: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _replace_doctor(monkeypatch, lambda command: falls())
    assert phaze.main(["doctor"]) == INTERRUPTED
    assert capsys.readouterr().err == LINE


@pytest.mark.parametrize(
    "place",
    ["phaze_common.files.os.fsync", "phaze_common.files.secrets.token_hex", "pathlib.Path.replace"],
)
def test_a_file_that_was_being_written_is_the_old_one_or_none(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "old").write_bytes(b"old")
    _replace_doctor(monkeypatch, lambda command: files.write_atomically(tmp_path / "old", b"new"))
    monkeypatch.setattr(place, interrupt)
    assert phaze.main(["doctor"]) == INTERRUPTED and capsys.readouterr().err == LINE
    monkeypatch.undo()
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_an_ordinary_error_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(command: object) -> int:
        raise InputError("KeyboardInterrupt is no model; give another")

    _replace_doctor(monkeypatch, fails)
    assert phaze.main(["doctor"]) == 2 and "is no model" in capsys.readouterr().err


def test_how_an_interruption_ends_is_the_command_s_to_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stop, status, said in (
        (Ended(), 0, ""),
        (Stopped("go on so"), 130, "phaze: interrupted; go on so\n"),
        (Stopped(""), 130, ""),
    ):

        def stops(command: object, stop: BaseException = stop) -> int:
            raise stop

        _replace_doctor(monkeypatch, stops)
        assert phaze.main(["doctor"]) == status and capsys.readouterr().err == said


def test_handlers_are_those_of_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    _replace_doctor(monkeypatch, lambda command: interrupt())
    assert phaze.main(["doctor"]) == INTERRUPTED
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


TELL = "os.kill(os.getpid(), signal.SIGINT)"
PLACES = {  # where the signal comes while a command runs
    "in the command": TELL,
    "in a serializer": "pydantic.TypeAdapter(Any).dump_json(object(), fallback=lambda value: "
    f"{TELL})",
    "in a callback of C": f"ctypes.CFUNCTYPE(None)(lambda: {TELL})()",
    "in a finalizer": f"type('Told', (), {{'__del__': lambda self: {TELL}}})()",
    "in a thread": f"[each.join() for each in [threading.Thread(target=lambda: {TELL})] if "
    "each.start() is None]",
    "in the last flush": "setattr(sys.stdout, 'told', 1); atexit.register(print); "
    f"sys.stdout.write('x'); {TELL}",
    "after a failure that it caused": f"swallow(lambda: {TELL}); 1 / 0",
}


@pytest.mark.kill
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_ends_the_command_with_its_status(place: str) -> None:
    code = f"""
import atexit, dataclasses, ctypes, os, pydantic, signal, sys, threading
from typing import Any
import phaze
from phaze.cli import modes
signal.signal(signal.SIGINT, signal.default_int_handler)
def swallow(work):
    try:
        work()
    except KeyboardInterrupt:
        pass
def run(command):
    {PLACES[place]}
    return 0
modes.MODES["doctor"] = dataclasses.replace(modes.MODES["doctor"], run=run)
raise SystemExit(phaze.main(["doctor"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == INTERRUPTED, done.stderr
    assert done.stderr.splitlines(keepends=True)[-1] == LINE
    assert "unexpected" not in done.stderr


@pytest.mark.kill
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "when",
    [
        "while it is imported",
        "while it says that it was interrupted",
        "at exit",
        "when threads are joined",
        "at the very end",
    ],
)
def test_a_whole_process_ends_so_before_and_after_its_command_too(
    when: str, sent: signal.Signals, tmp_path: Path
) -> None:
    if when == "while it is imported" and sent is signal.SIGTERM:
        pytest.skip("which ends a process at once, as ever")
    tell = f"os.kill(os.getpid(), {int(sent)})"
    of_the_command = {
        "while it says that it was interrupted": tell,
        "at exit": f"atexit.register(lambda: {tell})",
        "when threads are joined": f"threading._register_atexit(lambda: {tell})",
        "at the very end": "sys.modules['told'] = type('Told', (), {'__del__': lambda self, "
        f"os=os: {tell}}})()",
    }.get(when, "pass")
    wrapped = f"""
import atexit, dataclasses, os, signal, sys, threading
sys.argv = ["phaze", "doctor"]
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = [{str(REPOSITORY)!r}]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "phaze_common.logs" and {when == "while it is imported"}:
            {tell}
sys.meta_path.insert(0, Finder())
from phaze.__main__ import main
from phaze.cli import exit_status, modes
if {when.startswith("while it says")}:
    say = exit_status.say
    def twice(*given):
        {tell}
        say(*given)
    exit_status.say = twice
def run(command):
    {of_the_command}
    print("done")
    return 0
modes.MODES["doctor"] = dataclasses.replace(modes.MODES["doctor"], run=run)
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", wrapped], capture_output=True, text=True, timeout=60, check=False
    )
    status = (
        0 if when == "at the very end" else INTERRUPTED if sent is signal.SIGINT else TERMINATED
    )  # all is done by then
    assert done.returncode == status, done.stderr
    assert done.stdout == ("done\n" if when.startswith(("at", "when")) else "")
    assert "Traceback" not in done.stderr


@pytest.mark.kill
def test_a_second_interruption_ends_what_hangs_at_the_end() -> None:
    tell = "os.kill(os.getpid(), signal.SIGINT)"
    code = f"""
import atexit, dataclasses, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["phaze", "doctor"]
import phaze
from phaze.cli import modes
def hang():
    {tell}
    {tell}
    threading.Event().wait()
modes.MODES["doctor"] = dataclasses.replace(
    modes.MODES["doctor"], run=lambda command: atexit.register(hang) and 0
)
sys.exit(phaze.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == INTERRUPTED, done.stderr


@pytest.mark.kill
@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(3))
def test_at_whatever_moment_it_comes_the_status_is_one_of_a_command(
    seed: int, tmp_path: Path
) -> None:
    """The moments are calls of functions, so that how fast the machine is decides nothing; the last
    ones are at the end."""
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(REPOSITORY)!r})
sys.argv = ["phaze", "list", "software"]
left = int(os.environ["CALLS"])
def count(frame, event, argument, os=os, signal=signal):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
try:
    from phaze import main
finally:
    sys.setprofile(count)
code = main()
if left > 0 and os.environ["CALLS"] == str(10**9):
    print(10**9 - left, file=sys.stderr)
sys.exit(code)
"""

    def ended(calls: int) -> subprocess.CompletedProcess[str]:
        given = {**os.environ, "CALLS": str(calls), "XDG_CACHE_HOME": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=given,
            cwd=tmp_path,
        )

    whole = ended(10**9)
    assert whole.returncode == 0, whole.stderr
    calls, chance = int(whole.stderr.split()[-1]), random.Random(seed)
    moments = [chance.randrange(1, calls) for _ in range(4)] + [
        calls - chance.randrange(60) for _ in range(4)
    ]
    for moment in [*moments, calls + chance.randrange(1, 40)]:
        done = ended(moment)
        assert done.returncode == INTERRUPTED or (
            done.returncode == 0 and done.stdout == whole.stdout
        ), (moment, done)
