"""Tensor parallelism of a model without a plan: derived from its traced step, where it is proven.

Megatron's pairs (Shoeybi et al. 2019, section 3) are found in the graph: a weight split by columns,
then operators that work on parts as they do on the whole, then a weight split by rows whose product
is summed over the devices. Splits are propagated through forward and backward nodes (as by GSPMD,
Xu et al. 2021), sums are taken as late as they can be, and every pair costs one all-reduce in the
forward pass and one in the backward pass. Embedding and head stay whole, as do convolutions and
whatever is in no proven pair.
"""

import logging

from torch.fx import Node

from GraphExtractor.derived_sharding.facts import StepFacts
from GraphExtractor.derived_sharding.pairs import Pairs, Refusal, find_pairs
from GraphExtractor.derived_sharding.propagation import Propagation
from GraphExtractor.derived_sharding.rewrite import local_step
from GraphExtractor.derived_sharding.specs import Demand, Obstacle
from GraphExtractor.torch_internals import OpOverload
from GraphExtractor.tracing import TracedStep, shortened
from GraphExtractor.user_lines import line_of
from GraphExtractor.values import operator_name
from phaze_common.errors import InputError, PhazeError

logger = logging.getLogger(__name__)

_WIDEST = 64
_WAYS_OUT = "give the model file a plan, `tensor_parallel = {...}`, or use tensor parallel width 1"


def shard_traced(step: TracedStep, tp: int) -> TracedStep:
    """One device's step of a group of ``tp``, from a step traced at width 1.

    Raises: InputError: no pair of linear layers can be proven to be splittable, or ``tp`` does not
        divide those that can. PhazeError: an operator does not work on parts although its rule says
        so.
    """
    if tp == 1:
        return step
    facts = StepFacts(step)
    found = find_pairs(facts)
    if not found.pairs:
        raise InputError(_nothing_to_split(step, found.refusals))
    if found.granularity % tp:
        first = {
            pair.granularity: pair.module for pair in reversed(found.pairs) if pair.granularity % tp
        }
        sizes = [f"{module} ({granularity})" for granularity, module in sorted(first.items())]
        raise InputError(
            f"tensor parallel width {tp} does not divide the heads or columns of "
            f"{shortened(sizes, 3)}; use one of {', '.join(map(str, _widths(found)))}"
        )
    if found.refusals:
        whole = [f"{each.weight} ({_place(step, each)} {each.reason})" for each in found.refusals]
        names = shortened(list(dict.fromkeys(whole)), 3)
        logger.info("tensor parallelism leaves whole: %s", names)
    return local_step(step, _summed(facts, found), tp)


def _widths(found: Pairs) -> tuple[int, ...]:
    return tuple(width for width in range(1, _WIDEST + 1) if found.granularity % width == 0)


def _summed(facts: StepFacts, found: Pairs) -> Propagation:
    """Splits of the whole step, with the sums that have to be taken."""
    summed: frozenset[Node] = frozenset()
    while True:
        splits = Propagation(facts, summed=summed)
        splits.seeds |= found.propagation.seeds
        try:
            splits.complete()
        except (Demand, Obstacle) as conflict:
            raise PhazeError(
                f"pairs that can each be split cannot be split together: {conflict}"
            ) from conflict
        pending = splits.pending()
        if not pending:
            return splits
        summed |= pending


def _nothing_to_split(step: TracedStep, refusals: tuple[Refusal, ...]) -> str:
    if not refusals:
        return f"the model has no linear layers that tensor parallelism could split; {_WAYS_OUT}"
    largest = max(refusals, key=lambda refusal: refusal.elements)
    return (
        "no two linear layers of the model can be proven to form a pair for tensor parallelism; "
        f"with {largest.weight} "
        f"split by columns, {_place(step, largest)} {largest.reason}; {_WAYS_OUT}"
    )


def _place(step: TracedStep, refusal: Refusal) -> str:
    """The operator that forbids a split, and where it is: line of the user's file, else module."""
    node = refusal.node
    called, line = isinstance(node.target, OpOverload), line_of(node)
    name = operator_name(node) if called else step.parameters.get(node, node.name)
    if line:
        return f"{name} at {line}"
    module = step.origins[node].module if node in step.origins else ""
    return f"{name} in {module}" if module else name
