"""Fixtures every test may use."""

from pathlib import Path

import pytest
from hypothesis import settings

from Common.compiled_code import find_place

find_place()  # before anything is compiled, and for the processes that tests start
settings.register_profile("phaze", deadline=None)  # how long one example takes is the machine's business
settings.load_profile("phaze")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference measurements kept beside the repository; tests that need it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared reference data (../shared/data) is not on this machine")
    return folder
