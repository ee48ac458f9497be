"""The measured iteration time of a published run: as stated, or from the FLOP/s or the utilisation that it reports."""

from Common.errors import InputError
from Estimator.devices.device import Device
from GraphExtractor.models.dimensions import Dimensions
from Plans.plan import UniformPlan
from Validation.assumptions import Assumptions, Convention, Framework, Notes
from Validation.records import MeasuredRun
from Validation.run_model import counted_flops

TERA = 1e12


def check_measured(run: MeasuredRun) -> None:
    """Refuse runs of which no time was published."""
    if run.iteration_s is None and run.tflops_per_device is None and run.mfu is None:
        raise InputError("it says neither its iteration time nor its FLOP/s nor its utilisation")


def measured_iteration_s(
    run: MeasuredRun,
    plan: UniformPlan,
    dimensions: Dimensions,
    device: Device,
    framework: Framework,
    rules: Assumptions,
    notes: Notes,
) -> float:
    """Seconds of an iteration of a run that passed ``check_measured``, for the plan that it is taken to have had."""
    if run.iteration_s is not None:
        return run.iteration_s
    if run.tflops_per_device is not None:
        flops_per_s = run.tflops_per_device * TERA
        convention = rules.convention(run.tflops_convention) or _usual(plan, framework, rules)
        told = f"{run.tflops_per_device:g} TFLOP/s per device"
    else:
        number_format = plan.precision.matrix_format
        flops_per_s = (run.mfu or 0.0) * device.peak_flops(number_format)
        convention = rules.convention(run.tflops_convention) or rules.named_convention("model FLOPs")
        told = f"{run.mfu or 0.0:.1%} of the {number_format} peak"
    flops = counted_flops(dimensions, plan.global_batch_size, convention, plan.recompute.value)
    notes.assume("iteration_time", f"from {told}, {convention.name}")
    return flops / (flops_per_s * plan.devices)


def _usual(plan: UniformPlan, framework: Framework, rules: Assumptions) -> Convention:
    return rules.named_convention("hardware FLOPs" if framework.counts_recomputation else "model FLOPs")
