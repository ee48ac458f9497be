"""``phaze doctor``: checks that what is needed is installed and works on this machine."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED
from phaze.cli.installed import Finding, Verdict, extras, own_names, packages
from phaze.cli.printing import print_rows
from phaze.settings.folders import REPOSITORY, Folders, check_output, folders_of
from phaze_common.errors import PhazeError
from phaze_common.files import user_path
from phaze_common.requirements import requirements

OLDEST_PYTHON = (3, 11)
COMFORTABLE_DISK_BYTES = 2 * 2**30  # graphs, estimates and runs of all listed models
# top-level names of what is installed
PACKAGES = ("phaze", "phaze_common", "GraphExtractor", "Estimator", "Solver")


@dataclass(frozen=True, kw_only=True)
class Doctor(mode.Command):
    """Check that everything needed is installed and working."""

    output: str | None = mode.flag(None, "folder a run would write to", "DIR")


def run(command: Doctor) -> int:
    """Check the installation and print what was found; fails if something needed is missing."""
    output = None if command.output is None else user_path(command.output)
    if output is not None:
        check_output(output)
    findings = examine(folders_of(output, "study"))
    print_rows("doctor", [asdict(finding) for finding in findings], command)
    return FAILED if any(finding.verdict is Verdict.MISSING for finding in findings) else DONE


def examine(folders: Folders) -> list[Finding]:
    """Run every check; none of them changes anything that stays."""
    needs = requirements()
    return [
        _python(),
        *packages(need for need in needs if not need.extra),
        *extras(needs),
        *own_names(PACKAGES, importlib.metadata.packages_distributions()),
        *_solvers(),
        _cores(),
        *_writable(folders),
        _disk(folders.run),
        *_shared_data(),
    ]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        found = f"{version}; install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
        return Finding("python", Verdict.MISSING, found)
    return Finding("python", Verdict.OK, version)


def _solvers() -> Iterator[Finding]:
    from Solver.schedule import SOLVERS

    for name, solver in SOLVERS.items():
        if not solver.is_available():
            yield Finding(
                f"solver {name}",
                Verdict.NOTE if name != "native" else Verdict.MISSING,
                "not installed; run ./setup.sh",
            )
            continue
        try:
            licence = solver.license_status()
        except PhazeError as error:
            yield Finding(f"solver {name}", Verdict.NOTE, str(error))
            continue
        yield Finding(f"solver {name}", Verdict.OK if licence.ok else Verdict.NOTE, licence.message)


def _cores() -> Finding:
    found = str(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return Finding("processor cores", Verdict.OK, found)


def _writable(folders: Folders) -> Iterator[Finding]:
    for folder in (folders.graphs, folders.estimates, folders.arch_configs, folders.run):
        existing = _existing(folder)
        try:
            with tempfile.TemporaryFile(dir=existing):
                yield Finding(f"folder {folder}", Verdict.OK, "writable")
        except OSError as error:
            found = f"{error.strerror} at {existing}; give another --output"
            yield Finding(f"folder {folder}", Verdict.MISSING, found)


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(_existing(folder)).free
    words = f"{free / 2**30:.1f} GiB free"
    if free < COMFORTABLE_DISK_BYTES:
        found = (
            f"{words}; runs of several models need about {COMFORTABLE_DISK_BYTES / 2**30:.0f} GiB"
        )
        return Finding("disk", Verdict.NOTE, found)
    return Finding("disk", Verdict.OK, words)


def _existing(folder: Path) -> Path:
    """``folder`` or the nearest folder above it that exists."""
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _shared_data() -> Iterator[Finding]:
    folder = REPOSITORY.parent / "shared" / "data"
    if folder.is_dir():
        yield Finding("reference data", Verdict.OK, "present; tests compare with it")
    elif (REPOSITORY / "tests").is_dir():
        found = "absent (../shared/data); only tests use it and skip without it"
        yield Finding("reference data", Verdict.NOTE, found)


MODE = mode.Mode("doctor", mode.FIND_YOUR_WAY, Doctor, run)
