"""Records of a validation: what was predicted of measured runs, and how far off that is."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Breakdown, Iteration, TimeInterval


@dataclass(frozen=True)
class Assumption:
    """What a rule (``UsedRule.name``) filled in where a run says nothing."""

    rule: str
    value: str


@dataclass(frozen=True)
class RunPlan:
    """What a prediction was made for; a model by its dimensions."""

    model: str
    sequence_length: int
    device: str
    software: str
    cluster: str
    degrees: UniformPlan
    experts: bool = False


@dataclass(frozen=True)
class MemoryParts:
    """What fills the fullest ``stage``, counted from 1, of a device that has ``capacity_bytes``.

    ``over_bytes`` is what is too much. ``state_bytes`` are weights, gradients and the optimizer's,
    ``activation_bytes`` what is kept for backward passes, ``buffer_bytes`` temporaries, what
    allocators waste, and the framework's own.
    """

    stage: int
    capacity_bytes: float
    over_bytes: float
    state_bytes: float
    activation_bytes: float
    buffer_bytes: float

    @staticmethod
    def of(iteration: Iteration, capacity_bytes: float) -> MemoryParts:
        """Of the fullest stage of ``iteration``."""
        stages = iteration.stages
        place = max(range(len(stages)), key=lambda each: stages[each].memory_bytes)
        stage = stages[place]
        return MemoryParts(
            stage=place + 1,
            capacity_bytes=capacity_bytes,
            over_bytes=max(stage.memory_bytes - capacity_bytes, 0.0),
            state_bytes=stage.parameter_state_bytes,
            activation_bytes=stage.activation_bytes,
            buffer_bytes=stage.memory_bytes - stage.parameter_state_bytes - stage.activation_bytes,
        )


@dataclass(frozen=True)
class Unstated:
    """What a run does not say and a choice was made of: ``settings``, of so many ``plans`` that fit
    in memory.

    The slowest of these takes ``slowest`` times as long as the one that was taken, the fastest
    ``fastest`` times.
    """

    settings: tuple[str, ...]
    plans: int
    fastest: float
    slowest: float


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """Of ``predicted`` to ``measured``, as a fraction; None where one of them is not known."""
    return None if predicted is None or measured is None else predicted / measured - 1


@dataclass(frozen=True)
class RunResult:
    """A run and its prediction. ``error`` is predicted / measured - 1; ``reason`` says why a run
    was skipped, else it is empty.

    ``fits`` says whether the plan fits in the device's memory; the run did, so False is an error of
    the memory model, which ``memory`` explains. ``unstated`` is what had to be chosen,
    ``time_intervals`` where the run is expected to be measured. ``plan_file`` is the file of a plan
    whose stages differ, which has no ``plan``.
    """

    line: int
    source: str
    model: str
    devices: int | None
    measured_s: float | None = None
    predicted_s: float | None = None
    error: float | None = None
    measured_memory_bytes: float | None = None
    predicted_memory_bytes: float | None = None
    memory_error: float | None = None
    fits: bool | None = None
    plan: RunPlan | None = None
    plan_file: str = ""
    breakdown_s: Breakdown | None = None
    assumptions: tuple[Assumption, ...] = ()
    reason: str = ""
    memory: MemoryParts | None = None
    unstated: Unstated | None = None
    time_intervals: tuple[TimeInterval, ...] = ()

    @property
    def degrees(self) -> UniformPlan | None:
        """How the run was trained; None where its stages differ, or nothing was predicted."""
        return None if self.plan is None else self.plan.degrees

    @property
    def skipped(self) -> bool:
        """No prediction was made."""
        return bool(self.reason)


@dataclass(frozen=True)
class Statistics:
    """How far predictions are off. ``rows`` were predicted, ``skipped`` were not. Fractions; None
    where not defined.

    ``time_mape`` is the mean of abs(predicted / measured - 1) and ``time_bias`` the mean of
    predicted / measured - 1 of the iteration times, ``memory_mape`` the first of the memory.
    ``spearman`` is the rank correlation of predicted and measured times within a model of a source,
    averaged over the models with at least three runs of different times, weighted by their runs.
    ``fitted`` tells which constants were fitted to runs of this source; all others are predictions.
    """

    source: str
    rows: int
    skipped: int
    time_mape: float | None
    time_bias: float | None
    spearman: float | None
    memory_mape: float | None
    fitted: str = ""


@dataclass(frozen=True)
class UsedRule:
    """A stated rule, why it holds, and for how many runs it was needed."""

    name: str
    says: str
    reason: str
    runs: int


@dataclass(frozen=True)
class ValidationReport:
    """Predictions against measured runs: overall, by source, run by run, and the rules that filled
    in what runs do not say.

    ``unread`` are columns of the file that nothing reads.
    """

    file: str
    overall: Statistics
    sources: tuple[Statistics, ...]
    runs: tuple[RunResult, ...]
    rules: tuple[UsedRule, ...]
    unread: tuple[str, ...] = ()

    @property
    def not_fitting(self) -> int:
        """Runs whose plan is predicted not to fit in the device's memory, though they ran."""
        return sum(run.fits is False for run in self.runs)

    def not_fitting_of(self, source: str) -> int:
        """Those of a source."""
        return sum(run.fits is False for run in self.runs if run.source == source)

    def worst(self, count: int) -> tuple[RunResult, ...]:
        """The ``count`` runs predicted worst, the worst first."""
        predicted = [run for run in self.runs if run.error is not None]
        return tuple(sorted(predicted, key=lambda run: -abs(run.error or 0.0))[:count])
