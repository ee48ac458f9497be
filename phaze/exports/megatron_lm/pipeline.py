"""How a Megatron-LM command cuts its model into the stages and chunks of a pipeline."""

from __future__ import annotations

import re

from phaze.exports.megatron_lm.flags import Flags
from phaze_common.errors import InputError

_PIECE = re.compile(
    r"(?P<group>\((?P<inner>[^()]+)\)\*(?P<times>[0-9]+))|(?P<token>[EtmL|])(?:\*(?P<repeats>[0-9]+))?"
)
MOST_LAYERS = 100_000  # characters of a layout written out, far beyond any pipeline
OF_EMBEDDING = "account-for-embedding-in-pipeline-split"
OF_LOSS = "account-for-loss-in-pipeline-split"
EVEN_REMEDY = "give a layout, --pp or --stage-layers"


def blocks_of_chunks(chunks: tuple[str, ...]) -> tuple[int, ...]:
    """Blocks of each chunk."""
    return tuple(chunk.count("t") for chunk in chunks)


def chunks_of(flags: Flags, layers: int, pp: int) -> tuple[str, ...]:
    """Layers of the chunks of a pipeline in model order, by tokens of a layout.

    Raises:
        InputError: blocks do not come out even, or the layout is of another model.
    """
    if flags.has("pipeline-model-parallel-layout"):
        chunks = layout_chunks(flags.text("pipeline-model-parallel-layout"))
        if len(chunks) % pp or "".join(chunks) != "E" + "t" * layers + "L":
            held = sum(blocks_of_chunks(chunks))
            raise InputError(
                f"--pipeline-model-parallel-layout has {len(chunks)} stages and {held} blocks; "
                f"give a multiple of pp {pp} and "
                f"{layers} blocks between one E and one L, or give --pp or --stage-layers"
            )
        return chunks
    stages = _stage_blocks(flags, layers, pp)
    interleave = flags.number("num-virtual-stages-per-pipeline-rank", 1)
    if flags.has("num-layers-per-virtual-pipeline-stage"):
        interleave = stages[0] // flags.number("num-layers-per-virtual-pipeline-stage")
    if interleave < 1 or any(blocks % interleave for blocks in stages):
        raise InputError(
            f"{interleave} chunks do not divide the blocks {list(stages)} of the stages of the "
            "Megatron-LM command; correct them or give --interleave"
        )
    blocks = [stages[chunk % pp] // interleave for chunk in range(pp * interleave)]
    blocks[0] -= flags.has(OF_EMBEDDING)
    blocks[-1] -= flags.has(OF_LOSS)
    return tuple(
        "E" * (place == 0) + "t" * count + "L" * (place == len(blocks) - 1)
        for place, count in enumerate(blocks)
    )


def _stage_blocks(flags: Flags, layers: int, pp: int) -> tuple[int, ...]:
    """Blocks of every stage without a layout, the embedding and the loss among them where Megatron
    is told to count them."""
    names = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    first, last = ([flags.number(name, 0)] if flags.has(name) else [] for name in names)
    middle = pp - len(first) - len(last)
    rest = layers + flags.has(OF_EMBEDDING) + flags.has(OF_LOSS) - sum(first) - sum(last)
    if (rest % middle if middle > 0 else rest) or rest < 0 or middle < 0 or (middle and not rest):
        raise InputError(
            f"{layers} blocks of the Megatron-LM command do not come out even over {pp} stages; "
            f"{EVEN_REMEDY}"
        )
    return (*first, *[rest // middle for _ in range(middle)], *last)


def layout_chunks(layout: str) -> tuple[str, ...]:
    """Stages of a layout such as ``Et*3|(tt|)*4mL`` written out, without layers that predict
    further tokens (m).

    Raises:
        InputError: it has other tokens, or a stage of nothing but such layers.
    """
    chunks = _expanded(layout.replace(",", "")).split("|")
    if any(chunk and not chunk.strip("m") for chunk in chunks):
        raise InputError(
            "a stage of the layout of the Megatron-LM command has nothing but layers that predict "
            "further tokens (m), which no plan has; give --pp"
        )
    return tuple(chunk.replace("m", "") for chunk in chunks)


def predicts_further(layout: str) -> bool:
    """Whether a layout has layers that predict further tokens, which no plan has."""
    return "m" in layout


def _expanded(text: str) -> str:
    made, place = "", 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            shown = repr(text[place : place + 20])
            raise InputError(
                f"{shown} in the layout of the Megatron-LM command is none of E, t, m, L, | and ( "
                ")*n; correct it"
            )
        unit = _expanded(piece["inner"]) if piece["inner"] else piece["token"]
        times = int((piece["times"] or piece["repeats"] or "1")[:7])
        if len(made) + times * len(unit) > MOST_LAYERS:
            raise InputError(
                f"the layout of the Megatron-LM command has more than {MOST_LAYERS:,} layers; "
                "correct it"
            )
        made += unit * times
        place = piece.end()
    return made
