"""Whose code may be run: a model.py that a person names; one in a plan or a run only if allowed."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from GraphExtractor.names import MODULE_SUFFIX, absolute_path
from phaze_common.errors import InputError
from phaze_common.run_files import MANIFEST

EVERY_FILE = None  # may be run: whoever calls from Python names the models themselves
OF_A_RUN = (MANIFEST, "points")  # lies beside settings that a run or a sweep wrote


@dataclass(frozen=True)
class WithheldModel:
    """A model file (Python) that is not to be run, and the file that names it."""

    path: str
    named_in: str

    @property
    def refusal(self) -> str:
        """What would be run, who asks for it, and how to allow it."""
        return (
            f"{self.named_in} names the model {self.path}, a Python file that would be run; what "
            f"only a file names is not: look at it, then give --run-code {shlex.quote(self.path)} "
            "(in Python run_code=) to run it"
        )


@dataclass(frozen=True)
class CodePermission:
    """Which model files may not be run; all others may."""

    withheld: tuple[WithheldModel, ...] = ()

    def check(self, model: str) -> None:
        """Refuse to run the code of ``model``.

        Raises: InputError: it is withheld; says who names it, and how to allow it.
        """
        for each in self.withheld:
            if each.path == model:
                raise InputError(each.refusal)


def permission(
    models: Iterable[str], named_in: str, run_code: frozenset[str] | None
) -> CodePermission:
    """What may be run of ``models``, named in a file; a person named the files ``run_code``."""
    if run_code is EVERY_FILE:
        return CodePermission()
    withheld = (each for each in models if each.endswith(MODULE_SUFFIX) and each not in run_code)
    return CodePermission(tuple(WithheldModel(each, named_in) for each in withheld))


def files_of_study(study: Path | None, given: Iterable[str]) -> frozenset[str] | None:
    """What may be run of the models in a file of settings: all, but of a run only what is given.

    Raises: InputError: as ``files_to_run``.
    """
    named = files_to_run(given)
    if study is None or not any((study.absolute().parent / each).exists() for each in OF_A_RUN):
        return EVERY_FILE
    return named


def files_to_run(given: Iterable[str]) -> frozenset[str]:
    """The model files that a person named, as models are called.

    Raises: InputError: one is no Python file.
    """
    found: set[str] = set()
    for text in given:
        try:
            path = absolute_path(text)
        except InputError as error:
            raise InputError(
                f"--run-code {text!r} is no Python file; name a model.py that a plan or a run names"
            ) from error
        found.add(path)
    other = next((path for path in sorted(found) if not path.endswith(MODULE_SUFFIX)), None)
    if other is not None:
        raise InputError(
            f"--run-code {other} is no Python file; name a model.py, other files are never run"
        )
    return frozenset(found)
