"""Predictions against measured runs."""

import logging
from pathlib import Path

from Estimator.devices.device import Device, Evidence
from Estimator.devices.files import load_device
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster
from Estimator.plans.results import Iteration
from phaze.validation.assumptions import Assumptions, Notes, load_assumptions
from phaze.validation.intervals import Predicted, load_residuals, run_intervals
from phaze.validation.measured_time import check_measured, check_possible, measured_iteration_s
from phaze.validation.own_plan_runs import PriceFile
from phaze.validation.plan_rows import has_plans
from phaze.validation.plan_runs import check_alone, validate_plans
from phaze.validation.pricing import RunPricer, SoftwareOverrides
from phaze.validation.records import (
    MemoryParts,
    RunPlan,
    RunResult,
    ValidationReport,
    relative_error,
)
from phaze.validation.run_hardware import cluster_of, device_of
from phaze.validation.run_model import model_of, sequence_length_of
from phaze.validation.run_plan import degrees_of, possible_plans
from phaze.validation.runs import PUBLISHED_RUNS, ReadRun, columns_not_read, read_runs
from phaze.validation.statistics import statistics_of
from phaze.validation.typed_run import MemoryFigure, TypedRun, write_typed
from phaze_common.errors import PhazeError
from phaze_common.progress import Progress
from phaze_common.recompute_modules import recompute_of

logger = logging.getLogger(__name__)


def validate(
    rows_file: Path | None,
    device: str | None,
    cluster: str | None,
    software: str | None,
    graphs: Path,
    progress: Progress,
    price: PriceFile,
    typed: Path | None = None,
) -> ValidationReport:
    """Predict every run of a file, those that ship by default, and compare with what was measured.

    ``device``, ``cluster`` and ``software``, names or files, replace those of the runs. Traces are
    kept under ``graphs``. A file with a column of plans is predicted from these and from the
    databases that it names; our own ``price`` prices. The runs as they were read are written to the
    file ``typed``.

    Raises:
        InputError: the file is not a readable CSV of measured runs, or a name is unknown.
    """
    if rows_file is not None and has_plans(rows_file):
        written = None if typed is None else str(typed)
        check_alone(device=device, cluster=cluster, software=software, typed=written)
        return validate_plans(rows_file, progress, price)
    rules = load_assumptions()
    validator = _Validator(rules, device, cluster, software, graphs)
    runs = read_runs(rows_file, rules, validator.device)
    if typed is not None:
        write_typed([each.run for each in runs if not each.refused], typed)
        logger.info("the runs as they were read are in %s", typed)
    results = []
    with progress.phase("measured runs", len(runs)) as advance:
        for run in runs:
            results.append(validator.result(run))
            advance(1)
    overall, sources = statistics_of(results)
    used = rules.used([each.assumptions for each in results])
    read, unread = str(rows_file or PUBLISHED_RUNS), columns_not_read(rows_file)
    return ValidationReport(read, overall, sources, tuple(results), used, unread)


class _Validator:
    """Predicts runs one after another."""

    def __init__(
        self,
        rules: Assumptions,
        device: str | None,
        cluster: str | None,
        software: str | None,
        graphs: Path,
    ) -> None:
        self._rules = rules
        self.device: Device | None = None if device is None else load_device(device)
        self._cluster: Cluster | None = None if cluster is None else load_cluster(cluster)
        self._software = software
        self._pricer = RunPricer(graphs, rules.memory_error, rules.memory_margin)
        if software is not None:
            self._pricer.software(software)

    def result(self, read: ReadRun) -> RunResult:
        """The run with its prediction, or with the reason why there is none."""
        run, notes, reason = read.run, read.notes, read.refused
        try:
            if not reason:
                return self._predicted(run, notes)
        except PhazeError as error:  # of this run alone: it cannot be planned, traced or priced
            reason = str(error)
        return RunResult(
            line=run.line,
            source=run.source,
            model=run.model,
            devices=run.devices,
            measured_s=run.iteration_s,
            measured_memory_bytes=run.memory_bytes,
            assumptions=notes.made(),
            reason=reason,
        )

    def _predicted(self, run: TypedRun, notes: Notes) -> RunResult:
        check_measured(run)
        sequence_length = sequence_length_of(run)
        device = self.device or device_of(run)
        software = self._software or run.software or device.software
        number_format = None if run.precision is None else run.precision.value
        framework = self._rules.framework_with(run.software, run.year, number_format)
        model = model_of(run, sequence_length, self._rules, notes)
        degrees = degrees_of(run, notes)
        cluster = self._cluster or cluster_of(run, degrees.devices, device, notes)
        modes = tuple(recompute_of(each) for each in framework.recompute)
        candidates = possible_plans(run, degrees, model.layers, modes, self._rules, notes)
        best = self._pricer.best(
            model, candidates, device, software, cluster, SoftwareOverrides.of_run(run)
        )
        for choice in best.candidate.choices:
            notes.assume(choice.rule, choice.value)
        plan = best.candidate.plan
        measured_s = measured_iteration_s(run, best, model, device, self._rules, notes)
        check_possible(measured_s, best, device)
        predicted = best.iteration
        is_measured = device.evidence is Evidence.MEASURED
        sure = Predicted(device.name, software, degrees.devices, is_measured, device.spread)
        run_on = model.name, sequence_length, device.name, software, cluster.name
        memory_bytes = _memory_bytes(predicted, run.memory_kind)
        return RunResult(
            line=run.line,
            source=run.source,
            model=run.model or model.name,
            devices=degrees.devices,
            measured_s=measured_s,
            predicted_s=predicted.iteration_s,
            error=relative_error(predicted.iteration_s, measured_s),
            measured_memory_bytes=run.memory_bytes,
            predicted_memory_bytes=memory_bytes,
            memory_error=relative_error(memory_bytes, run.memory_bytes),
            fits=best.fits,
            plan=RunPlan(*run_on, plan, model.experts),
            breakdown_s=predicted.breakdown,
            assumptions=notes.made(),
            memory=MemoryParts.of(predicted, device.memory.capacity.value),
            unstated=best.unstated,
            time_intervals=run_intervals(
                load_residuals(experts=model.experts),
                *(run.source, sure, predicted.iteration_s, best.unstated),
            ),
        )


def _memory_bytes(predicted: Iteration, kind: MemoryFigure | None) -> float | None:
    """What a figure of memory of this kind counts."""
    if kind is MemoryFigure.ALLOCATED:
        return predicted.allocated_bytes
    if kind is MemoryFigure.LAST_STAGE:
        return predicted.stages[-1].allocated_bytes
    if kind is MemoryFigure.POOL:
        return predicted.pooled_bytes
    return predicted.memory_bytes
