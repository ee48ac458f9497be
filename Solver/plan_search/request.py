"""What a search on given hardware is asked, resolved and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.files import content_key, named_file, user_path
from Estimator.devices.device import Device, Software
from Estimator.devices.files import load_device, load_software
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, with_devices
from GraphExtractor.graph import Attention, Recompute
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.names import label
from GraphExtractor.widths import allowed_widths, check_key
from Plans.plan import Precision, TrainingPlan, usual_precision
from Solver.plan_search.settings import PLAN_SEARCH, refuse_settings_of_chips
from Solver.plan_search.space import PlanSpace
from Studies.study import REPOSITORY, split_weight, tp_widths_of

MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
DEFAULT_GLOBAL_BATCH_SIZE = 4096


@dataclass(frozen=True)
class PlanSpaceSize:
    """Shapes are tp x micro-batch x recomputation x sequence parallelism; a shape has many plans.

    ``plans`` is None where only a trace tells how many blocks the model has.
    """

    shapes: int
    plans: int | None


@dataclass(frozen=True)
class PlanRequest:
    """One model on ``cluster.num_devices`` devices; ``space`` says what is searched."""

    model: str
    sequence_length: int
    device: Device
    cluster: Cluster
    software: Software
    space: PlanSpace
    hardware: Mapping[str, str]  # device, cluster and software as they were named: names, or absolute paths of YAML files
    name: str
    graphs: Path
    run: Path
    csv: bool
    force_reextract: bool
    strict: bool = False

    @property
    def size(self) -> PlanSpaceSize:
        """What would be searched."""
        shapes = list(self.space.shapes())
        blocks = find_model(self.model).layers
        plans = sum(1 for each in shapes for _ in self.space.plans(each, blocks, self.cluster)) if blocks else None
        return PlanSpaceSize(len(shapes), plans)

    def as_mapping(self) -> dict[str, Any]:
        """What was asked, as plain values under the keys of the settings."""
        space = self.space
        return {
            "model": self.model,
            **self.hardware,
            "devices": space.devices,
            "sequence_length": self.sequence_length,
            "global_batch_size": space.base.global_batch_size,
            "precision": space.base.precision.value,
            "attention": space.base.attention.value,
            "optimizer": space.base.optimizer,
            "tp": list(space.tp_widths),
            "ep": list(space.ep_degrees),
            "micro_batch_size": list(space.micro_batch_sizes),
            "recompute": [mode.value for mode in space.recompute],
            "sequence_parallel": space.sequence_parallel[0] if len(space.sequence_parallel) == 1 else None,
            "interleave": None if space.interleave is None else list(space.interleave),
            "zero_stage": list(space.zero_stages),
        }


def plan_request(config: Mapping[str, object], given: Mapping[str, object], source: str = "the configuration") -> PlanRequest:
    """Resolve a request from the ``--config`` mapping and the command line, which precedes it.

    Raises:
        InputError: unknown names, values that are not allowed or contradict each other.
    """
    refuse_settings_of_chips(config, source)
    refuse_settings_of_chips(given, "command line")
    below, above = PLAN_SEARCH.read(config, source), PLAN_SEARCH.read(given, "command line")
    values = {key: value for key, value in PLAN_SEARCH.override(below, above).items() if value is not None}
    model = _model(values)
    device_file = named_file("device", values["device"])
    device = load_device(device_file)
    cluster_file = named_file("cluster", values.get("cluster", device.cluster))
    cluster = load_cluster(cluster_file)
    if "devices" in values:
        cluster = with_devices(cluster, values["devices"])
    length = values.get("sequence_length") or find_model(model).sequence_length
    space = _space(values, model, length, device, cluster)
    software_file = named_file("software", values.get("software", device.software))
    software = load_software(software_file)
    root = user_path(values["output"]) if "output" in values else REPOSITORY
    question = (model, length, device, cluster, software, space)
    shown = f"{label(model)}-{device.name}-{cluster.num_devices}"
    name = values.get("name") or f"{shown}-{content_key(repr(question))[:8]}"
    return PlanRequest(
        model=model,
        sequence_length=length,
        device=device,
        cluster=cluster,
        software=software,
        space=space,
        hardware={"device": device_file, "cluster": cluster_file, "software": software_file},
        name=name,
        graphs=root / "GraphExtractor" / "out",
        run=root if "output" in values else root / "Solver" / "output" / name,
        csv=values.get("csv", False),
        force_reextract=values.get("force_reextract_model", False),
        strict=values.get("strict", False),
    )


def _model(values: Mapping[str, Any]) -> str:
    names = values.get("model", ())
    if len(names) != 1:
        given = "none" if not names else ", ".join(names)
        raise InputError(f"a search on given devices places one model, given {given}; name one with --model")
    return canonical_name(split_weight(names[0])[0])


def _space(values: Mapping[str, Any], model: str, length: int, device: Device, cluster: Cluster) -> PlanSpace:
    batch = values.get("global_batch_size", DEFAULT_GLOBAL_BATCH_SIZE)
    base = TrainingPlan(
        global_batch_size=batch,
        optimizer=values.get("optimizer", "adam"),
        precision=Precision(values.get("precision", usual_precision(device))),
        attention=Attention(values.get("attention", "flash")),
    )
    device.peak_flops(base.precision.matrix_format)
    sizes = values.get("micro_batch_size") or tuple(size for size in MICRO_BATCH_SIZES if batch % size == 0)
    too_large = [size for size in sizes if size > batch]
    if too_large:
        raise InputError(f"micro-batch size {too_large[0]} exceeds the global batch size {batch}; make it smaller")
    widths = _widths(values, model, cluster)
    degrees = _expert_degrees(values, model, cluster)
    for plan in (*(TrainingPlan(tp=width) for width in widths), *(TrainingPlan(ep=degree) for degree in degrees)):
        check_key(plan.graph_key(model, length), find_model(model))
    sequence = values.get("sequence_parallel")
    return PlanSpace(
        devices=cluster.num_devices,
        base=base,
        sequence_length=length,
        tp_widths=widths,
        micro_batch_sizes=tuple(sizes),
        recompute=tuple(Recompute(mode) for mode in values.get("recompute", tuple(Recompute))),
        sequence_parallel=((False, True) if find_model(model).splits_sequence else (False,)) if sequence is None else (sequence,),
        interleave=values.get("interleave"),
        zero_stages=values.get("zero_stage", (0, 1, 2, 3)),
        ep_degrees=degrees,
    )


def _widths(values: Mapping[str, Any], model: str, cluster: Cluster) -> tuple[int, ...]:
    """Widths as asked, else all that divide the model and the groups of the cluster's innermost tier."""
    if "tp" in values or "max_tp" in values:
        return tp_widths_of(values.get("tp"), values.get("max_tp", 1))
    inside = min(cluster.tiers[0].group_size, cluster.num_devices)
    return tuple(width for width in allowed_widths(find_model(model)) if inside % width == 0)


def _expert_degrees(values: Mapping[str, Any], model: str, cluster: Cluster) -> tuple[int, ...]:
    """Degrees as asked, else all that divide the model's experts and the devices."""
    if "ep" in values:
        return tuple(values["ep"])
    common = math.gcd(find_model(model).experts, cluster.num_devices) if find_model(model).experts else 1
    return tuple(degree for degree in range(1, common + 1) if common % degree == 0)
