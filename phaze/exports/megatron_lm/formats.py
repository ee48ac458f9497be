"""Number formats of training state as Megatron is told them, and which it has none for.

In bf16 and fp8 it adds up and reduces gradients in fp32 unless ``--grad-reduce-in-bf16``, in fp16
in fp16 unless ``--accumulate-allreduce-grads-in-fp32``. Its precision-aware optimizer (Adam of
Transformer Engine, and only with ZeRO) keeps moments in fp32, bf16, fp16 or fp8 and main weights in
fp32 or fp16; ``--fp8-param-gather`` too needs the distributed optimizer (core_v0.16.1,
megatron/training/arguments.py, megatron/core/optimizer/optimizer_config.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phaze.exports.launch import Launch, unsupported
from phaze.exports.options import Option, options
from phaze.exports.refusals import Refusals
from phaze_common.choices import MomentDtype, Precision, StateDtype

GRADIENTS = {  # formats of gradients by precision, its own first
    Precision.BF16: (StateDtype.FP32, StateDtype.BF16),
    Precision.FP8: (StateDtype.FP32, StateDtype.BF16),
    Precision.FP16: (StateDtype.FP16, StateDtype.FP32),
    Precision.FP32: (StateDtype.FP32,),
}
RECIPES = {  # --fp8-recipe
    Precision.FP8: "delayed",
    Precision.FP8_CURRENT: "tensorwise",
    Precision.FP8_BLOCK: "blockwise",
    Precision.MXFP8: "mxfp8",
}
PRECISION_OF = {name: precision for precision, name in RECIPES.items()}
BARE = {name: name for name in ("fp32", "bf16", "fp16", "fp8")}  # formats as words of a command


def narrow_state(launch: Launch) -> bool:
    """Whether the optimizer keeps something in fewer bits than fp32, which only its precision-aware
    one does."""
    formats = launch.degrees.state_formats
    return formats.moment_dtype not in {None, MomentDtype.FP32} or (
        formats.main_weight_dtype not in {None, StateDtype.FP32}
    )


def state_options(launch: Launch, on: str, dtypes: Mapping[str, str]) -> Iterator[Option]:
    """Options of the precision-aware optimizer, where the plan needs it; ``on`` is a switch as the
    program writes it, ``dtypes`` are formats."""
    if not narrow_state(launch):
        return iter(())
    formats = launch.degrees.state_formats
    gradient = dtypes["bf16" if formats.gradient_dtype is StateDtype.BF16 else "fp32"]
    main = dtypes[formats.main_weight_dtype or "fp32"]
    moment = dtypes[formats.moment_dtype or "fp32"]
    why = "the plan's optimizer keeps state in fewer bits than fp32"
    return options(f"""
        use_precision_aware_optimizer {on} # {why}
        main_grads_dtype {gradient} # that the optimizer reads, as they are added up
        main_params_dtype {main} # of its own copy of the weights
        exp_avg_dtype {moment} # the plan's moment_dtype
        exp_avg_sq_dtype {moment} # likewise
    """)


def format_limits(launch: Launch) -> Refusals:
    """What of the formats it cannot be told."""
    formats, plan = launch.degrees.state_formats, launch.plan
    sharded = launch.degrees.zero_stage > 0
    known, main = GRADIENTS[plan.precision.kind], formats.main_weight_dtype
    if formats.gradient_dtype not in {None, *known}:
        yield unsupported(
            f"in {plan.precision} it adds up gradients in {' or '.join(known)}, not in "
            f"{formats.gradient_dtype}",
            gradient_dtype=known[0].value,
        )
    if main is StateDtype.BF16:
        what = "its main weights are fp32 or fp16, not bf16"
        yield unsupported(what, main_weight_dtype=StateDtype.FP32.value)
    if main is StateDtype.FP16 and plan.precision is Precision.FP16:
        what = "in fp16 it keeps main weights beside the weights, which the plan updates in place"
        yield unsupported(what, main_weight_dtype=StateDtype.FP32.value)
    if narrow_state(launch) and plan.optimizer != "adam":
        stated = {"moment_dtype": formats.moment_dtype, "main_weight_dtype": main}
        yield unsupported(
            f"its optimizer with state in fewer bits is Adam, not {plan.optimizer}",
            **{key: "fp32" for key, dtype in stated.items() if dtype is not None},
        )
    if narrow_state(launch) and not sharded:
        yield unsupported("it keeps optimizer state in fewer bits only with ZeRO", zero_stage=1)
    if formats.fp8_weights and not sharded:
        yield unsupported("it holds weights in fp8 only with ZeRO", zero_stage=1)
