"""Checks that what the framework needs is installed and works on this machine."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from Common.errors import PhazeError
from Studies.folders import REPOSITORY, Folders

OLDEST_PYTHON = (3, 11)
COMFORTABLE_DISK_BYTES = 2 * 2**30  # graphs, estimates and runs of all listed models
_PIN = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)\s*==\s*(?P<version>[^;\s]+)")
_NEED = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)")
_EXTRA = re.compile(r"extra == ['\"](?P<name>[a-z]+)['\"]")
EXTRAS = {"report": "reports and their figures", "ray": "sweeps on a cluster"}


class Verdict(StrEnum):
    """Of one check. Only ``missing`` makes the command fail."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """What one check found, and what to do where it is not fine."""

    what: str
    verdict: Verdict
    found: str


def examine(folders: Folders) -> list[Finding]:
    """Run every check; none of them changes anything that stays."""
    wanted = _requirements()
    return [
        _python(),
        *_packages(line for line in wanted if "extra ==" not in line),
        *_extras(wanted),
        *_solvers(),
        _cores(),
        *_writable(folders),
        _disk(folders.run),
        _shared_data(),
    ]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("python", Verdict.MISSING, f"{version}; install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return Finding("python", Verdict.OK, version)


def _requirements() -> list[str]:
    """What pyproject.toml asks for; lines of an extra end with its name, as ``; extra == "ray"``."""
    try:
        return importlib.metadata.requires("phaze") or []
    except importlib.metadata.PackageNotFoundError:
        import tomllib

        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"].items()
        return [*project["dependencies"], *(f'{line}; extra == "{name}"' for name, lines in extras for line in lines)]


def _packages(requirements: Iterable[str]) -> Iterator[Finding]:
    for requirement in requirements:
        need = _NEED.match(requirement)
        if need is None:
            continue
        name, pin = need["name"], _PIN.match(requirement)
        found = _version(name)
        if found is None:
            yield Finding(name, Verdict.MISSING, "not installed; run ./setup.sh")
        elif pin and found.partition("+")[0] != pin["version"]:
            yield Finding(name, Verdict.MISSING, f"{found}, but {pin['version']} is needed; run ./setup.sh")
        else:
            yield Finding(name, Verdict.OK, found)


def _extras(requirements: Iterable[str]) -> Iterator[Finding]:
    """What only some modes need; without it they say so themselves."""
    by_extra: dict[str, list[str]] = {name: [] for name in EXTRAS}
    for requirement in requirements:
        need, extra = _NEED.match(requirement), _EXTRA.search(requirement)
        if need is not None and extra is not None and extra["name"] in by_extra:
            by_extra[extra["name"]].append(need["name"])
    for extra_name, names in by_extra.items():
        there = {name: version for name in names if (version := _version(name)) is not None}
        absent = [name for name in names if name not in there]
        if absent:
            words = (
                f"{', '.join(absent)} not installed; for {EXTRAS[extra_name]}: .venv/bin/python -m pip install {' '.join(absent)}"
            )
            yield Finding(f"extra {extra_name}", Verdict.NOTE, words)
        else:
            yield Finding(f"extra {extra_name}", Verdict.OK, ", ".join(f"{name} {version}" for name, version in there.items()))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _solvers() -> Iterator[Finding]:
    from Solver.schedule import SOLVERS

    for name, solver in SOLVERS.items():
        if not solver.is_available():
            yield Finding(
                f"solver {name}", Verdict.NOTE if name != "native" else Verdict.MISSING, "not installed; run ./setup.sh"
            )
            continue
        try:
            licence = solver.license_status()
        except PhazeError as error:
            yield Finding(f"solver {name}", Verdict.NOTE, str(error))
            continue
        yield Finding(f"solver {name}", Verdict.OK if licence.ok else Verdict.NOTE, licence.message)


def _cores() -> Finding:
    return Finding(
        "processor cores", Verdict.OK, str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    )


def _writable(folders: Folders) -> Iterator[Finding]:
    for folder in (folders.graphs, folders.estimates, folders.arch_configs, folders.run):
        existing = _existing(folder)
        try:
            with tempfile.TemporaryFile(dir=existing):
                yield Finding(f"folder {folder}", Verdict.OK, "writable")
        except OSError as error:
            yield Finding(f"folder {folder}", Verdict.MISSING, f"{error.strerror} at {existing}; give another --output")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(_existing(folder)).free
    words = f"{free / 2**30:.1f} GiB free"
    if free < COMFORTABLE_DISK_BYTES:
        return Finding(
            "disk", Verdict.NOTE, f"{words}; runs of several models need about {COMFORTABLE_DISK_BYTES / 2**30:.0f} GiB"
        )
    return Finding("disk", Verdict.OK, words)


def _existing(folder: Path) -> Path:
    """``folder`` or the nearest folder above it that exists."""
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _shared_data() -> Finding:
    folder = REPOSITORY.parent / "shared" / "data"
    if folder.is_dir():
        return Finding("reference data", Verdict.OK, "present; tests compare with it")
    return Finding("reference data", Verdict.NOTE, "absent (../shared/data); only tests use it and skip without it")
