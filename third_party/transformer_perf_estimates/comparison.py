"""A question under both physics: the best plan of each, each of them priced by the other, and where
their seconds go."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from Estimator.devices.operator_cost import DeviceModel
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.plan import Plan, plan_mapping
from Estimator.plans.results import Status
from phaze.settings.problem import hardware_report
from phaze.settings.request import Request, StatedChunks
from phaze.studies.context import search_context
from phaze.studies.evaluation import evaluation_of, prepared
from phaze_common.errors import InputError
from phaze_common.progress import Progress, SilentProgress
from phaze_common.setting_fields import Mode
from phaze_common.units import GIGA
from Solver.designs.search import search as search_plans
from Solver.results import SearchResult

from .configurations import MICRO_BATCH_SIZES, Configuration, Configurations
from .corrections import CORRECTED, Corrections
from .estimates import Estimate, estimate_at
from .own_parts import Parts, own_parts, published_parts
from .own_requests import SOURCE, OwnQuestion
from .search import search
from .totals import estimate


@dataclass(frozen=True)
class Price:
    """An iteration under one physics: seconds, bytes of the fullest GPU, whether it fits, and where
    both go."""

    seconds: float
    memory_bytes: float
    feasible: bool
    parts: Parts


@dataclass(frozen=True)
class PricedPlan:
    """A plan under both; where one of them cannot express it None, with the reason. ``stages`` are
    its layers by stage."""

    configuration: Configuration | None
    plan: Plan | None
    published: Price | None
    own: Price | None
    refused: str = ""

    @property
    def stages(self) -> tuple[int, ...]:
        """Layers of every stage, embedding and head counted, under our own physics."""
        return () if self.plan is None else tuple(len(stage.layers) for stage in self.plan.stages)


@dataclass(frozen=True)
class Comparison:
    """The best plan of transformer-perf-estimates and ours, None where nothing fits, with what was
    compared for them."""

    question: OwnQuestion
    candidates: int
    micro_batch_sizes: tuple[int, ...]  # that our search compares
    searched: SearchResult  # by our search
    published_best: PricedPlan | None
    own_best: PricedPlan | None

    @property
    def proven(self) -> bool:
        """Whether our search proved its answer."""
        return self.searched.status is Status.OPTIMAL


def compare(
    question: OwnQuestion,
    micro_batch_sizes: Sequence[int] = MICRO_BATCH_SIZES,
    corrections: Corrections = CORRECTED,
    progress: Progress | None = None,
) -> Comparison:
    """Ask ``question`` of both; training graphs are extracted where they are not on disk. Raises
    InputError: our physics cannot be asked."""
    request = question.search_request(micro_batch_sizes)
    found = search(question.training, 1, corrections)
    first = [estimate_at(found.estimates, int(place)) for place in found.best]
    result = _searched(request, progress or SilentProgress())
    return Comparison(
        question=question,
        candidates=found.candidates,
        micro_batch_sizes=request.plan.micro_batch_size,
        published_best=_of_published(question, first[0]) if first else None,
        own_best=None if result.best is None else _of_own(question, result, corrections),
        searched=result,
    )


def _searched(request: Request, progress: Progress) -> SearchResult:
    """The answer of our own search, whose points need not outlive it."""
    with tempfile.TemporaryDirectory() as folder:
        passing = replace(request, run_folder=Path(folder) / "run")
        run = search_context(passing, progress)
        return search_plans(run, hardware_report(passing), folder).result


def as_uniform(plan: Plan) -> UniformPlan:
    """``plan``, whose stages are alike, by its degrees and layers."""
    return plan.as_uniform(tuple(layer for stage in plan.stages for layer in stage.layers))


def _of_published(question: OwnQuestion, best: Estimate) -> PricedPlan:
    theirs = _published_price(question, best)
    try:
        request = question.request_of(best.configuration)
    except InputError as error:
        return PricedPlan(best.configuration, None, theirs, None, str(error))
    plan, ours = _own_price(request)
    return PricedPlan(best.configuration, plan, theirs, ours)


def _of_own(question: OwnQuestion, result: SearchResult, corrections: Corrections) -> PricedPlan:
    assert result.best is not None
    (best,) = result.best.models.values()
    plan, ours = _own_price(_request_of(question, best.plan))
    try:
        configuration = question.configuration_of(as_uniform(best.plan))
    except InputError as error:
        return PricedPlan(None, plan, None, ours, str(error))
    theirs = estimate_at(
        estimate(question.training, Configurations.of([configuration]), corrections), 0
    )
    return PricedPlan(configuration, plan, _published_price(question, theirs), ours)


def _request_of(question: OwnQuestion, plan: Plan) -> Request:
    chunk_layers = StatedChunks(tuple(stage.layers for stage in plan.stages), SOURCE)
    return question.resolved(plan_mapping(as_uniform(plan)), Mode.EVALUATE, chunk_layers)


def _own_price(request: Request) -> tuple[Plan, Price]:
    plan, records = prepared(request), request.records
    assert records.device is not None  # a question names one
    answer = evaluation_of(request, plan)
    iteration = answer.iteration
    device = DeviceModel(records.device, records.software, request.plan.precision.matrix_format)
    fits = iteration.status is Status.FEASIBLE
    parts = own_parts(plan, iteration, device).without_residues()
    return answer.plan, Price(iteration.iteration_s, iteration.memory_bytes, fits, parts)


def _published_price(question: OwnQuestion, each: Estimate) -> Price:
    parts = published_parts(each, question.training.system).without_residues()
    return Price(each.seconds, each.memory_gb * GIGA, each.feasible, parts)
