"""The cases of a comparison, from a YAML file: models, clusters, batches and the memory of a
device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml

KEYS = {"gpus_per_node", "memory_limit_mb", "cases"}
CASE_KEYS = {"model", "size", "layers", "gpus", "global_batch_size"}
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

    @property
    def name(self) -> str:
        """As tables and figures have it."""
        return f"{self.model} {self.size}{f' {self.layers} layers' if self.layers else ''}"


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file. Raises InputError: it cannot be read, or a case lacks something or has
    what no case has."""
    document = read_yaml(path)
    if (
        not isinstance(document, dict)
        or set(document) != KEYS
        or not isinstance(document["cases"], list)
        or not document["cases"]
    ):
        raise InputError(f"{path} is no comparison; give a YAML file of {', '.join(sorted(KEYS))}")
    return tuple(
        _case(each, document, f"{path}, case {at}")
        for at, each in enumerate(document["cases"], start=1)
    )


def _case(given: Any, document: dict[str, Any], source: str) -> Case:
    if not isinstance(given, dict) or not CASE_KEYS - {"layers"} <= set(given) <= CASE_KEYS:
        raise InputError(
            f"{source} is no case; give {', '.join(sorted(CASE_KEYS - {'layers'}))}, and layers "
            "where they are free"
        )

    def whole(key: str, values: dict[str, Any]) -> int:
        value = values[key]
        if type(value) is not int or not 1 <= value <= MOST:
            raise InputError(
                f"{source}: {key} is {value!r:.40}; give a whole number from 1 to {MOST}"
            )
        return value

    return Case(
        str(given["model"]),
        str(given["size"]),
        whole("layers", given) if given.get("layers") is not None else None,
        whole("gpus", given),
        whole("global_batch_size", given),
        float(whole("memory_limit_mb", document)),
        whole("gpus_per_node", document),
    )
