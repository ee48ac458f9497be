"""The hardware that a request names, each file of it read once."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.cost import Prices, load_prices
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.design_space_files import (
    SpaceChanges,
    load_chip,
    load_design_space,
    with_changes,
)
from Estimator.devices.device import Device
from Estimator.devices.files import load_attention, load_device, load_software
from Estimator.devices.software import AttentionKernel, Software
from Estimator.hardware_files import hardware_names, load_cluster
from Estimator.network.cluster import Cluster
from Estimator.profiled.machine import MACHINE, profile_folder
from phaze_common.errors import InputError
from phaze_common.files import named_file
from phaze_common.records import to_json
from phaze_common.suggestions import nearest

logger = logging.getLogger(__name__)
# what runs accelerators that are designed, as no framework is named for them
CHIP_SOFTWARE = "designed_chip"
# settings that may name a database of measured operators
PROFILED = frozenset({"device", "cluster"})
Record = TypeVar("Record")


class HardwareFiles:
    """Reads hardware by name or path, each once, for all requests that share it.

    ``kept`` are records by setting and name that are known by value, whether there are files of
    these names or not.
    """

    def __init__(self, kept: Mapping[tuple[str, ...], object] | None = None) -> None:
        self._read: dict[tuple[object, ...], Any] = {
            (*key,): record for key, record in (kept or {}).items()
        }
        self._kept = frozenset(self._read)

    def named(self, key: str, text: str) -> str:
        """What ``key`` names, as ``named_file``; a profiled folder stands for its record.

        Raises:
            InputError: a path that is no file.
        """
        if (key, text) in self._kept:
            return text
        folder = profile_folder(text) if key in PROFILED and not _ships(key, text) else None
        return named_file(key, text) if folder is None else str(folder.absolute() / MACHINE)

    def device(self, name: str) -> Device:
        """A device, as ``load_device``."""
        return self._once("device", load_device, name)

    def cluster(self, name: str) -> Cluster:
        """A cluster, as ``load_cluster``."""
        return self._once("cluster", load_cluster, name)

    def software(self, name: str) -> Software:
        """A training framework, as ``load_software``."""
        return self._once("software", load_software, name)

    def kernel(self, name: str) -> AttentionKernel:
        """A kernel of fused attention, as ``load_attention``."""
        return self._once("attention_kernel", load_attention, name)

    def design_space(self, name: str, changes: SpaceChanges) -> DesignSpace:
        """As ``load_design_space``, or one that is known by value, with ``changes``."""
        technology = () if changes.technology is None else (changes.technology,)
        known = self._read.get(("design_space", name, *technology))
        if known is not None:
            return with_changes(cast(DesignSpace, known), changes)
        key = ("design_space", name, changes)
        if key not in self._read:
            self._read[key] = load_design_space(name, changes=changes)
        return cast(DesignSpace, self._read[key])

    def prices(self, name: str) -> Prices:
        """What chips and energy cost, as ``load_prices``."""
        return self._once("prices", load_prices, name)

    def chip(self, name: str, space: DesignSpace) -> Accelerator:
        """An accelerator, as ``chip_named``."""
        if ("chip", name) in self._kept:
            return cast(Accelerator, self._read["chip", name])
        return chip_named(name, space)

    def _once(self, kind: str, load: Callable[..., Record], *names: str) -> Record:
        key = (kind, *names)
        if key not in self._read:
            self._read[key] = load(*names)
        return cast(Record, self._read[key])


@dataclass(frozen=True)
class ResolvedHardware:
    """The records behind the names of a request. ``cluster`` has as many devices as are in use.

    ``space`` is None where the devices exist, ``device`` where they are designed; ``chip`` is the
    one accelerator asked for. ``contents`` are hashes of what was read from files of the user's
    own, by setting.
    """

    cluster: Cluster
    software: Software
    device: Device | None = None
    space: DesignSpace | None = None
    chip: Accelerator | None = None
    contents: Mapping[str, str] = field(default_factory=dict)


def chip_named(name: str, space: DesignSpace) -> Accelerator:
    """A known chip of the design space, or one described by a YAML file (an absolute path).

    Raises:
        InputError: no known chip has that name, or the file is unreadable.
    """
    if "/" in name:
        return load_chip(Path(name), space)
    known = {chip.name: chip.accelerator for chip in space.references}
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        has = f"{nearest(name, known, '')} it has {names}".lstrip()
        raise InputError(
            f"the design space {space.name} has no known chip {name!r}; {has}, or give a YAML file"
        )
    return known[name]


def _ships(key: str, text: str) -> bool:
    return text in hardware_names(f"{key}s")


def content_of(record: object) -> str:
    """Hash of a record, however the file that it was read from writes it."""
    return hashlib.blake2b(to_json(record), digest_size=10).hexdigest()
