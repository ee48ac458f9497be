"""An iteration of a plan as Aceso's runtime runs it: its cost model with the corrections of
``corrections.yaml``."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from Estimator.plans.pipeline.schedule import FloatArray, PipelineCosts, PipelineSchedule
from Estimator.plans.pipeline.simulation import simulate
from Estimator.plans.results import Breakdown

from .corrected_stages import CorrectedStage, corrected_stage, embedding_us, stage_work
from .corrections import NAMES, Mechanisms
from .database import Database
from .evaluation import DEVICES_PER_NODE, US, Evaluation, evaluate
from .plans import Plan
from .product_rates import DeviceFacts

NO_CORRECTIONS = Mechanisms(**dict.fromkeys(NAMES, False))


@dataclass(frozen=True)
class Corrected:
    """What a plan takes: ``pipeline_s`` until the last backward pass, ``embedding_s`` after all
    stages have ended."""

    iteration_s: float
    pipeline_s: float
    embedding_s: float
    micro_batches: int
    stages: tuple[CorrectedStage, ...]
    facts: DeviceFacts

    def allocated_mib(self, devices: int | None = None) -> float:
        """Of the stage with the most, among those that begin on the first ``devices``."""
        starts = itertools.accumulate((stage.devices for stage in self.stages), initial=0)
        return max(
            stage.memory.allocated_mib
            for stage, start in zip(self.stages, starts, strict=False)
            if devices is None or start < devices
        )

    def reserved_mib(self) -> float:
        """Of the stage with the most."""
        return max(stage.memory.reserved_mib for stage in self.stages)

    def document(self) -> dict[str, Any]:
        """As the command line prints it; memory in MiB, facts of the device as ``DeviceFacts`` has
        them."""
        return {
            "iteration_s": self.iteration_s,
            "pipeline_s": self.pipeline_s,
            "embedding_s": self.embedding_s,
            "device": asdict(self.facts),
            "stages": [
                asdict(stage)
                | {"micro_batch_s": stage.micro_batch_s}
                | {"allocated_mb": stage.memory.allocated_mib}
                | {"reserved_mb": stage.memory.reserved_mib}
                for stage in self.stages
            ],
        }

    def breakdown(self) -> Breakdown:
        """Where the seconds go on the busiest stage. What the other stages make it wait for is the
        bubble."""
        stage = max(self.stages, key=lambda each: each.micro_batch_s)
        count = self.micro_batches
        parts = Breakdown(
            arithmetic_s=count * (stage.forward_s + stage.backward_s - stage.exchange_s),
            memory_bound_s=count * stage.accumulation_s,
            launch_s=0.0,
            recompute_s=count * stage.recompute_s,
            tensor_communication_s=count * (stage.exchange_s + stage.resharding_s),
            sequence_communication_s=0.0,
            context_communication_s=0.0,
            expert_communication_s=0.0,
            pipeline_communication_s=count * (stage.send_s + stage.receive_s),
            data_communication_s=stage.synchronisation_s + self.embedding_s,
            bubble_s=0.0,
            optimizer_s=stage.optimizer_s,
            hidden_tensor_communication_s=0.0,
            hidden_data_communication_s=0.0,
        )
        return replace(parts, bubble_s=max(0.0, self.iteration_s - parts.total_s))


@dataclass(frozen=True)
class Change:
    """Seconds that a mechanism adds to an iteration, after those before it."""

    mechanism: str
    seconds: float
    iteration_s: float


def corrected(
    plan: Plan,
    database: Database,
    devices_per_node: int = DEVICES_PER_NODE,
    which: Mechanisms | None = None,
) -> Corrected:
    """Price a plan with the corrections (all of them without ``which``). Raises InputError: as
    ``evaluate``."""
    published = evaluate(plan, database, devices_per_node)
    return _corrected(plan, database, devices_per_node, which or Mechanisms(), published)


def changes(
    plan: Plan, database: Database, devices_per_node: int = DEVICES_PER_NODE
) -> tuple[Change, ...]:
    """What each mechanism adds, one after another from Aceso's cost model on. Raises InputError: as
    ``evaluate``."""
    published = evaluate(plan, database, devices_per_node)
    which, before, found = NO_CORRECTIONS, published.iteration_s, []
    for name in NAMES:
        which = replace(which, **{name: True})
        after = _corrected(plan, database, devices_per_node, which, published).iteration_s
        found.append(Change(name, after - before, after))
        before = after
    return tuple(found)


def _corrected(
    plan: Plan, database: Database, devices_per_node: int, which: Mechanisms, published: Evaluation
) -> Corrected:
    work = stage_work(plan, database, devices_per_node, which, published)
    stages: list[CorrectedStage] = []
    for at in range(len(plan.stages)):
        stages.append(corrected_stage(work, at, stages[-1].send_s if stages else 0.0))
    after_s = np.array([stage.synchronisation_s + stage.optimizer_s for stage in stages])
    end_s = (_ends_s if which.pipeline else _closed_form_s)(stages, work.micro_batches)
    embedding_s = embedding_us(work) * US if which.embedding else 0.0
    return Corrected(
        iteration_s=float((end_s + after_s).max()) + embedding_s,
        pipeline_s=float(end_s.max()),
        embedding_s=embedding_s,
        micro_batches=work.micro_batches,
        stages=tuple(stages),
        facts=work.facts,
    )


def _ends_s(stages: Sequence[CorrectedStage], micro_batches: int) -> FloatArray:
    """When each stage has ended its last backward pass. Exchanges send both ways at once, so each
    direction counts once."""
    forward = [stage.forward_s + stage.resharding_s / 2 for stage in stages]
    backward = [
        stage.backward_s + stage.recompute_s + stage.accumulation_s + stage.resharding_s / 2
        for stage in stages
    ]
    costs = PipelineCosts(
        pp=len(stages),
        forward_s=np.array(forward),
        backward_s=np.array(backward),
        transfer_s=np.array([stage.send_s for stage in stages[:-1]]),
        backward_transfer_s=np.array([stage.receive_s for stage in stages[1:]]),
        overlap_transfers=False,
    )
    return simulate(costs, PipelineSchedule.ONE_F_ONE_B, micro_batches)


def _closed_form_s(stages: Sequence[CorrectedStage], micro_batches: int) -> FloatArray:
    """As Aceso: all stages once, and every further micro-batch on each."""
    loads = np.array([stage.micro_batch_s for stage in stages])
    ends: FloatArray = loads * (micro_batches - 1) + loads.sum()
    return ends
