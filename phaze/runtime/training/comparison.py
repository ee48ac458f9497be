"""Whether a plan trains the model that one process would train: the same steps with torch's own
modules, loss and Adam."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from GraphExtractor.forward_trace import mean_cross_entropy, plain_operators, real_model
from GraphExtractor.models.base import ModelFamily
from phaze.runtime.training.batches import Batches
from phaze.runtime.training.checkpoints import stage_weights
from phaze.runtime.training.divided_weights import division_of
from phaze.runtime.training.job import CHECKED_STEPS, EXACT, Job
from phaze.runtime.training.norms import normalise_as_replicas
from phaze.runtime.training.optimizer import adam_of
from phaze.runtime.training.records import CheckRecord, Difference, JobRecord
from phaze.runtime.training.weights import Weight, initial

TOLERANCE = 1e-6  # relative, of fp32


def check_training(
    job: Job,
    family: ModelFamily,
    record: JobRecord | None,
    agreed: Callable[[bool], bool],
    train_again: Callable[[Job], JobRecord | None],
) -> CheckRecord | None:
    """Compare a run with one process; where they differ in float32, train again in float64,
    where rounding cannot decide.

    Processes without a ``record`` take part in that once the first one has it so, which ``agreed``
    tells them, and return None.
    """
    try:
        found = None if record is None else compare(job, record, family)
        if not agreed(found is not None and not found.equal and job.dtype != EXACT):
            return found
        exact = train_again(job.exact)
        if found is None or exact is None:
            return None
        first = Difference(
            found.dtype, found.loss_difference, found.parameter_difference, found.parameter
        )
        return replace(compare(job.exact, exact, family), as_trained=first)
    finally:
        if record is not None:
            shutil.rmtree(job.checked_weights.parent, ignore_errors=True)


def compare(job: Job, record: JobRecord, family: ModelFamily) -> CheckRecord:
    """Compare the first steps of a run, whose weights were kept, with those of one process."""
    losses, reference = train_alone(job, family, CHECKED_STEPS)
    measured = [step.loss for step in record.steps[:CHECKED_STEPS]]
    loss = max(
        _of_numbers(abs(one - other) / abs(other))
        for one, other in zip(measured, losses, strict=True)
    )
    worst, name = 0.0, ""
    for key, difference in _differences(job, job.checked_weights, family, reference):
        if difference >= worst:
            worst, name = difference, key
    return CheckRecord(CHECKED_STEPS, loss, worst, name, TOLERANCE, job.dtype)


def _differences(
    job: Job, folder: Path, family: ModelFamily, reference: dict[str, torch.Tensor]
) -> list[tuple[str, float]]:
    found, seen = [], set()
    for place in job.places:
        parts = [stage_weights(folder, place.stage, part) for part in range(place.tp)]
        for name in parts[0]:
            held = [part[name] for part in parts]
            division = division_of(family, name, reference[name].shape, held[0].shape)
            for whole in [division.whole(held)] if division else held:
                found.append((name, _difference(whole, reference[name])))
            seen.add(name)
    return [*found, *((name, torch.inf) for name in reference.keys() - seen)]


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return _of_numbers(
        float((one.double() - other.double()).abs().max() / other.double().abs().max())
    )


def _of_numbers(difference: float) -> float:
    """``difference``; infinite where something compared is no number, as behind a training that
    diverged."""
    if math.isnan(difference):
        return math.inf
    return difference


def train_alone(
    job: Job, family: ModelFamily, steps: int
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and final parameters of ``steps`` of the whole model in this process, without any of
    what cuts it.

    Norms over a batch normalise the rows that the plan's replicas do (``norms``).
    """
    key, settings = job.key(), job.optimization
    model = real_model(family, key)
    parameters = dict(model.named_parameters())
    normalise_as_replicas(model, family, job)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(
                initial(
                    Weight(name, parameter.shape, parameter.shape, None),
                    job.seed,
                    parameter.dtype,
                    1,
                    0,
                )
            )
    adam = adam_of(parameters.values(), settings)
    batches = Batches(job, family)
    losses = []
    with plain_operators():
        for step in range(1, steps + 1):
            batch, total = batches.step(step), 0.0
            adam.zero_grad()
            for first in range(0, job.plan.global_batch_size, job.micro_batch_rows):
                rows = {
                    name: value[first : first + job.micro_batch_rows]
                    for name, value in batch.items()
                }
                loss = family.loss(model, rows, mean_cross_entropy) / job.micro_batches
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(parameters.values(), settings.clip)
            adam.step()
            losses.append(total)
    return losses, {name: parameter.detach() for name, parameter in parameters.items()}
