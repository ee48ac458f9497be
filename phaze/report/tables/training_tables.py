"""A plan that was evaluated as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from Estimator.coverage import words_of
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.plan import plan_mapping
from Estimator.plans.results import Iteration, Status, TimeInterval
from GraphExtractor.names import label
from phaze.report.sentences.designs import (
    formats_text,
    pass_text,
    plan_choices,
    plan_text,
    unusual_of,
    whole_plan_text,
)
from phaze.report.sentences.utilization import mfu_share, mfu_text
from phaze.report.table import Table
from phaze.report.tables.breakdown_table import MS, breakdown_table, milliseconds_decimals
from phaze.report.tables.heterogeneous_tables import stages_table
from phaze.settings.launched import KeyKind, LaunchReading
from phaze_common.numbers import FINE_DIGITS, number, percent, size_text, stage_memory_text
from phaze_common.records import to_json
from phaze_common.units import GIB
from Solver.results import MOST_SHARE, HardwareReport

if TYPE_CHECKING:
    from phaze.studies.evaluation import Evaluation
    from phaze.studies.optimum import Optimum
    from phaze.studies.training_time.records import TrainingTime

NO_LIMIT = "; what there is, is not known, and so no limit"
WORTH_A_ROW = 0.1  # of an iteration
OF_HOST = (
    "of the iteration is waiting for kernels to be started; larger micro-batches, or CUDA graphs "
    "where the device has them, need fewer starts"
)
MOST_KEYS = 24  # of a launch that the terminal lists; JSON has all of them
_WORDS = {KeyKind.NOT_EXPRESSIBLE: "ignored, as asked"}
NOT_READ = (KeyKind.NOT_EXPRESSIBLE, KeyKind.UNKNOWN, KeyKind.USUAL)


def evaluation_tables(evaluation: Evaluation, launch: LaunchReading | None = None) -> list[Table]:
    """The iteration, where its time goes, and the memory of each stage.

    Of a plan that a ``launch`` file says: also what was read of it.
    """
    iteration = evaluation.iteration
    tables = [summary_table(evaluation)]
    if launch is not None and launch.keys:
        tables.append(launch_table(launch))
    if evaluation.degrees is None:
        tables.append(stages_table(evaluation.plan, iteration.stages))
    tables.append(breakdown_table(iteration.breakdown, label(evaluation.plan.model)))
    tables.append(memory_table(iteration, evaluation.machine.memory_bytes))
    return tables


def panel(title: str, rows: Mapping[str, str], second: str = "predicted") -> Table:
    """A table of names and what they are."""
    cells = ({"what": name, second: value} for name, value in rows.items())
    return Table.of(title, cells, words={"what", second})


def optimum_table(optimum: Optimum) -> Table:
    """What a search on as many devices finds for the same model and batch."""
    best, rows, saved = optimum.plan, {"plan": "none fits"}, ""
    if best is not None:
        if optimum.fits:
            saved = ", which is no less"
            if optimum.saves > 0.0:
                saved = f", {percent(optimum.saves)} less"
        launch = {"the plan above": "does not fit; the fastest plan that fits:"}
        rows = {} if optimum.fits else launch
        rows["plan"] = whole_plan_text(best)
        rows["iteration"] = f"{number(best.time_per_batch_s)} s{saved}"
    return panel("the best plan of a search on as many devices", rows)


def launch_table(launch: LaunchReading) -> Table:
    """What a launch says that is read or changes nothing, and what is not read, in two lines."""
    without = len(launch.of_kind(KeyKind.NO_EFFECT))
    change = "changes" if without == 1 else "change"
    more = f"; {without} more {change} nothing that is priced" if without else ""
    read = f"{len(launch.of_kind(KeyKind.READ))}{more}"
    rows = {"read": read, "not read": "; ".join(_not_read(launch)) or "nothing"}
    return panel(f"the {launch.program} launch", rows, "keys")


def _not_read(launch: LaunchReading) -> Iterator[str]:
    """The other keys by their kind, as many as a terminal has room for."""
    room = MOST_KEYS
    for kind in NOT_READ:
        keys = launch.of_kind(kind)
        if keys:
            by_reason = dict[str, list[str]]()
            for key in keys[:room]:
                by_reason.setdefault(key.reason, []).append(key.text)
            texts = [
                f"{', '.join(names)} ({reason})" if reason else ", ".join(names)
                for reason, names in by_reason.items()
            ]
            if len(keys) > room:
                texts.append(f"{len(keys) - room} more (--format json lists them)")
            yield f"{_WORDS.get(kind, kind.value)}: {', '.join(texts)}"
            room = max(0, room - len(keys))


def evaluation_json(
    evaluation: Evaluation, optimum: Optimum | None = None, launch: LaunchReading | None = None
) -> bytes:
    """As ``evaluation_mapping``, in text."""
    return json.dumps(evaluation_mapping(evaluation, optimum, launch), indent=2).encode()


def evaluation_mapping(
    evaluation: Evaluation, optimum: Optimum | None = None, launch: LaunchReading | None = None
) -> dict[str, Any]:
    """What JSON has of the iteration, its plan, model and hardware, the ``optimum`` and a
    ``launch``.

    Bytes are those of one device of a stage.
    """
    hardware, machine, plan = evaluation.hardware, evaluation.machine, evaluation.plan
    iteration = evaluation.iteration
    whole: dict[str, Any] = plain(iteration)
    breakdown, stages = whole.pop("breakdown"), whole.pop("stages")
    named = {
        "model": plan.model,
        "device": hardware.device,
        "accelerator": None if hardware.accelerator is None else plain(hardware.accelerator),
        "cluster": hardware.cluster,
        "software": hardware.software,
        "plan": plain(plan)
        if evaluation.degrees is None
        else {**plan_mapping(evaluation.degrees), "sequence_length": plan.sequence_length},
    }
    further = {
        "price_sources": evaluation.price_sources,
        "placement": evaluation.placement,
        "priced_by_bytes": evaluation.by_bytes or None,
        "without_effect": evaluation.without_effect or None,
        "optimum": optimum,
        "launch": launch,
    }
    named |= {key: plain(value) for key, value in further.items() if value is not None}
    capacity = {
        "memory_bytes": iteration.memory_bytes,
        "allocated_bytes": iteration.allocated_bytes,
        "memory_capacity_bytes": machine.memory_bytes,
    }
    named["time_intervals"] = plain(evaluation.time_intervals)
    parts = {"breakdown_s": breakdown, "stages": stages}
    return {**named, **whole, **capacity, **parts}


def plain(value: Any) -> Any:
    """A record, or several, as JSON has it."""
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    return json.loads(to_json(value))


def summary_table(evaluation: Evaluation) -> Table:
    """The iteration in one panel."""
    plan, iteration, hardware = evaluation.degrees, evaluation.iteration, evaluation.hardware
    chosen = f"{len(iteration.stages)} stages that differ"
    if plan is not None:
        formats = (str(plan.state_formats),) if plan.state_formats else ()
        unusual = unusual_of(plan, evaluation.machine.software)
        chosen = ", ".join([plan_text(plan), *plan_choices(plan), *unusual, *formats])
    reason = f": {iteration.reason}" if iteration.status is Status.INFEASIBLE else ""
    rows = {
        "status": f"{iteration.status.value}{reason}",
        "devices": f"{devices_text(iteration.devices, hardware, plan)}: {chosen}",
        "each pass": _pass_text(evaluation),
        "micro-batches per pipeline": f"{iteration.micro_batches_per_pipeline:,}",
        "iteration": f"{number(iteration.iteration_s, FINE_DIGITS)} s",
        **interval_rows(evaluation.time_intervals),
        "samples/s": f"{number(iteration.samples_per_s, FINE_DIGITS)}{of_sites(plan)}",
    }
    if evaluation.plan.sequence_length > 1:
        rows["tokens/s"] = f"{number(iteration.tokens_per_s)}{of_sites(plan)}"
    rows |= rate_rows(iteration)
    launch = iteration.breakdown.launch_s / iteration.iteration_s
    if launch >= WORTH_A_ROW and hardware.accelerator is None:
        rows["limited by the host"] = f"{percent(launch)} {OF_HOST}"
    used = iteration.memory_bytes, evaluation.machine.memory_bytes, iteration.allocated_bytes
    rows["memory of the fullest stage"] = fullest_memory_text(*used)
    if evaluation.without_effect:
        rows["without effect"] = "; ".join(evaluation.without_effect)
    if evaluation.placement is not None and evaluation.placement.sentences:
        rows["placement"] = "; ".join(evaluation.placement.sentences)
    if iteration.energy_per_sample_j is not None:
        rows["energy"] = f"{number(iteration.energy_per_sample_j)} J per sample"
    if evaluation.price_sources is not None:
        rows["prices"] = evaluation.price_sources.words
    if evaluation.by_bytes:
        rows["priced by bytes alone"] = words_of(evaluation.by_bytes)
    if uneven := _uneven_chunks(evaluation):
        rows["interleaving"] = uneven
    if evaluation.offloads:
        has_bytes = evaluation.machine.host_bytes
        most = size_text(max(stage.host_bytes for stage in iteration.stages))
        limit = f" of {size_text(has_bytes)}" if math.isfinite(has_bytes) else NO_LIMIT
        rows["host memory per device"] = f"{most}{limit}"
    if hardware.accelerator is not None:
        rows["time within a layer"] = (
            "attributed along the critical path of its schedule on the cores"
        )
    title = f"{label(evaluation.plan.model)}, one iteration under {hardware.software}"
    return panel(title, rows)


def devices_text(many: int, hardware: HardwareReport, plan: UniformPlan | None) -> str:
    """So many devices of all sites of a plan (None: its stages differ), and where they are."""
    return f"{many:,} x {hardware.title}{of_sites(plan)} on {hardware.cluster}"


def of_sites(plan: UniformPlan | None) -> str:
    """`` of 4 sites``, where there are several."""
    return "" if plan is None or plan.sites == 1 else f" of {plan.sites} sites"


def _pass_text(evaluation: Evaluation) -> str:
    plan = evaluation.degrees
    return formats_text(evaluation.plan.of_first_stage) if plan is None else pass_text(plan)


def rate_rows(found: Iteration | TrainingTime) -> dict[str, str]:
    """FLOP/s of a device, of the model and of the hardware, with both utilisations."""
    all_scores = found.all_scores_flops_utilization, found.all_scores_tflops_per_device
    model = number(found.model_tflops_per_device, aligned=True)
    computed = number(found.hardware_tflops_per_device, aligned=True)
    mfu = mfu_text(found.model_flops_utilization, *all_scores)
    hfu = f"HFU {mfu_share(found.hardware_flops_utilization)} of what is computed, also again"
    return {
        "model TFLOP/s per device": f"{model} ({mfu})",
        "hardware TFLOP/s per device": f"{computed} ({hfu})",
    }


def interval_rows(
    intervals: Sequence[TimeInterval], factor: float = 1.0, unit: str = "s"
) -> dict[str, str]:
    """A row of the narrowest interval, in ``unit`` of ``factor`` seconds; none if none is known."""
    if not intervals:
        return {}
    first = intervals[0]
    times = f"{number(first.low_s / factor, 3)} to {number(first.high_s / factor, 3)} {unit}"
    return {f"measured, {first.nominal:.0%} sure": f"{times}: {'; '.join(first.reasons)}"}


def fullest_memory_text(
    used_bytes: float, capacity_bytes: float, allocated_bytes: float | None = None
) -> str:
    """What the fullest stage reserves and allocates, and whether that is dangerously much."""
    text = stage_memory_text(used_bytes, capacity_bytes)
    if allocated_bytes is not None and allocated_bytes < used_bytes:
        text += f" reserved, {size_text(allocated_bytes)} allocated"
    if MOST_SHARE * capacity_bytes < used_bytes <= capacity_bytes:
        text += f": more than {percent(MOST_SHARE)}, which fragmentation could overflow"
    return text


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


def memory_table(iteration: Iteration, capacity_bytes: float) -> Table:
    """What the devices of each stage hold, and its seconds per micro-batch."""
    outside = any(stage.host_bytes for stage in iteration.stages)
    decimals = milliseconds_decimals(min(stage.forward_s for stage in iteration.stages))
    rows = []
    for position, stage in enumerate(iteration.stages, start=1):
        seconds = {"forward ms": stage.forward_s, "backward ms": stage.backward_s}
        sizes = {
            "state GiB": stage.parameter_state_bytes,
            "activations GiB": stage.activation_bytes,
            "workspace GiB": stage.workspace_bytes,
            "allocated GiB": stage.memory_bytes - stage.reserved_bytes,
            "total GiB": stage.memory_bytes,
        }
        row = {"stage": str(position), "layers": str(len(stage.layers))}
        row["parameters"] = f"{stage.parameters:,}"
        row |= {name: f"{each / MS:,.{decimals}f}" for name, each in seconds.items()}
        row |= {name: f"{size / GIB:,.2f}" for name, size in sizes.items()}
        row["fits"] = "yes" if stage.memory_bytes <= capacity_bytes else "no"
        rows.append(row | ({"host GiB": f"{stage.host_bytes / GIB:,.2f}"} if outside else {}))
    times = ("parameters", "layers", "forward ms", "backward ms")
    spared = ("allocated GiB", "workspace GiB", *times, "activations GiB")
    return Table.of("stages, per device and micro-batch", rows, words=(), spared=spared)
