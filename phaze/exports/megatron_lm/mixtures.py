"""Which blocks of a Megatron-LM command have experts, and how many parameters that makes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from GraphExtractor.models.decoder_parameters import DecoderMatrices
from phaze.exports.megatron_lm.flags import Flags
from phaze.exports.shape import DecoderShape

MOST_BLOCKS = 10_000
USUAL_WORDS = 32000  # of a vocabulary that is not given


def expert_blocks(flags: Flags, layers: int) -> tuple[bool, ...]:
    """Which blocks have experts, by --moe-layer-freq: every so many, or a list such as
    ``([0]*3+[1]*58)``.

    Raises:
        InputError: it is neither, or of another number of blocks.
    """
    text = " ".join(flags.words("moe-layer-freq")) or "1"
    try:
        found = _listed(ast.parse(text.strip(" '\""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = None
    if isinstance(found, int) and found > 0:
        return tuple(block % found == 0 for block in range(layers))
    if not isinstance(found, list) or len(found) != layers or not {*found} <= {0, 1}:
        listed = f"a number, or a list of 0 and 1 for each of {layers} blocks, or give --model"
        raise flags.refused("moe-layer-freq", text, listed)
    return tuple(bool(each) for each in found)


def _listed(node: ast.expr) -> int | list[int] | None:
    """The value of an expression of whole numbers, lists of them, + and *; None of any other."""
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.List(elts=elements):
            items = [_listed(each) for each in elements]
            if all(isinstance(each, int) for each in items):
                return [each for each in items if isinstance(each, int)]
            return None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _listed(left), _listed(right)
            return first + second if isinstance(first, list) and isinstance(second, list) else None
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _repeated(_listed(left), _listed(right))
    return None


def _repeated(first: int | list[int] | None, second: int | list[int] | None) -> list[int] | None:
    if isinstance(first, list) and isinstance(second, int):
        return first * second if 0 <= second * max(1, len(first)) <= MOST_BLOCKS else None
    return _repeated(second, first) if isinstance(second, list) and isinstance(first, int) else None


def mixture(shape: DecoderShape, pattern: Sequence[bool]) -> str:
    """What blocks without experts change, in parameters."""
    real, whole = (_parameters(shape, blocks) / 1e9 for blocks in (sum(pattern), len(pattern)))
    blocks = f"{sum(pattern)} of {len(pattern)} blocks have experts"
    return f"{blocks}: {real:.2f}B parameters, with experts in all {whole:.2f}B"


def _parameters(shape: DecoderShape, with_experts: int) -> int:
    """Parameters where so many blocks have experts and the others MLPs, norms and biases left
    out."""
    assert shape.experts is not None  # others have no such blocks
    experts, words = shape.experts, shape.vocabulary or USUAL_WORDS
    sizes = (shape.hidden, shape.heads, shape.kv_heads, shape.head_width, shape.ffn, words)
    matrices = DecoderMatrices(*sizes, gated=shape.gated, tied=shape.tied)
    return matrices.total(
        shape.layers,
        with_experts,
        matrices.routed(experts.count, experts.ffn, experts.shared_width),
    )
