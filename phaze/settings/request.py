"""The request: what is asked, every setting stated once as a field of a record.

Flags, keys of YAML files, ``--help``, checks of values and the resolved ``study.yaml`` follow from
the fields (``phaze_common.setting_fields``). ``phaze.settings.resolve`` makes a request of raw
values. Imports nothing heavy, since ``--help`` reads it; types are objects rather than texts (no
``from __future__ import annotations``), which is how they are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from Estimator.chips.space_part import WHOLE, SpacePart
from Estimator.plans.axes import PLAN_AXES
from GraphExtractor.permission import CodePermission
from phaze.settings.folders import Folders, folders_of
from phaze_common.choices import Combine, FrontAxis, Objective, SolverName
from phaze_common.file_formats import STUDY
from phaze_common.numbers import number
from phaze_common.setting_fields import (
    BOTH,
    SEARCH,
    Hardware,
    Mode,
    SettingField,
    chip_option,
    chip_search_option,
    device_option,
    option,
    option_field,
    search_option,
    setting_fields,
    settings_of,
)
from phaze_common.settings import ALL, SettingTable
from phaze_common.units import GIB

if TYPE_CHECKING:
    from Estimator.plans.plan import Plan
    from phaze.settings.hardware import ResolvedHardware

Ints = tuple[int, ...]


@dataclass(frozen=True)
class WeightedModel:
    """A model, as ``canonical_name`` has it, and its weight in the mean of several."""

    name: str
    weight: float = 1.0

    def __str__(self) -> str:
        """As it is given: ``bertlarge`` or ``bertlarge=2``."""
        return self.name if self.weight == 1 else f"{self.name}={self.weight:g}"


@dataclass(frozen=True)
class StatedChunks:
    """Names of the layers of each chunk of a plan, in its order, from ``source``."""

    layers: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True)
class StatedStages:
    """A plan whose stages differ, as the file ``source`` states it."""

    plan: "Plan"
    source: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is trained: an entry of ``sequence_length`` for each model."""

    models: tuple[WeightedModel, ...] = option(
        ...,
        "model to train: a name that 'phaze models' lists, dimensions such as "
        "gpt:layers=24,hidden=2304,heads=24, or the path of a Hugging Face config.json or of a "
        "model.py of your own, which is run; a search of accelerators takes several, each NAME or "
        "NAME=WEIGHT (see combine)",
        key="model",
        aliases=("phaze_model", "phaze_model_names", "models"),
    )
    sequence_length: Ints = option(
        ...,
        "tokens per sample, one number for all models or one for each",
        "each model's own",
        aliases=("phaze_sequence_length", "seq"),
        repeats=True,
        most=2**22,
    )
    setting: str | None = option(
        None,
        "defaults with a name: 'today' for chips of today on a network of two tiers, or a YAML "
        "file of settings of your own",
        "those that every flag states, the published setting",
        decides=False,
        file=True,
    )


@dataclass(frozen=True, kw_only=True)
class HardwareSettings:
    """What it is trained on, by the names of hardware and what is changed of it. ``hbm_size`` is in
    GiB (empty where the device is given)."""

    device: str | None = device_option(
        None,
        "train on devices that exist, by name or YAML file, instead of on accelerators to design",
        file=True,
    )
    memory_size: float | None = device_option(
        None,
        "memory of a device that exists, GiB or with a unit, in place of its own",
        "its own",
        least=2.0**-10,
        most=2.0**20,
        unit="GiB",
    )
    memory_bandwidth: float | None = device_option(
        None,
        "bandwidth of its memory, GB/s or with a unit",
        "its own",
        least=2.0**-10,
        most=2.0**30,
        unit="GB/s",
    )
    peak_flops: float | None = device_option(
        None,
        "peak of its matrix units in 16 bits, TFLOP/s or with a unit; other formats scale alike",
        "its own",
        least=2.0**-10,
        most=2.0**30,
        unit="TFLOP/s",
    )
    chip: str | None = chip_option(
        None,
        "this one accelerator alone, a known chip of the design space by name or a YAML file of "
        "its sizes",
        file=True,
    )
    design_space: str | None = chip_option(
        "phaze_icml24",
        "accelerators to design among, by name or YAML file",
        "phaze_icml24",
        file=True,
    )
    technology: str | None = chip_option(
        None,
        "areas and energies of the accelerators, by name or YAML file",
        "those of the design space",
        file=True,
    )
    hbm_size: tuple[float, ...] = chip_option(
        (32.0,),
        "HBM per accelerator, GiB or with a unit",
        "32",
        aliases=("phaze_hbm_size",),
        least=2.0**-10,
        most=2.0**20,
        unit="GiB",
    )
    memory: tuple[str, ...] | None = chip_option(
        None,
        "memory as it is sold, KIND:STACKS as hbm3e:4 ('phaze list memories'): capacity and "
        "bandwidth, which take area, power and money; in place of hbm_size, with a technology that "
        "describes whole dies",
        "that of the design space",
    )
    links: tuple[str, ...] | None = chip_option(
        None,
        "links of a chip, as 18x25GB/s, each way of each: what they give is the bandwidth of those "
        "tiers of the cluster that run over them, and they take area, power and money of whole "
        "dies",
        "those of the design space, else as the cluster has them",
    )
    max_area: float | None = chip_option(
        None,
        "largest area of one chip, mm2, of all its dies",
        "any",
        least=1e-3,
        most=1e9,
        unit="mm2",
    )
    max_power: float | None = chip_option(
        None,
        "most watts that one chip may draw with everything on it busy; where it binds, the clock "
        "falls",
        "any",
        least=1e-3,
        most=1e9,
        unit="W",
    )
    max_chip_cost: float | None = chip_option(
        None,
        "most US dollars that one chip may cost, with its memory and package",
        "any",
        least=1e-3,
        most=1e12,
        unit="USD",
    )
    max_cluster_cost: float | None = chip_option(
        None,
        "most US dollars for all devices, with servers and switches: of each chip as many are "
        "bought, up to --devices, as its best plan uses and the money allows",
        "any",
        least=1e-3,
        most=1e15,
        unit="USD",
    )
    prices: str | None = chip_option(
        None,
        "what chips, clusters and energy cost, by name or YAML file",
        "datacenter_2025",
        file=True,
    )
    space_part: str | None = chip_search_option(
        None,
        "this part of the design space alone, K/N such as 3/8, of which no more is said than what "
        "joining all N takes (--parts N does both)",
        "the whole space",
    )
    frequency: str | None = chip_option(
        None,
        "clock of the accelerators, GHz, or times their own as 1.2x",
        "that of the design space",
    )
    hbm_bandwidth: str | None = chip_option(
        None,
        "bandwidth of their memory, GB/s, or times its own as 2x, which memory as it is sold takes "
        "alone",
        "that of the design space",
    )
    constants: tuple[str, ...] | None = option(
        None,
        "constants of the hardware to change, KIND.NAME=VALUE or KIND.NAME=2x, such as "
        "platform.glb_bandwidth=2x or cluster.tiers.*.latency=0; as --set "
        "platform.glb_bandwidth=2x too",
        "those of its files",
        lists=BOTH,
    )
    cluster: str = option(
        "phaze_icml24",
        "cluster, by name or YAML file",
        "phaze_icml24, or where the device usually is",
        file=True,
    )
    fast_domain: int | None = option(
        None,
        "devices in each fast domain of the network, its innermost tier (NVLink)",
        "the cluster's own",
        least=2,
        most=2**20,
    )
    software: str | None = device_option(
        None,
        "training framework on devices that exist, by name or YAML file",
        "what the device usually runs",
        file=True,
    )
    attention_kernel: str | None = device_option(
        None,
        "kernel of fused attention that it calls, by name (flash_1, flash_2, flash_3, cudnn, "
        "triton) or YAML file",
        "that of the software",
        file=True,
    )
    devices: int = option(
        ...,
        "devices in use",
        "all of the cluster",
        "as many as tp, pp, cp and dp need; else dp follows from it",
        most=2**20,
    )

    @property
    def part(self) -> SpacePart:
        """The part of the design space that is searched."""
        return WHOLE if self.space_part is None else SpacePart.parsed(self.space_part)

    @property
    def hbm_sizes_bytes(self) -> Ints:
        """HBM per accelerator in bytes."""
        return tuple(round(size * GIB) for size in self.hbm_size)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What is searched for, and how. ``combine`` is None where there is one model, ``front`` where
    nobody says what it is of."""

    use_all_devices: bool = search_option(
        False, "search only plans that leave no device idle", "true with a device, else false"
    )
    whole_micro_batches: bool = search_option(
        False,
        "search only plans that training frameworks start: in which every replica has as many "
        "whole micro-batches, so that the global batch is a multiple of micro-batch size x dp",
        "true with a device, else false",
    )
    heterogeneous: bool = option(
        False,
        "search plans besides whose stages differ in devices, degrees, micro-batch size, ZeRO "
        "stage and how many layers they recompute",
        "false",
        modes=SEARCH,
        hardware=Hardware.DEVICES,
    )
    objective: Objective = chip_search_option(
        Objective.THROUGHPUT, "what to maximise", "throughput"
    )
    front: tuple[FrontAxis, ...] | None = chip_search_option(
        None,
        "what the Pareto front is of that is certified besides, throughput always among it: mm2, "
        "joules per sample, watts at the peak, US dollars or embodied carbon of a device (the last "
        "three of whole dies); 'none' for no front, which is the fastest",
        "throughput, area and energy; of whole dies throughput and cost, and none of more than "
        "20,000",
    )
    combine: Combine | None = chip_search_option(
        None,
        "what decides for several models: the weighted geometric mean of their shares (the "
        "objective over the best that the model reaches alone), the least share, the mean of the "
        "shares (a fleet that spends the weights as parts of its time on each), or the weighted "
        "mean of the objectives themselves",
        "relative",
    )
    solver: SolverName = chip_option(SolverName.NATIVE, "scheduler of operators", "native")
    strict: bool = option(
        False,
        "refuse a model with operators that have no cost, instead of pricing them by their bytes",
    )


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Where a run goes. ``name`` was given or is made from the inputs."""

    name: str = search_option(
        "",
        "name of the run and of its folder",
        "the models and a hash of all that can change the answer",
        decides=False,
    )
    output: Path | None = option(
        None,
        "folder of the run and of everything it makes",
        "GraphExtractor/out, Estimator/..., Solver/output",
        "GraphExtractor/out",
        decides=False,
    )
    csv: bool = search_option(False, "also write the design points as CSV", decides=False)
    force_reextract_model: bool = search_option(
        False,
        "extract graphs again even where they are on disk",
        aliases=("force_reextract",),
        decides=False,
    )


if TYPE_CHECKING:

    @dataclass(frozen=True)
    class PlanSettings:
        """The values of the axes of plans: those to search, one where it is fixed, None where all
        that are possible together with the others are searched."""

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, key: str) -> Any: ...

else:
    PlanSettings = make_dataclass(
        "PlanSettings",
        [
            (each.key, each.field.type, option_field(each.axis.usual, each.axis))
            for each in PLAN_AXES
        ],
        frozen=True,
        kw_only=True,
        namespace={"__module__": __name__},
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked, with every value as it will be used; help texts say what the settings mean.

    ``records`` are the hardware behind the names, each read once. ``run_folder`` replaces the
    folder of the run where it is neither ``output`` nor the one that follows from the name.
    ``chunk_layers`` are the layers of each chunk of a plan that a search found; of a plan whose
    ``stages`` differ the settings are those of the first. ``code`` says which models of the user's
    own may be run.
    """

    mode: Mode
    workload: Workload
    plan: PlanSettings
    hardware: HardwareSettings
    search: SearchSettings
    output: OutputSettings
    records: "ResolvedHardware" = field(repr=False)
    run_folder: Path | None = None
    chunk_layers: StatedChunks | None = None
    stages: StatedStages | None = None
    code: CodePermission = field(default=CodePermission(), compare=False, repr=False)
    name_given: bool = field(default=False, compare=False)

    @staticmethod
    def of(values: Mapping[str, Any], **others: Any) -> "Request":
        """The request with those ``values`` by the names of fields, and ``others``."""
        by_home = _by_home(values)
        parts = {home: record(**by_home[home]) for home, record in SECTIONS.items()}
        return Request(**parts, **others)

    def with_settings(self, **values: Any) -> "Request":
        """The same with other values of settings, by the names of fields."""
        changed = _by_home(values).items()
        return replace(self, **{home: replace(getattr(self, home), **own) for home, own in changed})

    def value_of(self, setting: SettingField) -> Any:
        """Its value of a setting."""
        return getattr(getattr(self, _homes()[setting.name]), setting.name)

    @property
    def on_devices(self) -> bool:
        """Whether the hardware is given, rather than designed."""
        return self.hardware.device is not None

    @property
    def folders(self) -> Folders:
        """Where artefacts go."""
        folders = folders_of(self.output.output, self.output.name)
        if self.run_folder is None:
            return folders
        return Folders(folders.graphs, folders.estimates, folders.arch_configs, self.run_folder)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the request is understood."""
        replicas = self.plan.dp[0] if self.mode is Mode.EVALUATE and self.plan.dp else None
        batch, space, area = self.plan.global_batch_size, self.records.space, self.hardware.max_area
        sizes = () if self.search.whole_micro_batches else self.plan.micro_batch_size
        notes = [note for size in sizes if (note := uneven_batch(batch, size, replicas))]
        notes += self._unequal_chunks()
        if space is not None and area is not None and area > space.budget_mm2:
            notes.append(
                f"max_area is {number(area)} mm2, but no chip of {space.name} "
                f"has more than the {number(space.budget_mm2)} mm2 of its own budget; a file of "
                "the space with a larger one may have larger chips"
            )
        return tuple(notes)

    def _unequal_chunks(self) -> list[str]:
        """A note on chunks that are not equal, which frameworks must be told."""
        from GraphExtractor.models.registry import find_model

        chunks, stages = max(self.plan.interleave or (1,)), max(self.plan.pp or (1,))
        if (
            self.mode is Mode.SEARCH
            or chunks == 1
            or self.plan.stage_layers is not None
            or self.chunk_layers is not None
        ):
            return []
        family = find_model(self.workload.models[0].name)
        if len(family.blocks) != 1 or not family.layers % (stages * chunks):
            return []
        return [
            f"pp x interleave = {stages * chunks} does not divide the {family.layers} blocks of "
            "the model: training frameworks "
            "interleave equal chunks alone, unless they are told which layers each has"
        ]

    def sequence_length_of(self, model: str) -> int:
        """Tokens per sample of one of the models."""
        names = [each.name for each in self.workload.models]
        return self.workload.sequence_length[names.index(model)]

    def as_mapping(self) -> dict[str, Any]:
        """Every setting that applies, by key: ``resolve`` of it gives the same request.

        Lists where several values may be given, the word ``all`` where every possible one is
        searched. A name made from the inputs is left out: with another input it is another study,
        which must not overwrite this one.
        """
        values = {
            each.key: _plain(self.value_of(each), each)
            for each in self.applying()
            if each.name != "name"
        }
        name = {"name": self.output.name} if self.name_given else {}
        return {key: value for key, value in (values | name).items() if value not in (None, [])}

    def applying(self) -> tuple[SettingField, ...]:
        """The settings that apply to what is asked."""
        kind = Hardware.DEVICES if self.on_devices else Hardware.CHIPS
        return tuple(
            each
            for each in request_fields()
            if self.mode in each.about.modes and each.about.hardware in {None, kind}
        )

    def to_yaml(self) -> str:
        """The resolved request as a file that ``--config`` reads back."""
        import yaml

        return yaml.safe_dump(
            STUDY.stamped(self.as_mapping()), sort_keys=False, default_flow_style=None
        )


SECTIONS: Mapping[str, Any] = {
    "workload": Workload,
    "hardware": HardwareSettings,
    "plan": PlanSettings,
    "search": SearchSettings,
    "output": OutputSettings,
}


def uneven_batch(global_batch_size: int, micro_batch_size: int, dp: int | None = None) -> str:
    """A note on a batch that ``dp`` replicas (None: any) cannot divide; empty: they can."""
    if not global_batch_size % (micro_batch_size * (dp or 1)):
        return ""
    given = f"global batch size {number(global_batch_size)} is not a multiple of"
    if dp is None:
        return (
            f"{given} micro-batch size {number(micro_batch_size)}: the last micro-batch is "
            "counted as a whole one"
        )
    together = number(micro_batch_size * dp)
    return (
        f"{given} micro-batch size x dp = {together}: the last micro-batches are counted as "
        "whole ones"
    )


@cache
def request_fields() -> tuple[SettingField, ...]:
    """The fields of a request that are settings."""
    return tuple(each for record in SECTIONS.values() for each in setting_fields(record))


@cache
def _homes() -> Mapping[str, str]:
    return {each.name: home for home, record in SECTIONS.items() for each in fields(record)}


def _by_home(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """``values`` of settings by section and name; a name that no section has is a defect."""
    found: dict[str, dict[str, Any]] = {home: {} for home in SECTIONS}
    for name, value in values.items():
        found[_homes()[name]][name] = value
    return found


TITLES = {"workload": "model", "output": "files"}  # of groups of settings, where help says another


@cache
def setting_groups() -> Mapping[str, tuple[str, ...]]:
    """Keys of the settings and their shorthands by the title of the section that has them."""
    return {
        TITLES.get(home, home): tuple(
            key
            for each in setting_fields(record)
            for key in (each.key, each.about.shorthand and each.about.shorthand.key)
            if key
        )
        for home, record in SECTIONS.items()
    }


@cache
def settings_for(mode: Mode) -> SettingTable:
    """All settings that a mode takes."""
    return settings_of(request_fields(), mode)


def _plain(value: Any, field: SettingField) -> Any:
    """As YAML has it; None where there is nothing to say."""
    if value is None:
        return ALL if field.about.takes_all else None
    if isinstance(value, tuple):
        return [_plain(each, field) for each in value]
    if isinstance(value, float):
        return int(value) if value == int(value) else value
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, bool | int | str) else str(value)
