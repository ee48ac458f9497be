"""What a mode of the command line is: a record of what it is given, whose annotated fields are its
flags, and the function that runs it. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import partial
from typing import Any, Literal

from phaze.settings.request import setting_groups, settings_for
from phaze_common.progress import Progress, progress_for
from phaze_common.setting_fields import Mode as RequestMode
from phaze_common.settings import SettingTable

SEARCH_AND_PRICE = "search and price"
FINISHED_RUNS = "look at a finished run"
CHECK_AND_FIT = "check and fit"
RUN_FOR_REAL = "run for real"
FIND_YOUR_WAY = "find your way"
GROUPS = (SEARCH_AND_PRICE, FINISHED_RUNS, CHECK_AND_FIT, RUN_FOR_REAL, FIND_YOUR_WAY)

_EPILOG = """Settings come from, weakest first: defaults, the {file} (the same
names as the flags), the command line, where a later flag or --set replaces an
earlier one. Names of models, devices, clusters ...: phaze list.

Exit status: 0 done, 2 wrong input, 3 {nothing},
1 failure, 130 interrupted, 143 terminated."""
OF_STUDIES = _EPILOG.format(file="--config file", nothing="nothing feasible")
OF_PLANS = _EPILOG.format(file="--plan file", nothing="the plan does not fit in memory")
search_settings = partial(settings_for, RequestMode.SEARCH)
plan_settings = partial(settings_for, RequestMode.EVALUATE)
RUN_HELP = "folder of a finished run, as run_solver wrote it"


REQUIRED: Any = MISSING
ABOUT = "about"  # in the metadata of a field


@dataclass(frozen=True)
class Flag:
    """A flag beside the name and type of its field: ``takes`` stands for its value in help texts
    (empty: N or X of numbers), ``names`` are given where they are not the field's.

    A switch takes no value; a tuple is that of a repeated flag, or of one flag where ``listed``.
    ``read`` makes the value of a text where the type does not.
    """

    help: str
    takes: str = ""
    names: tuple[str, ...] = ()
    listed: bool = False
    read: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class Word:
    """A word without a flag, or several; it may be left out where the field has a default."""

    help: str
    takes: str


@dataclass(frozen=True)
class SettingFlags:
    """The settings of a ``table`` as flags, by ``groups``, and ``--set`` for any of them; or those
    of ``only``, by key, with their help where it is not the usual one."""

    table: Callable[[], SettingTable]
    groups: Callable[[], Mapping[str, Sequence[str]]] = setting_groups
    only: Mapping[str, str | None] | None = None
    without: str = ""


def flag(default: Any, help_text: str, *about: Any, **others: Any) -> Any:
    """A field that is a ``Flag`` of these."""
    return field(default=default, metadata={ABOUT: Flag(help_text, *about, **others)})


def word(default: Any, help_text: str, takes: str) -> Any:
    """A field that is a ``Word``."""
    return field(default=default, metadata={ABOUT: Word(help_text, takes)})


def setting_flags(table: Callable[[], SettingTable], **others: Any) -> Any:
    """The field ``settings`` of a record, with its ``SettingFlags``."""
    return field(default_factory=dict, metadata={ABOUT: SettingFlags(table, **others)})


def run_word() -> Any:
    """The folder of a run."""
    return word(REQUIRED, RUN_HELP, "RUN")


def run_code_flag() -> Any:
    """Model files that may be run."""
    what = "a model.py that may be run though only a plan or a run names it; may be repeated"
    return flag((), what, "FILE")


def force_flag() -> Any:
    """Whether files may be replaced."""
    return flag(False, "replace files that phaze did not write, or that were edited since")


def plan_flag(*names: str) -> Any:
    """The file of a plan."""
    what = "YAML file of settings, keys are the flags with underscores; or the best.json of a"
    return flag(None, f"{what} search", "FILE", ("--plan", *names))


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every mode is given. ``settings`` are as typed, by key."""

    mode: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    output_format: Literal["table", "json"] = flag(
        "table", "form of the result on stdout (default table)", names=("--format",)
    )
    verbose: bool = flag(
        False, "log more, and show where an unexpected error came from", names=("--verbose", "-v")
    )
    quiet: bool = flag(False, "log warnings only, no progress", names=("--quiet", "-q"))
    wide: bool = flag(False, "print all columns of tables, however narrow the terminal is")

    @property
    def progress(self) -> Progress:
        """Where the mode reports how far it is."""
        return progress_for(sys.stderr, quiet=self.quiet)


@dataclass(frozen=True)
class Mode:
    """A mode by ``name`` in a ``group`` of the list of modes: the record of what it is given, whose
    docstring says what it is for, and what runs it and returns the exit status.

    Some print no ``tables``, but where the files are that they wrote. Flags of earlier versions
    that were ``removed`` are refused with the reason.
    """

    name: str
    group: str
    command: type[Command]
    run: Callable[[Any], int]
    usages: tuple[str, ...] = ()
    epilog: str = ""
    tables: bool = True
    removed: Mapping[str, str] = field(default_factory=dict)

    @property
    def purpose(self) -> str:
        """What it is for, as a clause of a list."""
        text = " ".join((self.command.__doc__ or "").split()).removesuffix(".")
        return text[:1].lower() + text[1:]
