"""Records of what a search answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.design_space import DesignSpace
from Estimator.devices.device import Device
from Estimator.devices.software import Software
from Estimator.network.cluster import Cluster
from Estimator.plans.results import Status
from phaze_common.choices import Combine
from Solver.chip_records import ChipReport
from Solver.front_records import ModelFront
from Solver.plan_report import PlanReport, PlanSummary
from Solver.problem import Objective

# of a memory: allocators leave gaps, and what a framework keeps for itself varies by some per cent
MOST_SHARE = 0.95
MEETS = 1e-9  # relative: what rounding leaves between a bound and the plan that meets it


@dataclass(frozen=True)
class Limit:
    """What more of one resource would bring on the same hardware, its plan chosen anew; gains are
    fractions of the objective.

    ``amount`` of ``unit`` is given. ``one_more_gain`` is for one unit more, ``unlimited_gain`` for
    any amount: where that is nothing, the resource does not bind. ``words`` say it in a sentence.
    """

    resource: str  # what there could be more of
    unit: str
    amount: float
    one_more_gain: float
    unlimited_gain: float
    words: str

    @property
    def binds(self) -> bool:
        """Whether more of it would change the answer."""
        return self.unlimited_gain > 1e-9


@dataclass(frozen=True)
class AxisValue:
    """The best design that has one value of an axis, all else chosen anew.

    It reaches ``reached``, and none with this value more than ``bound``: the same where the status
    is optimal, both 0 where no plan fits. ``accelerator`` is None on a device that exists;
    ``hbm_bytes`` are the least of the study that hold the plans.
    """

    value: str  # of the axis, as text
    status: Status  # how the search of it ended
    reached: float
    bound: float
    accelerator: Accelerator | None
    hbm_bytes: int
    plans: dict[str, PlanSummary]  # of each model


class AxisScope(StrEnum):
    """What values of an axis are compared among: everything else may be another there."""

    DESIGNS = "all accelerators of the space with all plans"
    PLANS_ON_THE_CHIP = "plans on the best accelerator alone"
    PLANS_ON_THE_DEVICE = "plans on the given device"


@dataclass(frozen=True)
class AxisValues:
    """What every value of one axis allows, in the axis's order; the optimum has the value
    ``chosen``.

    Axes of the accelerator (fields of ``Accelerator``, and ``hbm_bytes``) are about whole designs,
    in units of the objective, and have no ``model``. Axes of the plan are
    about the fastest plan of ``model`` on the best hardware, in samples per second; ``scope`` says
    so (None in records of before). Of ``values_there_are`` some are left out where they are many.
    """

    axis: str  # name of the axis
    model: str | None
    chosen: str
    values_there_are: int
    values: tuple[AxisValue, ...]  # one by one
    scope: AxisScope | None = None

    @property
    def optimum(self) -> AxisValue:
        """That of the value which the optimum has."""
        return next(each for each in self.values if each.value == self.chosen)


@dataclass(frozen=True)
class HeterogeneousAnswer:
    """What stages that differ bring a model on a device that exists.

    ``best`` is the fastest such plan where it beats ``uniform_time_per_batch_s``, that of the
    fastest plan of stages alike (None: none fits). No plan of either kind takes less than
    ``time_per_batch_bound_s`` (of stages that differ, those described by ``omitted`` aside).
    Compared were stages of ``options`` kinds, over so many ``row_counts`` of a micro-batch.
    """

    model: str  # as it was named
    hbm_bytes: int
    status: Status  # how the search of it ended
    best: PlanReport | None
    uniform_time_per_batch_s: float | None
    time_per_batch_bound_s: float | None
    row_counts: int
    options: int
    omitted: str = ""

    @property
    def least_s(self) -> float | None:
        """Seconds per batch of the fastest plan of either kind; None where none fits."""
        return self.uniform_time_per_batch_s if self.best is None else self.best.time_per_batch_s

    @property
    def meets_bound(self) -> bool:
        """Whether no plan that was compared is faster, up to rounding."""
        least_s, bound_s = self.least_s, self.time_per_batch_bound_s
        return least_s is not None and bound_s is not None and bound_s >= least_s * (1.0 - MEETS)

    @property
    def over_uniform(self) -> float | None:
        """How many times as fast as the fastest plan of stages alike the best one is."""
        if self.best is None or self.uniform_time_per_batch_s is None:
            return None
        return self.uniform_time_per_batch_s / self.best.time_per_batch_s


@dataclass(frozen=True)
class ScheduleConfirmation:
    """One layer of a best design, solved again as the ILP by an independent solver."""

    model: str  # as it was named
    layer: str  # by name
    graph: str  # forward | backward | backward_selective
    native_makespan_s: float  # of the native solver
    ilp_makespan_s: float  # of the ILP
    ilp_gap: float  # that the ILP solver left, a fraction
    ilp_solver: str  # that solved it
    agrees: bool  # whether both are equal, to rounding


@dataclass(frozen=True)
class Certificate:
    """Why the design point is called optimal: no other point can reach it, and its schedules were
    solved again as ILPs.

    ``best_open_bound`` is the best objective that any point not evaluated could have had (None: all
    were, or were dominated).
    """

    best_open_bound: float | None
    schedules: tuple[ScheduleConfirmation, ...]  # schedules of the best design, solved again


@dataclass(frozen=True)
class HardwareRecords:
    """Hardware by value, as files described it: a ``device``, or the ``space`` of accelerators with
    the platform they share.

    ``cluster`` has the devices in use. ``solver`` schedules the operators of accelerators.
    """

    cluster: Cluster
    software: Software  # the training framework
    device: Device | None
    space: DesignSpace | None
    solver: str


@dataclass(frozen=True)
class HardwareReport:
    """What runs the plans: ``device`` as it was named, or the ``accelerator`` that was designed
    (None where none fits).

    Cluster, framework and design space are as they were named; ``records`` are what these names
    stood for, so that a plan is priced again without them.
    """

    title: str  # as people read it
    device: str | None
    accelerator: Accelerator | None
    memory_bytes: float
    cluster: str  # as it was named
    software: str  # the training framework
    design_space: str | None  # as it was named
    records: HardwareRecords


@dataclass(frozen=True)
class DesignPoint:
    """Hardware with the plan of every model on it; ``accelerator`` is None on a device that
    exists."""

    status: Status  # how the search of it ended
    optimal: bool  # whether nothing in the space is better, proven
    objective: Objective  # what was maximised
    value: float  # the objective that is reached
    accelerator: Accelerator | None
    hbm_bytes: int
    models: dict[str, PlanReport]  # the plan of each model, by name
    certificate: Certificate | None  # why the answer is called optimal
    limits: tuple[Limit, ...] = ()  # of the optimum over everything; not stated for others
    axes: tuple[AxisValues, ...] = ()  # of the optimum over everything
    combine: Combine | None = None  # of several models: what ``value`` is
    chip: ChipReport | None = None  # of an accelerator with memory as it is sold


@dataclass(frozen=True)
class TightMemory:
    """What it costs to leave room: the optimum fills ``used_share`` of a device's memory, more than
    ``most_share``.

    ``runner_up`` is the best design on the same hardware that uses at most that much (None: nothing
    fits in it).
    """

    used_share: float
    most_share: float
    runner_up: DesignPoint | None


@dataclass(frozen=True)
class ReferencePoint:
    """A known chip scored by the same model, with the best plan on it."""

    name: str
    source: str
    status: Status  # how the search of it ended
    accelerator: Accelerator  # the chip
    hbm_bytes: int
    value: float  # the objective that is reached
    best_over_reference: float | None  # how many times its objective the best design reaches
    models: dict[str, PlanReport]  # the plan of each model, by name


@dataclass(frozen=True)
class Counts:
    """Design points (see ``point_meaning`` in the manifest): what became of them adds up to the
    space.

    ``plans`` are those compared for a configuration, over all shapes and models; of the points that
    were pruned ``unlisted`` are shapes whose plans a bound had closed before they were listed and
    counted.
    """

    space: int  # all of them
    evaluated: int  # points whose best plan was found
    dominated: int  # another accelerator is no worse in every layer's time, in area and in energy
    pruned: int  # points that a bound closed
    infeasible: int  # points of which no plan fits
    plans: int
    unlisted: int = 0

    @property
    def complete(self) -> bool:
        """Whether every point of the space is accounted for."""
        return self.evaluated + self.dominated + self.pruned + self.infeasible == self.space


@dataclass(frozen=True, kw_only=True)
class SizeRow(PlanSummary):
    """The best hardware of one model for one memory size and micro-batch size (a row of the result
    table), with its plan where there is one."""

    model: str  # as it was named
    hbm_bytes: int
    status: Status  # how the search of it ended
    value: float  # the objective that is reached
    accelerator: Accelerator | None  # the chip
    reason: str  # why there is none, or empty


@dataclass(frozen=True)
class AxisBounds:
    """By axis of the accelerators and value what no design with it exceeds, under the objective; 0
    where none fits.

    ``tied`` is whether vector cores are as wide as tensor cores, and have no axis of their own.
    """

    most: dict[str, dict[str, float]]  # by axis and value, the most that a design with it reaches
    tied: bool

    @property
    def several(self) -> tuple[str, ...]:
        """Axes that have several values."""
        return tuple(
            axis
            for axis, most in self.most.items()
            if len(most) > 1 and not (self.tied and axis == "width_vc")
        )


@dataclass(frozen=True)
class PartReport:
    """What is known of a part of a space that was searched by itself.

    No design on one of its ``chips`` exceeds ``bound``, and none that was not evaluated
    ``open_bound``; 0 where none fits. ``shapes`` are the numbers of the shapes of plans that might
    be best on a chip which bounds left.
    """

    part: str  # a ``SpacePart``
    chips: int
    bound: float
    open_bound: float
    axis_bounds: AxisBounds  # what no design of the part exceeds, by axis and value
    shapes: tuple[int, ...]


@dataclass(frozen=True)
class PlansInNoise:
    """How many ``plans`` on the best hardware are less than ``noise``, a share, slower than the
    best, as far as is known.

    Of so many of them the best stages were ``found``; of ``closed_shapes`` nothing but one bound is
    known, which is that near. ``alike`` is what all of the plans have in common, ``varied`` what
    they differ in, by setting.
    """

    noise: float
    plans: int
    found: int
    alike: dict[str, str]
    varied: dict[str, tuple[str, ...]]
    closed_shapes: int


@dataclass(frozen=True)
class SearchResult:
    """The answer to a study. ``best`` is the optimum over everything, ``per_hbm`` the optimum for
    each memory size.

    ``own_best`` is the most that each of several models reaches alone, with any hardware that was
    searched.
    """

    study: str  # name of the run
    status: Status  # how the search of it ended
    hardware: HardwareReport  # what runs the plans, by value too
    best: DesignPoint | None
    per_hbm: tuple[DesignPoint, ...]
    rows: tuple[SizeRow, ...]  # the best for each model, memory size and micro-batch size
    references: tuple[ReferencePoint, ...]  # known chips, priced the same way
    counts: Counts  # what became of the design points
    run_directory: str  # where the files are
    reason: str = ""  # why nothing is feasible
    tight_memory: TightMemory | None = None  # where the optimum leaves little of it
    heterogeneous: HeterogeneousAnswer | None = (
        None  # where plans whose stages differ were asked for
    )
    own_best: dict[str, float] = field(default_factory=dict)
    part: PartReport | None = None  # where a part of the space was searched
    in_noise: PlansInNoise | None = None  # of one model on devices that exist
    fronts: tuple[ModelFront, ...] = ()  # of chips, where one over several axes was certified


@dataclass(frozen=True)
class SpaceSize:
    """What a study would evaluate (``--dry-run``); ``plans`` is None where only a trace tells how
    many layers a model has.

    ``parts`` are those that the space is divided into, the largest of ``largest_part``
    accelerators; None: it is not.
    """

    configurations: int
    memory_sizes: int
    micro_batch_sizes: int
    models: int
    shapes: int
    points: int
    plans: int | None
    parts: int | None = None
    largest_part: int | None = None
