"""A sweep file: the settings of a study, in which every value of a list is a point of its own."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from GraphExtractor.names import MODULE_SUFFIX, absolute_path
from GraphExtractor.permission import permission
from phaze.settings.config_files import (
    MODELS,
    code_allowed,
    read_config,
    setting_beside,
    split_weight,
)
from phaze.settings.folders import check_name, folders_of
from phaze.settings.request import settings_for
from phaze_common.errors import InputError
from phaze_common.file_formats import STUDY
from phaze_common.files import content_key, user_path
from phaze_common.quantities import in_numbers
from phaze_common.setting_fields import Mode
from phaze_common.settings import COMMAND_LINE

MOST_POINTS = 100_000
OWN = frozenset({"name", "output", "csv"})  # settings of the sweep itself, not of its points
FORCE = "force_reextract_model"


@dataclass(frozen=True)
class Axis:
    """A setting and its values, as the sweep file has them; one value is that of all points."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Combination:
    """The settings of one point, ``number`` 1, 2, ... in the order of the file."""

    number: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep as its file, ``source``, says it; without ``output`` its folders are where runs are.

    ``run_code`` are the model files (Python) that may be run (None: all), ``named`` says that the
    name was given.
    """

    name: str
    axes: tuple[Axis, ...]
    output: Path | None
    csv: bool
    run_code: frozenset[str] | None = frozenset()
    source: str = field(default="the sweep", compare=False)
    named: bool = field(default=False, compare=False)

    @property
    def folder(self) -> Path:
        """Where the table goes."""
        return folders_of(self.output, self.name).run

    @property
    def store(self) -> Path:
        """Where points are kept; sweeps without an output share one."""
        return (self.folder if self.output else self.folder.parent) / "points"

    @property
    def swept(self) -> tuple[str, ...]:
        """Settings with several values."""
        return tuple(axis.key for axis in self.axes if len(axis.values) > 1)

    @property
    def count(self) -> int:
        """Number of points."""
        return math.prod(len(axis.values) for axis in self.axes)

    def combinations(self) -> Iterator[Combination]:
        """Every point's settings; the last setting of the file changes fastest."""
        keys = [axis.key for axis in self.axes]
        every = itertools.product(*(axis.values for axis in self.axes))
        for number, values in enumerate(every, start=1):
            yield Combination(number, dict(zip(keys, values, strict=True)))

    def to_yaml(self) -> str:
        """The sweep as a file that asks the same."""
        import yaml

        whole: dict[str, Any] = {"name": self.name}
        for axis in self.axes:  # a list stands for several, so that one list stands in a list
            (first, *others) = axis.values
            whole[axis.key] = [first, *others] if others or isinstance(first, list) else first
        return yaml.safe_dump(STUDY.stamped(whole), sort_keys=False)


def read_sweep(
    path: Path,
    given: Mapping[str, object],
    output: str | None = None,
    *,
    csv: bool = False,
    run_code: frozenset[str] | None = frozenset(),
) -> Sweep:
    """Read a sweep file; ``given`` settings and ``output`` precede those of the file.

    Relative paths are those from the file's folder, in ``given`` from the current one. Model files
    (Python) are run where ``given`` names them, or the file does and they are among ``run_code``
    (None: any is).

    Raises: InputError: the file cannot be read, names an unknown setting, lists no value or names
        code that is not to be run.
    """
    below = _settings(read_config(path), path.parent, str(path))
    above = _settings(given, Path.cwd(), COMMAND_LINE)
    asked = settings_for(Mode.SEARCH).override(below, above)
    origins = {key: COMMAND_LINE if key in above else str(path) for key in asked}
    for key in sorted(OWN & asked.keys()):
        if isinstance(asked[key], list | dict):
            raise InputError(
                f"{origins[key]}: {key} is one for the whole sweep, but several values are given; "
                "give one"
            )
    if asked.pop(FORCE, None):
        raise InputError(
            f"{path}: {FORCE} cannot be asked of a sweep, which computes no point twice; leave it "
            "out, and remove the points whose models read files that they do not import"
        )
    of_sweep = {key: asked.pop(key) for key in OWN if key in asked}
    own = settings_for(Mode.SEARCH).read(of_sweep, str(path))
    axes = tuple(_axis(key, value, origins[key]) for key, value in asked.items())
    if not any(axis.key == MODELS for axis in axes):
        raise InputError(
            f"{path} names no model; add one or more, for instance model: [bertlarge, gpt2]"
        )
    content = content_key([[axis.key, axis.values] for axis in axes])
    name = own.get("name") or f"{_plain(path.stem)}-{content[:8]}"
    check_name(name)
    chosen = own.get("output") if output is None else output
    allowed = code_allowed(given, run_code, Mode.SEARCH)
    for axis in axes:
        if axis.key == MODELS:
            for withheld in permission(_model_files(axis.values), str(path), allowed).withheld:
                raise InputError(withheld.refusal)
    set_by_hand = [axis.key for axis in axes if axis.key in above]
    source = f"{path} with --set {', '.join(set_by_hand)}" if set_by_hand else str(path)
    output_path = None if chosen is None else user_path(chosen)
    csv = csv or bool(own.get("csv"))
    sweep = Sweep(name, axes, output_path, csv, allowed, source, "name" in own)
    if sweep.count > MOST_POINTS:
        raise InputError(
            f"{path} asks for {sweep.count:,} points, at most {MOST_POINTS:,} are possible; list "
            "fewer values"
        )
    return sweep


def _settings(mapping: Mapping[str, object], folder: Path, source: str) -> dict[str, Any]:
    """Settings by key, with paths absolute against ``folder`` and quantities as numbers."""
    table = settings_for(Mode.SEARCH)
    units = {setting.key: setting.unit for setting in table.settings}
    return {
        key: setting_beside(folder, key, in_numbers(value, units[key]))
        for key, value in table.canonical(mapping, source).items()
    }


def _model_files(values: Iterable[object]) -> Iterator[str]:
    """The model files (Python) among the values of a setting of models, as models are called."""
    for value in values:
        if isinstance(value, Mapping | list | tuple):
            yield from _model_files(value)
        elif isinstance(value, str):
            for word in (value, *value.split(), *re.split(r"[\s,]+", value)):
                name, _ = split_weight(word)
                if name.endswith(MODULE_SUFFIX):
                    with contextlib.suppress(InputError):  # no such file, which its point says
                        yield absolute_path(name)


def _axis(key: str, value: Any, source: str) -> Axis:
    values = tuple(value) if isinstance(value, list) else (value,)
    if not values:
        raise InputError(f"{source}: {key} lists no value; give one or more, or leave it out")
    # a value that is listed again asks nothing more
    return Axis(key, tuple({repr(each): each for each in values}.values()))


def _plain(stem: str) -> str:
    return re.sub("[^A-Za-z0-9]", "-", stem).strip("-")[:60] or "sweep"
