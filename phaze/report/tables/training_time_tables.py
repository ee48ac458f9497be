"""A whole training as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.conventions import mfu_share, mfu_text
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.report.tables.training_tables import fullest_memory_text
from phaze.studies.training_time.records import DAY_S, HOUR_S, FailureReport, TrainingTime
from phaze.studies.training_time.run import PricedTraining
from phaze.studies.wording import NEGLIGIBLE, part_text, summary_text
from phaze_common.numbers import FINE_DIGITS, number, percent, size_text, time_text
from Solver.results import PlanSummary

INTERRUPTIONS = {
    "checkpoints": "checkpoints",
    "lost_work": "work lost to failures",
    "restarts": "restarts after failures",
}
MOST_LEVELS = 12  # rows of batch sizes; the file has all


def training_tables(priced: PricedTraining, *, searched: bool) -> list[TextTable]:
    """What the training amounts to, where its time goes, and how the batch grows where it does."""
    tables = [
        summary_table(priced, searched=searched),
        parts_table(priced.training, label(priced.evaluation.plan.model)),
    ]
    if len(priced.training.levels) > 1:
        tables.append(levels_table(priced.training))
    return tables


def summary_table(priced: PricedTraining, *, searched: bool) -> TextTable:
    """The training in one panel; what follows from a number that was not given is absent."""
    model = label(priced.evaluation.plan.model)
    title = f"{model}, a whole training under {priced.evaluation.hardware.software}"
    table = new_table(title, ("what", "predicted"), words={"what", "predicted"})
    for name, value in _rows(priced, searched=searched):
        table.add_row(name, value)
    return table


def _rows(priced: PricedTraining, *, searched: bool) -> Iterator[tuple[str, str]]:
    training, evaluation = priced.training, priced.evaluation
    hardware, machine, iteration = evaluation.hardware, evaluation.machine, evaluation.iteration
    reason = (
        f": {training.reason}; training-time --best searches for a plan that does"
        if training.reason
        else ""
    )
    yield (
        "status",
        f"{training.status.value}{reason if training.status is Status.INFEASIBLE else ''}",
    )
    yield "devices", f"{training.devices:,} x {hardware.title} on {hardware.cluster}"
    plan = evaluation.uniform
    chosen = summary_text(PlanSummary.of(plan, iteration.samples_per_s))
    yield "plan", f"{chosen}; {_found(priced)}" if searched else chosen
    many = training.micro_batches_per_pipeline
    micro_batches = f"{many:,} micro-batch{'' if many == 1 else 'es'} per pipeline"
    yield "global batch", f"{plan.global_batch_size:,} samples, {micro_batches}"
    yield (
        "memory of the fullest stage",
        fullest_memory_text(
            iteration.memory_bytes, machine.memory_bytes, iteration.allocated_bytes
        ),
    )
    yield "trained on", _trained(training)
    yield (
        "iterations",
        f"{training.iterations:,}, {time_text(training.iteration_s)} each"
        + (" with the full batch" if len(training.levels) > 1 else ""),
    )
    yield (
        "wall-clock",
        days_text(training.wall_clock_s)
        + (
            f", {percent(training.failures.longer_by)} more than the iterations for checkpoints "
            "and failures"
            if training.failures
            else ""
        ),
    )
    for each in evaluation.time_intervals[:1]:
        low, high = (
            days_text(training.wall_clock_s * end_s / iteration.iteration_s)
            for end_s in (each.low_s, each.high_s)
        )
        yield f"wall-clock, {each.nominal:.0%} sure", f"{low} to {high}: {'; '.join(each.reasons)}"
    yield "device-hours", number(training.device_hours, FINE_DIGITS)
    yield from _costs(training)
    mfu = mfu_text(
        training.model_flops_utilization,
        training.all_scores_flops_utilization,
        training.all_scores_tflops_per_device,
    )
    yield "model FLOPs", f"{training.model_flops:.4g}"
    yield (
        "model TFLOP/s per device",
        f"{number(training.model_tflops_per_device, aligned=True)} ({mfu})",
    )
    hfu = f"HFU {mfu_share(training.hardware_flops_utilization)} of what is computed, also again"
    yield (
        "hardware TFLOP/s per device",
        f"{number(training.hardware_tflops_per_device, aligned=True)} ({hfu})",
    )
    both = (
        f"{number(training.model_pflops_of_cluster)} model, "
        f"{number(training.hardware_pflops_of_cluster)} hardware"
    )
    yield "PFLOP/s of all devices", both
    if training.failures is not None:
        yield from _failures(training.failures)
        if training.failures.cluster_mtbf_s is not None:
            yield "MFU over the wall-clock", mfu_share(training.effective_model_flops_utilization)


def _found(priced: PricedTraining) -> str:
    if priced.search is None:
        return "as given"
    return (
        "the best, proven"
        if priced.search.status is Status.OPTIMAL
        else "the best found, not proven"
    )


def _trained(training: TrainingTime) -> str:
    samples = f"{training.samples:,} samples"
    return samples if training.tokens is None else f"{training.tokens:,} tokens in {samples}"


def days_text(seconds: float) -> str:
    """Days, or of less than one hours; of less than one hour as other times."""
    if seconds >= DAY_S:
        return f"{number(seconds / DAY_S)} days"
    return f"{number(seconds / HOUR_S)} hours" if seconds >= HOUR_S else time_text(seconds)


def _costs(training: TrainingTime) -> Iterator[tuple[str, str]]:
    if training.price is not None:
        yield "price", f"{number(training.price, FINE_DIGITS)} in the currency that was given"
    energy = training.energy
    if energy is None:
        return
    power = "" if energy.device_power_w is None else f"{number(energy.device_power_w)} W a device, "
    pue = f", PUE {energy.pue:g}" if energy.pue != 1 else ""
    yield "energy", f"{number(energy.energy_kwh)} kWh ({power}{energy.basis}{pue})"
    if energy.carbon_kg is not None:
        light = energy.carbon_kg < 1000.0
        mass = (
            f"{number(energy.carbon_kg)} kg" if light else f"{number(energy.carbon_kg / 1000.0)} t"
        )
        yield "carbon", f"{mass} CO2e at {number(energy.grid_intensity_g_per_kwh or 0.0)} g/kWh"


def _failures(failures: FailureReport) -> Iterator[tuple[str, str]]:
    size = size_text(failures.checkpoint_bytes)
    yield (
        "checkpoints",
        (
            f"{number(failures.checkpoints)} of {size}, {time_text(failures.checkpoint_s)} each, "
            f"after every {time_text(failures.interval_s)} of work{_interval(failures)}"
        ),
    )
    if failures.cluster_mtbf_s is not None:
        restart = f", restarts of {time_text(failures.restart_s)}" if failures.restart_s else ""
        yield (
            "failures",
            f"{number(failures.failures)} expected, one in "
            f"{days_text(failures.cluster_mtbf_s)}{restart}",
        )


def _interval(failures: FailureReport) -> str:
    """Which interval it is, and what it would be to higher order."""
    if failures.young_daly_interval_s is None or failures.daly_interval_s is None:
        return ""
    finer = f"to higher order {time_text(failures.daly_interval_s)}"
    if failures.interval_s == failures.young_daly_interval_s:
        return f" (Young-Daly; {finer})"
    return f" (Young-Daly: {time_text(failures.young_daly_interval_s)}, {finer})"


def parts_table(training: TrainingTime, model: str) -> TextTable:
    """Hours of the wall-clock by cause, forward and backward passes apart, the largest first."""
    columns = ("part", "forward h", "backward h", "neither h", "hours", "share")
    table = new_table(
        f"{model}: where the time of the training goes",
        columns,
        words={"part"},
        spared=("neither h",),
    )
    shown = [part for part in training.parts if part.total_s > NEGLIGIBLE * training.wall_clock_s]
    decimals = next(
        (each for each in range(7) if training.wall_clock_s / HOUR_S * 10**each >= 1e4), 7
    )

    def cells(*seconds: float) -> list[str]:
        return [f"{each / HOUR_S:,.{decimals}f}" if each else "-" for each in seconds]

    for part in sorted(shown, key=lambda each: -each.total_s):
        name = INTERRUPTIONS.get(part.name, part_text(part.name))
        seconds = cells(part.forward_s, part.backward_s, part.neither_s, part.total_s)
        table.add_row(name, *seconds, f"{part.total_s / training.wall_clock_s:.1%}")
    table.add_section()
    sums = (
        sum(getattr(part, name) for part in training.parts)
        for name in ("forward_s", "backward_s", "neither_s")
    )
    table.add_row("wall-clock", *cells(*sums, training.wall_clock_s), "100.0%")
    return table


def levels_table(training: TrainingTime) -> TextTable:
    """Iterations by global batch size; of many the first and the last ones."""
    columns = ("global batch", "iterations", "samples", "micro-batches", "iteration s", "hours")
    table = new_table("warm-up of the batch size", columns, words=set(), spared=("samples",))
    levels, half = training.levels, MOST_LEVELS // 2
    many = len(levels) > MOST_LEVELS
    for place, level in enumerate(levels):
        if many and half <= place < len(levels) - half:
            if place == half:
                table.add_row(*["..."] * len(columns))
            continue
        table.add_row(
            f"{level.global_batch_size:,}",
            f"{level.iterations:,}",
            f"{level.samples:,}",
            f"{level.micro_batches:,}",
            number(level.iteration_s, FINE_DIGITS),
            number(level.iterations * level.iteration_s / HOUR_S),
        )
    return table
