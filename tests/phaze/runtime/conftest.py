"""Trainings and profiles of a module of tests fork their processes from one server, which imports
torch and transformers once."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_server() -> Iterator[None]:
    from phaze.runtime.forked import forked, stop_server
    from phaze.runtime.training.launch import PRELOADED

    with pytest.MonkeyPatch.context() as patch:
        for module in ("phaze.runtime.training.launch", "phaze.runtime.profiling.exchanges"):
            patch.setattr(f"{module}.forked", lambda _, *given: forked(PRELOADED, *given))
        patch.setattr("phaze.runtime.forked.stop_server", lambda: None)
        yield
    stop_server()
