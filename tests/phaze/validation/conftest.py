"""Fixtures of the validation's tests."""

from pathlib import Path

import pytest

from phaze.validation.assumptions import Assumptions, load_assumptions


@pytest.fixture(scope="session")
def rules() -> Assumptions:
    return load_assumptions()


@pytest.fixture(scope="session")
def graphs(request: pytest.FixtureRequest) -> Path:
    """Traces, kept between test sessions: what other code made is traced again."""
    return Path(request.config.cache.mkdir("validation_graphs"))
