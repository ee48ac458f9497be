"""Stages of a plan in the form that its figures take."""

from dataclasses import dataclass

from Estimator.plans.results import PipelineReport
from Solver.plan_report import PlanReport


@dataclass(frozen=True)
class StageView:
    """A pipeline stage: layers by chunk, devices, seconds per micro-batch and bytes per device."""

    number: int
    chunks: tuple[tuple[str, ...], ...]
    devices: int
    seconds: dict[str, float]
    memory_bytes: dict[str, float]

    @property
    def load_s(self) -> float:
        """Seconds that a micro-batch occupies the stage."""
        return sum(self.seconds.values())

    @staticmethod
    def scaled(parts: dict[str, float], factor: float) -> dict[str, float]:
        """``parts`` in another unit."""
        return {part: amount * factor for part, amount in parts.items()}

    @property
    def total_bytes(self) -> float:
        """All that a device of the stage holds."""
        return sum(self.memory_bytes.values())


LOAD_PARTS = {"forward": "forward", "backward": "backward", "send": "transfer"}
MEMORY_PARTS = {
    "parameter state": "state",
    "activations": "activations",
    "workspace": "workspace",
    "beyond tensors": "reserved",
}


def stages_of(plan: PlanReport) -> tuple[StageView, ...]:
    """The stages in the order of the pipeline; chunks of one stage are taken together."""
    return tuple(
        StageView(
            number=number + 1,
            chunks=tuple(chunk.layers for chunk in plan.plan.stages[number :: plan.pp]),
            devices=report.devices,
            seconds={
                "forward": report.forward_s,
                "backward": report.backward_s,
                "send": _sent_s(plan.pipeline, number),
            },
            memory_bytes={
                "parameter state": report.parameter_state_bytes,
                "activations": report.activation_bytes,
                "workspace": report.workspace_bytes,
                "beyond tensors": report.reserved_bytes,
            },
        )
        for number, report in enumerate(plan.stages)
    )


def _sent_s(pipeline: PipelineReport, stage: int) -> float:
    """Seconds per micro-batch for which sending keeps a stage from computing."""
    if pipeline.overlap_transfers:
        return 0.0
    chunks = range(stage, len(pipeline.forward_s), pipeline.pp)
    ways = (sum(pipeline.sent_s(forward, chunk) for chunk in chunks) for forward in (True, False))
    return sum(ways)
