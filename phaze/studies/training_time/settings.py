"""Settings of ``training-time`` besides those of a plan and its hardware."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from Estimator.plans.axes import PLAN_AXES, PlanAxis
from phaze.settings.request import request_fields, settings_for
from phaze_common.choices import StageCuts
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


of_trainings = partial(option, modes=EVALUATE)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What is trained, at which price, and what interrupts it; nothing follows from None."""

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
    """Settings that say what the plan is, with their shorthands; without any it is searched."""
    mine = [each.field for each in PLAN_AXES if _is_of_plans(each)]
    shorthands = [field.about.shorthand for field in mine if field.about.shorthand is not None]
    keys = [field.key for field in mine]
    return frozenset([*keys, *(each.key for each in shorthands if each.modes == EVALUATE)])


def _is_of_plans(axis: PlanAxis) -> bool:
    """Whether it is chosen with the plan; searches are given the others."""
    field = axis.field
    return field.holds_many or axis.axis.modes == EVALUATE or field.item is StageCuts


def states_a_plan(given: Mapping[str, object]) -> bool:
    """Whether settings say what the plan is, without a word for values that a search chooses."""
    fields = [field for field in request_fields() if field.key in plan_keys() & given.keys()]
    several = any(_several(given[field.key], field.about) for field in fields)
    return bool(plan_keys() & given.keys()) and not several


def _several(value: object, about: About) -> bool:
    """Whether a value, as it was given, stands for several of which one plan has one."""
    words = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(word, str) and word in {ALL, *about.of_a_search} for word in words)


@cache
def all_settings() -> SettingTable:
    """All that may be given: settings of the training, of one plan, and of a search for it."""
    tables = [settings_for(mode) for mode in (Mode.SEARCH, Mode.EVALUATE)]
    searched, single = (
        {each.key: each for each in table.settings if each.key not in NOT_TAKEN} for table in tables
    )
    shared = (searched.keys() & single.keys()) - ALONE
    both = {key: _of_both(single[key], searched[key]) for key in searched if key in shared}
    merged = {**searched, **single, **both}
    keys = {*merged, *training_settings().keys}
    rivals = {*tables[0].rivals, *tables[1].rivals, frozenset({"tokens", "samples"})}
    ordered = tuple(each for each in sorted(rivals, key=sorted) if each <= keys)
    return SettingTable((*training_settings().settings, *merged.values()), ordered)


def _of_both(single: Setting, searched: Setting) -> Setting:
    """A setting that a plan and a search share: what a search takes, with the defaults of both."""
    about = next(field.about for field in request_fields() if field.key == searched.key)
    text = single.help
    if about.evaluated and about.default:
        text = f"{about.help} (default {about.evaluated}; searched {about.default})"
    return replace(searched, help=text)


def samples_asked(settings: TrainingSettings, first_batch_size: int, sequence_length: int) -> int:
    """Samples to train on; the first iteration takes ``first_batch_size`` of them.

    Raises:
        InputError: they are fewer than those of that iteration, or not given.
    """
    first, each = f"{number(first_batch_size)} samples", 1
    if settings.tokens is not None:
        total, each, what = settings.tokens, sequence_length, "tokens"
        first += f" of {number(each)} tokens = {number(first_batch_size * each)}"
    elif settings.samples is not None:
        total, what = settings.samples, "samples"
    else:
        raise InputError(
            "how long the training is was not given; give --tokens, for instance --tokens 300e9, "
            "or --samples"
        )
    if total < first_batch_size * each:
        raise InputError(
            f"{what} is {number(total)}, fewer than the first iteration takes, {first}; give more, "
            "or a smaller --global-batch-size"
        )
    return math.ceil(total / each)
