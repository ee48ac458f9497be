"""The request: what is asked, every setting stated once as an annotated field.

Flags, keys of YAML files, ``--help``, checks of values and the resolved ``study.yaml`` follow from
the annotations (``phaze.settings.annotations``). ``phaze.settings.resolve`` makes a request of what
was given. Imports nothing heavy, since ``--help`` reads it; annotations are objects rather than
texts (no ``from __future__ import annotations``), which is how they are read.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from Estimator.chips.space_part import WHOLE, SpacePart
from Estimator.plans.assignment import Assignment
from Estimator.plans.offload import OffloadShare
from GraphExtractor.permission import CodePermission
from phaze.settings.annotations import (
    BOTH,
    EVALUATE,
    SEARCH,
    About,
    Hardware,
    Mode,
    Shorthand,
    StatedField,
    settings_of,
    stated_fields,
)
from phaze.settings.folders import Folders, folders_of
from phaze_common.choices import (
    Attention,
    Combine,
    FrontAxis,
    GroupOrder,
    KeyExchange,
    LayoutName,
    MomentDtype,
    Objective,
    OffloadKind,
    Optimizer,
    PipelineSchedule,
    Precision,
    Recompute,
    SolverName,
    StageCuts,
    StateDtype,
)
from phaze_common.file_formats import STUDY
from phaze_common.numbers import number
from phaze_common.settings import ALL, Kind, SettingTable
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
    """Names of the layers of each chunk of a plan, in the order in which it holds them, as the file
    ``source`` states them."""

    layers: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True)
class StatedStages:
    """A plan whose stages differ, as the file ``source`` states it."""

    plan: "Plan"
    source: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked, with every value as it will be used; help texts say what the settings mean.

    Settings of a plan (``tp`` to ``overlap_tensor``) hold the values to search, one value where it
    is fixed, None where all that are possible together with the others are searched.
    ``sequence_length`` has an entry per model, ``hbm_size`` is in GiB (empty where the device is
    given). ``hardware`` are the records behind the names, each read once. ``run_folder`` replaces
    the folder of the run where it is neither ``output`` nor the one that follows from ``name``,
    which was given or is made from the inputs. ``combine`` is None where there is one model,
    ``front`` where nobody says what it is of. ``chunk_layers`` are the layers of each chunk of a
    plan that a search found; of a plan whose ``stages`` differ the settings are those of the first.
    ``code`` says which models of the user's own may be run.
    """

    mode: Mode
    hardware: "ResolvedHardware" = field(repr=False)

    models: Annotated[
        tuple[WeightedModel, ...],
        About(
            "model to train: a name that 'phaze models' lists, dimensions such as "
            "gpt:layers=24,hidden=2304,heads=24, or the "
            "path of a Hugging Face config.json or of a model.py of your own, which is run; a "
            "search of accelerators takes "
            "several, each NAME or NAME=WEIGHT (see combine)",
            key="model",
            aliases=("phaze_model", "phaze_model_names", "models"),
        ),
    ]
    sequence_length: Annotated[
        Ints,
        About(
            "tokens per sample, one number for all models or one for each",
            "each model's own",
            aliases=("phaze_sequence_length", "seq"),
            repeats=True,
            most=2**22,
        ),
    ]

    setting: Annotated[
        str | None,
        About(
            "defaults with a name: 'today' for chips of today on a network of two tiers, or a "
            "YAML file of settings of your own",
            "those that every flag states, the published setting",
            decides=False,
            file=True,
        ),
    ] = None
    device: Annotated[
        str | None,
        About(
            "train on devices that exist, by name or YAML file, instead of on accelerators to "
            "design",
            hardware=Hardware.DEVICES,
            file=True,
        ),
    ] = None
    design_space: Annotated[
        str | None,
        About(
            "accelerators to design among, by name or YAML file",
            "phaze_icml24",
            hardware=Hardware.CHIPS,
            file=True,
        ),
    ] = "phaze_icml24"
    space_part: Annotated[
        str | None,
        About(
            "this part of the design space alone, K/N such as 3/8, of which no more is said than "
            "what joining all N takes "
            "(--parts N does both)",
            "the whole space",
            modes=SEARCH,
            hardware=Hardware.CHIPS,
        ),
    ] = None
    chip: Annotated[
        str | None,
        About(
            "this one accelerator alone, a known chip of the design space by name or a YAML file "
            "of its sizes",
            hardware=Hardware.CHIPS,
            file=True,
        ),
    ] = None
    technology: Annotated[
        str | None,
        About(
            "areas and energies of the accelerators, by name or YAML file",
            "those of the design space",
            hardware=Hardware.CHIPS,
            file=True,
        ),
    ] = None
    hbm_size: Annotated[
        tuple[float, ...],
        About(
            "HBM per accelerator, GiB or with a unit",
            "32",
            aliases=("phaze_hbm_size",),
            least=2.0**-10,
            most=2.0**20,
            unit="GiB",
            hardware=Hardware.CHIPS,
        ),
    ] = (32.0,)
    memory: Annotated[
        tuple[str, ...] | None,
        About(
            "memory as it is sold, KIND:STACKS as hbm3e:4 ('phaze list memories'): capacity and "
            "bandwidth, which take area, "
            "power and money; in place of hbm_size, with a technology that describes whole dies",
            "that of the design space",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    links: Annotated[
        tuple[str, ...] | None,
        About(
            "links of a chip, as 18x25GB/s, each way of each: what they give is the bandwidth of "
            "those tiers of the cluster that "
            "run over them, and they take area, power and money of whole dies",
            "those of the design space, else as the cluster has them",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    max_area: Annotated[
        float | None,
        About(
            "largest area of one chip, mm2, of all its dies",
            "any",
            least=1e-3,
            most=1e9,
            unit="mm2",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    max_power: Annotated[
        float | None,
        About(
            "most watts that one chip may draw with everything on it busy; where it binds, the "
            "clock falls",
            "any",
            least=1e-3,
            most=1e9,
            unit="W",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    max_chip_cost: Annotated[
        float | None,
        About(
            "most US dollars that one chip may cost, with its memory and package",
            "any",
            least=1e-3,
            most=1e12,
            unit="USD",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    max_cluster_cost: Annotated[
        float | None,
        About(
            "most US dollars for all devices, with servers and switches: of each chip as many are "
            "bought, up to --devices, as "
            "its best plan uses and the money allows",
            "any",
            least=1e-3,
            most=1e15,
            unit="USD",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    prices: Annotated[
        str | None,
        About(
            "what chips, clusters and energy cost, by name or YAML file",
            "datacenter_2025",
            hardware=Hardware.CHIPS,
            file=True,
        ),
    ] = None
    constants: Annotated[
        tuple[str, ...] | None,
        About(
            "constants of the hardware to change, KIND.NAME=VALUE or KIND.NAME=2x, such as "
            "platform.glb_bandwidth=2x or "
            "cluster.tiers.*.latency=0; as --set platform.glb_bandwidth=2x too",
            "those of its files",
            lists=BOTH,
        ),
    ] = None
    frequency: Annotated[
        str | None,
        About(
            "clock of the accelerators, GHz, or times their own as 1.2x",
            "that of the design space",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    hbm_bandwidth: Annotated[
        str | None,
        About(
            "bandwidth of their memory, GB/s, or times its own as 2x, which memory as it is sold "
            "takes alone",
            "that of the design space",
            hardware=Hardware.CHIPS,
        ),
    ] = None
    cluster: Annotated[
        str,
        About(
            "cluster, by name or YAML file",
            "phaze_icml24, or where the device usually is",
            file=True,
        ),
    ] = "phaze_icml24"
    software: Annotated[
        str | None,
        About(
            "training framework on devices that exist, by name or YAML file",
            "what the device usually runs",
            hardware=Hardware.DEVICES,
            file=True,
        ),
    ] = None
    fast_domain: Annotated[
        int | None,
        About(
            "devices in each fast domain of the network, its innermost tier (NVLink)",
            "the cluster's own",
            least=2,
            most=2**20,
        ),
    ] = None
    memory_size: Annotated[
        float | None,
        About(
            "memory of a device that exists, GiB or with a unit, in place of its own",
            "its own",
            least=2.0**-10,
            most=2.0**20,
            unit="GiB",
            hardware=Hardware.DEVICES,
        ),
    ] = None
    memory_bandwidth: Annotated[
        float | None,
        About(
            "bandwidth of its memory, GB/s or with a unit",
            "its own",
            least=2.0**-10,
            most=2.0**30,
            unit="GB/s",
            hardware=Hardware.DEVICES,
        ),
    ] = None
    peak_flops: Annotated[
        float | None,
        About(
            "peak of its matrix units in 16 bits, TFLOP/s or with a unit; other formats scale "
            "alike",
            "its own",
            least=2.0**-10,
            most=2.0**30,
            unit="TFLOP/s",
            hardware=Hardware.DEVICES,
        ),
    ] = None
    devices: Annotated[
        int,
        About(
            "devices in use",
            "all of the cluster",
            "as many as tp, pp, cp and dp need; else dp follows from it",
            most=2**20,
        ),
    ]
    use_all_devices: Annotated[
        bool,
        About(
            "search only plans that leave no device idle",
            "true with a device, else false",
            modes=SEARCH,
        ),
    ] = False

    whole_micro_batches: Annotated[
        bool,
        About(
            "search only plans that training frameworks start: in which every replica has as many "
            "whole micro-batches, so that "
            "the global batch is a multiple of micro-batch size x dp",
            "true with a device, else false",
            modes=SEARCH,
        ),
    ] = False

    micro_batch_size: Annotated[
        Ints,
        About(
            "samples per micro-batch",
            "1; with a device 1, 2, 4, 8 and 16 as far as they divide the global batch",
            "1",
            aliases=("phaze_micro_batch_size",),
            most=2**20,
        ),
    ]
    tp: Annotated[
        Ints,
        About(
            "tensor parallel width",
            "1; with a device all that divide the model and a node",
            "1",
            most=4096,
            takes_all=True,
            shorthand=Shorthand(
                "max_tp",
                Kind.INTEGER,
                "largest tensor parallel width N instead of --tp; searched are N and the powers "
                "of two that divide it",
                aliases=("phaze_max_tmp_width",),
                most=4096,
                modes=SEARCH,
            ),
        ),
    ]
    pp: Annotated[
        Ints | None,
        About("pipeline stages", "all that are possible", "1", most=2**16, takes_all=True),
    ] = None
    dp: Annotated[
        Ints | None,
        About(
            "data parallel degree",
            "all that are possible",
            "1, or what --devices leaves",
            most=2**20,
            takes_all=True,
        ),
    ] = None
    cp: Annotated[
        Ints,
        About(
            "context parallel degree",
            "1; of a layout sequence the powers of two above 1",
            "1",
            most=4096,
        ),
    ] = (1,)
    layout: Annotated[
        tuple[LayoutName, ...],
        About(
            "how tensors lie over devices: along one tensor axis, along two (SUMMA on tp x tp2 "
            "devices), or sequences cut over "
            "cp devices; 'auto' for all three",
            "1d",
            "1d; a cp above 1 cuts sequences",
            searched=frozenset({LayoutName.AUTO.value}),
        ),
    ] = (LayoutName.ONE_D,)
    tp2: Annotated[
        Ints,
        About(
            "width of the second tensor axis of a layout 2d",
            "1; of a layout 2d the powers of two",
            "1",
            most=4096,
        ),
    ] = (1,)
    panels: Annotated[
        Ints,
        About(
            "panels in which each product of a layout 2d runs, beside which the next one is on "
            "its way",
            "1; of a layout 2d those of 1, 2, 4, 8, 16 and 32 that divide the model",
            "1; of a layout 2d 4",
            most=4096,
        ),
    ] = (1,)
    exchange: Annotated[
        tuple[KeyExchange, ...],
        About(
            "how queries meet keys and values of tokens on other devices",
            "gather; of layouts 2d, sequence and auto all that are possible",
            "gather",
            takes_all=True,
        ),
    ] = (KeyExchange.GATHER,)
    ep: Annotated[
        Ints,
        About(
            "expert parallel degree",
            "all that divide the model's experts and the devices",
            "1",
            most=4096,
            takes_all=True,
        ),
    ] = (1,)
    recompute: Annotated[
        tuple[Recompute, ...], About("activation recomputation", "all", "none", takes_all=True)
    ] = tuple(Recompute)
    sequence_parallel: Annotated[
        tuple[bool, ...],
        About(
            "split what tensor parallelism leaves whole along the sequence",
            "false; with a device both where the model can",
            "false",
            takes_all=True,
        ),
    ] = (False,)
    interleave: Annotated[
        Ints | None,
        About(
            "model chunks per pipeline stage",
            "1; with a device all that are possible",
            "1",
            most=1024,
            takes_all=True,
        ),
    ] = None
    zero_stage: Annotated[
        Ints,
        About(
            "ZeRO stage, 0 to 3: what is sharded over data parallel devices",
            "0; with a device all",
            "0",
            least=0,
            most=3,
            takes_all=True,
            shorthand=Shorthand(
                "fsdp", Kind.SWITCH, "fully sharded: the same as --zero-stage 3", modes=EVALUATE
            ),
        ),
    ] = (0,)
    group_order: Annotated[
        tuple[GroupOrder | Assignment, ...],
        About(
            "how the parallel groups nest over the devices, innermost first; 'tiers' for every "
            "way in which they share out the "
            "tiers of the network, or one of these ways, as tp4.dp2/dp8.pp4",
            "both orders where the network has several tiers; with a device 'tiers' too",
            GroupOrder.DATA_INNER.value,
            takes_all=True,
            searched=frozenset({GroupOrder.TIERS.value}),
        ),
    ] = (GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER)
    overlap_gradients: Annotated[
        tuple[bool, ...],
        About(
            "whether gradient communication runs beside computation",
            "as the framework of the device does, else false",
            takes_all=True,
        ),
    ] = (False,)
    overlap_tensor: Annotated[
        tuple[bool, ...],
        About(
            "whether tensor-parallel communication runs beside computation",
            "as the framework of the device does, else false",
            takes_all=True,
        ),
    ] = (False,)
    heterogeneous: Annotated[
        bool,
        About(
            "search plans besides whose stages differ in devices, degrees, micro-batch size, ZeRO "
            "stage and how many layers they "
            "recompute",
            "false",
            modes=SEARCH,
            hardware=Hardware.DEVICES,
        ),
    ] = False
    stage_cuts: Annotated[
        StageCuts,
        About(
            "where stages may begin and what is recomputed ends: between layers, or inside them "
            "too wherever a single tensor "
            "passes (between attention and feed-forward), so that parts of layers count as layers",
            "between",
        ),
    ] = StageCuts.BETWEEN
    offload: Annotated[
        tuple[OffloadKind | OffloadShare, ...] | None,
        About(
            "what is kept in host memory, wholly or such a part of it as activations=0.5; a "
            "search tries none, half and all of "
            "each that is named (none and the part where one is given), or of all four with 'auto'",
            "nothing",
            modes=frozenset(Mode),
            lists=frozenset(Mode),
            hardware=Hardware.DEVICES,
            searched=frozenset({OffloadKind.AUTO.value}),
        ),
    ] = None
    gradient_dtype: Annotated[
        StateDtype | None,
        About(
            "format in which gradients are added up over micro-batches and reduced over replicas",
            "as the framework has it: fp32 in bf16 and fp8 under those of today",
        ),
    ] = None
    moment_dtype: Annotated[
        MomentDtype | None, About("format in which the optimizer keeps its moments", "fp32")
    ] = None
    main_weight_dtype: Annotated[
        StateDtype | None,
        About(
            "format of the optimizer's own copy of the weights; that of the weights themselves is "
            "none, and they are updated",
            "fp32 with adam",
        ),
    ] = None
    fp8_weights: Annotated[
        bool | None,
        About(
            "whether weights of blocks are held and gathered in fp8 in a training in fp8, the "
            "optimizer's copy beside them",
            "false",
        ),
    ] = None
    schedule: Annotated[
        PipelineSchedule,
        About(
            "order of the passes", "1f1b, interleaved with several chunks per stage", modes=EVALUATE
        ),
    ] = PipelineSchedule.ONE_F_ONE_B
    stage_layers: Annotated[
        Ints | None,
        About(
            "layers of each stage, or of each chunk in model order, embedding and head counted",
            "balanced blocks",
            repeats=True,
            most=2**16,
            modes=EVALUATE,
            lists=EVALUATE,
        ),
    ] = None

    global_batch_size: Annotated[
        int,
        About(
            "samples per iteration, over all replicas",
            "4096",
            "one micro-batch per replica",
            most=2**24,
        ),
    ] = 4096
    optimizer: Annotated[Optimizer, About("optimizer", "adam")] = Optimizer.ADAM
    precision: Annotated[
        Precision, About("format of matrix products", "bf16; fp16 or fp32 on devices without it")
    ] = Precision.BF16
    attention: Annotated[
        Attention, About("fused and tiled, or separate products with the scores in memory", "flash")
    ] = Attention.FLASH

    objective: Annotated[
        Objective, About("what to maximise", "throughput", modes=SEARCH, hardware=Hardware.CHIPS)
    ] = Objective.THROUGHPUT
    front: Annotated[
        tuple[FrontAxis, ...] | None,
        About(
            "what the Pareto front is of that is certified besides, throughput always among it: "
            "mm2, joules per sample, watts at "
            "the peak, US dollars or embodied carbon of a device (the last three of whole dies); "
            "'none' for no front, which is "
            "the fastest",
            "throughput, area and energy; of whole dies throughput and cost, and none of more "
            "than 20,000",
            modes=SEARCH,
            hardware=Hardware.CHIPS,
        ),
    ] = None
    combine: Annotated[
        Combine | None,
        About(
            "what decides for several models: the weighted geometric mean of their shares (the "
            "objective over the best that the "
            "model reaches alone), the least share, the mean of the shares (a fleet that spends "
            "the weights as parts of its time "
            "on each), or the weighted mean of the objectives themselves",
            "relative",
            modes=SEARCH,
            hardware=Hardware.CHIPS,
        ),
    ] = None
    solver: Annotated[
        SolverName, About("scheduler of operators", "native", hardware=Hardware.CHIPS)
    ] = SolverName.NATIVE
    strict: Annotated[
        bool,
        About(
            "refuse a model with operators that have no cost, instead of pricing them by their "
            "bytes"
        ),
    ] = False

    name: Annotated[
        str,
        About(
            "name of the run and of its folder",
            "the models and a hash of all that can change the answer",
            modes=SEARCH,
            decides=False,
        ),
    ] = ""
    output: Annotated[
        Path | None,
        About(
            "folder of the run and of everything it makes",
            "GraphExtractor/out, Estimator/..., Solver/output",
            "GraphExtractor/out",
            decides=False,
        ),
    ] = None
    csv: Annotated[
        bool, About("also write the design points as CSV", modes=SEARCH, decides=False)
    ] = False
    force_reextract_model: Annotated[
        bool,
        About(
            "extract graphs again even where they are on disk",
            aliases=("force_reextract",),
            modes=SEARCH,
            decides=False,
        ),
    ] = False
    run_folder: Path | None = None
    chunk_layers: StatedChunks | None = None
    stages: StatedStages | None = None
    code: CodePermission = field(default=CodePermission(), compare=False, repr=False)
    name_given: bool = field(default=False, compare=False)

    @property
    def on_devices(self) -> bool:
        """Whether the hardware is given, rather than designed."""
        return self.device is not None

    @property
    def part(self) -> SpacePart:
        """The part of the design space that is searched."""
        return WHOLE if self.space_part is None else SpacePart.parsed(self.space_part)

    @property
    def hbm_sizes_bytes(self) -> Ints:
        """HBM per accelerator in bytes."""
        return tuple(round(size * GIB) for size in self.hbm_size)

    @property
    def folders(self) -> Folders:
        """Where artefacts go."""
        folders = folders_of(self.output, self.name)
        return (
            folders
            if self.run_folder is None
            else Folders(folders.graphs, folders.estimates, folders.arch_configs, self.run_folder)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the request is understood."""
        replicas = self.dp[0] if self.mode is Mode.EVALUATE and self.dp else None
        told = () if self.whole_micro_batches else self.micro_batch_size
        sizes = [
            note for size in told if (note := uneven_batch(self.global_batch_size, size, replicas))
        ]
        sizes += self._unequal_chunks()
        space = self.hardware.space
        if space is not None and self.max_area is not None and self.max_area > space.budget_mm2:
            sizes.append(
                f"max_area is {number(self.max_area)} mm2, but no chip of {space.name} has more "
                "than the "
                f"{number(space.budget_mm2)} mm2 of its own budget; a file of the space with a "
                "larger one may have larger chips"
            )
        return tuple(sizes)

    def _unequal_chunks(self) -> list[str]:
        """That frameworks interleave equal chunks alone, of one plan that has others and does not
        say which."""
        from GraphExtractor.models.registry import find_model

        chunks, stages = max(self.interleave or (1,)), max(self.pp or (1,))
        if (
            self.mode is Mode.SEARCH
            or chunks == 1
            or self.stage_layers is not None
            or self.chunk_layers is not None
        ):
            return []
        family = find_model(self.models[0].name)
        if len(family.blocks) != 1 or not family.layers % (stages * chunks):
            return []
        return [
            f"pp x interleave = {stages * chunks} does not divide the {family.layers} blocks of "
            "the model: training frameworks "
            "interleave equal chunks alone, unless they are told which layers each has"
        ]

    def sequence_length_of(self, model: str) -> int:
        """Tokens per sample of one of the models."""
        return dict(zip((each.name for each in self.models), self.sequence_length, strict=True))[
            model
        ]

    def as_mapping(self) -> dict[str, Any]:
        """Every setting that applies, by its key, as plain values: ``resolve`` of it gives the same
        request.

        Lists where several values may be given, the word ``all`` where every possible one is
        searched. A name made from the inputs is left out: with another input it is another study,
        which must not overwrite this one.
        """
        values = {
            each.key: _plain(getattr(self, each.name), each)
            for each in self.applying()
            if each.name != "name"
        }
        name = {"name": self.name} if self.name_given else {}
        return {key: value for key, value in (values | name).items() if value not in (None, [])}

    def applying(self) -> tuple[StatedField, ...]:
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


def uneven_batch(global_batch_size: int, micro_batch_size: int, dp: int | None = None) -> str:
    """What is said of a batch that is no whole number of micro-batches on each of ``dp`` replicas
    (None: any); empty: it is."""
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
def request_fields() -> tuple[StatedField, ...]:
    """The fields of a request that are settings."""
    return stated_fields(Request)


@cache
def settings_for(mode: Mode) -> SettingTable:
    """All settings that a mode takes."""
    return settings_of(request_fields(), mode)


def _plain(value: Any, field: StatedField) -> Any:
    """As YAML has it; None where there is nothing to say."""
    if value is None:
        return ALL if field.about.takes_all else None
    if isinstance(value, tuple):
        return [_plain(each, field) for each in value]
    if isinstance(value, float):
        return int(value) if value == int(value) else value
    if isinstance(value, Path | WeightedModel):
        return str(value)
    return getattr(value, "value", value)
