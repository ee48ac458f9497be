"""How sure the time of a plan is, on devices whose like was measured in published runs."""

from __future__ import annotations

from Estimator.devices.device import Evidence
from Estimator.plans.results import TimeInterval
from GraphExtractor.models.registry import find_model
from phaze.validation.intervals import Predicted, intervals_of_time, load_residuals
from Solver.results import HardwareRecords


def time_intervals(
    records: HardwareRecords, model: str, devices: int, seconds: float
) -> tuple[TimeInterval, ...]:
    """Where an iteration predicted to take so many ``seconds`` is measured, if that is known.

    Machines that were profiled are predicted from what was measured there, of which no published
    run tells anything.
    """
    device = records.device
    if device is None or device.profile is not None:
        return ()
    measured = device.evidence is Evidence.MEASURED
    predicted = Predicted(
        device.name, records.software.name, devices, measured, find_model(model).is_mixture
    )
    return intervals_of_time(load_residuals(), predicted, seconds)
