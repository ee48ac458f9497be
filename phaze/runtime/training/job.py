"""What is to be trained, and what is refused before anything is started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from Estimator.plans.degrees import Degrees
from Estimator.plans.offload import NOTHING
from Estimator.plans.plan import Plan, Stage
from GraphExtractor.graph import GraphKey, TensorLayout
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import find_model
from phaze.runtime.training.divided_weights import divided_family
from phaze.runtime.training.places import StagePlace
from phaze_common.choices import PipelineSchedule
from phaze_common.errors import InputError
from phaze_common.recompute_modules import RecomputedModules

DTYPES = ("float32", "float64")
EXACT = "float64"  # rounds by far less than what a check allows
CHECKPOINTS = "checkpoints"
SYNTHETIC = "synthetic"
CHECKED_STEPS = 3
OPTIMIZERS = ("adam",)
DENSEST_ZERO_STAGE = 3


@dataclass(frozen=True)
class Optimization:
    """Settings of Adam; gradients whose norm over all parameters is above ``clip`` are shrunk to
    it.

    ``epsilon`` is that of Touvron et al. 2023 (Llama 2), section 2: elements whose gradient is
    nothing but rounding, such as the biases of keys, then stay where they are in any layout.
    """

    learning_rate: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-5
    clip: float = 1.0


@dataclass(frozen=True)
class Job:
    """A plan to train: ``steps`` in all, on ``data`` (synthetic, or the path of a text), writing to
    ``folder``.

    Every ``checkpoint_every`` steps (0: never) and at the step of the check all that is needed to
    go on is kept; ``resume`` is a checkpoint to go on from. ``traced`` of the last steps are drawn
    as a timeline.
    """

    plan: Plan
    steps: int
    folder: Path
    data: str = SYNTHETIC
    dtype: str = "float32"
    seed: int = 0
    optimization: Optimization = Optimization()
    check: bool = False
    checkpoint_every: int = 0
    resume: Path | None = None
    traced: int = 2

    @property
    def processes(self) -> int:
        """How many the plan needs."""
        return sum(place.dp * place.tp for place in self.places)

    @property
    def micro_batch_rows(self) -> int:
        """Rows of a micro-batch on all replicas of a stage together."""
        return self.plan.stages[0].degrees.rows

    @property
    def micro_batches(self) -> int:
        """Of a step."""
        return self.plan.global_batch_size // self.micro_batch_rows

    @property
    def places(self) -> tuple[StagePlace, ...]:
        """The stages' processes."""
        return places_of(self.plan)

    def key(self, stage: int | None = None) -> GraphKey:
        """What is traced for a stage, or for one process that trains the whole model."""
        if stage is None:
            rows, tp = self.micro_batch_rows, 1
        else:
            degrees = self.plan.stages[stage].degrees
            rows, tp = degrees.micro_batch_size, degrees.tp
        cuts = self.plan.stage_cuts
        return GraphKey(
            self.plan.model, rows, self.plan.sequence_length, tp, dtype=self.dtype, cuts=cuts
        )

    def checkpoint(self, step: int) -> Path:
        """The checkpoint of ``step``."""
        return self.folder / CHECKPOINTS / f"step-{step:06d}"

    @property
    def checked_weights(self) -> Path:
        """Where the weights are kept that a check compares."""
        return self.folder / "check" / self.dtype

    @property
    def exact(self) -> Job:
        """The steps of the check alone, in ``EXACT``."""
        return replace(self, dtype=EXACT, steps=CHECKED_STEPS, checkpoint_every=0, traced=0)

    @property
    def alone(self) -> Job:
        """The same training by one process that holds the whole model."""
        first = self.plan.stages[0]
        layers = tuple(layer for stage in self.plan.stages for layer in stage.layers)
        rows = self.micro_batch_rows
        degrees = replace(first.degrees, tp=1, dp=1, micro_batch_size=rows, zero_stage=0)
        whole = Stage(layers, replace(degrees, offload=NOTHING))
        return replace(self, plan=replace(self.plan, stages=(whole,)))


def places_of(plan: Plan) -> tuple[StagePlace, ...]:
    """The stages' processes, stages in order."""
    places, first = [], 0
    for number, stage in enumerate(plan.stages):
        degrees = stage.degrees
        places.append(StagePlace(number, first, degrees.dp, degrees.tp, degrees.micro_batch_size))
        first += degrees.dp * degrees.tp
    return tuple(places)


def check_job(job: Job, most_processes: int) -> ModelFamily:
    """The model's family, where the plan can be trained here.

    Raises: InputError: the plan needs more processes than allowed, its rows do not divide, or it
        asks for what is not built.
    """
    family = find_model(job.plan.model)
    if job.dtype not in DTYPES:
        raise InputError(f"dtype {job.dtype!r} is unknown; give one of {', '.join(DTYPES)}")
    if job.steps < 1:
        raise InputError(f"steps is {job.steps}; give at least 1")
    if job.check and job.resume is not None:
        raise InputError(
            "a check compares the first steps, which a resumed training does not run; leave out "
            "--check or --resume"
        )
    if job.check and job.steps < CHECKED_STEPS:
        raise InputError(
            f"the check compares {CHECKED_STEPS} steps, but only {job.steps} are to be trained; "
            f"give --steps {CHECKED_STEPS}"
        )
    if not job.plan.stages:
        raise InputError("the plan has no stages; give the best.json of a run")
    _check_plan(job.plan, family)
    if job.processes > most_processes:
        raise InputError(
            f"the plan needs {job.processes} processes, but at most {most_processes} are allowed; "
            f"give --processes {job.processes}, or another plan"
        )
    return family


def _check_plan(plan: Plan, family: ModelFamily) -> None:
    if plan.optimizer not in OPTIMIZERS:
        raise InputError(
            f"the plan's optimizer is {plan.optimizer}, but training knows "
            f"{', '.join(OPTIMIZERS)}; search with it"
        )
    if plan.schedule is PipelineSchedule.INTERLEAVED:
        raise InputError(
            f"the plan's schedule is interleaved ({plan.interleave} chunks per stage), which is "
            "not built; use 1f1b or gpipe"
        )
    if not family.described:
        raise InputError(
            f"{plan.model} is a model of one's own, whose data nobody knows; train a listed model, "
            "one by dimensions, or a config.json that a family reads (of ResNets: bottlenecks, "
            "hidden_sizes 4, 8, 16 and 32 times embedding_size)"
        )
    if family.experts:
        raise InputError(
            f"{plan.model} has experts, whose training is not built; give a model without"
        )
    if plan.state_formats:
        raise InputError(
            f"the plan has {plan.state_formats}, but training keeps all state in the format of "
            "its weights; give a plan without"
        )
    rows = plan.stages[0].degrees.rows
    for number, stage in enumerate(plan.stages):
        where, degrees = f"stage {number} of the plan", stage.degrees
        if not stage.layers:
            raise InputError(f"{where} has no layers; give it some, or leave it out")
        if min(degrees.dp, degrees.micro_batch_size, degrees.tp) < 1:
            raise InputError(
                f"{where} has dp {degrees.dp}, tp {degrees.tp} and micro-batches of "
                f"{degrees.micro_batch_size}; give at least 1"
            )
        if degrees.rows != rows:
            raise InputError(
                f"{where} works on micro-batches of {degrees.micro_batch_size} x dp {degrees.dp} "
                f"= {degrees.rows} rows, stage 0 on {rows}; give all stages the same product"
            )
        _check_degrees(degrees, where)
        if degrees.tp > 1:
            divided_family(family, plan.model, degrees.tp)
    if plan.global_batch_size % rows:
        raise InputError(
            f"the plan's global batch of {plan.global_batch_size} does not divide into "
            f"micro-batches of {rows} rows; give a multiple of {rows}"
        )


def _check_degrees(degrees: Degrees, where: str) -> None:
    if degrees.layout is not TensorLayout.ONE_D:
        raise InputError(f"{where} has a 2d layout, which is not built; use a 1d one")
    if degrees.cp > 1 or degrees.ep > 1:
        raise InputError(
            f"{where} has cp {degrees.cp} and ep {degrees.ep}, which are not built; use 1 of both"
        )
    if degrees.sequence_parallel and degrees.tp > 1:
        raise InputError(f"{where} has sequence parallelism, which is not built; use none")
    if degrees.offload:
        raise InputError(
            f"{where} keeps {degrees.offload} in host memory, which training does not do; give a "
            "plan without offload"
        )
    if isinstance(degrees.recompute, RecomputedModules):
        raise InputError(
            f"{where} recomputes {degrees.recompute}, which is not built; use recompute none, "
            "selective or full"
        )
    if not 0 <= degrees.zero_stage <= DENSEST_ZERO_STAGE:
        raise InputError(f"{where} has zero_stage {degrees.zero_stage}; it must be 0, 1, 2 or 3")
