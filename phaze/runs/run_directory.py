"""The files of a finished run: study.yaml, manifest.json, best.json, schedules.json.gz,
designs.parquet (and .csv)."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from Estimator.plans.results import Status
from phaze.settings.folders import REPOSITORY
from phaze.settings.request import request_fields
from phaze_common import file_formats
from phaze_common.choices import FrontAxis
from phaze_common.errors import ArtefactError, InputError, PhazeError
from phaze_common.files import artefact_bytes, pack, parse_json, refuse_replacing, write_atomically
from phaze_common.records import parse_yaml, to_json
from phaze_common.run_files import (
    BEST,
    DESIGNS,
    DESIGNS_CSV,
    MANIFEST,
    PLANS,
    PLANS_CSV,
    SCHEDULES,
    STUDY,
    SWEEP,
    TRAINING_TIME,
)
from phaze_common.sealed import KEY, digest_of, with_digest
from Solver.designs.schedule_records import KeptSchedules
from Solver.designs.search_context import PhaseRecord
from Solver.results import Counts, SearchResult

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 6  # settings in which another study differs
RUN_FILES = (BEST, STUDY, MANIFEST, DESIGNS, DESIGNS_CSV, PLANS, PLANS_CSV, SCHEDULES)
POINT_MEANING = (
    "a design point is one accelerator (or the device) x memory size x shape of plans of one model "
    "(micro-batch size, tp, cp, ep, sequence parallelism, recomputation), with the best of all its "
    "plans (pp, dp, ZeRO stage, order of the groups, interleaving, overlap) and cuts into stages"
)


@dataclass(frozen=True)
class Origin:
    """What an answer rests on: software, code and machine, and hashes of the files that the study
    names (``contents``)."""

    versions: dict[str, str]  # of python and the libraries that numbers depend on
    contents: dict[str, str]
    git_commit: str | None  # of the code, with +changes where the work tree differs
    machine: str  # system and processors

    @classmethod
    def of(cls, contents: Mapping[str, str], **others: Any) -> Self:
        """That of what is computed here and now from files with ``contents``; ``others`` are
        further fields."""
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
        return cls(_library_versions(), dict(contents), _git_commit(REPOSITORY), machine, **others)

    def sealed(self) -> bytes:
        """As a file, with a digest of it."""
        return json.dumps(
            with_digest(file_formats.MANIFEST.stamped(json.loads(to_json(self)))), indent=2
        ).encode()


@dataclass(frozen=True)
class PartRecord:
    """How the search of a part of a space ended, on which machine, and in how many seconds.

    Its best design reaches ``value`` (None: none is as good as what is known of others), and none
    of its designs more than ``bound``. Where it failed (``problem``) nothing is known of it.
    """

    part: str  # of the space, K/N
    status: Status  # how its search ended
    value: float | None
    bound: float | None
    machine: str  # system and processors
    seconds: float  # that it took
    problem: str = ""


@dataclass(frozen=True)
class PartsRecord:
    """The parts in which a space was searched, by which executor."""

    count: int  # parts
    executor: str  # what ran the parts
    parts: tuple[PartRecord, ...]  # one by one

    @property
    def failed(self) -> tuple[PartRecord, ...]:
        """Parts that have no answer."""
        return tuple(each for each in self.parts if each.status is Status.FAILED)


@dataclass(frozen=True)
class Manifest(Origin):
    """Provenance of a run; ``front`` are the axes of the front that it certified, ``files`` digests
    of its own.

    ``parts`` says how its space was divided, where it was. ``first_best`` is the digest of
    best.json before what limits the answer was added to it. ``question`` is the content key of all
    that decides the answer, once everything is there that was asked for.
    """

    schedule_solver: str  # that scheduled the operators
    confirmation_solvers: tuple[str, ...]  # that solved the schedules of the best design again
    phases: tuple[PhaseRecord, ...]  # of the run, in order
    point_meaning: str  # what a design point is
    counts: Counts  # what became of the design points
    pareto_front_points: int  # points on the front
    front: tuple[FrontAxis, ...]
    parts: PartsRecord | None = None
    files: dict[str, str] = field(default_factory=dict)
    first_best: str = ""
    question: str = ""

    def has_written(self, name: str, content: bytes) -> bool:
        """Whether the run wrote a file of such a name and content."""
        digest = digest_of(content)
        return digest == self.files.get(name) or (name == BEST and digest == self.first_best)


def check_replaceable(folder: Path, names: Sequence[str] = RUN_FILES) -> None:
    """Refuse a folder with a file under one of ``names`` that no run wrote: those have the manifest
    of a run beside them.

    Raises:
        InputError: there is one, which a run there would replace.
    """
    if not _of_a_run(folder / MANIFEST):
        refuse_replacing(folder, names, "run")


class Holds(StrEnum):
    """What the folder of an answer is of, as messages say it; only one of these keeps its files
    there."""

    SEARCH = "the run of a search"
    SWEEP = "a sweep"
    TRAINING = "the training time of a given plan"


# the first that is there
_MARKS = {Holds.SEARCH: BEST, Holds.SWEEP: SWEEP, Holds.TRAINING: TRAINING_TIME}


def refuse_other_kind(folder: Path, kind: Holds, flag: str) -> None:
    """Refuse a ``folder`` of another kind of answer than ``kind``: some of their files have the
    same names.

    Raises:
        InputError: says what it is of; ``flag`` is what is to be given otherwise.
    """
    there = next((each for each, name in _MARKS.items() if (folder / name).is_file()), kind)
    if there is not kind:
        raise InputError(
            f"{folder} holds {there}, and {kind} would replace some of its files; give another "
            f"{flag}, or move the folder"
        )


def refuse_other_run(
    folder: Path,
    settings: Mapping[str, Any],
    flag: str,
    as_today: Callable[[Any], Mapping[str, Any]],
) -> None:
    """Refuse a ``folder`` that holds the run of another study than that of ``settings``, which a
    run there would replace.

    ``as_today`` resolves the settings of a file as today's defaults have them. ``flag`` is what is
    to be given otherwise.

    Raises:
        InputError: says in which settings the studies differ.
    """
    other = _other_settings(folder / STUDY, settings, as_today)
    if other:
        more = f" and {len(other) - MOST_NAMED} more" if len(other) > MOST_NAMED else ""
        raise InputError(
            f"{folder} holds the run of another study, which differs in "
            f"{', '.join(other[:MOST_NAMED])}{more} and which this one "
            f"would replace; give another {flag}, or move the folder"
        )


def _other_settings(
    study: Path, settings: Mapping[str, Any], as_today: Callable[[Any], Mapping[str, Any]]
) -> tuple[str, ...]:
    """In which settings that decide the study of a run that is there differs, and in its name; none
    where there is none."""
    # else it is of no search, or not finished
    if not study.is_file() or not (study.parent / BEST).exists():
        return ()
    try:
        there = file_formats.STUDY.current(parse_yaml(artefact_bytes(study).decode(), STUDY), STUDY)
    except (OSError, ArtefactError, InputError, UnicodeDecodeError):
        return (f"a {STUDY} that cannot be read",)
    if not isinstance(there, dict):
        return (f"a {STUDY} without settings",)
    # which answers the same, or not
    beside = {field.key for field in request_fields() if not field.about.decides} | {"strict"}

    def differing(there: Mapping[str, Any]) -> tuple[str, ...]:
        keys = (str(key) for key in dict.fromkeys((*there, *settings)) if key not in beside)
        found = [key for key in keys if there.get(key) != settings.get(key)]
        if there.get("name", settings.get("name")) != settings.get("name", there.get("name")):
            found.append("name")
        return tuple(found)

    other = differing(there)
    if not other:
        return ()
    try:  # an earlier phaze did not know all of today's settings
        return differing(as_today(there))
    except PhazeError:
        return other


def _of_a_run(manifest: Path) -> bool:
    try:
        document = parse_json(artefact_bytes(manifest), str(manifest))
    except (OSError, PhazeError):
        return False
    return isinstance(document, dict) and KEY in document


def _library_versions() -> dict[str, str]:
    """Versions of everything the numbers depend on."""
    names = ("phaze", "torch", "transformers", "numpy", "numba", "scipy", "gurobipy", "networkx")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _git_commit(repository: Path) -> str | None:
    """Commit of the code, with ``+changes`` where the work tree differs; None outside a git
    checkout of ours."""
    if not (repository / ".git").exists():  # an environment may lie in a checkout of something else
        return None
    try:
        commit, changes = (
            subprocess.run(
                ["git", *words],
                cwd=repository,
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changes else "")


@dataclass(frozen=True, eq=False)
class RunFiles:
    """Everything that a run leaves. ``designs`` has a row per design point, ``plans`` one per plan
    of the best hardware."""

    study_yaml: str
    manifest: Manifest
    result: SearchResult
    schedules: KeptSchedules
    designs: pd.DataFrame
    plans: pd.DataFrame


def write_run(folder: Path, files: RunFiles, *, csv: bool) -> RunFiles:
    """Write a run: its manifest first, which says whose folder it is, best.json last, which says
    that everything is there. Gives ``files`` with the manifest that was written.

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    contents = {
        STUDY: files.study_yaml.encode(),
        SCHEDULES: pack(file_formats.SCHEDULES.stamped_json(to_json(files.schedules))),
    }
    for name, table in (("designs", files.designs), ("plans", files.plans)):
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False, compression="zstd")
        contents[f"{name}.parquet"] = buffer.getvalue()
    if csv:
        for name, table in ((DESIGNS_CSV, files.designs), (PLANS_CSV, files.plans)):
            contents[name] = table.to_csv(index=False).encode()
    best = best_json(files.result)
    digests = {name: digest_of(content) for name, content in {**contents, BEST: best}.items()}
    manifest = replace(files.manifest, files=digests)
    # of an earlier run, which these files replace
    for name in (BEST, DESIGNS_CSV, PLANS_CSV):
        (folder / name).unlink(missing_ok=True)
    write_atomically(folder / MANIFEST, manifest.sealed())
    for name, content in contents.items():
        write_atomically(folder / name, content)
    write_atomically(folder / BEST, best)
    return replace(files, manifest=manifest)


def has_answer(folder: Path, result: SearchResult) -> bool:
    """Whether a run of the same study in ``folder`` has the best design of ``result``, with what
    limits it and what other values of its axes allow."""
    try:
        there = parse_json(artefact_bytes(folder / BEST), BEST)
    except (OSError, PhazeError):
        return False
    best = result.best
    if (
        best is None
        or not isinstance(there, dict)
        or not (there.get("limits") or there.get("axes"))
    ):
        return False
    return bool(there.get("value") == best.value)


def add_to_run(folder: Path, written: Manifest, result: SearchResult) -> None:
    """Write the ``result`` of a run with what was found since its manifest was ``written``, which
    says more now of what the run took and answers.

    The manifest knows both before one takes the place of the other, so that the run is whole at
    every moment.

    Raises:
        PhazeError: as ``write_run``.
    """
    best, digests = best_json(result), written.files
    manifest = replace(
        written,
        files={**digests, BEST: digest_of(best)},
        first_best=digests[BEST],
    )
    write_atomically(folder / MANIFEST, manifest.sealed())
    write_atomically(folder / BEST, best)


def best_json(result: SearchResult) -> bytes:
    """The result as JSON: the fields of the optimum and its hardware at the top level, then all
    else that was found.

    With the hardware by value and plans that name their layers, it says all that ``evaluate`` needs
    to price them again; its digest tells whether somebody edited it.
    """
    whole = json.loads(to_json(result))
    best = whole.pop("best") or {"status": whole["status"], "optimal": False}
    document = {**best, **{key: value for key, value in whole.items() if key != "status"}}
    return json.dumps(with_digest(file_formats.BEST.stamped(document)), indent=2).encode()
