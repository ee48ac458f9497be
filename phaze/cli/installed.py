"""Checks of an installation: versions of packages against those that were tested, and whether other
packages use our names."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import PathFinder
from pathlib import Path

from phaze.cli.exit_status import SOURCES as HOME
from phaze_common.requirements import Requirement

EXTRAS = {  # what each is for
    "report": "reports and their figures",
    "ray": "sweeps on a cluster",
    "serve": "reports from a local server",
    "runtime": "checkpoints of trainings",
    "export": "starting what export writes for accelerate and hf_trainer",
}


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


def packages(needs: Iterable[Requirement]) -> Iterator[Finding]:
    """What phaze needs in any case: too old is as good as missing, too new is untested."""
    for need in needs:
        found = version(need.name)
        if found is None:
            yield Finding(need.name, Verdict.MISSING, f"not installed; {_remedy(need)}")
        elif need.is_older(found) or (need.exactly and need.is_newer(found)):
            wanted = need.exactly or f"{need.least} or newer"
            yield Finding(
                need.name, Verdict.MISSING, f"{found}, but {wanted} is needed; {_remedy(need)}"
            )
        elif need.is_newer(found):
            words = (
                f"{found} is newer than phaze was tested with ({need.text}); where a result "
                f"looks wrong, {_remedy(need)}"
            )
            yield Finding(need.name, Verdict.NOTE, words)
        else:
            yield Finding(need.name, Verdict.OK, found)


def _remedy(need: Requirement) -> str:
    if (HOME / "setup.sh").exists():
        return "run ./setup.sh"
    return f"run: python -m pip install '{need.text}'"


def extras(needs: Sequence[Requirement]) -> Iterator[Finding]:
    """What only some modes need; without it they say so themselves."""
    for extra, purpose in EXTRAS.items():
        names = [need.name for need in needs if need.extra == extra and need.name != "phaze"]
        there = {name: found for name in names if (found := version(name)) is not None}
        absent = [name for name in names if name not in there]
        if absent:
            command = f"python -m pip install {' '.join(absent)}"
            found = f"{', '.join(absent)} not installed; for {purpose}: {command}"
            yield Finding(f"extra {extra}", Verdict.NOTE, found)
        else:
            found = ", ".join(f"{name} {found}" for name, found in there.items())
            yield Finding(f"extra {extra}", Verdict.OK, found)


def version(package: str) -> str | None:
    """Of an installed package, else None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_names(
    names: Sequence[str], owners: Mapping[str, Sequence[str]], path: Sequence[str] | None = None
) -> Iterator[Finding]:
    """Whether the top-level names of phaze are phaze's alone.

    ``owners`` are the packages with files under a name, as
    ``importlib.metadata.packages_distributions()`` has them; ``path`` is where Python looks (None:
    ``sys.path``).
    """
    hidden = {
        package: place
        for package in names
        if (place := _found_at(package, path)) is not None and place != HOME
    }
    shared = {
        package: others
        for package in names
        if (others := sorted({*owners.get(package, ())} - {"phaze"}))
    }
    for package, place in hidden.items():
        words = (
            f"{package} is found in {place} instead of {HOME}; rename that one, or start phaze "
            "elsewhere"
        )
        yield Finding(f"package {package}", Verdict.MISSING, words)
    for package, others in shared.items():
        words = (
            f"{' and '.join(others)} too has files in {package}; install phaze in an environment "
            "of its own"
        )
        yield Finding(f"package {package}", Verdict.NOTE, words)
    if not hidden and not shared:
        yield Finding("names of packages", Verdict.OK, "no other package uses those of phaze")


def _found_at(package: str, path: Sequence[str] | None) -> Path | None:
    """The folder in which Python finds a package or module, if it does."""
    spec = PathFinder.find_spec(package, path)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(str(spec.origin)).resolve().parent
