"""Whose code may be run: a model.py that a person names, or their study; one in a plan or a run is
not, unless they say so."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from GraphExtractor.names import MODULE_SUFFIX, absolute_path
from phaze_common.errors import InputError
from phaze_common.run_files import MANIFEST

EVERY_FILE = (
    None  # as the files that may be run: whoever calls from Python names the models themselves
)
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

        Raises:
            InputError: it is withheld; says who names it, and how to allow it.
        """
        for each in self.withheld:
            if each.path == model:
                raise InputError(each.refusal)


def permission(
    models: Iterable[str], named_in: str, run_code: frozenset[str] | None
) -> CodePermission:
    """What may be run of ``models``, canonical names in a file, where ``run_code`` are the files
    that a person named."""
    if run_code is EVERY_FILE:
        return CodePermission()
    modules = (name for name in models if name.endswith(MODULE_SUFFIX))
    return CodePermission(
        tuple(WithheldModel(name, named_in) for name in modules if name not in run_code)
    )


def files_of_study(study: Path | None, given: Iterable[str]) -> frozenset[str] | None:
    """What may be run of the models that a file of settings names, which a person wrote to be run;
    what a run wrote is data.

    Raises:
        InputError: as ``files_to_run``.
    """
    named = files_to_run(given)
    of_a_run = study is not None and any(
        (study.absolute().parent / each).exists() for each in OF_A_RUN
    )
    return named if of_a_run else EVERY_FILE


def _code_path(text: str) -> str:
    try:
        return absolute_path(text)
    except InputError as error:
        raise InputError(
            f"--run-code {text!r} is no Python file; name a model.py that a plan or a run names"
        ) from error


def files_to_run(given: Iterable[str]) -> frozenset[str]:
    """The model files that a person named, as models are called.

    Raises:
        InputError: one is no Python file.
    """
    paths = frozenset(map(_code_path, given))
    other = next((path for path in sorted(paths) if not path.endswith(MODULE_SUFFIX)), None)
    if other is not None:
        raise InputError(
            f"--run-code {other} is no Python file; name a model.py, other files are never run"
        )
    return paths
