"""Stages of a plan, found by a search for the best accelerator or on devices that exist, in one form for the figures."""

from __future__ import annotations

from dataclasses import dataclass

from Solver.plan_search.results import FoundPlan

from Plans.results import PipelineReport
from Solver.results import ModelPlan


@dataclass(frozen=True)
class StageView:
    """A pipeline stage: layers of each of its chunks, devices, seconds per micro-batch by part, bytes per device by part."""

    number: int
    chunks: tuple[tuple[str, ...], ...]
    devices: int
    seconds: dict[str, float]
    memory_bytes: dict[str, float]

    @property
    def load_s(self) -> float:
        """Seconds that a micro-batch occupies the stage."""
        return sum(self.seconds.values())

    @property
    def total_bytes(self) -> float:
        """All that a device of the stage holds."""
        return sum(self.memory_bytes.values())


LOAD_PARTS = {"forward": "forward", "backward": "backward", "receive": "transfer", "send": "transfer"}
MEMORY_PARTS = {"parameter state": "state", "activations": "activations", "workspace": "workspace", "reserved": "reserved"}


def stages_of(plan: ModelPlan | FoundPlan) -> tuple[StageView, ...]:
    """The stages in the order of the pipeline; the chunks of an interleaved stage are taken together."""
    pipeline = plan.pipeline
    views = []
    for stage in range(pipeline.pp):
        mine = range(stage, len(pipeline.forward_s), pipeline.pp)
        report = plan.stages[stage]
        memory = {
            "parameter state": report.parameter_state_bytes,
            "activations": report.activation_bytes,
            "workspace": report.workspace_bytes,
            "reserved": getattr(report, "reserved_bytes", 0.0),
        }
        views.append(
            StageView(
                number=stage + 1,
                chunks=tuple(plan.stages[chunk].layers for chunk in mine),
                devices=report.devices,
                seconds={part: sum(_seconds(pipeline, chunk)[part] for chunk in mine) for part in LOAD_PARTS},
                memory_bytes=memory,
            )
        )
    return tuple(views)


def _seconds(pipeline: PipelineReport, chunk: int) -> dict[str, float]:
    """Where a micro-batch's time on a chunk goes; sending counts where it keeps the stage from computing."""
    sent = 0.0
    if not pipeline.overlap_transfers:
        onward = pipeline.transfer_s[chunk] if chunk < len(pipeline.transfer_s) else 0.0
        back = pipeline.backward_transfer_s[chunk - 1] if chunk else 0.0
        sent = onward + back
    received_forward, received_backward = pipeline.receive_forward_s[chunk], pipeline.receive_backward_s[chunk]
    return {
        "forward": pipeline.forward_s[chunk] - received_forward,
        "backward": pipeline.backward_s[chunk] - received_backward,
        "receive": received_forward + received_backward,
        "send": sent,
    }
