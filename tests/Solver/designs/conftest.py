"""What several tests of the search share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phaze.settings.problem import hardware_report
from phaze.settings.resolve import resolve
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.search import Searched, search
from tests.builders.random_searches import Case


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
