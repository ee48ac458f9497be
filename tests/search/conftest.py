"""What several tests of the search share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from random_searches import Case

from Solver.search import model_shapes as searched_shapes
from Solver.search.search import Searched, search
from Studies.problem import hardware_report
from Studies.resolve import resolve


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], Searched]:
    """Answers a random problem whose graphs are not extracted."""
    report = hardware_report(resolve({}, {"model": "bertbase"}))

    def answered(case: Case) -> Searched:
        monkeypatch.setattr(
            searched_shapes,
            "load_or_extract_all",
            lambda keys, *_: {key: case.graph(key) for key in keys},
        )
        return search(case.run(), report, "nowhere")

    return answered
