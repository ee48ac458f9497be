"""What a search is asked: models with the plans that are compared for each, and what is to be
maximised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import GraphKey
from GraphExtractor.permission import CodePermission
from phaze_common.choices import Combine, FrontAxis
from phaze_common.choices import Objective as Objective
from Solver.combination import Combination
from Solver.plans.space import PlanSpace


@dataclass(frozen=True)
class ModelProblem:
    """A model, as ``canonical_name`` has it, its weight in the mean of several, and the plans
    compared for it."""

    name: str
    weight: float
    space: PlanSpace

    def graph_key(self, shape: UniformPlan) -> GraphKey:
        """The training graph that plans of ``shape`` start from."""
        return shape.graph_key(self.name, self.space.sequence_length)


@dataclass(frozen=True)
class SearchProblem:
    """Models to be trained, bytes of memory a device may have, and the objective; ``name`` is that
    of the study.

    ``front`` are the axes of the Pareto front that is asked for besides, throughput among them;
    empty: none is. ``combine`` says what decides for several models; ``own_best`` is what each of
    them reaches alone, once that is known. ``strict`` refuses operators without a price of their
    own, ``force_reextract`` traces models anew, as far as ``code`` lets theirs be run.
    """

    name: str
    models: tuple[ModelProblem, ...]
    memory_bytes: tuple[int, ...]
    objective: Objective
    combine: Combine = Combine.RELATIVE
    front: tuple[FrontAxis, ...] = ()
    own_best: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False
    force_reextract: bool = False
    code: CodePermission = field(default=CodePermission(), compare=False, repr=False)

    @property
    def combination(self) -> Combination:
        """How the objectives of the models become one."""
        return Combination(
            self.combine, {model.name: model.weight for model in self.models}, self.own_best
        )

    @property
    def deciding(self) -> Combine | None:
        """What decides between designs for several models; None where there is one."""
        return self.combine if len(self.models) > 1 else None
