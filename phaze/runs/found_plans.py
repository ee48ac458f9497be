"""The plans that the ``best.json`` of a search holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from Estimator.plans.plan import check_header
from phaze.settings.config_files import model_beside
from phaze_common.errors import InputError
from phaze_common.records import to_record
from Solver.plan_report import PlanReport


def found_plan(content: Mapping[str, Any], path: Path, model: str | None) -> PlanReport:
    """Of a search, whose best.json at ``path`` has this ``content``, the plan of ``model`` (None:
    of the first), which it calls by its canonical name: that whose stages differ, where one was
    found.

    Raises:
        InputError: there is none, or it is not as this version writes it.
    """
    from GraphExtractor.models.registry import canonical_name

    plans = content.get("models")
    stated = dict(plans) if isinstance(plans, Mapping) else {}
    answer = content.get("heterogeneous")
    differing = answer.get("best") if isinstance(answer, Mapping) else None
    if isinstance(answer, Mapping) and isinstance(differing, Mapping):
        stated[str(answer.get("model"))] = differing
    if not stated:
        raise InputError(
            f"{path} holds no plan: nothing was feasible in that search; give another file"
        )
    folder = path.absolute().parent
    found = {_called(folder, str(name)): each for name, each in stated.items()}
    name = next(iter(found)) if model is None else canonical_name(model)
    if name not in found:
        raise InputError(f"{path} holds no plan of {name}; it holds those of {', '.join(found)}")
    try:
        check_header(found[name], f"plan of {name}")
        report = to_record(PlanReport, found[name], f"plan of {name}")
        _check_layers(report)
    except InputError as error:
        raise InputError(
            f"the plan of {name} in {path} is not one that this version of phaze wrote ({error}); "
            "give the best.json of a run, or run its study again"
        ) from error
    return replace(report, model=name)


def _called(folder: Path, name: str) -> str:
    """The canonical name of a model in a file of ``folder``, as it stands where there is no such
    model."""
    from GraphExtractor.models.registry import canonical_name

    beside = str(model_beside(folder, name))
    try:
        return canonical_name(beside)
    except InputError:  # which is said where it is needed
        return beside


def _check_layers(report: PlanReport) -> None:
    """Refuse stages that are not those which the numbers of layers count."""
    sizes = report.stage_layers or ()
    if len(report.stages) != report.pp or len(sizes) != report.chunks or not sizes:
        raise InputError(
            f"it has {len(report.stages)} stages and {len(sizes)} stage_layers for pp "
            f"{report.pp} and interleave {report.interleave}"
        )
    for number, stage in enumerate(report.stages):
        counted = sum(sizes[number :: report.pp])
        if len(stage.layers) != counted:
            raise InputError(
                f"stages.{number}.layers names {len(stage.layers)} layers, stage_layers {counted}"
            )
