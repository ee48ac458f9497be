"""How Megatron-Core's words say the exchange of tokens with experts: the dispatcher, and what runs
beside it. The same words with dashes are arguments, with underscores settings of NeMo."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.exports.launch import Launch
from phaze.exports.options import Option
from phaze_common.choices import Dispatcher, ExpertOverlap

KIND, BACKEND = "moe-token-dispatcher-type", "moe-flex-dispatcher-backend"
FLEX, USUAL_KIND, USUAL_BACKEND = "flex", "allgather", "deepep"
OTHER_BACKENDS = {"ncclep": Dispatcher.HYBRIDEP}  # priced as the one most like it
BATCHES, DELAYED = "overlap-moe-expert-parallel-comm", "delay-wgrad-compute"
SHARED, DISPATCHED = "moe-shared-expert-overlap", "moe-dispatch-fwd-dtype"
OF_EXCHANGE = (KIND, BACKEND, BATCHES, DELAYED, SHARED, DISPATCHED)
OVERLAPS = {
    ExpertOverlap.SHARED: (SHARED,),
    ExpertOverlap.BATCHES: (BATCHES,),
    ExpertOverlap.DELAYED: (BATCHES, DELAYED),
}


def dispatcher_of(kind: str, backend: str) -> Dispatcher | None:
    """The dispatcher of a type and, of the flexible one, a backend; None where it is none of
    these."""
    if kind == FLEX:
        kind = OTHER_BACKENDS.get(backend, backend)
    return next((each for each in Dispatcher if each.value == kind), None)


def overlap_of(*, batches: bool, delayed: bool, shared: bool) -> ExpertOverlap:
    """What runs beside the exchange by the switches ``BATCHES``, ``DELAYED`` and ``SHARED``."""
    if batches:
        return ExpertOverlap.DELAYED if delayed else ExpertOverlap.BATCHES
    return ExpertOverlap.SHARED if shared else ExpertOverlap.NONE


def dispatch_options(launch: Launch, quote: str = "") -> Iterator[Option]:
    """The dispatcher of a launch with experts, its words in ``quote`` marks."""
    dispatcher = launch.dispatcher
    kind = FLEX if dispatcher.per_node else dispatcher.value
    why = "priced so: tokens go to their experts' devices and back"
    yield Option(KIND, f"{quote}{kind}{quote}", why)
    if dispatcher.per_node:
        why = "priced so: one copy of a token to each node"
        yield Option(BACKEND, f"{quote}{dispatcher.value}{quote}", why)


def overlap_switches(launch: Launch) -> tuple[str, ...]:
    """Those that are on, of what runs beside the exchange of tokens with experts."""
    return OVERLAPS.get(launch.overlap_experts, ()) if launch.degrees.ep > 1 else ()
