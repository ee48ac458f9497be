"""Which versions of other packages phaze was tested with: read from pyproject.toml, or from what
pip keeps of it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from phaze_common.errors import PhazeError

_LINE = re.compile(
    r"\s*(?P<name>[A-Za-z0-9_.-]+)\s*(?:\[[^]]*\])?\s*(?P<bounds>[^;]*)(?:;.*?extra\s*==\s*['\"](?P<extra>[\w-]+)['\"])?"
)
_BOUND = re.compile(r"(?P<kind>>=|<|==)\s*(?P<version>[0-9][0-9.]*)")


@dataclass(frozen=True)
class Requirement:
    """A package that phaze, or an ``extra`` of it, needs, and which versions."""

    name: str
    least: str = ""
    below: str = ""
    exactly: str = ""
    extra: str = ""

    @classmethod
    def of(cls, line: str) -> Requirement:
        """From a line of pyproject.toml; bounds are ``>=``, ``<`` and ``==``."""
        parts = _LINE.match(line)
        if parts is None:
            raise PhazeError(f"{line!r} is no requirement; correct it in pyproject.toml")
        bounds = {bound["kind"]: bound["version"] for bound in _BOUND.finditer(parts["bounds"])}
        return cls(
            parts["name"],
            bounds.get(">=", ""),
            bounds.get("<", ""),
            bounds.get("==", ""),
            parts["extra"] or "",
        )

    def is_older(self, version: str) -> bool:
        """Whether ``version`` is older than any that will do."""
        least = self.exactly or self.least
        return bool(least) and release(version) < release(least)

    def is_newer(self, version: str) -> bool:
        """Whether ``version`` is newer than any that was tested."""
        if self.exactly:
            return release(version) > release(self.exactly)
        return bool(self.below) and release(version) >= release(self.below)

    @property
    def text(self) -> str:
        """As pip takes it."""
        bounds = {">=": self.least, "<": self.below, "==": self.exactly}
        return self.name + ",".join(
            f"{kind}{version}" for kind, version in bounds.items() if version
        )


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at the end: (2, 13) of 2.13.0+cpu."""
    numbers = [int(digits) for digits in re.match(r"[0-9.]*", version)[0].split(".") if digits]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


@cache
def requirements() -> tuple[Requirement, ...]:
    """All of phaze's, those of its extras too."""
    return tuple(Requirement.of(line) for line in _lines())


def _lines() -> list[str]:
    project_file = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if project_file.exists():
        project = tomllib.loads(project_file.read_text(encoding="utf-8")).get("project", {})
        # the source tree, whose file is newer than what pip took from it
        if project.get("name") == "phaze":
            extras = project["optional-dependencies"].items()
            return [
                *project["dependencies"],
                *(f'{line}; extra == "{name}"' for name, lines in extras for line in lines),
            ]
    return importlib.metadata.requires("phaze") or []


@cache
def check_versions(*names: str) -> None:
    """Refuse packages that are older than what phaze was tested with.

    Raises:
        PhazeError: says which, and what to do.
    """
    for need in requirements():
        if (
            need.name in names
            and not need.extra
            and need.is_older(found := importlib.metadata.version(need.name))
        ):
            raise PhazeError(
                f"{need.name} {found} is older than phaze was tested with ({need.text}); install a "
                f"newer one: python -m pip install '{need.text}'"
            )
