"""The cases of the gauntlet (``tests/GraphExtractor/gauntlet_models``): configurations of
transformers, and modules in files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "GraphExtractor" / "gauntlet_models"
MICRO_BATCH = 2


@dataclass(frozen=True)
class Case:
    """A configuration, or the ``file`` of a module; what fields mean is said in
    ``configurations.yaml``."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None
    tokens: int | None = None
    reads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    image: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""

    def path_in(self, folder: Path) -> Path:
        """The file of the model; that of a configuration is written into ``folder``."""
        if self.file is not None:
            return self.file
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(self.config), encoding="utf-8")
        return path

    def readable_config(self) -> dict[str, Any]:
        """The configuration as Python has it: transformers writes numbers that JSON does not have
        as mappings."""
        return {key: _number(value) for key, value in self.config.items()}


def _number(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"__float__"}:
        return math.inf if value["__float__"] == "Infinity" else float(value["__float__"])
    if isinstance(value, list):
        return [_number(part) for part in value]
    return value


def all_cases() -> tuple[Case, ...]:
    """Every configuration, then every module."""
    written = yaml.safe_load((FOLDER / "configurations.yaml").read_text(encoding="utf-8"))
    expectations = written.pop("modules", {})
    configured = [
        Case(name, **{"reads": {"input_ids": [2, 64], "labels": [2, 64]}, **each})
        for name, each in written.items()
    ]
    own = [
        Case(path.stem, file=path, **expectations.get(path.stem, {}))
        for path in sorted(FOLDER.glob("*.py"))
    ]
    return (*configured, *own)
