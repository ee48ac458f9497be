"""A plan that was evaluated as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from Estimator.coverage import words_of
from Estimator.plans.plan import plan_mapping
from Estimator.plans.results import Iteration, Status, TimeInterval
from GraphExtractor.names import label
from phaze.report.conventions import mfu_share, mfu_text
from phaze.report.tables.heterogeneous_tables import stages_table
from phaze.report.tables.search_tables import MS, breakdown_table, milliseconds_decimals
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.settings.launched import KeyKind, LaunchReading
from phaze.studies.evaluation import Evaluation
from phaze.studies.limits.memory_room import MOST_SHARE
from phaze.studies.optimum import Optimum
from phaze.studies.wording import plan_choices, plan_text, whole_plan_text
from phaze_common.numbers import FINE_DIGITS, number, percent, size_text, stage_memory_text
from phaze_common.records import to_json
from phaze_common.units import GIB
from Solver.results import PlanSummary

MOST_KEYS = 24  # of a launch that the terminal lists; JSON has all of them
_WORDS = {KeyKind.NOT_EXPRESSIBLE: "ignored, as asked"}
NOT_READ = (KeyKind.NOT_EXPRESSIBLE, KeyKind.UNKNOWN, KeyKind.USUAL)


def evaluation_tables(
    evaluation: Evaluation, optimum: Optimum | None = None, launch: LaunchReading | None = None
) -> list[TextTable]:
    """What the iteration amounts to, where its time goes, what fills the memory of each stage, and
    the ``optimum`` beside it.

    Of a plan that a ``launch`` file says: also what was read of it.
    """
    iteration = evaluation.iteration
    differing = (
        [] if evaluation.degrees is not None else [stages_table(evaluation.plan, iteration.stages)]
    )
    return [
        summary_table(evaluation),
        *([] if launch is None or not launch.keys else [launch_table(launch)]),
        *differing,
        breakdown_table(iteration.breakdown, label(evaluation.plan.model)),
        memory_table(iteration, evaluation.machine.memory_bytes),
        *([] if optimum is None else [optimum_table(optimum)]),
    ]


def optimum_table(optimum: Optimum) -> TextTable:
    """What a search on as many devices finds for the same model and batch."""
    table = new_table(
        "the best plan of a search on as many devices",
        ["what", "predicted"],
        words=["what", "predicted"],
    )
    best = optimum.plan
    if best is None:
        table.add_row("plan", "none fits")
        return table
    if not optimum.fits:
        table.add_row("the launch", "does not fit; the fastest plan that fits:")
    saved = (
        ""
        if not optimum.fits
        else f", {percent(optimum.saves)} less"
        if optimum.saves > 0.0
        else ", which is no less"
    )
    table.add_row("plan", whole_plan_text(best))
    table.add_row("iteration", f"{number(best.time_per_batch_s)} s{saved}")
    return table


def launch_table(launch: LaunchReading) -> TextTable:
    """What a launch says that is read or changes nothing, and what is not read, in two lines."""
    table = new_table(f"the {launch.program} launch", ["what", "keys"], words=["what", "keys"])
    without = len(launch.of_kind(KeyKind.NO_EFFECT))
    more = f"; {without} more change nothing that is priced" if without else ""
    table.add_row("read", f"{len(launch.of_kind(KeyKind.READ))}{more}")
    table.add_row("not read", "; ".join(_not_read(launch)) or "nothing")
    return table


def _not_read(launch: LaunchReading) -> Iterator[str]:
    """The other keys by their kind, as many as a terminal has room for."""
    room = MOST_KEYS
    for kind in NOT_READ:
        keys = launch.of_kind(kind)
        if keys:
            told = dict[str, list[str]]()
            for key in keys[:room]:
                told.setdefault(key.reason, []).append(key.text)
            texts = [
                f"{', '.join(names)} ({reason})" if reason else ", ".join(names)
                for reason, names in told.items()
            ]
            more = (
                [f"{len(keys) - room} more (--format json lists them)"] if len(keys) > room else []
            )
            yield f"{_WORDS.get(kind, kind.value)}: {', '.join([*texts, *more])}"
            room = max(0, room - len(keys))


def evaluation_json(
    evaluation: Evaluation, optimum: Optimum | None = None, launch: LaunchReading | None = None
) -> bytes:
    """The iteration with the plan, the model and the hardware it is for, and the ``optimum`` and
    keys of a ``launch`` beside it.

    Bytes are those of one device of a stage.
    """
    hardware, machine, plan = evaluation.hardware, evaluation.machine, evaluation.plan
    whole: dict[str, Any] = json.loads(to_json(evaluation.iteration))
    breakdown, stages = whole.pop("breakdown"), whole.pop("stages")
    named = {
        "model": plan.model,
        "device": hardware.device,
        "accelerator": None
        if hardware.accelerator is None
        else json.loads(to_json(hardware.accelerator)),
        "cluster": hardware.cluster,
        "software": hardware.software,
        "plan": json.loads(to_json(plan))
        if evaluation.degrees is None
        else {**plan_mapping(evaluation.degrees), "sequence_length": plan.sequence_length},
    }
    iteration = evaluation.iteration
    capacity = {
        "memory_bytes": iteration.memory_bytes,
        "allocated_bytes": iteration.allocated_bytes,
    }
    capacity |= {"memory_capacity_bytes": machine.memory_bytes}
    sources = evaluation.price_sources
    named |= {} if sources is None else {"price_sources": json.loads(to_json(sources))}
    named |= (
        {}
        if evaluation.placement is None
        else {"placement": json.loads(to_json(evaluation.placement))}
    )
    named |= (
        {"priced_by_bytes": [json.loads(to_json(each)) for each in evaluation.by_bytes]}
        if evaluation.by_bytes
        else {}
    )
    named |= {} if optimum is None else {"optimum": json.loads(to_json(optimum))}
    named |= {} if launch is None else {"launch": json.loads(to_json(launch))}
    named |= {"time_intervals": [json.loads(to_json(each)) for each in evaluation.time_intervals]}
    return json.dumps(
        {**named, **whole, **capacity, "breakdown_s": breakdown, "stages": stages}, indent=2
    ).encode()


def summary_table(evaluation: Evaluation) -> TextTable:
    """The iteration in one panel."""
    plan, iteration, hardware = evaluation.degrees, evaluation.iteration, evaluation.hardware
    if plan is None:
        chosen = f"{len(iteration.stages)} stages that differ"
    else:
        summary = PlanSummary.of(plan, iteration.samples_per_s)
        formats = (str(plan.state_formats),) if plan.state_formats else ()
        chosen = ", ".join([plan_text(summary), *plan_choices(summary), *formats])
    reason = f": {iteration.reason}" if iteration.status is Status.INFEASIBLE else ""
    capacity_bytes = evaluation.machine.memory_bytes
    hfu = f"HFU {mfu_share(iteration.hardware_flops_utilization)} of what is computed, also again"
    all_scores = iteration.all_scores_flops_utilization, iteration.all_scores_tflops_per_device
    mfu = mfu_text(iteration.model_flops_utilization, *all_scores)
    rows = {
        "status": f"{iteration.status.value}{reason}",
        "devices": f"{iteration.devices:,} x {hardware.title} on {hardware.cluster}: {chosen}",
        "micro-batches per pipeline": f"{iteration.micro_batches_per_pipeline:,}",
        "iteration": f"{number(iteration.iteration_s, FINE_DIGITS)} s",
        **interval_rows(evaluation.time_intervals),
        "samples/s": number(iteration.samples_per_s, FINE_DIGITS),
        **(
            {"tokens/s": number(iteration.tokens_per_s)}
            if evaluation.plan.sequence_length > 1
            else {}
        ),
        "model TFLOP/s per device": (
            f"{number(iteration.model_tflops_per_device, aligned=True)} ({mfu})"
        ),
        "hardware TFLOP/s per device": (
            f"{number(iteration.hardware_tflops_per_device, aligned=True)} ({hfu})"
        ),
        "memory of the fullest stage": fullest_memory_text(
            iteration.memory_bytes, capacity_bytes, iteration.allocated_bytes
        ),
    }
    if evaluation.placement is not None and evaluation.placement.sentences:
        rows["placement"] = "; ".join(evaluation.placement.sentences)
    if iteration.energy_per_sample_j is not None:
        rows["energy"] = f"{number(iteration.energy_per_sample_j)} J per sample"
    if evaluation.price_sources is not None:
        rows["prices"] = evaluation.price_sources.words
    if evaluation.by_bytes:
        rows["priced by bytes alone"] = words_of(evaluation.by_bytes)
    uneven = _uneven_chunks(evaluation)
    if uneven:
        rows["interleaving"] = uneven
    if evaluation.offloads:
        known = math.isfinite(evaluation.machine.host_bytes)
        has = size_text(evaluation.machine.host_bytes) if known else "not known, and so no limit"
        most = max(stage.host_bytes for stage in iteration.stages)
        rows["host memory per device"] = (
            f"{size_text(most)} of {has}"
            if known
            else f"{size_text(most)}; what there is, is {has}"
        )
    if hardware.accelerator is not None:
        rows["time within a layer"] = (
            "attributed along the critical path of its schedule on the cores"
        )
    title = f"{label(evaluation.plan.model)}, one iteration under {hardware.software}"
    table = new_table(title, ("what", "predicted"), words={"what", "predicted"})
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def interval_rows(
    intervals: Sequence[TimeInterval], factor: float = 1.0, unit: str = "s"
) -> dict[str, str]:
    """A row of the narrowest interval, in ``unit`` of ``factor`` seconds; nothing where none is
    known."""
    if not intervals:
        return {}
    first = intervals[0]
    times = f"{number(first.low_s / factor, 3)} to {number(first.high_s / factor, 3)} {unit}"
    return {f"measured, {first.nominal:.0%} sure": f"{times}: {'; '.join(first.reasons)}"}


def fullest_memory_text(
    used_bytes: float, capacity_bytes: float, allocated_bytes: float | None = None
) -> str:
    """How much of its memory the fullest stage reserves, and of that allocates, and whether that is
    dangerously much."""
    text = stage_memory_text(used_bytes, capacity_bytes)
    if allocated_bytes is not None and allocated_bytes < used_bytes:
        text += f" reserved, {size_text(allocated_bytes)} allocated"
    little = MOST_SHARE * capacity_bytes < used_bytes <= capacity_bytes
    return (
        f"{text}: more than {percent(MOST_SHARE)}, which fragmentation could overflow"
        if little
        else text
    )


def _uneven_chunks(evaluation: Evaluation) -> str:
    """What is to be known of chunks that are not alike: no search would choose them."""
    plan, layers = evaluation.degrees, sum(len(stage.layers) for stage in evaluation.plan.stages)
    if plan is None:
        return ""
    blocks, chunks = layers - 2, plan.pp * plan.interleave  # between embedding and head
    if plan.interleave == 1 or blocks % chunks == 0:
        return ""
    return (
        f"{chunks} chunks of unequal numbers of layers are priced as they are; Megatron-LM and "
        "searches take equal ones only"
    )


def memory_table(iteration: Iteration, capacity_bytes: float) -> TextTable:
    """What the devices of each stage hold, and its seconds per micro-batch."""
    columns = ("stage", "layers", "parameters", "forward ms", "backward ms")
    filled = ("state GiB", "activations GiB", "workspace GiB", "allocated GiB", "total GiB", "fits")
    spared = (
        "allocated GiB",
        "workspace GiB",
        "parameters",
        "layers",
        "forward ms",
        "backward ms",
        "activations GiB",
    )
    outside = ("host GiB",) if any(stage.host_bytes for stage in iteration.stages) else ()
    table = new_table(
        "stages, per device and micro-batch",
        (*columns, *filled, *outside),
        words=set(),
        spared=spared,
    )
    decimals = milliseconds_decimals(min(stage.forward_s for stage in iteration.stages))
    for position, stage in enumerate(iteration.stages, start=1):
        parts = (
            stage.parameter_state_bytes,
            stage.activation_bytes,
            stage.workspace_bytes,
            stage.memory_bytes - stage.reserved_bytes,
            stage.memory_bytes,
        )
        table.add_row(
            str(position),
            str(len(stage.layers)),
            f"{stage.parameters:,}",
            f"{stage.forward_s / MS:,.{decimals}f}",
            f"{stage.backward_s / MS:,.{decimals}f}",
            *(f"{part / GIB:,.2f}" for part in parts),
            "yes" if stage.memory_bytes <= capacity_bytes else "no",
            *([f"{stage.host_bytes / GIB:,.2f}"] if outside else []),
        )
    return table
