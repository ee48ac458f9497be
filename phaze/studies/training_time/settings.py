"""What ``training-time`` is asked beyond a plan and its hardware; annotations are objects, as those
of ``phaze.settings.request``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from Estimator.plans.axes import PLAN_AXES
from phaze.settings.request import request_fields, settings_for
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.setting_fields import (
    EVALUATE,
    About,
    Mode,
    SettingField,
    option,
    setting_fields,
    settings_of,
)
from phaze_common.settings import ALL, Setting, SettingTable

NOT_TAKEN = frozenset({"objective", "csv", "name", "force_reextract_model"})  # settings of searches
ALONE = frozenset({"model", "sequence_length", "hbm_size"})  # of which a training has one
FORMATS_OF_STATE = frozenset({"gradient_dtype", "moment_dtype", "main_weight_dtype", "fp8_weights"})
OF_THE_TRAINING = FORMATS_OF_STATE | {
    "global_batch_size",
    "optimizer",
    "precision",
    "attention",
}  # a search is given them too


of_trainings = partial(option, modes=EVALUATE)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What is trained, at which price, and what interrupts it; None where it is not known, so that
    nothing follows from it."""

    tokens: float | None = of_trainings(
        None,
        "tokens to train on, such as 300e9; the last iteration is a whole one",
        most=1e18,
    )
    samples: float | None = of_trainings(
        None,
        "samples to train on, instead of tokens; images have no others",
        most=1e18,
    )
    best: bool | None = of_trainings(
        None,
        "search the best plan",
        "where nothing says what the plan is",
        decides=False,
    )
    batch_size_warmup: tuple[int, ...] | None = of_trainings(
        None,
        "START STEP SAMPLES: the global batch grows from START samples by STEP, over the first "
        "SAMPLES (Megatron-LM's --rampup-batch-size)",
        repeats=True,
        most=10**15,
        lists=EVALUATE,
    )
    price_per_device_hour: float | None = of_trainings(
        None, "price of a device for an hour, in any currency", least=0, most=1e9
    )
    device_power_w: float | None = of_trainings(
        None,
        "power of a device, W or with a unit",
        "the thermal design power that the device's file states: an upper bound, of the board "
        "alone",
        key="device_power",
        least=1e-3,
        most=1e6,
        unit="W",
    )
    pue: float | None = of_trainings(
        None,
        "power usage effectiveness: power of the site over that of the devices",
        "1",
        most=10,
    )
    grid_intensity_g_per_kwh: float | None = of_trainings(
        None,
        "carbon intensity of the electricity, g/kWh or with a unit",
        key="grid_intensity",
        least=0,
        most=1e4,
        unit="g/kWh",
    )
    device_mtbf_hours: float | None = of_trainings(
        None,
        "mean time between failures of a single device, hours or with a unit",
        least=1e-3,
        most=1e12,
        unit="h",
    )
    checkpoint_bandwidth_bytes_per_s: float | None = of_trainings(
        None,
        "bandwidth of all devices together to the storage of checkpoints, bytes/s or with a "
        "unit, such as '100 GB/s'",
        key="checkpoint_bandwidth",
        least=1e6,
        most=1e18,
        unit="bytes/s",
    )
    checkpoint_interval_s: float | None = of_trainings(
        None,
        "work between two checkpoints, seconds or with a unit",
        "the Young-Daly interval",
        key="checkpoint_interval",
        least=1e-3,
        most=1e9,
        unit="s",
    )
    restart_time_s: float | None = of_trainings(
        None,
        "time from a failure until the last checkpoint is read, seconds or with a unit",
        "0",
        key="restart_time",
        least=0,
        most=1e9,
        unit="s",
    )


@cache
def training_fields() -> tuple[SettingField, ...]:
    """The fields that are settings."""
    return setting_fields(TrainingSettings)


@cache
def training_settings() -> SettingTable:
    """Settings of the training alone."""
    return settings_of(training_fields(), Mode.EVALUATE)


@cache
def plan_keys() -> frozenset[str]:
    """Settings that say what the plan is: those that a plan has, with their shorthands; without any
    the best one is searched."""
    of_plan = {each.key for each in PLAN_AXES} - OF_THE_TRAINING
    mine = [field for field in request_fields() if field.key in of_plan]
    shorthands = [field.about.shorthand for field in mine if field.about.shorthand is not None]
    return frozenset(
        {
            *(field.key for field in mine),
            *(each.key for each in shorthands if each.modes == EVALUATE),
        }
    )


def states_a_plan(stated: Mapping[str, object]) -> bool:
    """Whether settings say what the plan is, and none is a word for values of which only a search
    chooses one."""
    return bool(plan_keys() & stated.keys()) and not any(
        field.key in stated and _several(stated[field.key], field.about)
        for field in request_fields()
        if field.key in plan_keys()
    )


def _several(value: object, about: About) -> bool:
    """Whether a value, as it was given, stands for several of which one plan has one."""
    words = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(word, str) and word in {ALL, *about.of_a_search} for word in words)


@cache
def all_settings() -> SettingTable:
    """All that may be given: settings of the training, of one plan, and of a search for the best;
    with values as a search has."""
    searched = {
        setting.key: setting
        for setting in settings_for(Mode.SEARCH).settings
        if setting.key not in NOT_TAKEN
    }
    single = {
        setting.key: setting
        for setting in settings_for(Mode.EVALUATE).settings
        if setting.key not in NOT_TAKEN
    }
    both = {
        key: _of_both(single[key], searched[key])
        for key in searched
        if key in single and key not in ALONE
    }
    rivals = {
        *settings_for(Mode.SEARCH).rivals,
        *settings_for(Mode.EVALUATE).rivals,
        frozenset({"tokens", "samples"}),
    }
    merged = {**searched, **single, **both}
    keys = {*merged, *training_settings().keys}
    ordered = sorted(rivals, key=sorted)
    return SettingTable(
        (*training_settings().settings, *merged.values()),
        tuple(each for each in ordered if each <= keys),
    )


def _of_both(single: Setting, searched: Setting) -> Setting:
    """A setting that a plan and a search share: what a search takes, with the defaults of both."""
    about = next(field.about for field in request_fields() if field.key == searched.key)
    defaults = f" (default {about.evaluated}; searched {about.default})"
    return replace(
        searched,
        help=f"{about.help}{defaults}" if about.evaluated and about.default else single.help,
    )


def samples_asked(settings: TrainingSettings, first_batch_size: int, sequence_length: int) -> int:
    """Samples to train on, the first iteration taking ``first_batch_size`` of ``sequence_length``
    tokens each.

    Raises:
        InputError: they are fewer than those of that iteration, or not given.
    """
    if settings.tokens is not None:
        asked, each, what = settings.tokens, sequence_length, "tokens"
    elif settings.samples is not None:
        asked, each, what = settings.samples, 1, "samples"
    else:
        raise InputError(
            "how long the training is was not given; give --tokens, for instance --tokens 300e9, "
            "or --samples"
        )
    if asked < first_batch_size * each:
        shown = f"{number(first_batch_size)} samples"
        shown += (
            f" of {number(each)} tokens = {number(first_batch_size * each)}"
            if settings.tokens is not None
            else ""
        )
        raise InputError(
            f"{what} is {number(asked)}, fewer than the first iteration takes, {shown}; give more, "
            "or a smaller --global-batch-size"
        )
    return math.ceil(asked / each)
