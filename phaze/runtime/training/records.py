"""What a training run leaves: steps, and what every process and stage measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from phaze.runtime.training.clock import Activity, Span
from phaze.runtime.training.places import Seat

TRAIN_FOLDER = "train"  # beside the plan's file, unless told otherwise
# a ``TrainRecord``, and the ``JobRecord`` that it is made from
TRAIN_FILE, MEASURED_FILE = ("train.json", "measured.json")


@dataclass(frozen=True)
class StepRecord:
    """A training step: mean loss over its rows, norm of all gradients before clipping, wall
    seconds."""

    step: int  # its number
    loss: float  # mean over the rows of the step
    gradient_norm: float  # of all gradients before clipping
    wall_s: float  # by the wall clock


@dataclass(frozen=True)
class ActivityTime:
    """Seconds of one activity in one step of one process: by the wall clock, and of the processor
    in its thread."""

    activity: Activity  # what the process did
    step: int  # its number
    wall_s: float  # by the wall clock
    processor_s: float  # of the thread


@dataclass(frozen=True)
class ProcessRecord:
    """What one process measured; ``spans`` are those of the last steps, ``kept_bytes`` the most
    that passes in flight kept."""

    rank: int  # of torch.distributed
    stage: int  # its number
    replica: int  # its number
    part: int  # its place in the tensor-parallel group
    times: tuple[ActivityTime, ...]  # by activity and step
    spans: tuple[Span, ...]
    state_bytes: int  # weights, gradients and optimizer state
    kept_bytes: int
    resident_bytes: int  # the most memory that it had


@dataclass(frozen=True)
class JobRecord:
    """A run: its steps, and what its processes measured."""

    steps: tuple[StepRecord, ...]  # of the training
    processes: tuple[ProcessRecord, ...]  # of the training


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage in a step: the median over its processes and over steps behind the first.

    Passes count without what they wait for and without adding up parts of products
    (``communication``, with what the end of a step exchanges); ``idle`` is waiting for tensors of
    other stages. ``*_processor`` is time of the thread: processes that share cores wait for them by
    the wall clock.
    """

    forward_s: float  # seconds of forward passes
    backward_s: float  # seconds of backward passes
    communication_s: float  # seconds of communication between passes and in them
    update_s: float  # seconds of the optimizer's step
    idle_s: float  # seconds of waiting for other stages
    forward_processor_s: float  # processor seconds of forward passes
    backward_processor_s: float  # processor seconds of backward passes


@dataclass(frozen=True)
class PredictedStage:
    """What the plan's file says of a stage in a step (``None``: it says nothing), as of
    ``StageTimes``."""

    forward_s: float | None = None  # seconds of forward passes
    backward_s: float | None = None  # seconds of backward passes
    communication_s: float | None = None  # seconds of communication between passes and in them
    update_s: float | None = None  # seconds of the optimizer's step
    idle_s: float | None = None  # seconds of waiting for other stages
    memory_bytes: float | None = None
    state_bytes: float | None = None  # weights, gradients and optimizer state
    kept_bytes: float | None = None  # the most that passes in flight keep


@dataclass(frozen=True)
class StageRecord:
    """A stage: its layers and degrees, what was measured, and what was predicted.

    ``state_bytes`` are weights, gradients and optimizer state, ``kept_bytes`` what passes in flight
    kept at most, and ``resident_bytes`` the most memory a process had, of the fullest process.
    """

    stage: int  # its number
    layers: tuple[str, ...]  # by name, in order
    dp: int
    tp: int
    zero_stage: int
    recompute: str
    measured: StageTimes  # of its processes
    predicted: PredictedStage  # by the plan's file
    state_bytes: int
    kept_bytes: int
    resident_bytes: int

    @property
    def processor_error(self) -> float | None:
        """Predicted over measured seconds of both passes, less one; measured are those of the
        processor."""
        predicted = self.predicted
        if predicted.forward_s is None or predicted.backward_s is None:
            return None
        measured_s = self.measured.forward_processor_s + self.measured.backward_processor_s
        if measured_s > 0:
            return (predicted.forward_s + predicted.backward_s) / measured_s - 1
        return None


@dataclass(frozen=True)
class Difference:
    """Relative differences of a training in ``dtype`` from that of one process, as of a
    ``CheckRecord``."""

    dtype: str
    loss: float  # largest of losses
    parameter: float  # largest of parameters
    name: str


@dataclass(frozen=True)
class CheckRecord:
    """How far the training is from that of one process with the whole model: relative differences
    after so many steps.

    Of losses the largest, of parameters the largest of |a - b| over the largest |b| of the same
    parameter, which is named. Both trainings are in ``dtype``: that of the run; where the run
    differs by more than the tolerance, which rounding alone may do, float64 decides, and
    ``as_trained`` is what the run itself had.
    """

    steps: int  # of the training
    loss_difference: float  # the largest, relative
    parameter_difference: float  # the largest, relative
    parameter: str  # the one that differs most
    tolerance: float  # that both differences stay within
    dtype: str = "float32"
    as_trained: Difference | None = None

    @property
    def equal(self) -> bool:
        """Whether both are within the tolerance."""
        return max(self.loss_difference, self.parameter_difference) <= self.tolerance


@dataclass(frozen=True)
class TrainRecord:
    """What ``train.json`` holds. ``predicted_step_s`` is that of the plan's file, if it says so."""

    model: str  # as it was named
    processes: int  # of the training
    micro_batches: int  # of a replica in an iteration
    global_batch_size: int  # samples of an iteration, over all replicas
    sequence_length: int  # tokens of a sample
    data: str  # what was trained on
    dtype: str  # number format
    step_s: float  # median seconds of a step, the first left out
    predicted_step_s: float | None
    steps: tuple[StepRecord, ...]  # of the training
    stages: tuple[StageRecord, ...]  # in order
    # of --check: how far this training is from that of one process
    check: CheckRecord | None = None
    notes: tuple[str, ...] = ()  # what the training does otherwise than the plan says


def process_record(
    seat: Seat,
    spans: Sequence[Span],
    last_steps: int,
    state_bytes: int,
    kept_bytes: int,
    resident_bytes: int,
) -> ProcessRecord:
    """The record of one process: what its spans sum up to, and those of the ``last_steps`` as they
    are."""
    steps = sorted({span.step for span in spans})
    times = []
    for step in steps:
        mine = [span for span in spans if span.step == step]
        for activity in Activity:
            chosen = [span for span in mine if span.activity is activity]
            wall, processor = _summed(chosen)
            if activity in {Activity.FORWARD, Activity.BACKWARD}:  # without what runs within
                inner = [
                    span
                    for span in mine
                    if span.activity is Activity.SHARE
                    and any(_holds(each, span) for each in chosen)
                ]
                less_wall, less_processor = _summed(inner)
                wall, processor = wall - less_wall, processor - less_processor
            times.append(ActivityTime(activity, step, wall, processor))
    if last_steps:
        drawn = tuple(span for span in spans if span.step in steps[len(steps) - last_steps :])
    else:
        drawn = ()
    return ProcessRecord(
        seat.rank,
        seat.place.stage,
        seat.replica,
        seat.part,
        tuple(times),
        drawn,
        state_bytes,
        kept_bytes,
        resident_bytes,
    )


def stage_times(processes: Sequence[ProcessRecord]) -> StageTimes:
    """The medians over the ``processes`` of one stage and their steps, the first left out where
    there are others."""
    first = min(time.step for process in processes for time in process.times)
    last = max(time.step for process in processes for time in process.times)
    counted = [
        time
        for process in processes
        for time in process.times
        if time.step > first or first == last
    ]

    def wall(*activities: Activity) -> float:
        return sum(
            median(time.wall_s for time in counted if time.activity is each) for each in activities
        )

    def processor(activity: Activity) -> float:
        return median(time.processor_s for time in counted if time.activity is activity)

    return StageTimes(
        forward_s=wall(Activity.FORWARD),
        backward_s=wall(Activity.BACKWARD),
        communication_s=wall(Activity.SHARE, Activity.SYNCHRONISE),
        update_s=wall(Activity.UPDATE),
        idle_s=wall(Activity.WAIT),
        forward_processor_s=processor(Activity.FORWARD),
        backward_processor_s=processor(Activity.BACKWARD),
    )


def _summed(spans: Sequence[Span]) -> tuple[float, float]:
    return sum(span.end_ns - span.start_ns for span in spans) / 1e9, sum(
        span.processor_ns for span in spans
    ) / 1e9


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns
