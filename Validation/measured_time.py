"""The measured iteration time of a published run: as stated, or from the FLOP/s or the utilisation that it reports."""

from Common.errors import InputError
from Estimator.devices.device import Device
from GraphExtractor.models.dimensions import Dimensions
from Plans.plan import UniformPlan
from Validation.assumptions import Assumptions, Notes
from Validation.run_model import counted_flops
from Validation.typed_run import FlopsConvention, TypedRun

TERA = 1e12


def check_measured(run: TypedRun) -> None:
    """Refuse runs of which no time was published."""
    if run.iteration_s is None and run.tflops_per_device is None and run.mfu is None:
        raise InputError("it says neither its iteration time nor its FLOP/s nor its utilisation")


def measured_iteration_s(
    run: TypedRun, plan: UniformPlan, dimensions: Dimensions, device: Device, rules: Assumptions, notes: Notes
) -> float:
    """Seconds of an iteration of a run that passed ``check_measured``, for the plan that it is taken to have had."""
    if run.iteration_s is not None:
        return run.iteration_s
    convention = rules.named_convention(run.flops_convention or FlopsConvention.MODEL)
    if run.tflops_per_device is not None:
        flops_per_s = run.tflops_per_device * TERA
        told = f"{run.tflops_per_device:g} TFLOP/s per device"
    else:
        number_format = plan.precision.matrix_format
        flops_per_s = (run.mfu or 0.0) * device.peak_flops(number_format)
        told = f"{run.mfu or 0.0:.1%} of the {number_format} peak"
    flops = counted_flops(dimensions, plan.global_batch_size, convention, plan.recompute.value)
    notes.assume("iteration_time", f"from {told}, {convention.says}")
    return flops / (flops_per_s * plan.devices)
