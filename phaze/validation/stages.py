"""How the layers of a model make equal chunks: the one place in which it is said what counts as a
layer."""

ENDS = 2  # embedding and head, which may take the place of a block each


def equal_chunks(layers: int, chunks: int, *, ends_alone: bool = False) -> tuple[int, ...] | None:
    """Layers per chunk, embedding and head counted, where only so all get equally many; () where
    blocks alone do; else None.

    Blocks are as many as ``layers``. A chunk of embedding or head alone is none, unless
    ``ends_alone``.
    """
    if layers % chunks == 0:
        return ()
    each, rest = divmod(layers + ENDS, chunks)
    return None if rest or each < (1 if ends_alone else 2) else (each,) * chunks


def fewest_chunks(layers: int, stages: int) -> int:
    """Chunks per stage of an interleaved schedule of which nothing else is known: the fewest above
    one that are equal; else 1."""
    for per_stage in range(2, layers // stages + 1):
        if layers % (stages * per_stage) == 0:
            return per_stage
    for per_stage in range(2, layers // stages + 1):
        if equal_chunks(layers, stages * per_stage) is not None:
            return per_stage
    return 1
