"""The request of ``training-time``: a training, and the plan it runs or the space of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from GraphExtractor.names import label
from GraphExtractor.permission import EVERY_FILE
from phaze.runs.plan_files import PlanFile, evaluate_request, plan_request, read_plan
from phaze.settings.config_files import MODELS
from phaze.settings.request import Request, settings_for
from phaze.settings.resolve import resolve
from phaze.studies.training_time.settings import (
    TrainingSettings,
    all_settings,
    samples_asked,
    states_a_plan,
    training_fields,
    training_settings,
)
from phaze.studies.training_time.warm_up import BatchSizeWarmUp, check_warm_up
from phaze_common.errors import InputError
from phaze_common.refusals import Refusals
from phaze_common.setting_fields import Mode
from phaze_common.settings import COMMAND_LINE, shown

LENGTHS = {"tokens", "samples"}  # of which one says how long a training is


@dataclass(frozen=True)
class TrainingRequest:
    """A training and how it is run: with one plan, or the best of those that ``request`` searches.

    ``tokens`` and ``samples`` are what is asked; the other is None. ``warm_up`` is that of the
    batch size.
    """

    settings: TrainingSettings
    request: Request
    warm_up: BatchSizeWarmUp | None

    @property
    def searched(self) -> bool:
        """Whether the plan is searched."""
        return self.request.mode is Mode.SEARCH

    def as_mapping(self) -> dict[str, Any]:
        """Every setting by its key, as plain values: asked again, it is the same training."""
        whole: dict[str, Any] = {}
        for field in training_fields():
            value = getattr(self.settings, field.name)
            if value is not None:
                whole[field.key] = list(value) if isinstance(value, tuple) else value
        whole |= {"best": self.searched}
        return whole | {k: each for k, each in self.request.as_mapping().items() if k != "csv"}


def training_request(
    path: Path | None, given: Mapping[str, object], run_code: frozenset[str] | None = frozenset()
) -> TrainingRequest:
    """The training of a file (settings, or the best.json of a search) with settings above it.

    A model file (Python) that the file names is run only where it is among ``run_code`` (None: any
    is).

    Raises: InputError: unknown keys, models or hardware, values that are not allowed or contradict
        each other.
    """
    above = all_settings().canonical(given, COMMAND_LINE)
    file = PlanFile({}) if path is None else read_plan(path, _model_of(above))
    return training_of_file(file, str(path) if path else "the configuration", path, above, run_code)


def training_of_file(
    file: PlanFile,
    source: str,
    path: Path | None = None,
    above: Mapping[str, object] = MappingProxyType({}),
    run_code: frozenset[str] | None = frozenset(),
) -> TrainingRequest:
    """As ``training_request``, of a ``file`` that was read already, called ``source``."""
    below = all_settings().canonical(file.settings, source)
    settings = _training(below, source, above)
    rest_below, rest_above = _rest(below), _rest(above)
    found, best = file.chunk_layers is not None, settings.best  # the plan of a search
    if best is None:
        best = not found and not states_a_plan({**rest_below, **rest_above})
    if best and found:
        raise InputError(f"{path} holds the plan that a search found; leave --best or --plan out")
    if best:
        request = _space(rest_below, rest_above, source, run_code)
    else:
        request = _plan(replace(file, settings=rest_below), path, rest_above, source, run_code)
    _check(settings, request)
    warm_up = _warm_up(settings, request)
    first = request.plan.global_batch_size if warm_up is None else warm_up.start
    samples_asked(settings, request.plan.sites * first, request.workload.sequence_length[0])
    return TrainingRequest(replace(settings, best=best), request, warm_up)


def plan_of_search(best: Path, request: Request) -> Request:
    """The request for the plan that a search wrote to ``best``, with the graphs of the search."""
    output = {} if request.output.output is None else {"output": str(request.output.output)}
    return evaluate_request(best, {MODELS: request.workload.models[0].name, **output}, EVERY_FILE)


def _model_of(above: Mapping[str, object]) -> str | None:
    if MODELS not in above:
        return None
    given = settings_for(Mode.SEARCH).read({MODELS: above[MODELS]}, COMMAND_LINE)[MODELS]
    _check_one_model(given)
    return str(given[0])


def _check_one_model(names: Sequence[str]) -> None:
    if len(names) > 1:
        raise InputError(
            f"a training is that of one model, given {', '.join(names)}; name one with --model"
        )


def _rest(given: Mapping[str, object]) -> dict[str, object]:
    """Settings of the plan and its hardware, or of the search."""
    return {key: value for key, value in given.items() if key not in training_settings().keys}


def _training(
    below: Mapping[str, object], source: str, above: Mapping[str, object]
) -> TrainingSettings:
    """What is trained, at which price."""
    table, refusals, read = training_settings(), Refusals(), list[dict[str, Any]]()
    for settings, where in ((below, source), (above, COMMAND_LINE)):
        own = {key: value for key, value in settings.items() if key in table.keys}
        read.append(dict(table.read_all(own, where, refusals)))
    refusals.raise_any()
    lower, upper = read
    if LENGTHS & upper.keys():
        lower = {key: value for key, value in lower.items() if key not in LENGTHS}
    values = {key: value for key, value in {**lower, **upper}.items() if value is not None}
    fields = (field for field in training_fields() if field.key in values)
    return TrainingSettings(**{field.name: values[field.key] for field in fields})


def _space(
    below: Mapping[str, object],
    above: Mapping[str, object],
    source: str,
    run_code: frozenset[str] | None,
) -> Request:
    """The search for the best plan on hardware that is given."""
    _refuse_others(
        Mode.SEARCH,
        {**below, **above},
        "is about a plan that is given, but the best one is searched; leave it out",
    )
    request = resolve(below, above, Mode.SEARCH, source=source, run_code=run_code)
    _check_one_model([model.name for model in request.workload.models])
    if not request.on_devices and request.hardware.chip is None:
        raise InputError(
            "no device was given; name one with --device, or a designed chip with --chip"
        )
    if len(request.hardware.hbm_size) > 1:
        raise InputError(
            f"hbm_size lists {len(request.hardware.hbm_size)} sizes, but a training runs on one; "
            "give one"
        )
    return request


def _plan(
    file: PlanFile,
    path: Path | None,
    above: Mapping[str, object],
    source: str,
    run_code: frozenset[str] | None,
) -> Request:
    """The plan that is given."""
    if file.stages is not None:
        raise InputError(
            f"the stages of the plan in {path} differ, and training-time takes plans of stages "
            "alike; give one, or price an iteration of this one with evaluate"
        )
    _refuse_others(
        Mode.EVALUATE, {**file.settings, **above}, "is about a search; add --best, or leave it out"
    )
    settings = settings_for(Mode.EVALUATE).settings
    several = {setting.key for setting in settings if setting.many or setting.unit}
    for key, value in (*file.settings.items(), *above.items()):
        if isinstance(value, list | tuple) and len(value) > 1 and key not in several:
            name = shown(key, COMMAND_LINE)
            raise InputError(
                f"{name} lists {len(value)} values, but a plan has one; give one, or --best to "
                "search among them"
            )
    if path is None:
        return resolve(file.settings, above, Mode.EVALUATE, source=source, run_code=run_code)
    return plan_request(file, path, above, run_code)


def _refuse_others(mode: Mode, given: Mapping[str, object], why: str) -> None:
    """Refuse settings that only the other mode takes."""
    for key in given:
        if key not in settings_for(mode).keys:
            raise InputError(f"{shown(key, COMMAND_LINE)} {why}")


def _warm_up(settings: TrainingSettings, request: Request) -> BatchSizeWarmUp | None:
    given = settings.batch_size_warmup
    if given is None:
        return None
    if len(given) != 3:
        raise InputError(
            f"batch_size_warmup has {len(given)} numbers, but must be three: START STEP SAMPLES, "
            "for instance 16 16 6000000"
        )
    warm_up = BatchSizeWarmUp(*given)
    check_warm_up(warm_up, request.plan.global_batch_size)
    return warm_up


def _check(settings: TrainingSettings, request: Request) -> None:
    """Refuse numbers that mean nothing without others."""
    if settings.tokens is not None and not _has_tokens(request):
        raise InputError(
            f"{label(request.workload.models[0].name)} is not trained on tokens; give --samples "
            "instead of --tokens"
        )
    device = request.records.device
    if device is not None and device.board_power is None and settings.device_power_w is None:
        named = {"grid_intensity": settings.grid_intensity_g_per_kwh, "pue": settings.pue}
        asked = next((key for key, given in named.items() if given is not None), None)
        if asked is not None:
            raise InputError(
                f"{asked} is about energy, but {device.title} states no power; give --device-power"
            )
    writes = settings.checkpoint_bandwidth_bytes_per_s is not None
    if settings.device_mtbf_hours is not None and not writes:
        raise InputError(
            "device_mtbf_hours needs the time of a checkpoint; give --checkpoint-bandwidth, such "
            "as '100 GB/s'"
        )
    if settings.device_mtbf_hours is None:
        if writes and settings.checkpoint_interval_s is None:
            raise InputError(
                "how often checkpoints are written is not known; give --device-mtbf-hours or "
                "--checkpoint-interval"
            )
        if settings.restart_time_s is not None:
            raise InputError(
                "restart_time is that after a failure; give --device-mtbf-hours, or leave it out"
            )
    if settings.checkpoint_interval_s is not None and not writes:
        raise InputError(
            "checkpoint_interval needs the time of a checkpoint; give --checkpoint-bandwidth, "
            "such as '100 GB/s'"
        )


def _has_tokens(request: Request) -> bool:
    from GraphExtractor.models.registry import find_model

    return find_model(request.workload.models[0].name).has_sequence
