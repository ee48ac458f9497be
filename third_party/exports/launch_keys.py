"""What became of each key that a launch gives: read, without effect on any price, not expressible, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from Common.errors import InputError


class KeyKind(StrEnum):
    """What a reader makes of a key."""

    READ = "read"
    NO_EFFECT = "no effect"  # known, and no price depends on it: logging, paths of data, checkpoints
    NOT_EXPRESSIBLE = "not expressible"  # known to change time or memory, in a way that no plan says
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LaunchKey:
    """A key as the launch writes it, such as ``--moe-layer-freq`` or ``zero_optimization.stage``, with the text of its value.

    ``reason`` says of one that is not expressible what it changes.
    """

    name: str
    value: str
    kind: KeyKind
    reason: str = ""


@dataclass(frozen=True)
class LaunchReading:
    """A launch file, read: the ``program`` it is of, its plan as settings of ``phaze evaluate``, and what became of its keys."""

    program: str
    settings: Mapping[str, object]
    keys: tuple[LaunchKey, ...] = field(default=())

    def of_kind(self, kind: KeyKind) -> tuple[LaunchKey, ...]:
        """The keys of one kind, in the order of the launch."""
        return tuple(key for key in self.keys if key.kind is kind)

    def check_expressible(self, ignored: Iterable[str]) -> None:
        """Refuse keys that change the answer in a way that no plan says, but for those to be ignored.

        Raises:
            InputError: names them, what they change and how to go on without them.
        """
        names = {name.lstrip("-") for name in ignored}
        left = [key for key in self.of_kind(KeyKind.NOT_EXPRESSIBLE) if key.name.lstrip("-") not in names]
        if left:
            what = "; ".join(f"{key.name} ({key.reason})" for key in left)
            flags = " ".join(f"--ignore {key.name.lstrip('-')}" for key in left)
            raise InputError(f"the {self.program} launch gives {what}, which no plan of phaze says; to price it without: {flags}")
