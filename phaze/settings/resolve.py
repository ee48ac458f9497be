"""Makes a request of settings: for the command line, scripts, sweeps and the library alike.

Precedence, weakest first: defaults, the ``--config`` or ``--plan`` file, the command line (flags
and ``--set`` alike, the later one wins).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.chip_limits import ChipLimits
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.design_space_files import SpaceChanges
from Estimator.chips.own_links import own_links
from Estimator.constants import ConstantChange, Kind, asked_of, changed
from Estimator.devices.changed import DeviceSizes, with_sizes
from Estimator.devices.device import Device
from Estimator.devices.files import check_device, check_software
from Estimator.hardware_files import check_cluster
from Estimator.network.cluster import Cluster, with_devices, with_fast_domain
from Estimator.network.own_links import check_links
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.names import label
from GraphExtractor.permission import permission
from phaze.settings.applicability import inapplicable, unasked
from phaze.settings.checks import check_request
from phaze.settings.config_files import SETTING, code_allowed, defaults_of, split_weight
from phaze.settings.defaults import Situation, values_of_one_plan, values_of_search
from phaze.settings.file_contents import result_key
from phaze.settings.hardware import CHIP_SOFTWARE, HardwareFiles, ResolvedHardware, content_of
from phaze.settings.request import (
    HardwareSettings,
    Request,
    StatedChunks,
    StatedStages,
    WeightedModel,
    request_fields,
    settings_for,
)
from phaze.settings.specified_constants import CONSTANTS, JOINED, dotted, specified_changes
from phaze_common.choices import Combine, FrontAxis
from phaze_common.errors import InputError
from phaze_common.file_formats import STUDY
from phaze_common.files import user_path
from phaze_common.refusals import Refusals
from phaze_common.setting_fields import Mode
from phaze_common.settings import COMMAND_LINE

LONGEST_MODELS, LONGEST_DEVICE = 60, 20  # in a name made from them
NAMED = (
    *("device", "cluster", "software", "attention_kernel"),
    *("design_space", "technology", "chip", "prices"),
)
Record = TypeVar("Record")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def resolve(
    config: Mapping[str, object],
    overrides: Mapping[str, object],
    mode: Mode = Mode.SEARCH,
    *,
    source: str = "the configuration",
    files: HardwareFiles | None = None,
    chunk_layers: StatedChunks | None = None,
    stages: StatedStages | None = None,
    run_code: frozenset[str] | None = frozenset(),
) -> Request:
    """The request that ``config`` (named ``source`` in refusals) and, over it, the command line's
    ``overrides`` state.

    Both are under any names of the settings. Relative paths in ``config`` must be absolute already
    (see ``read_config``). ``files`` reads hardware; requests that share one see the same records.
    ``chunk_layers`` and ``stages`` as of a ``Request``. Models that ``config`` names are run only
    where they are among ``run_code`` (None: all are).

    Raises: InputError: unknown keys, models or hardware, values that are not allowed or contradict
        each other.
    """
    config, overrides = dotted(STUDY.current(config, source)), dotted(overrides)
    specified = _specified(config, overrides, mode, source)
    refusals = Refusals()
    models = refusals.attempt(lambda: _models(specified, mode), ())
    families = refusals.attempt(
        lambda: {model.name: find_model(model.name) for model in models}, {}
    )
    names, hardware = refusals.finish(lambda: _hardware(specified, mode, files or HardwareFiles()))
    situation = Situation(tuple(families.values()), hardware)
    if mode is Mode.SEARCH:
        plans = values_of_search(specified, situation)
    else:
        plans = values_of_one_plan(specified, situation)
    request = Request.of(
        {
            "devices": hardware.cluster.num_devices,
            "whole_micro_batches": mode is Mode.SEARCH and hardware.device is not None,
            "use_all_devices": mode is Mode.SEARCH and hardware.device is not None,
            **{
                each.name: specified[each.key] for each in request_fields() if each.key in specified
            },
            **names,
            **plans,
            "models": models,
            "front": _front(specified.get("front")),
            "combine": _combine(specified.get("combine"), models),
            "sequence_length": _sequence_lengths(
                specified.get("sequence_length"), models, families
            ),
            "hbm_size": _hbm_sizes(specified.get("hbm_size"), hardware),
            "output": user_path(specified["output"]) if "output" in specified else None,
        },
        mode=mode,
        records=hardware,
        chunk_layers=chunk_layers,
        stages=stages,
        code=permission(families, source, code_allowed(overrides, run_code, mode)),
    )
    check_request(request, families)
    name = request.output.name
    return replace(request.with_settings(name=name or default_name(request)), name_given=bool(name))


def _specified(
    config: Mapping[str, object], overrides: Mapping[str, object], mode: Mode, source: str
) -> dict[str, Any]:
    """Settings by key, checked before any file of hardware or model is read."""
    table, refusals = settings_for(mode), Refusals()
    below = table.read_all(config, source, refusals)
    above = table.read_all(overrides, COMMAND_LINE, refusals)
    named = above.pop(SETTING, below.pop(SETTING, None))
    origin = f"setting {named}"
    defaults: dict[str, Any] = {}
    if isinstance(named, str):
        defaults = refusals.attempt(lambda: table.read(dotted(defaults_of(named)), origin), {})
    complete = not refusals
    both = table.override(below, above)
    joined = [
        each[JOINED] for each in (defaults, below, above) if isinstance(each.get(JOINED), tuple)
    ]
    if len(joined) > 1:
        # the last one of a constant counts
        both[JOINED] = tuple(change for changes in joined for change in changes)
    specified = {
        key: value for key, value in table.override(defaults, both).items() if value is not None
    }
    origins = {
        key: COMMAND_LINE if key in above else source if key in below else origin
        for key in specified
    }
    for refusal in (
        *inapplicable(specified, origins),
        *(unasked(specified, mode, source if config else None) if complete else ()),
    ):
        # with an unknown key, what seems not to be given may be what is misspelt
        refusals.add(refusal)
    refusals.raise_any()
    return specified


def default_name(request: Request) -> str:
    """Models, devices and a hash of everything that can change the answer."""
    names = "-".join(label(model.name) for model in request.workload.models)[:LONGEST_MODELS]
    if request.records.device is not None:
        device = _UNSAFE.sub("_", request.records.device.name)[:LONGEST_DEVICE]
        names += f"-{device}-{request.hardware.devices}"
    return f"{names}-{result_key(request)[:8]}"


def _models(specified: Mapping[str, Any], mode: Mode) -> tuple[WeightedModel, ...]:
    texts = specified["model"]
    if mode is Mode.EVALUATE:
        return (WeightedModel(canonical_name(texts)),)
    if "device" in specified and len(texts) > 1:
        raise InputError(
            f"a search on given devices places one model, given {', '.join(texts)}; name one with "
            "--model"
        )
    refusals = Refusals()
    found = (refusals.attempt(partial(_model, text), None) for text in texts)
    models = [model for model in found if model is not None]
    refusals.raise_any()
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"model {twice!r} is given twice; list every model once, with a weight if it counts "
            f"more: {twice}=2"
        )
    return tuple(models)


def _combine(specified: Combine | None, models: tuple[WeightedModel, ...]) -> Combine | None:
    if len(models) > 1:
        return specified or Combine.RELATIVE
    if specified is not None:
        raise InputError(
            f"--combine {specified} is about several models, and one is given; name others with "
            "--model, or leave it out"
        )
    return None


def _front(specified: tuple[FrontAxis, ...] | None) -> tuple[FrontAxis, ...] | None:
    if specified is None or specified == (FrontAxis.NONE,):
        return specified
    if FrontAxis.NONE in specified:
        others = " ".join(axis for axis in specified if axis is not FrontAxis.NONE)
        raise InputError(f"front is none and {others} too; give none alone, or leave it out")
    return tuple(axis for axis in FrontAxis if axis in {FrontAxis.THROUGHPUT, *specified})


def _model(text: str) -> WeightedModel:
    name, weight_text = split_weight(text)
    try:
        weight = 1.0 if weight_text is None else float(weight_text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e12:
        raise InputError(f"the weight in {text!r} must be a positive number, as in bertlarge=2")
    return WeightedModel(canonical_name(name), weight)


def _sequence_lengths(
    specified: int | tuple[int, ...] | None,
    models: tuple[WeightedModel, ...],
    families: Mapping[str, ModelFamily],
) -> tuple[int, ...]:
    if specified is None:
        return tuple(families[model.name].sequence_length for model in models)
    lengths = (specified,) if isinstance(specified, int) else specified
    if len(lengths) not in {1, len(models)}:
        raise InputError(
            f"sequence_length lists {len(lengths)} lengths for {len(models)} models; give one for "
            "all, or one for each in order"
        )
    return lengths * len(models) if len(lengths) == 1 else lengths


def _hbm_sizes(
    specified: float | tuple[float, ...] | None, hardware: ResolvedHardware
) -> tuple[float, ...]:
    if hardware.device is not None:
        return ()
    if specified is None:
        whole = hardware.space is not None and hardware.space.axes.memory is not None
        # memory as it is sold says how much there is
        return () if whole else HardwareSettings.hbm_size
    return (specified,) if isinstance(specified, int | float) else specified


@dataclass(frozen=True)
class _Loaded:
    """A device, or a design space and the chip of it that is asked for, with the names as they will
    be recorded and the changes of constants."""

    names: dict[str, str | None]
    constants: tuple[ConstantChange, ...]
    device: Device | None = None
    space: DesignSpace | None = None
    chip: Accelerator | None = None


def _hardware(
    values: Mapping[str, Any], mode: Mode, files: HardwareFiles
) -> tuple[dict[str, str | None], ResolvedHardware]:
    named = {key: files.named(key, values[key]) for key in NAMED if key in values}
    refusals = Refusals()
    for key, load in (("cluster", files.cluster), ("software", files.software)):
        if key in named:
            refusals.attempt(partial(load, named[key]), None)
    of = _of_device if "device" in named else _of_space
    loaded = of(values, named, files, refusals)
    names, constants = loaded.names, loaded.constants
    cluster_name, software_name = str(names["cluster"]), names.get("software") or CHIP_SOFTWARE
    whole = _blaming(files.cluster, cluster_name, named, "cluster")
    software = _blaming(files.software, software_name, named, "software")
    if constants:
        whole = changed(whole, Kind.CLUSTER, constants)
        software = changed(software, Kind.SOFTWARE, constants)
        check_cluster(whole, asked_of(constants, Kind.CLUSTER))
        check_software(software, asked_of(constants, Kind.SOFTWARE))
    kernel = None
    if "attention_kernel" in named:
        kernel = _blaming(files.kernel, named["attention_kernel"], named, "attention_kernel")
        software = software.calling(kernel)
        names["attention_kernel"] = named["attention_kernel"]
    if loaded.space is not None:
        _check_own_links(loaded.space, loaded.chip, files.cluster(cluster_name), whole)
    cluster = with_fast_domain(whole, values["fast_domain"]) if "fast_domain" in values else whole
    if "devices" in values and mode is Mode.SEARCH:
        cluster = with_devices(cluster, values["devices"])
    records = {
        "device": None if loaded.device is None else files.device(named["device"]),
        "cluster": whole,
        "software": software,
        "attention_kernel": kernel,
        "chip": loaded.chip,
    }
    contents = {
        key: content_of(record) for key, record in records.items() if _is_file(names.get(key))
    }
    if any(_is_file(names.get(key)) for key in ("design_space", "technology")):
        contents["design_space"] = content_of(loaded.space)
    return names, ResolvedHardware(
        cluster, software, loaded.device, loaded.space, loaded.chip, contents
    )


def _of_device(
    values: Mapping[str, Any], named: Mapping[str, str], files: HardwareFiles, refusals: Refusals
) -> _Loaded:
    device = refusals.finish(lambda: files.device(named["device"]))
    names: dict[str, str | None] = {
        "device": named["device"],
        "software": named.get("software", device.software),
        "cluster": named.get("cluster", device.cluster),
        "design_space": None,
    }
    constants = specified_changes(values, whole=False)
    sizes = DeviceSizes(*map(values.get, ("memory_size", "memory_bandwidth", "peak_flops")))
    # a factor is of what is stated
    used = changed(with_sizes(device, sizes), Kind.DEVICE, constants)
    if used.profile is None and constants:
        check_device(used, asked_of(constants, Kind.DEVICE))
    return _Loaded(names, constants, device=used)


def _of_space(
    values: Mapping[str, Any], named: Mapping[str, str], files: HardwareFiles, refusals: Refusals
) -> _Loaded:
    cluster = named.get("cluster", HardwareSettings.cluster)
    name = named.get("design_space", str(HardwareSettings.design_space))
    changes = refusals.attempt(
        lambda: _changes(values, named, _link_bandwidth(cluster, files), files), SpaceChanges()
    )

    def load() -> _Loaded:
        space = files.design_space(name, changes)
        constants = specified_changes(values, whole=space.axes.memory is not None)
        if CONSTANTS & values.keys():
            links = _of_all_links(changed(files.cluster(cluster), Kind.CLUSTER, constants))
            others = replace(changes, constants=constants, link_bandwidth_bytes_per_s=links)
            space = files.design_space(name, others)
        chip = files.chip(named["chip"], space) if "chip" in named else None
        names = {
            "design_space": name,
            "technology": space.technology,
            "cluster": cluster,
            **{key: named.get(key) for key in ("chip", "prices")},
        }
        return _Loaded(names, constants, space=space, chip=chip)

    return refusals.finish(load)


def _link_bandwidth(cluster: str, files: HardwareFiles) -> float:
    """Bytes per second of a chip's links; 0 where there is no such cluster."""
    try:
        return _of_all_links(files.cluster(cluster))
    except InputError:
        return 0.0


def _of_all_links(cluster: Cluster) -> float:
    """What all links of a chip carry each way, in bytes per second."""
    first = cluster.tiers[0]
    return first.bandwidth_bytes_per_s * max(first.link_parts, 1)


def _changes(
    values: Mapping[str, Any], overrides: Mapping[str, str], links: float, files: HardwareFiles
) -> SpaceChanges:
    """The changes of a design space for chips with ``links`` in bytes per second."""
    prices = files.prices(overrides["prices"]) if "prices" in overrides else None
    limits = ChipLimits(
        *(values.get(key) for key in ("max_area", "max_power", "max_chip_cost", "max_cluster_cost"))
    )
    return SpaceChanges(
        technology=overrides.get("technology"),
        memory=_several(values.get("memory")),
        links=_several(values.get("links")),
        limits=limits,
        link_bandwidth_bytes_per_s=links,
        prices=prices,
    )


def _several(value: Any) -> tuple[str, ...]:
    """What was given once or as a list, where a mode takes one value alone."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def _check_own_links(
    space: DesignSpace, chip: Accelerator | None, specified: Cluster, used: Cluster
) -> None:
    """Refuse links of chips that ``used``, which is ``specified`` with other constants, has no use
    for, or no use for its own."""
    axis = space.axes.links or () if chip is None else (chip.links,)
    own = [own_links(text) for text in axis if text is not None]
    for links in own:
        check_links(used, links)
    for before, after in zip(specified.tiers, used.tiers, strict=True):
        if (
            own
            and before.link_parts
            and before.bandwidth_bytes_per_s != after.bandwidth_bytes_per_s
        ):
            raise InputError(
                f"the bandwidth of tier {before.name} of cluster {specified.name} is changed, but "
                f"follows from the chips' own links ({own[0].label}); change these with --links, "
                "or name the tiers whose bandwidth is meant"
            )


def _blaming(
    load: Callable[[str], Record], name: str, named: Mapping[str, str], key: str
) -> Record:
    """``load(name)``; a refusal says which device names it, if one does."""
    try:
        return load(name)
    except InputError as error:
        if key in named or "device" not in named:
            raise
        raise InputError(f"{named['device']}: {error}") from error


def _is_file(name: str | None) -> bool:
    return name is not None and "/" in name  # named_file made paths absolute
