"""What constants were fitted to is said of the runs that ship, and of no others."""

import pytest

from Estimator.devices.files import load_software
from phaze.validation.fitted import fitted_constants, fitted_to
from phaze.validation.intervals import load_residuals
from scripts.constants_page import PAGE, page


def test_every_fit_is_to_runs_that_ship() -> None:
    sources = [each.source for each in load_residuals().sources]
    shipped = [
        fit
        for fit in fitted_constants()
        if any(fit.constants in fitted_to(source) for source in sources)
    ]
    others = [fit.constants for fit in fitted_constants() if fit not in shipped]
    assert shipped and all(
        "vTrain" in constants for constants in others
    )  # whose runs its authors publish


@pytest.mark.parametrize("source", ["", "NeMo 24.07", "a paper of 2031"])
def test_other_runs_are_predictions(source: str) -> None:
    assert fitted_to(source) == ""


def test_constants_that_were_fitted_say_so_themselves() -> None:
    between = load_software("megatron_2021").between_iterations
    assert between is not None and "fitted" in between.source
    fragmentation = load_software("megatron_deepspeed_bf16").fragmentation
    assert fragmentation is not None and "fitted" in fragmentation.source


def test_the_page_of_constants_is_that_of_the_files() -> None:
    assert PAGE.read_text() == page(), "write it again: .venv/bin/python scripts/constants_page.py"
