"""A plan that was evaluated as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from Common.records import to_json
from Common.units import GB
from GraphExtractor.names import label
from Plans.plan import plan_mapping
from Plans.results import Iteration, Status
from Reporter.conventions import mfu_text
from Reporter.tables import MS, breakdown_table, milliseconds_decimals, new_table
from Studies.evaluation import Evaluation

if TYPE_CHECKING:
    from rich.table import Table


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """What the iteration amounts to, where its time goes, and what fills the memory of each stage."""
    iteration = evaluation.iteration
    return [
        summary_table(evaluation),
        breakdown_table(iteration.breakdown, label(evaluation.plan.model)),
        memory_table(iteration, evaluation.machine.memory_bytes),
    ]


def evaluation_json(evaluation: Evaluation) -> bytes:
    """The iteration with the plan, the model and the hardware it is for. Bytes are those of one device of a stage."""
    hardware, machine, plan = evaluation.hardware, evaluation.machine, evaluation.plan
    whole: dict[str, Any] = json.loads(to_json(evaluation.iteration))
    breakdown, stages = whole.pop("breakdown"), whole.pop("stages")
    named = {
        "model": plan.model,
        "device": hardware.device,
        "accelerator": None if hardware.accelerator is None else json.loads(to_json(hardware.accelerator)),
        "cluster": hardware.cluster,
        "software": hardware.software,
        "plan": {**plan_mapping(evaluation.degrees), "sequence_length": plan.sequence_length},
    }
    capacity = {"memory_bytes": evaluation.iteration.memory_bytes, "memory_capacity_bytes": machine.memory_bytes}
    return json.dumps({**named, **whole, **capacity, "breakdown_s": breakdown, "stages": stages}, indent=2).encode()


def summary_table(evaluation: Evaluation) -> Table:
    """The iteration in one panel."""
    plan, iteration, hardware = evaluation.degrees, evaluation.iteration, evaluation.hardware
    degrees = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "dp": plan.dp, "interleave": plan.interleave}
    shown = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1) or "one device"
    shown += f", experts divided by {plan.ep}" if plan.ep > 1 else ""
    reason = f": {iteration.reason}" if iteration.status is Status.INFEASIBLE else ""
    capacity_bytes = evaluation.machine.memory_bytes
    hfu = f"HFU {iteration.hardware_flops_utilization:.1%} counting all scores and what is recomputed"
    mfu = mfu_text(iteration.model_flops_utilization, iteration.causal_model_flops_utilization)
    rows = {
        "status": f"{iteration.status.value}{reason}",
        "devices": f"{iteration.devices:,} x {hardware.title} on {hardware.cluster}: {shown}",
        "micro-batches per pipeline": f"{iteration.micro_batches_per_pipeline:,}",
        "iteration": f"{iteration.iteration_s:.5g} s",
        "samples/s": f"{iteration.samples_per_s:,.5g}",
        "tokens/s": f"{iteration.tokens_per_s:,.0f}",
        "model TFLOP/s per device": f"{iteration.model_tflops_per_device:.1f} ({mfu})",
        "hardware TFLOP/s per device": f"{iteration.hardware_tflops_per_device:.1f} ({hfu})",
        "memory of the fullest stage": f"{iteration.memory_bytes / GB:.1f} GB of {capacity_bytes / GB:.1f} GB",
    }
    if iteration.energy_per_sample_j is not None:
        rows["energy"] = f"{iteration.energy_per_sample_j:.4g} J per sample"
    if hardware.accelerator is not None:
        rows["time within a layer"] = "attributed along the critical path of its schedule on the cores"
    title = f"{label(evaluation.plan.model)}, one iteration under {hardware.software}"
    table = new_table(title, ("what", "predicted"), words={"what", "predicted"})
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def memory_table(iteration: Iteration, capacity_bytes: float) -> Table:
    """What the devices of each stage hold, and its seconds per micro-batch."""
    columns = ("stage", "layers", "parameters", "forward ms", "backward ms")
    filled = ("state GB", "activations GB", "workspace GB", "reserved GB", "total GB", "fits")
    table = new_table("stages, per device and micro-batch", (*columns, *filled), words=set())
    decimals = milliseconds_decimals(min(stage.forward_s for stage in iteration.stages))
    for number, stage in enumerate(iteration.stages, start=1):
        parts = (
            stage.parameter_state_bytes,
            stage.activation_bytes,
            stage.workspace_bytes,
            stage.reserved_bytes,
            stage.memory_bytes,
        )
        table.add_row(
            str(number),
            str(len(stage.layers)),
            f"{stage.parameters:,}",
            f"{stage.forward_s / MS:,.{decimals}f}",
            f"{stage.backward_s / MS:,.{decimals}f}",
            *(f"{part / GB:.2f}" for part in parts),
            "yes" if stage.memory_bytes <= capacity_bytes else "no",
        )
    return table
