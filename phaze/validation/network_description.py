"""The network of a published run from the words that describe it: GPUs per node, and gigabits per
second between nodes."""

import re
from dataclasses import dataclass

GIGABIT = 1e9 / 8  # bytes
_SEGMENTS = re.compile(r"[,;()\[\]]|\s[-–—+&]\s|\band\b")
_INSIDE = re.compile(r"nv ?link|nv ?switch|\bintra|xgmi|infinity fabric|pci|hbm", re.IGNORECASE)
_BETWEEN = re.compile(
    r"\binter|infini ?band|\bib\b|[hnefx]dr\b|roce|ethernet|omni|slingshot|\bopa\b|\bnics?\b",
    re.IGNORECASE,
)
_RATE = r"(?P<rate>\d+(?:\.\d+)?)\s?(?P<scale>[GT])(?P<unit>bit|b|B(?=/s|ps))"  # 80GB is a memory
_PORTS = re.compile(
    rf"(?P<ports>\d+)\s?[x×*]\s?(?:[A-Za-z][\w.-]*\s){{0,3}}(?:[A-Za-z]+(?=\d))?{_RATE}"
)
_GENERATION = re.compile(
    r"(?P<ports>\d+)\s?[x×*]\s?(?P<name>EDR|HDR|NDR|XDR)\b(?!\s?\d)", re.IGNORECASE
)
# Gbit/s of a port, InfiniBand Trade Association roadmap
_GENERATIONS = {"EDR": 100.0, "HDR": 200.0, "NDR": 400.0, "XDR": 800.0}
_ALONE = re.compile(_RATE)
_PER_DEVICE = re.compile(r"(per|/|each)\s?(gpu|device|accelerator|nic|port|link)", re.IGNORECASE)
_PER_NODE = re.compile(
    r"per node|/node|node-node|node-to-node|inter|total|aggregate", re.IGNORECASE
)
_NODE = re.compile(
    r"\b(?P<a>\d+)[- ]?(?:x\s?)?(?:gpus?|devices|gcds?)\b"
    r"(?:\s(?:per|a|each)\s|[- ]?/\s?|-)?\s?nodes?|nodes? of (?P<b>\d+)\b|"
    r"(?P<c>\d+)\s?(?:x\s?)?\w*(?:A100|H100|V100|MI\d+)\w*\s?(?:per|a|/)\s?node",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DescribedNetwork:
    """What a description says: devices per node, and gigabits per second of all ports of a node, or
    at most of each device."""

    devices_per_node: int | None
    node_gigabits_per_s: float | None
    port_gigabits_per_s: float | None


def network_in(text: str) -> DescribedNetwork:
    """Read a description such as ``DGX A100 (NVSwitch) 8x200Gb HDR IB`` or ``8-GPU nodes; inter 800
    Gb/s, intra 150 GB/s``.

    What links devices inside a node is passed over. A rate without a word on what has it is that of
    a port, unless it is more than any port has (800 Gbit/s).
    """
    found = _NODE.search(text)
    devices = next((int(each) for each in found.groups() if each), None) if found else None
    for segment in _SEGMENTS.split(text):
        if _INSIDE.search(segment) and not _BETWEEN.search(segment):
            continue
        ports = _PORTS.search(segment)
        if ports is not None:
            return DescribedNetwork(devices, int(ports["ports"]) * _gigabits(ports), None)
        generation = _GENERATION.search(segment)
        if generation is not None:
            rate = int(generation["ports"]) * _GENERATIONS[generation["name"].upper()]
            return DescribedNetwork(devices, rate, None)
        alone = _ALONE.search(segment)
        if alone is not None:
            rate = _gigabits(alone)
            of_node = _PER_NODE.search(segment) or rate > _GENERATIONS["XDR"]
            if of_node and not _PER_DEVICE.search(segment):
                return DescribedNetwork(devices, rate, None)
            return DescribedNetwork(devices, None, rate)
    return DescribedNetwork(devices, None, None)


def _gigabits(found: re.Match[str]) -> float:
    scale = {"G": 1.0, "T": 1e3}[found["scale"]]
    return float(found["rate"]) * scale * (8 if found["unit"] == "B" else 1)
