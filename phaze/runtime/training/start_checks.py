"""What can only be refused once the model was traced, before any process is started."""

from __future__ import annotations

from GraphExtractor.forward_trace import input_shapes
from GraphExtractor.models.base import ModelFamily
from phaze.runtime.training.batches import check_inputs, read_text
from phaze.runtime.training.job import CHECKPOINTS, Job
from phaze.runtime.training.stage_worker import cut_stage
from phaze_common.errors import InputError


def check_start(job: Job, family: ModelFamily) -> None:
    """Trace the model once and cut it.

    Raises: InputError: the data cannot be read, the stages do not hold each layer once, or the
        model cannot be cut so or
            cannot run on a stage's rows.
    """
    if (
        job.checkpoint_every
        and job.resume is None
        and any((job.folder / CHECKPOINTS).glob("step-*"))
    ):
        raise InputError(
            f"{job.folder} holds checkpoints of an earlier training; go on with it (--resume "
            f"{job.folder}), or give another --output"
        )
    read_text(job, family)
    check_inputs(family, input_shapes(family, job.key()), job.plan.model)
    for stage in range(len(job.plan.stages)):
        family.check(job.key(stage))
    cut_stage(job, family, 0, {})
