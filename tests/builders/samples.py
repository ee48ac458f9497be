"""Which of many similar cases every session takes; the others are left to a thorough one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], usual: Collection[Any]) -> list[Any]:
    """``cases`` for ``parametrize``, those that are not among ``usual`` for thorough sessions
    alone.

    A case of several arguments is a tuple. ValueError: some of ``usual`` is no case.
    """
    every = list(cases)
    unknown = [case for case in usual if case not in every]
    if unknown or not usual:
        raise ValueError(
            f"these usual cases are no cases: {unknown}; name at least one, and each from {every}"
        )
    return [
        case if case in usual else pytest.param(*_arguments(case), marks=pytest.mark.thorough)
        for case in every
    ]


def _arguments(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
