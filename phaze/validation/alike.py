"""What a run leaves out, from the other rows of its source: people describe the runs of one table
by one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from phaze.validation.assumptions import Notes
from phaze.validation.typed_run import TypedRun

Value = TypeVar("Value")


def filled_from_others(
    runs: Sequence[TypedRun], notes: Sequence[Notes], own: Sequence[bool]
) -> tuple[TypedRun, ...]:
    """The runs with micro-batch sizes and recomputation that all other rows of their source agree
    on.

    A micro-batch size is taken from rows of the same model alone and must divide a replica's batch;
    recomputation from any row where none of this model states it, unless the run describes its
    ``own`` in other words.
    """
    return tuple(
        _filled(run, mine, described, [each for each in runs if _shares_source(each, run)])
        for run, mine, described in zip(runs, notes, own, strict=True)
    )


def _shares_source(other: TypedRun, run: TypedRun) -> bool:
    return other is not run and other.source == run.source and bool(run.source)


def _filled(run: TypedRun, notes: Notes, described: bool, others: Sequence[TypedRun]) -> TypedRun:
    of_model = [each for each in others if each.model == run.model]
    if run.micro_batch_size is None:
        size = _agreed(each.micro_batch_size for each in of_model)
        batch = run.global_batch_samples
        if size is not None and batch is not None and batch % (size * (run.degrees.dp or 1)) == 0:
            notes.assume("micro_batch", f"{size}, as the other rows of its source")
            run = replace(run, micro_batch_size=size)
    if run.recompute is None and not described:
        stated = [each for each in of_model if each.recompute is not None]
        modes = {each.recompute for each in stated or others} - {None}
        mode = modes.pop() if len(modes) == 1 else None
        if mode is not None:
            notes.assume("recompute", f"{mode.value}, as the other rows of its source")
            run = replace(run, recompute=mode)
    return run


def _agreed(values: Iterable[Value | None]) -> Value | None:
    stated = {value for value in values if value is not None}
    return stated.pop() if len(stated) == 1 else None
