"""``phaze list``: what can be named on the command line and in files, with a line each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli import mode, models
from phaze.cli.exit_status import DONE
from phaze.cli.listed_kinds import LISTED
from phaze.cli.printing import print_rows
from phaze_common.choices import ExpertOverlap, Precision
from phaze_common.echo import say
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from phaze_common.units import GB, GIB, MIB

if TYPE_CHECKING:
    from Estimator.network.cluster import Cluster

TERA = 1e12
LONGEST_CLAUSE = 60
_CLAUSE_END = re.compile(r"[:;] |\. (?=[A-Z])")
_SENTENCE_END = re.compile(r"\. (?=[A-Z])|\.$")

Row = dict[str, object]


@dataclass(frozen=True)
class Listed:
    """What ships as files of ``folder``, with a row of its key figures."""

    folder: str
    flag: str
    row: Callable[[Path], Row]


@dataclass(frozen=True, kw_only=True)
class ListCommand(mode.Command):
    """List what can be named: models, devices, clusters, software, design spaces, technologies,
    memories, prices, chips."""

    kind: str | None = mode.word(None, f"one of {', '.join(LISTED)} (default: the kinds)", "KIND")


def run(command: ListCommand) -> int:
    """Print what of a kind can be named; without a kind, what kinds there are."""
    if command.kind is None:
        print_rows(
            "what can be listed: phaze list KIND", [_summary(each) for each in LISTED], command
        )
        return DONE
    kind = command.kind.replace("_", "-")
    if kind not in LISTED:
        kinds = ", ".join(LISTED)
        raise InputError(
            f"nothing is listed as {kind!r}; {nearest(kind, LISTED, f'the kinds are {kinds}')}"
        )
    if kind == "models":
        return models.run(models.Models(output_format=command.output_format))
    rows = _rows(kind)
    print_rows(kind, rows, command, json_only=["file"])
    if command.output_format != "json":
        say(sys.stdout, [_how_to_name(kind)])
    return DONE


def _summary(kind: str) -> Row:
    return {
        "kind": kind,
        "names": len(names_of(kind)),
        "named_with": ", ".join(LISTED[kind].flags),
        "what": LISTED[kind].what,
    }


def names_of(kind: str) -> tuple[str, ...]:
    """Names of a kind of ``LISTED``."""
    if kind == "models":
        from GraphExtractor.models.registry import listed_models

        return tuple(listed_models())
    if kind == "chips":
        return tuple(str(row["name"]) for row in _chips())
    from Estimator.hardware_files import hardware_names

    return hardware_names(_FILES[kind].folder)


def _rows(kind: str) -> list[Row]:
    if kind == "chips":
        return _chips()
    from Estimator.hardware_files import hardware_names, hardware_path

    files = _FILES[kind]
    paths = [hardware_path(files.folder, name) for name in hardware_names(files.folder)]
    return [files.row(path) | {"file": str(path)} for path in paths]


def _how_to_name(kind: str) -> str:
    folder = _shown_path(_folder(kind))
    if kind == "memories":
        return (
            "named with --memory NAME:STACKS, figures are of one stack; from "
            f"{folder}/NAME.yaml; your own by its path"
        )
    flags = " or ".join(f"{flag} NAME" for flag in LISTED[kind].flags)
    if kind == "chips":
        return (
            f"named with {flags}; from {folder}/{_default_space()}.yaml; a YAML file of such "
            "sizes is named by its path"
        )
    return (
        f"named with {flags}; from {folder}/NAME.yaml; a file of your own like these is named "
        "by its path"
    )


def _folder(kind: str) -> Path:
    from Estimator.hardware_files import HARDWARE

    return HARDWARE / ("design_spaces" if kind == "chips" else _FILES[kind].folder)


def _shown_path(path: Path) -> str:
    """From the current folder where it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _comment(path: Path) -> str:
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def _sentence(path: Path) -> str:
    text = _comment(path)
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def _clause(path: Path) -> str:
    clause = _CLAUSE_END.split(_comment(path), maxsplit=1)[0].rstrip(".")
    return clause if len(clause) <= LONGEST_CLAUSE else clause.partition(", ")[0]


def _device(path: Path) -> Row:
    from Estimator.devices.files import load_device

    device = load_device(str(path))
    peak = device.matrix.peak
    best = next(each for each in (Precision.BF16, Precision.FP16) if each.matrix_format in peak)
    return {
        "name": path.stem,
        "TFLOP/s": round(peak[best.matrix_format].value / TERA, 1),
        "in": best.value,
        "memory_GiB": round(device.memory.capacity.value / GIB, 1),
        "GB/s": round(device.memory.bandwidth.value / GB),
        "cluster": device.cluster,
        "software": device.software,
        "known": device.evidence.value,
        "what": device.title,
    }


def _cluster(path: Path) -> Row:
    from Estimator.hardware_files import load_cluster

    cluster = load_cluster(str(path))
    return {
        "name": path.stem,
        "devices": cluster.num_devices,
        "groups_at_GB/s": _tiers(cluster),
        "topology": _topology(cluster),
        "what": _clause(path),
    }


def _tiers(cluster: Cluster) -> str:
    return ", ".join(
        f"{tier.group_size:,} at {tier.bandwidth_bytes_per_s / GB:.4g}" for tier in cluster.tiers
    )


def _topology(cluster: Cluster) -> str:
    """That of every tier from the inside out, the dimensions of a torus together."""
    alike = (
        (topology.value, len([*tiers]))
        for topology, tiers in groupby(cluster.tiers, lambda tier: tier.topology)
    )
    named = (
        [f"{count}D torus"] if topology == "torus" else [topology] * count
        for topology, count in alike
    )
    return ", ".join(name for names in named for name in names)


def _software(path: Path) -> Row:
    from Estimator.devices.files import load_software
    from Estimator.devices.software import NEWEST

    software = load_software(str(path))
    overlaps = {
        "gradients": software.overlap_gradients,
        "tensor": software.overlap_tensor,
        "pipeline": software.overlap_pipeline,
        "experts": software.overlap_experts is not ExpertOverlap.NONE,
    }
    return {
        "name": path.stem,
        "year": str(software.year) if software.year < NEWEST else "-",
        "overlaps": ", ".join(name for name, does in overlaps.items() if does) or "-",
        "dispatcher": software.dispatcher.value if software.grouped is not None else "-",
        "attention_kernel": software.attention_kernel,
        "gradient_bytes": round(software.gradient_bytes_in(Precision.BF16)),
        "us_per_launch": round(software.host_issue.value * 1e6, 2),
        "reserved_GiB": round(software.reserved_memory.value / GIB, 2),
        "what": _clause(path),
    }


def _design_space(path: Path) -> Row:
    from Estimator.chips.design_space_files import load_design_space

    space = load_design_space(str(path))
    return {
        "name": path.stem,
        "accelerators": len(space.generate()),
        "largest_mm2": round(space.budget_mm2, 1),
        "technology": Path(space.technology).stem,
        "chips": ", ".join(chip.name for chip in space.references),
        "what": _sentence(path),
    }


def _technology(path: Path) -> Row:
    from Estimator.hardware_files import load_technology

    technology = load_technology(str(path))
    return {
        "name": path.stem,
        "node_nm": technology.node_nm,
        "pJ_per_MAC": technology.mac_energy.value,
        "HBM_pJ/byte": technology.hbm_energy.value,
        "what": _sentence(path),
    }


def _chips() -> list[Row]:
    from Estimator.chips.design_space_files import load_design_space
    from Estimator.hardware_files import hardware_path

    rows: list[Row] = []
    for chip in load_design_space(_default_space()).references:
        sizes = chip.accelerator
        rows.append(
            {
                "name": chip.name,
                "tensor_cores": f"{sizes.num_tc} of {sizes.width}x{sizes.depth}",
                "vector_cores": f"{sizes.num_vc} of {sizes.width_vc}",
                "GLB_MiB": sizes.glb_bytes // MIB,
                "area_mm2": round(sizes.area_mm2, 2),
                "what": chip.source,
                "file": str(hardware_path("design_spaces", _default_space())),
            }
        )
    return rows


def _default_space() -> str:
    from phaze.settings.request import HardwareSettings

    return str(HardwareSettings.design_space)


def _memory(path: Path) -> Row:
    from Estimator.chips.memory_files import load_memory

    memory = load_memory(str(path))
    return {
        "name": path.stem,
        "GiB": round(memory.stack_bytes / GIB, 2),
        "GB/s": round(memory.stack_bandwidth_bytes_per_s / GB),
        "mm2": round(memory.phy_area.value + memory.controller_area.value, 2),
        "edge_mm": memory.edge.value,
        "pJ/byte": memory.energy.value,
        "USD_per_GiB": memory.price_per_gib.value,
        "what": _clause(path),
    }


def _prices(path: Path) -> Row:
    from Estimator.chips.cost import load_prices

    prices = load_prices(str(path))
    return {
        "name": path.stem,
        "date": prices.date,
        "USD_per_kWh": prices.electricity.value,
        "PUE": prices.pue.value,
        "years": prices.service.value,
        "what": _sentence(path),
    }


_FILES: Mapping[str, Listed] = {
    "devices": Listed("devices", "--device", _device),
    "clusters": Listed("clusters", "--cluster", _cluster),
    "software": Listed("software", "--software", _software),
    "design-spaces": Listed("design_spaces", "--design-space", _design_space),
    "technologies": Listed("technologies", "--technology", _technology),
    "memories": Listed("memories", "--memory", _memory),
    "prices": Listed("prices", "--prices", _prices),
}


MODE = mode.Mode("list", mode.FIND_YOUR_WAY, ListCommand, run)
