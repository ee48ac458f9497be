"""What the devices of a plan do in an iteration: operations and bytes of its passes, and what they
send to each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from GraphExtractor.graph import CollectiveKind


class Members(StrEnum):
    """Which devices take part in a collective."""

    TENSOR = "tensor parallel"
    TENSOR2 = "tensor parallel, second axis"
    CONTEXT = "context parallel"
    EXPERT = "expert parallel"
    REPLICAS = "replicas"  # that hold the same parameters, experts aside
    EXPERT_REPLICAS = "replicas of experts"  # or of what a 2D layout divides twice
    ENDS = "ends of the pipeline"  # that share tied parameters
    EVERYONE = "everyone"


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind among the same devices, together.

    ``payload_bytes`` is as in ``Collective``: the size of the whole tensor, of an all-to-all what
    one device holds. Of their seconds ``exposed_s`` add to a pass or an iteration, ``hidden_s``
    pass beside computation.
    """

    kind: CollectiveKind
    members: Members
    payload_bytes: float
    exposed_s: float
    hidden_s: float


@dataclass(frozen=True)
class PassWork:
    """One pass of a micro-batch through a chunk, on one of its devices; a backward pass with what
    is recomputed.

    ``flops`` are those of matrix products, ``moved_bytes`` what its operators read and write.
    Weights are gathered before it, layers communicate in it, gradients are reduced behind it.
    """

    flops: float
    moved_bytes: float
    gathers: tuple[Traffic, ...] = ()
    within: tuple[Traffic, ...] = ()
    reductions: tuple[Traffic, ...] = ()


@dataclass(frozen=True)
class Message:
    """What one device of a chunk sends to its like of a neighbouring chunk; ``gathered_bytes`` (0:
    nothing) are gathered there.

    The latter by the tensor-parallel group, where each of its devices sends a part.
    """

    sent_bytes: float
    gathered_bytes: float = 0.0


@dataclass(frozen=True)
class ChunkWork:
    """A chunk of the model: its passes, and what they send to the next chunk and to the one before
    (None: there is none)."""

    forward: PassWork
    backward: PassWork
    ahead: Message | None = None
    back: Message | None = None


@dataclass(frozen=True)
class StageWork:
    """A stage once per iteration: gradients that are reduced, updated weights that are gathered,
    parameters on a device."""

    parameters: float
    reductions: tuple[Traffic, ...] = ()
    updates: tuple[Traffic, ...] = ()


@dataclass(frozen=True)
class PlanWork:
    """``chunks`` in model order, ``stages``, and the gradients of ``tied`` parameters that the ends
    of the pipeline add up."""

    chunks: tuple[ChunkWork, ...]
    stages: tuple[StageWork, ...]
    tied: Traffic | None = None
