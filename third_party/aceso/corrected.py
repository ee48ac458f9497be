"""An iteration of a plan as Aceso's runtime runs it: its cost model with the corrections of ``corrections.yaml``."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from Plans.pipeline.schedule import PipelineCosts, PipelineSchedule
from Plans.pipeline.simulation import simulate
from Plans.results import Breakdown
from third_party.aceso.collective_times import all_reduce_us, pair_us
from third_party.aceso.corrections import NAMES, Corrections, Mechanisms, load_corrections
from third_party.aceso.database import OUTPUT, WEIGHTS, Database
from third_party.aceso.evaluation import DEVICES_PER_NODE, US, Evaluation, evaluate
from third_party.aceso.held_memory import HeldMemory, held_memory
from third_party.aceso.models import operator_chain
from third_party.aceso.operator_passes import cell, passes
from third_party.aceso.plans import Plan, StagePlan
from third_party.aceso.product_rates import MIB, DeviceFacts, device_facts

NO_CORRECTIONS = Mechanisms(**dict.fromkeys(NAMES, False))


@dataclass(frozen=True)
class CorrectedStage:
    """Seconds of a stage, per micro-batch and (``synchronisation_s``, ``optimizer_s``) per iteration, and its memory."""

    devices: int
    forward_s: float
    backward_s: float
    recompute_s: float
    exchange_s: float  # all-reduces over tensor parallel devices, which are parts of the passes
    resharding_s: float
    accumulation_s: float
    send_s: float  # to the next stage, one way
    receive_s: float  # from the stage before, one way
    synchronisation_s: float
    optimizer_s: float
    memory: HeldMemory

    @property
    def micro_batch_s(self) -> float:
        """All of a micro-batch."""
        passes_s = self.forward_s + self.backward_s + self.recompute_s
        return passes_s + self.resharding_s + self.accumulation_s + self.send_s + self.receive_s


@dataclass(frozen=True)
class Corrected:
    """What a plan takes: ``pipeline_s`` until the last backward pass, ``embedding_s`` after all stages have ended."""

    iteration_s: float
    pipeline_s: float
    embedding_s: float
    micro_batches: int
    stages: tuple[CorrectedStage, ...]
    facts: DeviceFacts

    def allocated_mib(self, devices: int | None = None) -> float:
        """Of the stage with the most, among those that begin on the first ``devices``."""
        return max(stage.memory.allocated_mib for stage in self._first(devices))

    def reserved_mib(self, devices: int | None = None) -> float:
        """As ``allocated_mib``."""
        return max(stage.memory.reserved_mib for stage in self._first(devices))

    def document(self) -> dict[str, Any]:
        """As the command line prints it; memory in MiB, facts of the device as ``DeviceFacts`` has them."""
        return {
            "iteration_s": self.iteration_s,
            "pipeline_s": self.pipeline_s,
            "embedding_s": self.embedding_s,
            "device": asdict(self.facts),
            "stages": [
                {key: value for key, value in asdict(stage).items() if key != "memory"}
                | {"micro_batch_s": stage.micro_batch_s, "memory": asdict(stage.memory)}
                | {"allocated_mb": stage.memory.allocated_mib, "reserved_mb": stage.memory.reserved_mib}
                for stage in self.stages
            ],
        }

    def breakdown(self) -> Breakdown:
        """Where the seconds go on the busiest stage. What the other stages make it wait for is the bubble."""
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

    def _first(self, devices: int | None) -> Sequence[CorrectedStage]:
        starts = itertools.accumulate((stage.devices for stage in self.stages), initial=0)
        return [stage for stage, start in zip(self.stages, starts, strict=False) if devices is None or start < devices]


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
    """Price a plan with the corrections (all of them without ``which``).

    Raises:
        InputError: as ``evaluate``.
    """
    return _corrected(plan, database, devices_per_node, which or Mechanisms(), evaluate(plan, database, devices_per_node))


def changes(plan: Plan, database: Database, devices_per_node: int = DEVICES_PER_NODE) -> tuple[Change, ...]:
    """What each mechanism adds, one after another from Aceso's cost model on.

    Raises:
        InputError: as ``evaluate``.
    """
    published = evaluate(plan, database, devices_per_node)
    which, before, found = NO_CORRECTIONS, published.iteration_s, []
    for name in NAMES:
        which = replace(which, **{name: True})
        after = _corrected(plan, database, devices_per_node, which, published).iteration_s
        found.append(Change(name, after - before, after))
        before = after
    return tuple(found)


def _corrected(plan: Plan, database: Database, devices_per_node: int, which: Mechanisms, published: Evaluation) -> Corrected:
    rules = load_corrections()
    facts = device_facts(database, rules)
    chain = operator_chain(plan.model, database.names)
    micro_batches = plan.global_batch // plan.micro_batch
    per_node = min(devices_per_node, plan.devices)
    ends = list(itertools.accumulate((len(stage.choices) for stage in plan.stages), initial=0))
    device_ends = list(itertools.accumulate((stage.devices for stage in plan.stages), initial=0))
    stages: list[CorrectedStage] = []
    for at, stage in enumerate(plan.stages):
        rows = chain[ends[at] : ends[at + 1]]
        price = published.stages[at]
        leaves = device_ends[at + 1] % per_node == 0
        passed = _pass_times(database, rows, stage, plan.micro_batch, facts, rules, which)
        send, receive = price.send_us, price.receive_us
        if which.transfers:
            send = (
                0.0 if at + 1 == len(plan.stages) else _send_us(database, rows[-1], stage, plan.micro_batch, between_nodes=leaves)
            )
            receive = stages[-1].send_s / US if stages else 0.0
        parameters = price.gradients_mib * MIB / rules.format_of(database.model.family.name).bytes
        form = rules.format_of(database.model.family.name)
        stages.append(
            CorrectedStage(
                devices=stage.devices,
                forward_s=passed.forward_us * US,
                backward_s=passed.backward_us * US,
                recompute_s=passed.recompute_us * US,
                exchange_s=passed.exchange_us * US,
                resharding_s=price.resharding_us * US,
                accumulation_s=parameters * form.accumulate_bytes / facts.bytes_per_us * US if which.accumulation else 0.0,
                send_s=send * US,
                receive_s=receive * US,
                synchronisation_s=_synchronisation_us(database, rows, stage, plan.micro_batch) * US
                if which.synchronisation
                else 0.0,
                optimizer_s=parameters * form.step_bytes / facts.bytes_per_us * US if which.optimizer else 0.0,
                memory=held_memory(database, rows, stage, plan.micro_batch, min(len(plan.stages) - at, micro_batches), rules),
            )
        )
    after_s = np.array([stage.synchronisation_s + stage.optimizer_s for stage in stages])
    end_s = _ends_s(stages, micro_batches) if which.pipeline else _closed_form_s(stages, micro_batches)
    embedding_s = _embedding_us(plan, database, chain, ends, device_ends, per_node, rules) * US if which.embedding else 0.0
    return Corrected(
        iteration_s=float((end_s + after_s).max()) + embedding_s,
        pipeline_s=float(end_s.max()),
        embedding_s=embedding_s,
        micro_batches=micro_batches,
        stages=tuple(stages),
        facts=facts,
    )


@dataclass(frozen=True)
class _PassTimes:
    """Microseconds of all operators of a stage."""

    forward_us: float
    backward_us: float
    recompute_us: float
    exchange_us: float


def _pass_times(
    database: Database,
    rows: Sequence[int],
    stage: StagePlan,
    micro_batch: int,
    facts: DeviceFacts,
    rules: Corrections,
    which: Mechanisms,
) -> _PassTimes:
    forward = backward = recompute = exchange = 0.0
    for row, choice, again in zip(rows, stage.choices, stage.recomputed, strict=True):
        one = passes(database, row, micro_batch // choice.dp, choice, facts, rules, which)
        forward += one.forward_us
        backward += one.backward_us
        recompute += one.forward_us if again else 0.0
        exchange += one.exchange_us
    return _PassTimes(forward, backward, recompute, exchange)


def _send_us(database: Database, row: int, stage: StagePlan, micro_batch: int, *, between_nodes: bool) -> float:
    choice = stage.choices[-1]
    size = float(cell(database, row, micro_batch // choice.dp, choice)[OUTPUT])
    return pair_us(database, size, between_nodes=between_nodes)


def _ends_s(stages: Sequence[CorrectedStage], micro_batches: int) -> np.ndarray:
    """When each stage has ended its last backward pass. Exchanges send both ways at once, so each direction counts once."""
    costs = PipelineCosts(
        pp=len(stages),
        forward_s=np.array([stage.forward_s + stage.resharding_s / 2 for stage in stages]),
        backward_s=np.array(
            [stage.backward_s + stage.recompute_s + stage.accumulation_s + stage.resharding_s / 2 for stage in stages]
        ),
        transfer_s=np.array([stage.send_s for stage in stages[:-1]]),
        backward_transfer_s=np.array([stage.receive_s for stage in stages[1:]]),
        overlap_transfers=False,
    )
    return simulate(costs, PipelineSchedule.ONE_F_ONE_B, micro_batches)


def _closed_form_s(stages: Sequence[CorrectedStage], micro_batches: int) -> np.ndarray:
    """As Aceso: all stages once, and every further micro-batch on each."""
    loads = np.array([stage.micro_batch_s for stage in stages])
    ends: np.ndarray = loads * (micro_batches - 1) + loads.sum()
    return ends


def _synchronisation_us(database: Database, rows: Sequence[int], stage: StagePlan, micro_batch: int) -> float:
    """One all-reduce of the gradients of all operators with the same degrees, one group after another."""
    sizes: dict[tuple[int, int], float] = {}
    for row, choice in zip(rows, stage.choices, strict=True):
        key = (choice.tp, choice.dp)
        sizes[key] = sizes.get(key, 0.0) + float(cell(database, row, micro_batch // choice.dp, choice)[WEIGHTS])
    return sum(all_reduce_us(database, dp, size) for (_, dp), size in sizes.items())


def _embedding_us(
    plan: Plan,
    database: Database,
    chain: Sequence[int],
    ends: Sequence[int],
    device_ends: Sequence[int],
    per_node: int,
    rules: Corrections,
) -> float:
    """Gradients of the shared embedding to its first holder and the sum back, from each other stage that holds it."""
    names = rules.families[plan.model.family.name].embedding
    holders: dict[int, float] = {}
    for stage in range(len(plan.stages)):
        for at in range(ends[stage], ends[stage + 1]):
            if database.names[chain[at]] in names and stage not in holders:
                choice = plan.stages[stage].choices[at - ends[stage]]
                holders[stage] = float(cell(database, chain[at], plan.micro_batch // choice.dp, choice)[WEIGHTS])
    if len(holders) < 2:
        return 0.0
    (root, size), *others = holders.items()
    node = device_ends[root] // per_node
    return sum(
        2.0 * pair_us(database, max(size, own), between_nodes=device_ends[stage] // per_node != node) for stage, own in others
    )
