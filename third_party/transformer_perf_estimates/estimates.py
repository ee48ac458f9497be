"""One configuration with everything that is known of it: what arrays of ``totals`` hold at one
place."""

from dataclasses import dataclass

from .configurations import Configuration
from .timing import OperatorTimes
from .totals import Estimates


@dataclass(frozen=True)
class OperatorEstimate:
    """An operator of one layer, for one micro-batch on one GPU; messages are those that stay
    exposed."""

    name: str
    forward_tflop: float
    backward_tflop: float
    weights_gb: float
    kept_gb: float
    forward_s: float
    backward_s: float
    forward_messages_s: float
    backward_messages_s: float


@dataclass(frozen=True)
class Estimate:
    """An iteration: seconds that add up to ``seconds``, and GB that add up to ``memory_gb``, of one
    GPU."""

    configuration: Configuration
    feasible: bool
    seconds: float
    arithmetic_s: float
    exposed_memory_s: float
    tensor_parallel_s: float
    data_parallel_s: float
    pipeline_s: float
    bubble_s: float
    tflop: float
    memory_gb: float
    weights_gb: float
    gradients_gb: float
    optimizer_gb: float
    kept_gb: float
    operators: tuple[OperatorEstimate, ...]


def estimate_at(estimates: Estimates, place: int) -> Estimate:
    """The configuration at ``place``."""
    layer, layout = estimates.layer, int(estimates.configurations.layout[place])
    passes = float(estimates.passes[place])
    both = (layer.forward, layer.backward)
    parts = ("seconds", "data_parallel_s", "pipeline_s", "bubble_s", "memory_gb", "weights_gb")
    given = (*parts, "optimizer_gb", "kept_gb")
    return Estimate(
        configuration=estimates.configurations.at(place),
        feasible=bool(estimates.feasible[place]),
        arithmetic_s=passes * sum(float(each.arithmetic_s[layout]) for each in both),
        exposed_memory_s=passes * sum(float(each.exposed_memory_s[layout]) for each in both),
        tensor_parallel_s=passes * sum(float(each.messages_s[layout]) for each in both),
        tflop=passes * float(layer.tflop[layout]),
        gradients_gb=float(estimates.weights_gb[place]),
        **{name: float(getattr(estimates, name)[place]) for name in given},
        operators=tuple(_operator_at(each, layout) for each in layer.operators),
    )


def _operator_at(operator: OperatorTimes, layout: int) -> OperatorEstimate:
    given = ("forward_tflop", "backward_tflop", "weights_gb", "kept_gb")
    return OperatorEstimate(
        name=operator.name,
        **{name: float(getattr(operator, name)[layout]) for name in given},
        forward_s=float(operator.forward.seconds[layout]),
        backward_s=float(operator.backward.seconds[layout]),
        forward_messages_s=float(operator.forward.messages_s[layout]),
        backward_messages_s=float(operator.backward.messages_s[layout]),
    )
