"""Which sizes and tensor-parallel widths a model can be extracted for."""

import math

from GraphExtractor.graph import DTYPE_BYTES, Attention, GraphKey, KeyExchange, TensorLayout
from GraphExtractor.models.base import ModelFamily, TransformerFamily
from phaze_common.errors import InputError

SHOWN = 16  # divisors listed in a refusal


def allowed_widths(family: ModelFamily) -> tuple[int, ...]:
    """Tensor-parallel widths that divide all sizes of a family; 1 where only a trace can tell."""
    return divisors(math.gcd(*family.divided_sizes.values()) or 1)


def divisors(number: int) -> tuple[int, ...]:
    """Whole numbers that divide ``number``, ascending."""
    return tuple(each for each in range(1, number + 1) if number % each == 0)


def check_key(key: GraphKey, family: ModelFamily) -> None:
    """Refuse sizes that cannot be."""
    sizes = {
        "micro-batch size": key.micro_batch_size,
        "sequence length": key.sequence_length,
        "tensor parallel width": key.tp,
        "width of the second tensor axis": key.tp2,
        "context parallel degree": key.cp,
        "expert parallel degree": key.ep,
    }
    if not key.sequence_length and not family.sequence_length:
        raise InputError(
            f"{key.model} has no sequence length of its own; give one with --sequence-length"
        )
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} {size} is not possible; give a positive whole number")
    # what can be split is only known when it is traced
    derived = not family.described and not family.divided_sizes
    if key.tp > 1 and not family.divided_sizes and not derived:
        raise InputError(
            f"{key.model} has no tensor-parallel plan; use tensor parallel width 1, or give its "
            "family a plan"
        )
    widths = allowed_widths(family)
    if key.tp not in widths and not derived:
        words = [f"{size} {name}" for name, size in family.divided_sizes.items()]
        raise InputError(
            f"tensor parallel width {key.tp} does not divide {key.model}, which has "
            f"{' and '.join(words)}; use one of {', '.join(map(str, widths))}"
        )
    if key.ep > 1 and not family.experts:
        where = "" if family.described else " that its description names, and others are not split"
        raise InputError(f"ep is {key.ep}, but {key.model} has no experts{where}; use ep 1")
    if key.expert_tp < key.tp and not key.sequence_parallel:
        raise InputError(
            f"etp is 1 with tp {key.tp}, where every device routes tokens of its own; give "
            "sequence_parallel true, or leave etp out"
        )
    if key.ep > 1 and family.experts % key.ep:
        raise InputError(
            f"ep is {key.ep}, which does not divide the {family.experts} experts of {key.model}; "
            f"use one of {', '.join(map(str, divisors(family.experts)))}"
        )
    if key.sequence_parallel and key.sequence_length % key.tp:
        raise InputError(
            f"sequence parallelism over {key.tp} devices does not divide sequence length "
            f"{key.sequence_length}; use a multiple of the tensor parallel width"
        )
    _check_axes(key, family)
    check_context(key, key.sequence_devices)
    _check_exchange(key, family)
    if DTYPE_BYTES.get(key.dtype, 0) < 2 or not key.dtype.startswith(("float", "bfloat")):
        raise InputError(
            f"dtype {key.dtype!r} cannot be trained in; use bfloat16, float16 or float32"
        )
    family.check(key)


def _check_axes(key: GraphKey, family: ModelFamily) -> None:
    """Refuse widths of a second tensor axis that are not there or do not divide the model."""
    if key.layout is TensorLayout.ONE_D:
        if key.tp2 > 1:
            raise InputError(
                f"the second tensor axis has width {key.tp2}, but a 1d layout has one axis; use "
                "width 1, or layout 2d"
            )
        return
    if not isinstance(family, TransformerFamily) or not family.divides_twice:
        raise InputError(
            f"a 2d layout does not divide {key.model}: it is there for dense transformers of "
            "linear layers and norms (GPT, Llama, Qwen3, OPT, BLOOM, MPT and vision transformers "
            "for dense prediction); use layout 1d"
        )
    if key.sequence_parallel:
        raise InputError(
            "a 2d layout divides what is between the blocks itself; leave sequence parallelism "
            "out, or use layout 1d"
        )
    if family.hidden % (key.tp * key.tp2):
        raise InputError(
            f"a 2d layout of {key.tp} x {key.tp2} devices does not divide the {family.hidden} "
            f"hidden columns of {key.model}; use widths whose product divides {family.hidden}"
        )
    for name, size in family.summed_sizes.items():
        if size % math.lcm(key.tp, key.tp2):
            raise InputError(
                f"a 2d layout of {key.tp} x {key.tp2} devices does not divide the {size} {name} of "
                f"{key.model}; use widths that both divide {size}"
            )


def panels_fit(panels: int, family: ModelFamily) -> bool:
    """Whether products of a 2D layout can run in so many equal panels; 1 without such a layout."""
    return not any(size % panels for size in _summed(family).values())


def check_panels(panels: int, model: str, family: ModelFamily) -> None:
    """Refuse panels that do not divide what products of a 2D layout are summed over.

    Raises: InputError: says what they do not divide, and what would.
    """
    sizes = _summed(family)
    for name, size in sizes.items():
        if size % panels:
            would = divisors(math.gcd(*sizes.values()))
            shown = ", ".join(map(str, would[:SHOWN]))
            shown += f", ..., {would[-1]}" if len(would) > SHOWN else ""
            raise InputError(
                f"panels is {panels}, which does not divide the {size} {name} of {model} that "
                f"products are summed over; use one of {shown}"
            )


def _summed(family: ModelFamily) -> dict[str, int]:
    """What products of a 2D layout are summed over, by name; nothing without such a layout."""
    if not isinstance(family, TransformerFamily) or not family.divides_twice:
        return {}
    return {"hidden columns": family.hidden, **family.summed_sizes}


def _check_exchange(key: GraphKey, family: ModelFamily) -> None:
    """Refuse ways to attend to tokens of other devices that a model or attention does not allow."""
    if key.sequence_devices == 1:
        return
    if key.exchange is KeyExchange.RING and key.attention is not Attention.FLASH:
        raise InputError(
            "keys and values pass around a ring while fused attention runs, but attention of "
            f"{key.model} is {key.attention}; use attention flash, or exchange gather"
        )
    heads = family.divided_sizes.get("attention heads", 0)
    if key.exchange is KeyExchange.ULYSSES and heads % (key.tp * key.sequence_devices):
        raise InputError(
            f"ulysses divides the {heads // key.tp} attention heads that tensor parallel width "
            f"{key.tp} leaves of {key.model} "
            f"among {key.sequence_devices} devices that share a sequence; let these be one of "
            f"{', '.join(map(str, divisors(heads // key.tp)))}, or use exchange gather or ring"
        )


def check_context(key: GraphKey, parts: int) -> None:
    """Refuse to cut a sequence into parts that are not equal."""
    tokens = key.sequence_length // (key.tp if key.sequence_parallel else 1)
    if parts < 1 or tokens % parts:
        of_each = f"{tokens} tokens"
        if key.sequence_parallel:
            of_each += f" of each of {key.tp} sequence-parallel devices"
        degree = f"context parallel degree {key.cp}"
        if key.tp2 > 1:
            degree += f" on {key.tp2} rows of a 2d layout"
        raise InputError(
            f"{degree} does not divide the {of_each} of {key.model}; use a divisor of {tokens}"
        )
