"""Refusals in the words of Python: what a command line calls ``--global-batch-size`` is the keyword
``global_batch_size``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from phaze import library
from phaze.settings.request import settings_for
from phaze.studies.training_time.settings import all_settings
from phaze_common.errors import PhazeError
from phaze_common.refusals import SeveralProblemsError
from phaze_common.setting_fields import Mode

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
PARAMETERS = frozenset({"run_code", "instead", "what_if"})  # of functions, which are no settings


@cache
def function_of(name: str) -> Callable[..., Any]:
    """A function of ``phaze.library`` as people call it from Python; the command line calls it as
    it is there."""
    found: Callable[..., Any] = in_words_of_python(getattr(library, name))
    return found


def in_words_of_python(door: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """``door``, whose refusals name keywords where those of the same rules name flags on a command
    line."""

    @wraps(door)
    def called(*args: Given.args, **keywords: Given.kwargs) -> Answer:
        try:
            return door(*args, **keywords)
        except PhazeError as error:
            if isinstance(error, SeveralProblemsError):
                error.problems = tuple(map(reworded, error.problems))
                error.listed = tuple(map(reworded, error.listed))
            error.args = tuple(
                reworded(each) if isinstance(each, str) else each for each in error.args
            )
            raise

    return called


def reworded(sentence: str) -> str:
    """``sentence`` with every flag of a setting as the keyword that it is; other flags stay."""
    return _FLAG.sub(
        lambda found: name if (name := found[1].replace("-", "_")) in _keywords() else found[0],
        sentence,
    )


@cache
def _keywords() -> frozenset[str]:
    return PARAMETERS.union(*(settings_for(mode).keys for mode in Mode), all_settings().keys)
