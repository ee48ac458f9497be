"""A plan whose stages differ as a table."""

from __future__ import annotations

from collections.abc import Sequence

from Estimator.plans.plan import Plan, Stage
from Estimator.plans.results import StageReport
from GraphExtractor.graph import Recompute
from GraphExtractor.names import label
from phaze.report.sentences.designs import other_degrees
from phaze.report.table import Table
from phaze_common.numbers import number
from phaze_common.units import GIB

MS = 1e-3


def stages_table(plan: Plan, reports: Sequence[StageReport]) -> Table:
    """What each stage holds, how it is trained, how long it takes and what memory it needs."""
    further = any(map(_further, plan.stages))
    rows = (
        {
            "stage": str(place),
            "layers": _layers(stage.layers),
            "devices": str(report.devices),
            "tp x dp": f"{stage.degrees.tp} x {stage.degrees.dp}",
            "micro-batch": str(stage.degrees.micro_batch_size),
            "recomputed": recomputed_text(stage),
            "ZeRO": str(stage.degrees.zero_stage),
            **({"further": _further(stage)} if further else {}),
            "ms per micro-batch": number(report.load_s / MS, aligned=True),
            "used GiB": f"{report.memory_bytes / GIB:,.2f}",
        }
        for place, (stage, report) in enumerate(zip(plan.stages, reports, strict=True), start=1)
    )
    title = f"{label(plan.model)}: the stages"
    return Table.of(title, rows, words=("layers", "recomputed", "further"))


def _layers(layers: Sequence[str]) -> str:
    """First and last of them, and how many."""
    return layers[0] if len(layers) == 1 else f"{layers[0]} to {layers[-1]} ({len(layers)})"


def recomputed_text(stage: Stage) -> str:
    """What a stage recomputes: ``none``, ``full``, or ``full, 3 of 8``."""
    if stage.degrees.recompute is Recompute.NONE or stage.recomputed_layers == 0:
        return Recompute.NONE.value
    if stage.recomputed_layers is None or stage.recomputed_layers == len(stage.layers):
        return stage.degrees.recompute.value
    return f"{stage.degrees.recompute.value}, {stage.recomputed_layers} of {len(stage.layers)}"


def _further(stage: Stage) -> str:
    """Degrees besides tp and dp, sequence parallelism, and what is in host memory."""
    degrees = stage.degrees
    named = {
        other_degrees(degrees): True,
        "sequence parallelism": degrees.sequence_parallel and degrees.tp > 1,
        f"{degrees.offload} in host memory": bool(degrees.offload),
    }
    return ", ".join(words for words, applies in named.items() if applies and words)
