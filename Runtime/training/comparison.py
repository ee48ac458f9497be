"""Whether a plan trains the model that one process would train: the same steps with torch's own modules, loss and Adam."""

from __future__ import annotations

from pathlib import Path

import torch

from GraphExtractor.custom_operators import FusedRmsNorm
from GraphExtractor.forward_trace import input_shapes, mean_cross_entropy, plain_operators, real_model
from GraphExtractor.models.base import ModelFamily
from Runtime.training.batches import Batches, read_text
from Runtime.training.checkpoints import FOLDER, stage_weights
from Runtime.training.divided_weights import division_of
from Runtime.training.job import CHECKED_STEPS, SYNTHETIC, Job
from Runtime.training.records import CheckRecord, JobRecord
from Runtime.training.stage_program import rms_norm
from Runtime.training.weights import Weight, initial

TOLERANCE = 1e-6  # relative, of fp32


def compare(job: Job, record: JobRecord, family: ModelFamily) -> CheckRecord:
    """Compare the first steps of a run, whose weights were kept, with those of one process."""
    losses, reference = train_alone(job, family, CHECKED_STEPS)
    folder = job.folder / FOLDER / f"step-{CHECKED_STEPS:06d}"
    measured = [step.loss for step in record.steps[:CHECKED_STEPS]]
    loss = max(abs(one - other) / abs(other) for one, other in zip(measured, losses, strict=True))
    worst, name = 0.0, ""
    for key, difference in _differences(job, folder, family, reference):
        if difference >= worst:
            worst, name = difference, key
    return CheckRecord(CHECKED_STEPS, loss, worst, name, TOLERANCE)


def _differences(job: Job, folder: Path, family: ModelFamily, reference: dict[str, torch.Tensor]) -> list[tuple[str, float]]:
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
    return float((one.double() - other.double()).abs().max() / other.double().abs().max())


def train_alone(job: Job, family: ModelFamily, steps: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and final parameters of ``steps`` of the whole model in this process, without any of what cuts it."""
    key, settings = job.key(), job.optimization
    model = real_model(family, key)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(Weight(name, parameter.shape, parameter.shape, None), job.seed, parameter.dtype, 1, 0))
    for path, module in list(model.named_modules()):
        if isinstance(module, FusedRmsNorm):
            model.set_submodule(path, _Norm(module.weight))
    adam = torch.optim.Adam(
        model.parameters(), settings.learning_rate, (settings.beta1, settings.beta2), settings.epsilon, foreach=False
    )
    text = read_text(None if job.data == SYNTHETIC else job.data, family, job.plan.sequence_length)
    batches = Batches(family, input_shapes(family, key), job.plan.global_batch_size, job.seed, text)
    losses = []
    with plain_operators():
        for step in range(1, steps + 1):
            batch, total = batches.step(step), 0.0
            adam.zero_grad()
            for first in range(0, job.plan.global_batch_size, job.micro_batch_rows):
                rows = {name: value[first : first + job.micro_batch_rows] for name, value in batch.items()}
                loss = family.loss(model, rows, mean_cross_entropy) / job.micro_batches
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            adam.step()
            losses.append(total)
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


class _Norm(torch.nn.Module):  # type: ignore[misc]
    """The norm that ``FusedRmsNorm`` stands for."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        return rms_norm(x, self.weight)[0]
