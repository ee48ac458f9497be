"""What a run leaves out, from the other rows of its source: people describe the runs of one table
by one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from phaze.validation.assumptions import Notes
from phaze.validation.typed_run import TypedRun
from phaze_common.choices import Recompute

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
        _filled(run, mine, described, _others(run, runs))
        for run, mine, described in zip(runs, notes, own, strict=True)
    )


def _filled(run: TypedRun, notes: Notes, described: bool, others: Sequence[TypedRun]) -> TypedRun:
    of_model = [each for each in others if each.model == run.model]
    if run.micro_batch_size is None:
        size = _agreed(of_model, _micro_batch)
        if size is not None and _divides(size, run):
            notes.assume("micro_batch", f"{size}, as the other rows of its source")
            run = replace(run, micro_batch_size=size)
    if run.recompute is None and not described:
        stated = [each for each in of_model if each.recompute is not None]
        mode = _agreed(stated or others, _recompute)
        if mode is not None:
            notes.assume("recompute", f"{mode.value}, as the other rows of its source")
            run = replace(run, recompute=mode)
    return run


def _others(run: TypedRun, runs: Iterable[TypedRun]) -> list[TypedRun]:
    return [each for each in runs if each is not run and each.source == run.source and run.source]


def _agreed(others: Iterable[TypedRun], of: Callable[[TypedRun], Value | None]) -> Value | None:
    stated = {value for each in others if (value := of(each)) is not None}
    return stated.pop() if len(stated) == 1 else None


def _micro_batch(run: TypedRun) -> int | None:
    return run.micro_batch_size


def _recompute(run: TypedRun) -> Recompute | None:
    return run.recompute


def _divides(size: int, run: TypedRun) -> bool:
    replicas = run.degrees.dp or 1
    return (
        run.global_batch_samples is not None and run.global_batch_samples % (size * replicas) == 0
    )
