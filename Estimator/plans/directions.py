"""The breakdown of an iteration with its forward and backward passes apart."""

from dataclasses import dataclass, fields

from Estimator.plans.pricing import PricedPlan
from Estimator.plans.results import Breakdown


@dataclass(frozen=True)
class DirectedPart:
    """A part of a ``Breakdown`` by its name without ``_s``: seconds in forward passes, in backward
    passes, and in neither.

    Recomputation belongs to the backward pass that asks for it. Neither is what comes once per
    iteration (gradients and weights that are synchronised after the passes, the optimizer's step)
    and what no pass causes by itself (the bubble).
    """

    name: str
    forward_s: float
    backward_s: float
    neither_s: float

    @property
    def total_s(self) -> float:
        """The part of the breakdown."""
        return self.forward_s + self.backward_s + self.neither_s


def directed_parts(priced: PricedPlan, breakdown: Breakdown) -> tuple[DirectedPart, ...]:
    """The exposed parts of ``breakdown``, that of an iteration of ``priced``, by direction.

    Transfers between stages that show are shared as the seconds of their messages are; where
    tensor-parallel communication is hidden in part, the same part of it is in both directions.
    """
    forward_s, neither_s = _forward_s(priced, breakdown), _neither_s(priced, breakdown)
    parts = []
    for name in (field.name for field in fields(Breakdown) if not field.name.startswith("hidden_")):
        whole_s = getattr(breakdown, name)
        outside_s = min(neither_s.get(name, 0.0), whole_s)
        # but for rounding they never are more
        forward = min(forward_s.get(name, 0.0), whole_s - outside_s)
        parts.append(
            DirectedPart(name.removesuffix("_s"), forward, whole_s - outside_s - forward, outside_s)
        )
    return tuple(parts)


def _forward_s(priced: PricedPlan, breakdown: Breakdown) -> dict[str, float]:
    """Seconds of the forward passes of the busiest stage, by field of ``breakdown``."""
    stage, many = priced.busiest_stage, priced.micro_batches
    passes = priced.passes_of(stage)
    forward = passes[0]
    more = priced.stage_price(stage)
    sent_s = sum(each.tensor_s + each.sequence_s for each in passes)
    shown = 1 - more.hidden_tensor_s / sent_s if more.hidden_tensor_s else 1.0
    messages_s = priced.transfers_s.sum(axis=1)
    transfers = float(messages_s[0] / messages_s.sum()) if messages_s.sum() else 0.0
    return {
        "arithmetic_s": many * forward.arithmetic_s,
        "memory_bound_s": many * forward.memory_s,
        "launch_s": many * (forward.launch_s + more.forward_launch_s),
        "tensor_communication_s": many * forward.tensor_s * shown,
        "sequence_communication_s": many * forward.sequence_s * shown,
        "context_communication_s": many * forward.context_s,
        "expert_communication_s": many * (forward.expert_s - more.forward_hidden_expert_s),
        "pipeline_communication_s": breakdown.pipeline_communication_s * transfers,
        "data_communication_s": many * more.forward_data_s,
        "host_communication_s": many * more.forward_host_s,
    }


def _neither_s(priced: PricedPlan, breakdown: Breakdown) -> dict[str, float]:
    after_s = float(priced.after_s[priced.busiest_stage])
    return {
        "data_communication_s": after_s,
        "launch_s": priced.between_s,
        "host_communication_s": priced.step_waiting_s,
        "bubble_s": breakdown.bubble_s,
        "optimizer_s": breakdown.optimizer_s,
        "site_communication_s": breakdown.site_communication_s,
    }
