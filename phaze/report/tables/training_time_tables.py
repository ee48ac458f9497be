"""A whole training as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.sentences.designs import NEGLIGIBLE, part_text, summary_text
from phaze.report.sentences.utilization import mfu_share
from phaze.report.table import Table
from phaze.report.tables.training_tables import devices_text, fullest_memory_text, panel, rate_rows
from phaze.studies.training_time.records import DAY_S, HOUR_S, FailureReport, TrainingTime
from phaze.studies.training_time.run import PricedTraining
from phaze_common.numbers import FINE_DIGITS, number, percent, size_text, time_text

INTERRUPTIONS = {
    "checkpoints": "checkpoints",
    "lost_work": "work lost to failures",
    "restarts": "restarts after failures",
}
MOST_LEVELS = 12  # rows of batch sizes; the file has all


def training_tables(priced: PricedTraining, *, searched: bool) -> list[Table]:
    """What the training amounts to, where its time goes, and how the batch grows where it does."""
    parts = parts_table(priced.training, label(priced.evaluation.plan.model))
    levels = [levels_table(priced.training)] if len(priced.training.levels) > 1 else []
    return [summary_table(priced, searched=searched), parts, *levels]


def summary_table(priced: PricedTraining, *, searched: bool) -> Table:
    """The training in one panel; what follows from a number that was not given is absent."""
    model = label(priced.evaluation.plan.model)
    title = f"{model}, a whole training under {priced.evaluation.hardware.software}"
    return panel(title, dict(_rows(priced, searched=searched)))


def _rows(priced: PricedTraining, *, searched: bool) -> Iterator[tuple[str, str]]:
    training, evaluation, failures = priced.training, priced.evaluation, priced.training.failures
    hardware, machine, iteration = evaluation.hardware, evaluation.machine, evaluation.iteration
    reason = ""
    if training.reason and training.status is Status.INFEASIBLE:
        reason = f": {training.reason}; training-time --best searches for a plan that does"
    yield "status", f"{training.status.value}{reason}"
    plan = evaluation.uniform
    yield "devices", devices_text(training.devices, hardware, plan)
    chosen = summary_text(plan)
    yield "plan", f"{chosen}; {_found(priced)}" if searched else chosen
    many = training.micro_batches_per_pipeline
    micro_batches = f"{many:,} micro-batch{'' if many == 1 else 'es'} per pipeline"
    of_site = " of each site" if plan.sites > 1 else ""
    yield "global batch", f"{plan.global_batch_size:,} samples{of_site}, {micro_batches}"
    used = iteration.memory_bytes, machine.memory_bytes, iteration.allocated_bytes
    yield "memory of the fullest stage", fullest_memory_text(*used)
    samples = f"{training.samples:,} samples"
    tokens = "" if training.tokens is None else f"{training.tokens:,} tokens in "
    yield "trained on", f"{tokens}{samples}"
    full = " with the full batch" if len(training.levels) > 1 else ""
    yield "iterations", f"{training.iterations:,}, {time_text(training.iteration_s)} each{full}"
    longer = ""
    if failures:
        more = percent(failures.longer_by)
        longer = f", {more} more than the iterations for checkpoints and failures"
    yield "wall-clock", f"{days_text(training.wall_clock_s)}{longer}"
    for each in evaluation.time_intervals[:1]:
        factor = training.wall_clock_s / iteration.iteration_s
        low, high = (days_text(factor * end_s) for end_s in (each.low_s, each.high_s))
        yield f"wall-clock, {each.nominal:.0%} sure", f"{low} to {high}: {'; '.join(each.reasons)}"
    yield "device-hours", number(training.device_hours, FINE_DIGITS)
    yield from _costs(training)
    yield "model FLOPs", f"{training.model_flops:.4g}"
    yield from rate_rows(training).items()
    model = number(training.model_pflops_of_cluster)
    computed = number(training.hardware_pflops_of_cluster)
    yield "PFLOP/s of all devices", f"{model} model, {computed} hardware"
    if failures is not None:
        yield from _failures(failures)
        if failures.cluster_mtbf_s is not None:
            yield "MFU over the wall-clock", mfu_share(training.effective_model_flops_utilization)


def _found(priced: PricedTraining) -> str:
    if priced.search is None:
        return "as given"
    proven = priced.search.status is Status.OPTIMAL
    return "the best, proven" if proven else "the best found, not proven"


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
        kg = energy.carbon_kg
        mass = f"{number(kg)} kg" if kg < 1000.0 else f"{number(kg / 1000.0)} t"
        yield "carbon", f"{mass} CO2e at {number(energy.grid_intensity_g_per_kwh or 0.0)} g/kWh"


def _failures(failures: FailureReport) -> Iterator[tuple[str, str]]:
    size, every = size_text(failures.checkpoint_bytes), time_text(failures.interval_s)
    checkpoints = (
        f"{number(failures.checkpoints)} of {size}, {time_text(failures.checkpoint_s)} each"
    )
    yield "checkpoints", f"{checkpoints}, after every {every} of work{_interval(failures)}"
    if failures.cluster_mtbf_s is not None:
        restart = f", restarts of {time_text(failures.restart_s)}" if failures.restart_s else ""
        between = days_text(failures.cluster_mtbf_s)
        yield "failures", f"{number(failures.failures)} expected, one in {between}{restart}"


def _interval(failures: FailureReport) -> str:
    """Which interval it is, and what it would be to higher order."""
    if failures.young_daly_interval_s is None or failures.daly_interval_s is None:
        return ""
    finer = f"to higher order {time_text(failures.daly_interval_s)}"
    if failures.interval_s == failures.young_daly_interval_s:
        return f" (Young-Daly; {finer})"
    return f" (Young-Daly: {time_text(failures.young_daly_interval_s)}, {finer})"


def parts_table(training: TrainingTime, model: str) -> Table:
    """Hours of the wall-clock by cause, forward and backward passes apart, the largest first."""
    total_s, parts = training.wall_clock_s, training.parts
    decimals = next((each for each in range(7) if total_s / HOUR_S * 10**each >= 1e4), 7)

    def row(name: str, *seconds: float) -> dict[str, str]:
        heads = ("forward h", "backward h", "neither h", "hours")
        cells = (f"{each / HOUR_S:,.{decimals}f}" if each else "-" for each in seconds)
        of_all = f"{seconds[-1] / total_s:.1%}"
        return {"part": name, **dict(zip(heads, cells, strict=True)), "share": of_all}

    shown = [
        row(
            INTERRUPTIONS.get(part.name, part_text(part.name)),
            *(part.forward_s, part.backward_s, part.neither_s, part.total_s),
        )
        for part in sorted(parts, key=lambda each: -each.total_s)
        if part.total_s > NEGLIGIBLE * total_s
    ]
    names = ("forward_s", "backward_s", "neither_s")
    sums = (sum(getattr(part, name) for part in parts) for name in names)
    return Table.of(
        f"{model}: where the time of the training goes",
        shown,
        foot=[row("wall-clock", *sums, total_s)],
        words={"part"},
        spared=("neither h",),
    )


def levels_table(training: TrainingTime) -> Table:
    """Iterations by global batch size; of many the first and the last ones."""
    rows = [
        {
            "global batch": f"{level.global_batch_size:,}",
            "iterations": f"{level.iterations:,}",
            "samples": f"{level.samples:,}",
            "micro-batches": f"{level.micro_batches:,}",
            "iteration s": number(level.iteration_s, FINE_DIGITS),
            "hours": number(level.iterations * level.iteration_s / HOUR_S),
        }
        for level in training.levels
    ]
    if len(rows) > MOST_LEVELS:
        half = MOST_LEVELS // 2
        rows = [*rows[:half], dict.fromkeys(rows[0], "..."), *rows[-half:]]
    return Table.of("warm-up of the batch size", rows, words=(), spared=("samples",))
