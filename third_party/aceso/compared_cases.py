"""The cases of a comparison, from a YAML file: models, clusters, batches and the memory of a
device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml
from third_party.cases import integer

KEYS = ("gpus_per_node", "memory_limit_mb", "cases")
NAMES, COUNTS = ("model", "size"), ("gpus", "global_batch_size")
MOST = 2**31


@dataclass(frozen=True)
class Case:
    """A model on a cluster; ``memory_limit_mib`` of one device."""

    model: str
    size: str
    layers: int | None
    devices: int
    global_batch: int
    memory_limit_mib: float
    devices_per_node: int


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file. Raises InputError: it cannot be read, or a case lacks something or has
    what no case has."""
    document = read_yaml(path)
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list) or not cases or set(document) != set(KEYS):
        raise InputError(f"{path} is no comparison; give a YAML file of {', '.join(sorted(KEYS))}")
    per_node, memory = (integer(document[key], f"{path}: {key}", 1, MOST) for key in KEYS[:2])
    return tuple(
        _case(each, per_node, memory, f"{path}, case {at}") for at, each in enumerate(cases, 1)
    )


def _case(given: Any, per_node: int, memory_mib: int, source: str) -> Case:
    needed = {*NAMES, *COUNTS}
    if not isinstance(given, dict) or not needed <= set(given) <= needed | {"layers"}:
        raise InputError(
            f"{source} is no case; give {', '.join(sorted(needed))}, and layers where they are free"
        )
    devices, batch = (integer(given[key], f"{source}: {key}", 1, MOST) for key in COUNTS)
    layers = given.get("layers")
    if layers is not None:
        layers = integer(layers, f"{source}: layers", 1, MOST)
    model, size = (str(given[key]) for key in NAMES)
    return Case(model, size, layers, devices, batch, float(memory_mib), per_node)
