"""What a device of a stage holds: from the tensors that backward passes read, freed as these go,
and what the step adds.

A micro-batch in flight keeps the stage's input, the outputs and masks that a backward pass reads,
and of a recomputed stretch its input, the residual stream beside it, and its output alone. While
the last of them runs backward, its tensors are freed from the end of the stage on; an operator then
needs beside them the gradients of its output and input, a new gradient of its weights, and its
workspace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .corrections import Corrections, Format
from .database import Field, Values
from .models import is_layer_start


@dataclass(frozen=True)
class HeldMemory:
    """MiB on a device of one stage.

    Attributes:
        state_mib: weights, gradients and optimizer state.
        kept_mib: of one micro-batch in flight.
        in_flight: micro-batches at once.
        working_mib: at most, beyond what the one at hand keeps, while it runs backward.
        step_mib: state at the optimizer step.
        copy_mib: flat copy of the gradients.
    """

    state_mib: float
    kept_mib: float
    in_flight: int
    working_mib: float
    step_mib: float
    copy_mib: float

    @property
    def allocated_mib(self) -> float:
        """The most that is allocated at once."""
        return max(
            self.state_mib + self.kept_mib * self.in_flight + self.working_mib, self.step_mib
        )

    @property
    def reserved_mib(self) -> float:
        """The most that the allocator holds: no block that activations left is large enough for the
        flat copy."""
        return self.state_mib + self.kept_mib * self.in_flight + self.working_mib + self.copy_mib


@dataclass(frozen=True)
class _Piece:
    """An operator, or a recomputed stretch: MiB it keeps, and beyond what is kept up to its end
    while it runs backward."""

    kept_mib: float
    working_mib: float


def held_memory(
    names: Sequence[str],
    values: Sequence[Values],
    recomputed: Sequence[bool],
    in_flight: int,
    rules: Corrections,
    form: Format,
) -> HeldMemory:
    """Memory of a stage of the operators ``names``, of whose values on its devices each has
    eight."""
    pieces = _pieces(names, values, recomputed, rules)
    kept = peak = float(values[0][Field.INPUT])
    for piece in pieces:
        kept += piece.kept_mib
        peak = max(peak, kept + piece.working_mib)
    weights = float(sum(value[Field.WEIGHTS] for value in values))
    parameters = weights / form.bytes  # in 2^20
    return HeldMemory(
        state_mib=parameters * form.held_bytes,
        kept_mib=kept,
        in_flight=in_flight,
        working_mib=peak - kept,
        step_mib=parameters * form.step_held_bytes,
        copy_mib=weights,
    )


def _pieces(
    names: Sequence[str], values: Sequence[Values], recomputed: Sequence[bool], rules: Corrections
) -> list[_Piece]:
    operators = rules.operators
    outputs = [
        float(value[Field.ACTIVATIONS]) * operators.output_share(name)
        for name, value in zip(names, values, strict=True)
    ]

    def working_mib(at: int) -> float:
        before = outputs[at - 1] if at else float(values[0][Field.INPUT])
        needs_workspace = any(part in names[at] for part in operators.workspaces)
        workspace = float(values[at][Field.FORWARD_RESERVED]) if needs_workspace else 0.0
        return outputs[at] + before + float(values[at][Field.WEIGHTS]) + workspace

    def own(at: int) -> float:
        return float(values[at][Field.ACTIVATIONS]) if operators.output_is_read(names[at]) else 0.0

    pieces = []
    counted: set[int] = set()
    at, last = 0, len(names) - 1
    while at <= last:
        if not recomputed[at]:
            is_read = operators.output_is_read(names[at]) or at == last or recomputed[at + 1]
            pieces.append(
                _Piece(float(values[at][Field.ACTIVATIONS]) if is_read else 0.0, working_mib(at))
            )
            at += 1
            continue
        end = at + 1
        while end <= last and recomputed[end] and not is_layer_start(names[end]):
            end += 1
        is_read = end > last or recomputed[end] or operators.output_is_read(names[end - 1])
        kept = outputs[end - 1] if is_read else 0.0
        residual_mib = 0.0
        creator = _residual_from(names, at, rules)
        fresh = creator is not None and creator not in counted
        if creator is not None and fresh and _is_within(names, recomputed, creator):
            # Made within a recomputed stretch, so nothing else keeps it.
            residual_mib = outputs[creator]
            counted.add(creator)
        repeated_mib = most = 0.0
        for inner in range(at, end):
            repeated_mib += own(inner)
            most = max(
                most, repeated_mib - (kept if inner == end - 1 else 0.0) + working_mib(inner)
            )
        pieces.append(_Piece(kept + residual_mib, most))
        at = end
    return pieces


def _residual_from(names: Sequence[str], at: int, rules: Corrections) -> int | None:
    """The operator whose output is the residual stream beside operator ``at``; None where there is
    none, or it is the input."""
    for before in range(at - 1, 0, -1):
        if any(part in names[before] for part in rules.operators.additions):
            return None
        if any(part in names[before] for part in rules.operators.branches):
            return before - 1
    return None


def _is_within(names: Sequence[str], recomputed: Sequence[bool], at: int) -> bool:
    return recomputed[at] and recomputed[at + 1] and not is_layer_start(names[at + 1])
