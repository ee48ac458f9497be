"""Where Megatron's pipeline is cut: the layout string of a plan's chunks, and when it needs
none."""

from __future__ import annotations

from itertools import groupby

from phaze.exports.launch import Launch

EMBEDDING, BLOCK, LOSS = "E", "t", "L"  # tokens of --pipeline-model-parallel-layout


def chunk_tokens(launch: Launch) -> tuple[str, ...]:
    """Layers of every chunk in model order, a token each; chunk c runs on stage c % pp, as Megatron
    reads them too."""
    first, last = launch.layers[0], launch.layers[-1]
    names = {first: EMBEDDING, last: LOSS}
    return tuple(
        "".join(names.get(layer, BLOCK) for layer in chunk.layers) for chunk in launch.plan.stages
    )


def is_even(launch: Launch) -> bool:
    """Whether chunks have equally many blocks, and the first and last the ends: Megatron's split
    without a layout."""
    chunks = chunk_tokens(launch)
    return (
        len({chunk.count(BLOCK) for chunk in chunks}) == 1
        and EMBEDDING in chunks[0]
        and LOSS in chunks[-1]
    )


def layout_string(launch: Launch) -> str:
    """The layout, such as ``Et*11|t*12|t*11L``: stages split by bars, what repeats written once."""
    return "|".join(
        "".join(_run(token, len([*run])) for token, run in groupby(chunk))
        for chunk in chunk_tokens(launch)
    )


def _run(token: str, times: int) -> str:
    return f"{token}*{times}" if times > 1 else token
