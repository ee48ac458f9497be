"""Where an iteration's seconds and a GPU's bytes go, in parts that both physics have, or one of
them alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from Estimator.devices.operator_cost import DeviceModel
from Estimator.plans.layer_costs import summed_parts
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.results import Iteration
from GraphExtractor.graph import OperatorKind
from phaze.studies.evaluation import PreparedPlan
from phaze_common.units import GIGA

from .estimates import Estimate
from .systems import System
from .timing import PEAK_REACHED, START_UP_S

ROUNDING = 1e-12  # of a total: what sums and differences of its parts leave where there is nothing
# The operator of transformer-perf-estimates that holds it, without projections.
ATTENTION = "fusedla"


@dataclass(frozen=True)
class Parts:
    """Seconds that add up to the iteration, but for what is hidden, and bytes that add up to the
    memory of the fullest GPU.

    ``layers`` are the transformer's, ``ends`` embedding, head and loss with all that they take of
    the busiest stage.
    """

    products_s: float  # arithmetic of the layers but attention's
    attention_s: float  # its arithmetic, without projections
    memory_bound_s: float
    starts_s: float  # of operators
    tensor_s: float  # tensor- and sequence-parallel messages that nothing hides
    context_s: float
    ends_s: float
    data_s: float
    pipeline_s: float
    bubble_s: float
    optimizer_s: float
    hidden_tensor_s: float
    hidden_data_s: float
    state_bytes: float  # weights, gradients, optimizer
    kept_bytes: float  # activations
    workspace_bytes: float
    reserved_bytes: float

    @property
    def seconds(self) -> float:
        """Their sum."""
        names = (
            each.name
            for each in fields(self)
            if each.name.endswith("_s") and not each.name.startswith("hidden")
        )
        return float(sum(getattr(self, name) for name in names))

    @property
    def held_bytes(self) -> float:
        """The sum of the bytes."""
        return self.state_bytes + self.kept_bytes + self.workspace_bytes + self.reserved_bytes

    def without_residues(self) -> Parts:
        """The same with what is zero but for rounding, beside the seconds or bytes altogether, as
        zero."""
        totals = {"_s": self.seconds, "_bytes": self.held_bytes}
        least = {
            each.name: ROUNDING * totals[each.name[each.name.rindex("_") :]]
            for each in fields(self)
        }
        return replace(
            self,
            **{name: 0.0 for name, limit in least.items() if abs(getattr(self, name)) <= limit},
        )


def published_parts(each: Estimate, system: System) -> Parts:
    """Parts of an estimate; what it hides of messages it does not tell, and exposed memory time it
    does not tell by operator."""
    (attention,) = (one for one in each.operators if one.name == ATTENTION)
    passes = each.tflop / sum(one.forward_tflop + one.backward_tflop for one in each.operators)
    starts_s = passes * 2 * START_UP_S * len(each.operators)
    tflop = attention.forward_tflop + attention.backward_tflop
    attention_s = passes * tflop / (PEAK_REACHED * system.matrix_tflop_per_s)
    sent_s = {
        one.name: passes * (one.forward_messages_s + one.backward_messages_s)
        for one in each.operators
    }
    context_s = sent_s.pop(ATTENTION)
    return Parts(
        products_s=each.arithmetic_s - starts_s - attention_s,
        attention_s=attention_s,
        memory_bound_s=each.exposed_memory_s,
        starts_s=starts_s,
        tensor_s=sum(sent_s.values()),
        context_s=context_s,
        ends_s=0.0,
        data_s=each.data_parallel_s,
        pipeline_s=each.pipeline_s,
        bubble_s=each.bubble_s,
        optimizer_s=0.0,
        hidden_tensor_s=0.0,
        hidden_data_s=0.0,
        state_bytes=(each.weights_gb + each.gradients_gb + each.optimizer_gb) * GIGA,
        kept_bytes=each.kept_gb * GIGA,
        workspace_bytes=0.0,
        reserved_bytes=0.0,
    )


def own_parts(plan: PreparedPlan, iteration: Iteration, device: DeviceModel) -> Parts:
    """Parts of an iteration of ``plan``, on the stage that is busiest, whose device prices
    attention by itself."""
    costs, many, breakdown = plan.costs, iteration.micro_batches_per_pipeline, iteration.breakdown
    priced = PricedPlan(plan.degrees, costs, plan.machine)
    held = priced.layers_of(priced.busiest_stage)
    ends = [layer for layer in held if layer in (0, len(costs.sizes.sequence) - 1)]
    passes = (costs.forward, costs.backward)
    kinds, excess = [costs.sizes.sequence[layer] for layer in ends], priced.rates.straggler_excess
    of_ends = [summed_parts(each, 0, kinds, excess) for each in passes]
    distinct = [
        costs.graph.layers[costs.graph.sequence[layer]] for layer in held if layer not in ends
    ]
    attention_s = many * sum(
        device.operator_time(operator).arithmetic_s
        for layer in distinct
        for operator in (*layer.forward.operators, *layer.backward.operators)
        if operator.kind is OperatorKind.ATTENTION
    )

    def of(name: str) -> float:
        return many * sum(float(getattr(each, name)) for each in of_ends)

    messages_s = breakdown.tensor_communication_s + breakdown.sequence_communication_s
    whole_s = messages_s + breakdown.hidden_tensor_communication_s
    shown = messages_s / whole_s if whole_s else 1.0
    tensor_s = shown * (of("tensor_s") + of("sequence_s"))
    fullest = max(iteration.stages, key=lambda stage: stage.memory_bytes)
    return Parts(
        products_s=breakdown.arithmetic_s - of("arithmetic_s") - attention_s,
        attention_s=attention_s,
        memory_bound_s=breakdown.memory_bound_s - of("memory_s"),
        starts_s=breakdown.launch_s - of("launch_s"),
        tensor_s=messages_s - tensor_s,
        context_s=breakdown.context_communication_s - of("context_s"),
        ends_s=of("arithmetic_s") + of("memory_s") + of("launch_s") + of("context_s") + tensor_s,
        data_s=breakdown.data_communication_s,
        pipeline_s=breakdown.pipeline_communication_s,
        bubble_s=breakdown.bubble_s,
        optimizer_s=breakdown.optimizer_s,
        hidden_tensor_s=breakdown.hidden_tensor_communication_s,
        hidden_data_s=breakdown.hidden_data_communication_s,
        state_bytes=fullest.parameter_state_bytes,
        kept_bytes=fullest.activation_bytes,
        workspace_bytes=fullest.workspace_bytes,
        reserved_bytes=fullest.reserved_bytes,
    )
