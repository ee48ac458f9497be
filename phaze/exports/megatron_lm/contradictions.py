"""Arguments of a Megatron-LM command that Megatron refuses together, or ignores without another one
(core_v0.16.1 and main of August 2026: megatron/training/arguments.py,
megatron/core/transformer/transformer_config.py, megatron/core/distributed)."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.exports.megatron_lm.dispatch import (
    BATCHES,
    DELAYED,
    FLEX,
    KIND,
    SHARED,
    USUAL_KIND,
    OverlapSwitches,
)
from phaze.exports.megatron_lm.flags import Flags
from phaze_common.errors import InputError

INSTANCES = "num-distributed-optimizer-instances"
DEEPEP = "moe-enable-deepep"


def check_together(flags: Flags, ep: int, zero_stage: object) -> None:
    """Refuse what Megatron refuses, where no setting of the command line counts instead; note what
    it ignores.

    Raises:
        InputError: names both arguments.
    """
    for setting, name, what in _refused(flags, ep, zero_stage):
        if setting not in flags.given:
            raise InputError(
                f"--{name} of the Megatron-LM command {what}, and Megatron refuses it; correct one "
                f"of them or give --{setting.replace('_', '-')}"
            )
    granularity = flags.text("recompute-granularity")
    selective = granularity == "selective" or flags.has("recompute-activations")
    if flags.has("recompute-modules") and not selective:
        flags.usual["recompute-modules"] = "has no effect without --recompute-granularity selective"


def _refused(flags: Flags, ep: int, zero_stage: object) -> Iterator[tuple[str, str, str]]:
    """The setting that would count instead, the argument, and what it is refused for."""
    own = "recompute" not in flags.given
    whole = flags.text("recompute-granularity") == "full" or flags.has("recompute-method")
    gathers = flags.text(KIND, USUAL_KIND) == USUAL_KIND and "dispatcher" not in flags.given
    overlap = OverlapSwitches(*map(flags.has, (BATCHES, DELAYED, SHARED)))
    for name, what in overlap.refused(
        whole_blocks=own and whole,
        experts_again=own and "moe" in flags.listed("recompute-modules"),
        gathers=gathers,
        ep=ep,
    ):
        yield "overlap_experts", name, what
    if DEEPEP in flags.values and flags.text(KIND, USUAL_KIND) != FLEX:
        yield "dispatcher", DEEPEP, f"needs --{KIND} {FLEX}"
    tensor = flags.named("tensor-model-parallel-size", "model-parallel-size")
    divided = flags.number(tensor, 1) > 1 and not flags.has("sequence-parallel")
    # Megatron-DeepSpeed has experts of its own
    if divided and flags.has("num-experts") and "deepspeed" not in flags.values:
        yield "sequence_parallel", "num-experts", f"needs --sequence-parallel beside --{tensor}"
    selective = flags.has("recompute-activations")
    if selective or flags.text("recompute-granularity") == "selective":
        by = "recompute-activations" if selective else "recompute-granularity selective"
        if flags.has("recompute-method"):
            yield "recompute", "recompute-method", f"stands beside --{by}"
    if flags.number(INSTANCES, 1) > 1 and zero_stage == 0:
        yield "zero_stage", INSTANCES, "needs --use-distributed-optimizer"
