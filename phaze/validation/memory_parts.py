"""What fills the memory of a run, in parts that add up."""

from Estimator.plans.results import Iteration
from phaze.validation.records import MemoryParts


def memory_parts(iteration: Iteration, capacity_bytes: float) -> MemoryParts:
    """Parts of the memory of the fullest stage."""
    place = max(range(len(iteration.stages)), key=lambda each: iteration.stages[each].memory_bytes)
    stage = iteration.stages[place]
    known = stage.parameter_state_bytes + stage.activation_bytes
    return MemoryParts(
        stage=place + 1,
        capacity_bytes=capacity_bytes,
        over_bytes=max(stage.memory_bytes - capacity_bytes, 0.0),
        state_bytes=stage.parameter_state_bytes,
        activation_bytes=stage.activation_bytes,
        buffer_bytes=stage.memory_bytes - known,
    )
