"""How Megatron-Core's words say the exchange of tokens with experts: the dispatcher, and what runs
beside it. The same words with dashes are arguments, with underscores settings of NeMo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phaze.exports.launch import Launch
from phaze.exports.options import Option
from phaze_common.choices import Dispatcher, ExpertOverlap

KIND, BACKEND = "moe-token-dispatcher-type", "moe-flex-dispatcher-backend"
FLEX, USUAL_KIND, USUAL_BACKEND = "flex", "allgather", "deepep"
OTHER_BACKENDS = {"ncclep": Dispatcher.HYBRIDEP}  # priced as the one most like it
BATCHES, DELAYED = "overlap-moe-expert-parallel-comm", "delay-wgrad-compute"
SHARED, DISPATCHED = "moe-shared-expert-overlap", "moe-dispatch-fwd-dtype"
OF_EXCHANGE = (KIND, BACKEND, BATCHES, DELAYED, SHARED, DISPATCHED)
KINDS = (*(each.value for each in Dispatcher if not each.per_node), FLEX)
BACKENDS = (*(each.value for each in Dispatcher if each.per_node), *OTHER_BACKENDS)
OVERLAPS = {
    ExpertOverlap.SHARED: (SHARED,),
    ExpertOverlap.BATCHES: (BATCHES,),
    ExpertOverlap.DELAYED: (BATCHES, DELAYED),
}


def dispatcher_of(kind: str, backend: str) -> Dispatcher | None:
    """The dispatcher of a type and, of the flexible one, a backend; None where it is none of
    these."""
    if kind == FLEX:
        name = OTHER_BACKENDS.get(backend, backend)
        return Dispatcher(name) if backend in BACKENDS else None
    return Dispatcher(kind) if kind in KINDS else None


@dataclass(frozen=True)
class OverlapSwitches:
    """What runs beside the exchange by the switches ``BATCHES``, ``DELAYED`` and ``SHARED``."""

    batches: bool
    delayed: bool
    shared: bool

    @property
    def overlap(self) -> ExpertOverlap:
        """As plans say it."""
        if self.batches:
            return ExpertOverlap.DELAYED if self.delayed else ExpertOverlap.BATCHES
        return ExpertOverlap.SHARED if self.shared else ExpertOverlap.NONE

    def refused(
        self, *, whole_blocks: bool, experts_again: bool, gathers: bool, ep: int
    ) -> Iterator[tuple[str, str]]:
        """Names of switches that Megatron-Core refuses, and why: beside recomputed
        ``whole_blocks`` or experts, with the dispatcher that ``gathers``, without ``ep``."""
        if self.delayed and not self.batches:
            yield DELAYED, f"needs --{BATCHES}"
        if not self.batches:
            return
        if whole_blocks:
            yield BATCHES, "stands beside --recompute-granularity full"
        if experts_again:
            yield BATCHES, "stands beside --recompute-modules moe"
        if self.shared:
            yield BATCHES, f"stands beside --{SHARED}"
        if ep == 1:
            yield BATCHES, "needs --expert-model-parallel-size above 1"
        elif gathers:
            yield BATCHES, f"needs --{KIND} alltoall or flex"


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
