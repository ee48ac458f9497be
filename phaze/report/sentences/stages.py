"""What plans whose stages differ bring, in words."""

from __future__ import annotations

from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze_common.numbers import FINE_DIGITS, number, percent, stage_memory_text, time_text
from Solver.results import HeterogeneousAnswer


def heterogeneous_text(answer: HeterogeneousAnswer) -> str:
    """What stages that differ bring, and how sure that is."""
    model, compared = label(answer.model), f"{answer.options:,} kinds of stages compared"
    left_out = f"; {answer.omitted}" if answer.omitted else ""
    best, bound_s = answer.best, answer.time_per_batch_bound_s
    best_s = answer.least_s
    if bound_s is None or best_s is None:
        return f"{model}: no plan fits, whether its stages differ or not; {compared}{left_out}"
    proof = f"no plan is more than {percent(best_s / bound_s - 1.0)} faster"
    if answer.status is Status.OPTIMAL:
        proof = "proven optimal"
    elif answer.meets_bound:
        proof = "the best of those compared, proven"
    if best is None:
        found = "no plan whose stages differ was found faster than the best one of stages alike"
        return f"{model}: {found}; {proof}; {compared}{left_out}"
    more = "where no plan of stages alike fits"
    if answer.over_uniform is not None:
        more = f"{number(answer.over_uniform, FINE_DIGITS)} times the best plan of stages alike"
    memory = stage_memory_text(best.memory_bytes, answer.hbm_bytes)
    return (
        f"{model}, stages that differ: {number(best.throughput_samples_per_s, FINE_DIGITS)} "
        f"samples/s, {time_text(best.time_per_batch_s)} per batch, {more}; {proof}; the fullest "
        f"stage uses {memory}; {compared}{left_out}"
    )
