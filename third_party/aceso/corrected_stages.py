"""One stage of a plan as Aceso's runtime runs it, and what stages exchange at the end of an
iteration."""

import itertools
from collections import defaultdict
from dataclasses import dataclass

from phaze_common.units import MIB

from .collective_times import all_reduce_us, pair_us
from .corrections import Mechanisms, load_corrections
from .database import Database, Field
from .evaluation import US, Evaluation
from .held_memory import HeldMemory, held_memory
from .models import operator_chain
from .operator_passes import StageWork, passes
from .plans import Plan
from .product_rates import device_facts


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


def stage_work(
    plan: Plan, database: Database, devices_per_node: int, which: Mechanisms, published: Evaluation
) -> StageWork:
    """Gather what stages are priced from."""
    rules = load_corrections()
    chain = operator_chain(plan.model, database.names)
    return StageWork(
        plan,
        database,
        published,
        rules,
        device_facts(database, rules),
        which,
        tuple(chain[first:end] for first, end in itertools.pairwise(plan.operator_ends)),
        min(devices_per_node, plan.devices),
    )


def corrected_stage(work: StageWork, at: int, sent_before_s: float) -> CorrectedStage:
    """Price stage ``at``; the stage before it takes ``sent_before_s`` to send to it."""
    stage, rows, which = work.plan.stages[at], work.rows[at], work.which
    price = work.published.stages[at]
    form = work.rules.format_of(work.plan.model.family.name)
    operators = list(zip(rows, stage.choices, strict=True))
    each = [passes(work, row, choice) for row, choice in operators]
    names = [work.database.names[row] for row in rows]
    values = [work.values(row, choice) for row, choice in operators]
    twice_us = (one.forward_us for one, twice in zip(each, stage.recomputed, strict=True) if twice)
    send_s, receive_s = price.send_us * US, price.receive_us * US
    if which.transfers:
        send_s, receive_s = _send_us(work, at) * US, sent_before_s
    s_per_parameter_byte = price.gradients_mib * MIB / form.bytes / work.facts.bytes_per_us * US
    in_flight = min(len(work.plan.stages) - at, work.micro_batches)
    return CorrectedStage(
        devices=stage.devices,
        forward_s=sum(one.forward_us for one in each) * US,
        backward_s=sum(one.backward_us for one in each) * US,
        recompute_s=sum(twice_us) * US,
        exchange_s=sum(one.exchange_us for one in each) * US,
        resharding_s=price.resharding_us * US,
        accumulation_s=s_per_parameter_byte * form.accumulate_bytes if which.accumulation else 0.0,
        send_s=send_s,
        receive_s=receive_s,
        synchronisation_s=_synchronisation_us(work, at) * US if which.synchronisation else 0.0,
        optimizer_s=s_per_parameter_byte * form.step_bytes if which.optimizer else 0.0,
        memory=held_memory(names, values, stage.recomputed, in_flight, work.rules, form),
    )


def _send_us(work: StageWork, at: int) -> float:
    if at + 1 == len(work.plan.stages):
        return 0.0
    size = float(work.values(work.rows[at][-1], work.plan.stages[at].choices[-1])[Field.OUTPUT])
    return pair_us(
        work.database, size, between_nodes=work.plan.device_ends[at + 1] % work.per_node == 0
    )


def _synchronisation_us(work: StageWork, at: int) -> float:
    """One all-reduce of the gradients of all operators with the same degrees, one group after
    another."""
    sizes = defaultdict[tuple[int, int], float](float)
    for row, choice in zip(work.rows[at], work.plan.stages[at].choices, strict=True):
        sizes[choice.tp, choice.dp] += float(work.values(row, choice)[Field.WEIGHTS])
    return sum(all_reduce_us(work.database, dp, size) for (_, dp), size in sizes.items())


def embedding_us(work: StageWork) -> float:
    """Gradients of the shared embedding to its first holder and the sum back, from each other stage
    that holds it.

    It is the smallest of what these operators hold: some hold positions as well, which nobody
    shares.
    """
    names = work.rules.families[work.plan.model.family.name].embedding
    # MiB of the whole operator, and over how many devices it is split
    holders: dict[int, tuple[float, int]] = {}
    for stage, rows in enumerate(work.rows):
        for row, choice in zip(rows, work.plan.stages[stage].choices, strict=True):
            if work.database.names[row] in names and stage not in holders:
                own_mib = float(work.values(row, choice)[Field.WEIGHTS])
                holders[stage] = own_mib * choice.tp, choice.tp
    if len(holders) < 2:
        return 0.0
    shared_mib = min(mib for mib, _ in holders.values())
    (root, (_, parts)), *others = holders.items()
    nodes = [end // work.per_node for end in work.plan.device_ends]
    total_us = 0.0
    for stage, (_, own) in others:
        between = nodes[stage] != nodes[root]
        size_mib = shared_mib / min(parts, own)
        total_us += 2.0 * pair_us(work.database, size_mib, between_nodes=between)
    return total_us
