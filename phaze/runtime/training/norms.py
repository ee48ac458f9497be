"""Norms over rows (batch norms) in one process that stands for a plan: each normalises the rows
that the plan's replicas do.

A replica of a stage normalises its own rows of a micro-batch, as data-parallel trainings do unless
they exchange statistics. What a plan trains therefore depends on how its stages split rows, and the
one process that it is compared with has to split them alike, norm by norm: stages of different dp
split the same micro-batch differently. Slices of rows are contiguous, replicas in order.
"""

from __future__ import annotations

import torch

from GraphExtractor.forward_trace import trace_forward
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.torch_internals import BatchNorm
from phaze.runtime.training.job import Job
from phaze.runtime.training.stage_program import stages_of_layers


class _InSlices(torch.nn.Module):  # type: ignore[misc]
    """Normalises every ``rows`` of a micro-batch, of shape (rows of all replicas, channels, ...),
    by themselves."""

    def __init__(self, norm: BatchNorm, rows: int) -> None:
        super().__init__()
        self.norm, self.rows = norm, rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        return torch.cat([self.norm(part) for part in x.split(self.rows)])


def normalise_as_replicas(model: torch.nn.Module, family: ModelFamily, job: Job) -> None:
    """Let each batch norm of ``model``, the whole one, normalise what a replica of its stage does;
    parameters' names change."""
    if not family.couples_rows or all(stage.degrees.dp == 1 for stage in job.plan.stages):
        return
    norms = {
        path: module for path, module in model.named_modules() if isinstance(module, BatchNorm)
    }
    stages = _stages_of_parameters(model, family, job)
    for path, norm in norms.items():
        rows = job.plan.stages[stages[f"{path}.weight"]].degrees.micro_batch_size
        model.set_submodule(path, _InSlices(norm, rows))


def _stages_of_parameters(model: torch.nn.Module, family: ModelFamily, job: Job) -> dict[str, int]:
    """The first stage that reads each parameter."""
    trace = trace_forward(model, family, job.key())
    stages = stages_of_layers(job.plan, trace.layers)
    return {
        name: min(stages[trace.layer[user]] for user in node.users if user in trace.layer)
        for node, name in trace.parameters.items()
    }
