"""The best plan that a search finds for the model, batch, devices and framework of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.results import Status
from phaze.settings.hardware import HardwareFiles
from phaze.settings.problem import hardware_report
from phaze.settings.resolve import resolve
from phaze.studies.evaluation import Evaluation
from phaze.studies.explain.repeat import run_of
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.search import search
from Solver.plan_report import PlanReport

MOST_MICRO_BATCH = 8  # that is tried, in powers of two


@dataclass(frozen=True)
class Optimum:
    """The best ``plan`` of a search, if one fits, and the part of the time of another plan that it
    ``saves``; nothing where the other one does not fit (``fits``)."""

    plan: PlanReport | None
    saves: float
    fits: bool = True


def optimum_beside(evaluation: Evaluation, progress: Progress | None = None) -> Optimum:
    """The best plan on as many devices as that of ``evaluation``, which is on a device that exists,
    by what the hardware was priced as; the code of a model is run, as it was for the plan.

    Searched are all degrees of tensor, pipeline and data parallelism, recomputation, ZeRO 0 and 1,
    sequence parallelism and micro-batches of 1 to 8 samples that the global batch has for each
    replica. Graphs are kept where those of ``evaluation`` are.
    """
    plan, hardware, records = evaluation.plan, evaluation.hardware, evaluation.hardware.records
    named = (
        ("device", hardware.device, records.device),
        ("cluster", hardware.cluster, records.cluster),
        ("software", hardware.software, records.software),
    )
    priced = HardwareFiles({(key, str(name)): record for key, name, record in named})
    sizes = [size for size in (1, 2, 4, MOST_MICRO_BATCH) if size <= plan.global_batch_size]
    request = resolve(
        {
            "model": plan.model,
            "device": hardware.device,
            "cluster": hardware.cluster,
            "software": hardware.software,
            "devices": evaluation.iteration.site_devices,
            "use_all_devices": True,
            "global_batch_size": plan.global_batch_size,
            "sequence_length": plan.sequence_length,
            "precision": plan.precision.value,
            "attention": plan.attention.value,
            "optimizer": plan.optimizer,
            **plan.state_formats.settings(),
            "micro_batch_size": sizes,
            "recompute": ["none", "selective", "full"],
            "zero_stage": [0, 1],
            "sequence_parallel": [False, True],
        },
        {},
        source="the search beside the plan",
        files=priced,
        run_code=None,
    )
    request = request.with_settings(output=evaluation.output)
    fits = evaluation.iteration.status is not Status.INFEASIBLE
    run = run_of(request, progress or SilentProgress())
    found = search(run, hardware_report(request), "").result.best
    if found is None:
        return Optimum(None, 0.0, fits)
    (best,) = found.models.values()
    saves = 1.0 - best.time_per_batch_s / evaluation.iteration.iteration_s
    return Optimum(best, saves if fits else 0.0, fits)
