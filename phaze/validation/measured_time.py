"""The measured iteration time of a published run: as stated, or from the FLOP/s or the utilisation
that it reports."""

from Estimator.devices.device import Device
from phaze.validation.assumptions import Assumptions, Convention, Notes
from phaze.validation.pricing import CountedFlops, PredictedRun
from phaze.validation.run_model import RunModel, counted_flops
from phaze.validation.typed_run import FlopsConvention, TypedRun
from phaze_common.errors import InputError

TERA = 1e12
MOST_UTILISATION = 2.5  # more than a peak that counts sparse products, which some state
LEAST_UTILISATION = 1e-5  # of the peak: a run that does less is a slip of units


def check_measured(run: TypedRun) -> None:
    """Refuse runs of which no time was published."""
    if run.iteration_s is None and run.tflops_per_device is None and run.mfu is None:
        raise InputError(
            "it says neither its iteration time nor its FLOP/s nor its utilisation, nor tokens a "
            "second with a global batch"
        )


def measured_iteration_s(
    run: TypedRun,
    priced: PredictedRun,
    model: RunModel,
    device: Device,
    rules: Assumptions,
    notes: Notes,
) -> float:
    """Seconds of an iteration of a run that passed ``check_measured``, for the plan that it is
    taken to have had."""
    plan = priced.candidate.plan
    if run.iteration_s is not None:
        return run.iteration_s
    convention = rules.named_convention(run.flops_convention or FlopsConvention.MODEL)
    if run.tflops_per_device is not None:
        flops_per_s = run.tflops_per_device * TERA
        basis = f"{run.tflops_per_device:g} TFLOP/s per device"
    else:
        number_format = plan.precision.matrix_format
        flops_per_s = (run.mfu or 0.0) * device.peak_flops(number_format)
        basis = f"{run.mfu or 0.0:.1%} of the {number_format} peak"
    if model.dimensions is not None:
        flops = counted_flops(
            model.dimensions, plan.global_batch_size, convention, plan.recompute.value
        )
    else:
        flops = _of_the_trace(priced.flops, convention, model, plan.global_batch_size)
    notes.assume("iteration_time", f"from {basis}, {convention.says}")
    return flops / (flops_per_s * plan.devices)


def _of_the_trace(
    flops: CountedFlops, convention: Convention, model: RunModel, samples: int
) -> float:
    """Operations of an iteration as ``convention`` counts them, of a model whose trace says
    them."""
    if convention.attention == 0.0:
        return 6.0 * model.active_parameters * samples * model.sequence_length
    # a causal mask leaves out half of the scores
    counted = flops.model - 2.0 * (1.0 - convention.attention) * flops.masked
    return counted + (flops.repeated if convention.recomputed else 0.0)


def check_possible(measured_s: float, priced: PredictedRun, device: Device) -> None:
    """Refuse a measured time in which the device would have done more than its peak, or next to
    nothing.

    Raises:
        InputError: says what part of the peak it is.
    """
    plan = priced.candidate.plan
    peak = device.peak_flops(plan.precision.matrix_format) * plan.devices
    least = priced.flops.model - priced.flops.masked  # nobody computes less
    reached = least / (measured_s * peak)
    if not LEAST_UTILISATION <= reached <= MOST_UTILISATION:
        part = f"{reached:.0%}" if reached > MOST_UTILISATION else f"{reached:.1e}"
        raise InputError(
            f"its iteration of {measured_s:.4g} s would be {part} of the device's peak; correct "
            "the measured value"
        )
