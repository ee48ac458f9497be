"""A predicted training iteration as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from Common.records import to_json
from Common.units import GB
from GraphExtractor.names import label
from Plans.results import IterationBreakdown, Prediction, Status
from Reporter.tables import new_table
from Studies.evaluation import Evaluation

if TYPE_CHECKING:
    from rich.table import Table

MS = 1e-3
NEGLIGIBLE = 1e-7  # of an iteration
PARTS = {  # what adds up to an iteration
    "arithmetic": "compute_s",
    "memory-bound kernels": "memory_bound_s",
    "kernel launches": "launch_s",
    "recomputation": "recompute_s",
    "tensor-parallel communication": "tensor_communication_s",
    "context-parallel communication": "context_communication_s",
    "pipeline communication": "pipeline_communication_s",
    "data-parallel communication": "data_communication_s",
    "expert-parallel communication": "expert_communication_s",
    "bubble": "bubble_s",
    "optimizer": "optimizer_s",
}
HIDDEN = {
    "tensor-parallel communication": "hidden_tensor_communication_s",
    "data-parallel communication": "hidden_data_communication_s",
}


def prediction_tables(evaluation: Evaluation, prediction: Prediction) -> list[Table]:
    """What the iteration amounts to, where its time goes, and what fills the memory of each stage."""
    return [
        summary_table(evaluation, prediction),
        breakdown_table(prediction.breakdown),
        memory_table(prediction, evaluation.device.memory.capacity.value),
    ]


def prediction_json(evaluation: Evaluation, prediction: Prediction) -> bytes:
    """The prediction with the plan, the model and the hardware it is for. Bytes are those of one device of a stage."""
    whole: dict[str, Any] = json.loads(to_json(prediction))
    for stage, record in zip(prediction.stages, whole["stages"], strict=True):
        record["memory_bytes"] = stage.memory_bytes
    breakdown = whole.pop("breakdown")
    named = {
        "model": evaluation.model,
        "device": evaluation.device.name,
        "cluster": evaluation.cluster.name,
        "software": evaluation.software.name,
        "plan": evaluation.plan_mapping(),
    }
    capacity = {"memory_bytes": prediction.memory_bytes, "memory_capacity_bytes": evaluation.device.memory.capacity.value}
    stages = whole.pop("stages")
    return json.dumps({**named, **whole, **capacity, "breakdown_s": breakdown, "stages": stages}, indent=2).encode()


def summary_table(evaluation: Evaluation, prediction: Prediction) -> Table:
    """The iteration in one panel."""
    plan, capacity_bytes = evaluation.plan, evaluation.device.memory.capacity.value
    degrees = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "dp": plan.dp, "interleave": plan.interleave}
    shown = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1) or "one device"
    shown += f", experts divided by {plan.ep}" if plan.ep > 1 else ""
    reason = f": {prediction.reason}" if prediction.status is Status.INFEASIBLE else ""
    rows = {
        "status": f"{prediction.status.value}{reason}",
        "devices": f"{prediction.devices:,} x {evaluation.device.title} on {evaluation.cluster.name}: {shown}",
        "micro-batches per pipeline": f"{prediction.micro_batches_per_pipeline:,}",
        "iteration": f"{prediction.iteration_s:.5g} s",
        "samples/s": f"{prediction.samples_per_s:,.5g}",
        "tokens/s": f"{prediction.tokens_per_s:,.0f}",
        "model TFLOP/s per device": f"{prediction.model_tflops_per_device:.1f} (MFU {prediction.model_flops_utilization:.1%})",
        "hardware TFLOP/s per device": (
            f"{prediction.hardware_tflops_per_device:.1f} (HFU {prediction.hardware_flops_utilization:.1%})"
        ),
        "memory of the fullest stage": f"{prediction.memory_bytes / GB:.1f} GB of {capacity_bytes / GB:.1f} GB",
    }
    table = new_table(
        f"{label(evaluation.model)}, one iteration under {evaluation.software.name}",
        ("what", "predicted"),
        words={"what", "predicted"},
    )
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def breakdown_table(breakdown: IterationBreakdown) -> Table:
    """Seconds of the stage that decides, adding up to the iteration; below, communication that costs no time."""
    total_s = breakdown.total_s
    digits = _digits(total_s)
    table = new_table("where the time goes", ("part", "ms", "share"), words={"part"})

    def add(name: str, milliseconds: float, seconds: float) -> None:
        if seconds > NEGLIGIBLE * total_s:
            table.add_row(name, f"{milliseconds:,.{digits}f}", f"{seconds / total_s:.1%}")

    parts = [getattr(breakdown, key) for key in PARTS.values()]
    shown = _adding_up([seconds / MS for seconds in parts], digits)
    for name, milliseconds, seconds in zip(PARTS, shown, parts, strict=True):
        add(name, milliseconds, seconds)
    table.add_section()
    add("iteration", sum(shown), total_s)
    table.add_section()
    for name, key in HIDDEN.items():
        add(f"hidden {name}", getattr(breakdown, key) / MS, getattr(breakdown, key))
    return table


def _adding_up(values: Sequence[float], digits: int) -> list[float]:
    """``values`` rounded up or down so that they add up to their rounded sum."""
    sums = [0.0, *(round(total, digits) for total in accumulate(values))]
    return [after - before for before, after in pairwise(sums)]


def memory_table(prediction: Prediction, capacity_bytes: float) -> Table:
    """What the devices of each stage hold, and its seconds per micro-batch."""
    columns = ("stage", "layers", "parameters", "forward ms", "backward ms")
    filled = ("state GB", "activations GB", "workspace GB", "reserved GB", "total GB", "fits")
    table = new_table("stages, per device and micro-batch", (*columns, *filled), words=set())
    digits = _digits(min(stage.forward_s for stage in prediction.stages))
    for number, stage in enumerate(prediction.stages, start=1):
        parts = (
            stage.parameter_state_bytes,
            stage.activation_bytes,
            stage.workspace_bytes,
            stage.reserved_bytes,
            stage.memory_bytes,
        )
        table.add_row(
            str(number),
            str(stage.layers),
            f"{stage.parameters:,}",
            f"{stage.forward_s / MS:,.{digits}f}",
            f"{stage.backward_s / MS:,.{digits}f}",
            *(f"{part / GB:.2f}" for part in parts),
            "yes" if stage.memory_bytes <= capacity_bytes else "no",
        )
    return table


def _digits(seconds: float) -> int:
    """Decimals of milliseconds that show ``seconds`` to about five figures."""
    milliseconds = seconds / MS
    return next((digits for digits in range(6) if milliseconds * 10**digits >= 1e4), 6)
