"""Hardware records from YAML: by name from ``Estimator/hardware/<kind>/``, or by path from
anywhere.

Unknown names, unreadable files, bad keys, units and values are refused with an ``InputError``.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from Estimator.chips.accelerator import Dataflow, Platform, VectorFunctions
from Estimator.chips.process import process_problems
from Estimator.chips.technology import CapacityTable, Quantity, Technology, units_of
from Estimator.network.cluster import Cluster, ShortProtocol, Tier, Topology
from Estimator.profiled.device import profiled_cluster
from Estimator.profiled.machine import profile_folder
from Estimator.quantity import quantity_problems
from phaze_common.errors import InputError
from phaze_common.file_formats import CLUSTER, PLATFORM, TECHNOLOGY, VECTOR_FUNCTIONS
from phaze_common.records import read_yaml, to_record
from phaze_common.refusals import FileRefusals
from phaze_common.suggestions import nearest

# bytes; times 2^40 elements of a core they stay in 64 bits
LARGEST_L2_PER_PE, LARGEST_L2, LARGEST_ELEMENT = 2**20, 2**40, 64
HARDWARE = Path(__file__).parent / "hardware"
LISTED = frozenset(
    {"devices", "clusters", "software", "design_spaces", "technologies", "memories", "prices"}
)  # by ``phaze list``


@dataclass(frozen=True)
class PlatformFile:
    """A platform as its file states it; ``Platform`` is the same in plain numbers."""

    frequency: Annotated[Quantity, "Hz"]  # clock
    hbm_bandwidth: Annotated[Quantity, "bytes/s"]  # memory of the device
    glb_bandwidth: Annotated[Quantity, "bytes/cycle"]  # global buffer of a chip
    # what a tensor core may keep in place: ws, os, is (weights, outputs, inputs)
    dataflows: tuple[Dataflow, ...]
    # how fast a systolic array takes a new stationary tile
    weight_load: Annotated[Quantity, "rows/cycle"]
    startup: Annotated[Quantity, "s"]  # fixed cost of starting an operator
    # of GLB and HBM that tensor cores have when single cores run operators
    concurrent_tc_share: Annotated[Quantity, "fraction"]
    l2_per_pe: Annotated[Quantity, "bytes"]  # buffer of a core, per processing element
    l2_minimum: Annotated[Quantity, "bytes"]  # the smallest buffer of a core
    element: Annotated[Quantity, "bytes"]  # of tensors


@dataclass(frozen=True)
class FunctionCost:
    """Cycles per element and lane, and the key of their source."""

    cycles: float  # per element and lane
    source: str  # a key of sources


@dataclass(frozen=True)
class VectorFunctionsFile:
    """Costs of vector functions as their file states them."""

    unit: str  # cycles/element
    sources: dict[str, str]  # texts, by the keys that functions name
    # costs by function; add is the price of functions that are not listed
    functions: dict[str, FunctionCost]


def hardware_path(kind: str, name_or_path: str, relative_to: Path | None = None) -> Path:
    """File of a named piece of hardware, or the given path (anything with a separator or a .yaml
    ending).

    Raises:
        InputError: no such name; lists the known ones.
    """
    if os.sep in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return (relative_to or Path()) / Path(name_or_path).expanduser()
    path = HARDWARE / kind / f"{name_or_path}.yaml"
    try:
        found = path.is_file()
    except OSError:  # a name the file system cannot hold
        found = False
    if not found:
        known = hardware_names(kind)
        one = {"technologies": "technology", "memories": "memory"}.get(
            kind, kind.removesuffix("s")
        ).replace("_", " ")
        hint = nearest(name_or_path, known, "")
        shown = f" ('phaze list {kind.replace('_', '-')}' shows them)" if kind in LISTED else ""
        names = f"{hint} known: {', '.join(known)}".lstrip() + shown
        raise InputError(
            f"no {one} named {name_or_path!r}; {names}; or give the path of a YAML file"
        )
    return path


def hardware_names(kind: str) -> tuple[str, ...]:
    """Names of what ships of a kind (a folder of ``HARDWARE``)."""
    return tuple(sorted(file.stem for file in (HARDWARE / kind).glob("*.yaml")))


def load_technology(name_or_path: str, relative_to: Path | None = None) -> Technology:
    """Read a technology."""
    path = hardware_path("technologies", name_or_path, relative_to)
    technology = to_record(Technology, TECHNOLOGY.current(read_yaml(path), str(path)), str(path))
    file = FileRefusals(path)
    file.require(technology.node_nm > 0, "node_nm", technology.node_nm, "positive")
    for key, unit in units_of(Technology).items():
        entry: Quantity | CapacityTable = getattr(technology, key)
        file.require(entry.unit == unit, f"{key}.unit", repr(entry.unit), repr(unit))
        if isinstance(entry, CapacityTable):
            _check_table(entry, file, key)
        else:
            file.require(entry.value >= 0, f"{key}.value", entry.value, "zero or positive")
    if technology.die is not None:
        for problem in (
            *quantity_problems(technology.die, "die"),
            *process_problems(technology.die),
        ):
            file.add(InputError(f"{path}: {problem}"))
    file.raise_any()
    return technology


def _check_table(table: CapacityTable, file: FileRefusals, key: str) -> None:
    points = table.capacity_bytes
    file.require(len(points) >= 2, f"{key}.capacity_bytes", list(points), "two or more capacities")
    given = f"{len(table.value)} numbers"
    file.require(
        len(points) == len(table.value), f"{key}.value", given, f"{len(points)}, one per capacity"
    )
    rising = not points or (points[0] > 0 and all(low < high for low, high in pairwise(points)))
    file.require(rising, f"{key}.capacity_bytes", list(points), "positive and ascending")
    least = min(table.value, default=1)
    file.require(least > 0, f"{key}.value", least, "positive")


def load_platform(
    name_or_path: str,
    technology: Technology,
    vector_functions: VectorFunctions,
    relative_to: Path | None = None,
) -> Platform:
    """Read a platform and complete it with a technology and the costs of vector functions."""
    path = hardware_path("platforms", name_or_path, relative_to)
    stated = to_record(PlatformFile, PLATFORM.current(read_yaml(path), str(path)), str(path))
    file = FileRefusals(path)
    for key, unit in units_of(PlatformFile).items():
        entry: Quantity = getattr(stated, key)
        file.require(entry.unit == unit, f"{key}.unit", repr(entry.unit), repr(unit))
    for key, most in (
        ("l2_per_pe", LARGEST_L2_PER_PE),
        ("l2_minimum", LARGEST_L2),
        ("element", LARGEST_ELEMENT),
    ):
        given = getattr(stated, key).value
        file.require(given <= most, f"{key}.value", given, f"at most {most} bytes")
    file.raise_any()  # numbers of other units mean nothing
    platform = Platform(
        frequency_hz=stated.frequency.value,
        hbm_bandwidth_bytes_per_s=stated.hbm_bandwidth.value,
        glb_bandwidth_bytes_per_cycle=stated.glb_bandwidth.value,
        dataflows=stated.dataflows,
        startup_s=stated.startup.value,
        concurrent_tc_share=stated.concurrent_tc_share.value,
        weight_rows_per_cycle=stated.weight_load.value,
        l2_bytes_per_pe=int(stated.l2_per_pe.value),
        l2_minimum_bytes=int(stated.l2_minimum.value),
        bytes_per_element=int(stated.element.value),
        technology=technology,
        vector_functions=vector_functions,
    )
    check_platform(platform, path)
    return platform


def check_platform(platform: Platform, source: Path | str) -> None:
    """Refuse platforms on which nothing can run.

    Raises:
        InputError: names ``source`` and the field.
    """
    file = FileRefusals(source)
    file.require(len(platform.dataflows) > 0, "dataflows", "empty", "one or more of ws, os, is")
    distinct = len(set(platform.dataflows)) == len(platform.dataflows)
    repeated = f"a list of {len(platform.dataflows):,} with repetitions"
    file.require(distinct, "dataflows", repeated, "each of ws, os, is at most once")
    file.require(platform.startup_s >= 0, "startup_s", platform.startup_s, "zero or positive")
    share = platform.concurrent_tc_share
    file.require(0 < share < 1, "concurrent_tc_share", share, "between 0 and 1, both excluded")
    for entry in fields(platform):
        value = getattr(platform, entry.name)
        if entry.name != "startup_s" and isinstance(value, int | float):
            file.require(value > 0, entry.name, value, "positive")
    file.raise_any()


def load_vector_functions(name_or_path: str, relative_to: Path | None = None) -> VectorFunctions:
    """Read the costs of vector functions."""
    path = hardware_path("vector_functions", name_or_path, relative_to)
    current = VECTOR_FUNCTIONS.current(read_yaml(path), str(path))
    stated = to_record(VectorFunctionsFile, current, str(path))
    file = FileRefusals(path)
    file.require(stated.unit == "cycles/element", "unit", repr(stated.unit), "'cycles/element'")
    mapping = "a mapping with 'add', the price of unknown functions"
    file.require("add" in stated.functions, "functions", "without 'add'", mapping)
    for name, cost in stated.functions.items():
        file.require(cost.cycles > 0, f"functions.{name}.cycles", cost.cycles, "positive")
        known, sources = cost.source in stated.sources, f"one of {list(stated.sources)}"
        file.require(known, f"functions.{name}.source", repr(cost.source), sources)
    file.raise_any()
    return VectorFunctions({name: cost.cycles for name, cost in stated.functions.items()})


def load_cluster(name_or_path: str) -> Cluster:
    """Read a cluster, or make one of a database of measured exchanges.

    Any number may be given as ``{value, source}``, and those of a file that ships are.
    """
    if profile_folder(name_or_path) is not None and name_or_path not in hardware_names("clusters"):
        return profiled_cluster(name_or_path)
    path = hardware_path("clusters", name_or_path)
    current = _without_sources(CLUSTER.current(read_yaml(path), str(path)))
    cluster = to_record(Cluster, current, str(path))
    check_cluster(cluster, path)
    return cluster


def _without_sources(stated: Any) -> Any:
    """Parsed YAML with every ``{value, source}`` replaced by its value."""
    if isinstance(stated, list):
        return [_without_sources(each) for each in stated]
    if not isinstance(stated, dict):
        return stated
    if stated.keys() == {"value", "source"} and isinstance(stated["source"], str):
        return stated["value"]
    return {key: _without_sources(value) for key, value in stated.items()}


def check_cluster(cluster: Cluster, source: Path | str) -> None:
    """Refuse clusters that cannot be.

    Raises:
        InputError: names ``source`` and the field.
    """
    file = FileRefusals(source)
    file.require(cluster.num_devices > 0, "num_devices", cluster.num_devices, "positive")
    file.require(len(cluster.tiers) > 0, "tiers", "empty", "one or more tiers, innermost first")
    inner = 1
    for position, tier in enumerate(cluster.tiers):
        key = f"tiers.{position}"
        bandwidth, size = tier.bandwidth_bytes_per_s, tier.group_size
        file.require(bandwidth > 0, f"{key}.bandwidth_bytes_per_s", bandwidth, "positive")
        _check_protocol(tier, file, key)
        if tier.short is not None:
            _check_protocol(tier.short, file, f"{key}.short")
        _check_from_zero(tier, ("relay_stall", "inner_latency_s"), file, key)
        nests = size > 0 and size % inner == 0 and (position == 0 or size > inner)
        multiple = f"a larger multiple of the tier inside it ({inner})"
        file.require(nests, f"{key}.group_size", size, multiple)
        direct = tier.topology in {Topology.MESH, Topology.HYPERCUBE}
        beyond = "switch or torus or rail beyond the first tier"
        file.require(not direct or position == 0, f"{key}.topology", tier.topology, beyond)
        _check_places(cluster.tiers, position, file)
        inner = max(size, 1)
    parts = [tier.link_parts for tier in cluster.tiers]
    within = sum(1 / each for each in parts if each > 0) <= 1 + 1e-9
    file.require(within, "link_parts", parts, "such that the parts make at most one whole")
    spans = not cluster.tiers or inner >= cluster.num_devices
    every = f"spanning all {cluster.num_devices} devices"
    file.require(spans, "tiers", f"a last tier of {inner}", every)
    if cluster.library is not None:
        share, copy = cluster.library.tree_efficiency, cluster.library.copy_share
        file.require(0 < share <= 1, "library.tree_efficiency", share, "above 0 and at most 1")
        file.require(copy >= 0, "library.copy_share", copy, "zero or positive")
    if cluster.hosts is not None:
        hosts = cluster.hosts
        file.require(hosts.devices > 0, "hosts.devices", hosts.devices, "positive")
        shared = 0 < hosts.sharing <= max(hosts.devices, 1)
        file.require(shared, "hosts.sharing", hosts.sharing, "1 to hosts.devices")
        known = hosts.memory_bytes is None or hosts.memory_bytes > 0
        file.require(known, "hosts.memory_bytes", hosts.memory_bytes, "positive")
    file.raise_any()


def _check_places(tiers: tuple[Tier, ...], position: int, file: FileRefusals) -> None:
    """Rails lie outside a switch, and beyond the first tier none but the dimensions of a torus run
    over a chip's own links."""
    tier, key = tiers[position], f"tiers.{position}"
    outside = position > 0 and tiers[position - 1].topology is Topology.SWITCH
    possible = outside or tier.topology is not Topology.RAIL
    changes = "a tier outside a switch, through which bytes change rails"
    file.require(possible, f"{key}.topology", tier.topology, changes)
    _check_from_zero(tier, ("link_parts",), file, key)
    own = not tier.link_parts or position == 0 or tier.topology is Topology.TORUS
    ports = "0, as ports beyond the first tier are no links of a chip's own"
    file.require(own, f"{key}.link_parts", tier.link_parts, ports)


def _check_protocol(protocol: Tier | ShortProtocol, file: FileRefusals, key: str) -> None:
    _check_from_zero(protocol, ("latency_s", "start_s"), file, key)
    reached = protocol.efficiency
    file.require(0 < reached <= 1, f"{key}.efficiency", reached, "above 0 and at most 1")


def _check_from_zero(record: object, names: Iterable[str], file: FileRefusals, key: str) -> None:
    for name in names:
        value = getattr(record, name)
        file.require(value >= 0, f"{key}.{name}", value, "zero or positive")
