"""One stage of a plan as Aceso's runtime runs it, and what stages exchange at the end of an
iteration."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from .collective_times import all_reduce_us, pair_us
from .corrections import Corrections, Mechanisms, load_corrections
from .database import OUTPUT, WEIGHTS, Database
from .evaluation import US, Evaluation
from .held_memory import HeldMemory, held_memory
from .models import operator_chain
from .operator_passes import Passes, cell, passes
from .plans import Plan, StagePlan
from .product_rates import MIB, DeviceFacts, device_facts


@dataclass(frozen=True)
class CorrectedStage:
    """Seconds of a stage, per micro-batch and (``synchronisation_s``, ``optimizer_s``) per
    iteration, and its memory."""

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
class StageWork:
    """A plan with all that its stages are priced from.

    Attributes:
        rows: of the database, for the operators of each stage.
        device_ends: devices of all stages before each, and of all.
    """

    plan: Plan
    database: Database
    published: Evaluation
    rules: Corrections
    facts: DeviceFacts
    which: Mechanisms
    rows: tuple[tuple[int, ...], ...]
    device_ends: tuple[int, ...]
    per_node: int

    @property
    def micro_batches(self) -> int:
        """Per iteration."""
        return self.plan.global_batch // self.plan.micro_batch


def stage_work(
    plan: Plan, database: Database, devices_per_node: int, which: Mechanisms, published: Evaluation
) -> StageWork:
    """Gather what stages are priced from; ``published`` is Aceso's own price of the plan, which
    checks it."""
    rules = load_corrections()
    chain = operator_chain(plan.model, database.names)
    ends = list(itertools.accumulate((len(stage.choices) for stage in plan.stages), initial=0))
    return StageWork(
        plan,
        database,
        published,
        rules,
        device_facts(database, rules),
        which,
        tuple(chain[first:end] for first, end in itertools.pairwise(ends)),
        tuple(itertools.accumulate((stage.devices for stage in plan.stages), initial=0)),
        min(devices_per_node, plan.devices),
    )


def corrected_stage(work: StageWork, at: int, sent_before_s: float) -> CorrectedStage:
    """Price stage ``at``; the stage before it takes ``sent_before_s`` to send to it."""
    stage = work.plan.stages[at]
    rows = work.rows[at]
    price = work.published.stages[at]
    which = work.which
    form = work.rules.format_of(work.plan.model.family.name)
    passed = _all_passes(work, rows, stage)
    recomputed = _all_passes(work, rows, stage, only=stage.recomputed)
    send_s, receive_s = price.send_us * US, price.receive_us * US
    if which.transfers:
        send_s, receive_s = _send_us(work, at) * US, sent_before_s
    us_per_parameter_byte = price.gradients_mib * MIB / form.bytes / work.facts.bytes_per_us
    synchronisation_us = _synchronisation_us(work, rows, stage) if which.synchronisation else 0.0
    in_flight = min(len(work.plan.stages) - at, work.micro_batches)
    return CorrectedStage(
        devices=stage.devices,
        forward_s=passed.forward_us * US,
        backward_s=passed.backward_us * US,
        recompute_s=recomputed.forward_us * US,
        exchange_s=passed.exchange_us * US,
        resharding_s=price.resharding_us * US,
        accumulation_s=us_per_parameter_byte * form.accumulate_bytes * US
        if which.accumulation
        else 0.0,
        send_s=send_s,
        receive_s=receive_s,
        synchronisation_s=synchronisation_us * US,
        optimizer_s=us_per_parameter_byte * form.step_bytes * US if which.optimizer else 0.0,
        memory=held_memory(
            work.database, rows, stage, work.plan.micro_batch, in_flight, work.rules
        ),
    )


def _all_passes(
    work: StageWork, rows: Sequence[int], stage: StagePlan, only: Sequence[bool] | None = None
) -> Passes:
    forward = backward = exchange = 0.0
    for at, (row, choice) in enumerate(zip(rows, stage.choices, strict=True)):
        if only is None or only[at]:
            samples = work.plan.micro_batch // choice.dp
            one = passes(work.database, row, samples, choice, work.facts, work.rules, work.which)
            forward += one.forward_us
            backward += one.backward_us
            exchange += one.exchange_us
    return Passes(forward, backward, exchange)


def _send_us(work: StageWork, at: int) -> float:
    if at + 1 == len(work.plan.stages):
        return 0.0
    choice = work.plan.stages[at].choices[-1]
    size = float(
        cell(work.database, work.rows[at][-1], work.plan.micro_batch // choice.dp, choice)[OUTPUT]
    )
    return pair_us(work.database, size, between_nodes=work.device_ends[at + 1] % work.per_node == 0)


def _synchronisation_us(work: StageWork, rows: Sequence[int], stage: StagePlan) -> float:
    """One all-reduce of the gradients of all operators with the same degrees, one group after
    another."""
    sizes: dict[tuple[int, int], float] = {}
    for row, choice in zip(rows, stage.choices, strict=True):
        key = (choice.tp, choice.dp)
        weights = float(
            cell(work.database, row, work.plan.micro_batch // choice.dp, choice)[WEIGHTS]
        )
        sizes[key] = sizes.get(key, 0.0) + weights
    return sum(all_reduce_us(work.database, dp, size) for (_, dp), size in sizes.items())


def embedding_us(work: StageWork) -> float:
    """Gradients of the shared embedding to its first holder and the sum back, from each other stage
    that holds it.

    It is the smallest of what these operators hold: some hold positions as well, which nobody
    shares.
    """
    names = work.rules.families[work.plan.model.family.name].embedding
    holders: dict[
        int, tuple[float, int]
    ] = {}  # MiB of the whole operator, and over how many devices it is split
    for stage, rows in enumerate(work.rows):
        for row, choice in zip(rows, work.plan.stages[stage].choices, strict=True):
            if work.database.names[row] in names and stage not in holders:
                own_mib = float(
                    cell(work.database, row, work.plan.micro_batch // choice.dp, choice)[WEIGHTS]
                )
                holders[stage] = own_mib * choice.tp, choice.tp
    if len(holders) < 2:
        return 0.0
    shared_mib = min(mib for mib, _ in holders.values())
    (root, (_, parts)), *others = holders.items()
    node = work.device_ends[root] // work.per_node
    return sum(
        2.0
        * pair_us(
            work.database,
            shared_mib / min(parts, own),
            between_nodes=work.device_ends[stage] // work.per_node != node,
        )
        for stage, (_, own) in others
    )
