"""The launch of a run or a plan file, and the nearest plan that a program supports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from Estimator.plans.layer_costs import layer_names
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import expert_overlap
from phaze.exports.launch import Exporter, Launch
from phaze.runs.plan_files import evaluate_request
from phaze.settings.folders import cached_folders
from phaze.studies.evaluation import Evaluation, PreparedPlan, evaluation_of, prepared
from phaze.studies.explain.repeat import place_of
from phaze_common.errors import InputError
from phaze_common.run_files import BEST

MOST_CHANGES = 8  # of a plan until a program supports it


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest plan that a program supports: the changes, why, and how much slower it is."""

    launch: Launch
    changes: tuple[tuple[str, object], ...] = ()
    reasons: tuple[str, ...] = ()
    slower: float = 0.0


def launch_of(
    path: Path, given: Mapping[str, object], run_code: frozenset[str] | None = frozenset()
) -> Launch:
    """The plan of ``path``, a plan file, a best.json or a run, with ``given`` settings.

    Raises:
        InputError: there is no plan, it cannot be priced, or its stages differ.
    """
    file = path / BEST if path.is_dir() else path
    request = evaluate_request(file, given, run_code)
    if request.output.output is None:
        # what is exported goes to a folder of its own, and graphs to where those of the run are
        place = place_of(file.parent) if file.name == BEST else cached_folders().run
        request = request.with_settings(output=place)
    if request.stages is not None:
        raise InputError(
            f"the stages of the plan in {file} differ in more than their layers, which no program "
            "here can be told; give a plan of stages alike"
        )
    made = prepared(request)
    return _launch(evaluation_of(request, made), made)


def nearest(
    exporter: Exporter,
    path: Path,
    given: Mapping[str, object],
    run_code: frozenset[str] | None = frozenset(),
) -> Nearest:
    """The plan of ``path``, changed as little as ``exporter`` needs to support it.

    Raises:
        InputError: the plan cannot be read, or no change makes it one that the program supports.
    """
    first = launch = launch_of(path, given, run_code)
    changes, reasons = dict[str, object](), list[str]()
    for _ in range(MOST_CHANGES):
        if (refused := exporter.unsupported(launch)) is None:
            seconds, first_s = launch.iteration_s or 0.0, first.iteration_s
            slower = seconds / first_s - 1.0 if first_s else 0.0
            return Nearest(launch, tuple(changes.items()), tuple(reasons), slower)
        reasons.append(refused.what)
        if not refused.nearest:
            break
        changes |= dict(refused.nearest)
        launch = launch_of(path, {**given, **changes}, run_code)
    raise InputError(
        f"{exporter.title} cannot be told this plan: {reasons[-1]}; there is no plan near it that "
        "it can"
    )


def _launch(found: Evaluation, made: PreparedPlan) -> Launch:
    degrees, machine = found.uniform, found.machine
    gradients, tensor = degrees.overlap_gradients, degrees.overlap_tensor
    return Launch(
        plan=found.plan,
        degrees=degrees,
        layers=layer_names(made.costs.graph),
        device=machine.title,
        cluster=machine.cluster.name,
        devices_per_node=machine.cluster.node_size,
        overlap_gradients=machine.software.overlap_gradients if gradients is None else gradients,
        overlap_tensor=machine.software.overlap_tensor if tensor is None else tensor,
        dispatcher=degrees.dispatcher or machine.software.dispatcher,
        overlap_experts=expert_overlap(degrees, machine.software),
        iteration_s=found.iteration.iteration_s,
        memory_bytes=found.iteration.memory_bytes,
        pipeline=found.iteration.pipeline,
        priced=PricedPlan(made.degrees, made.costs, made.machine),
    )
