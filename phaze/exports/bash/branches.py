"""Branches and loops of a bash script: which of them run, and what variables come to behind those
of which that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from phaze.exports.bash.conditions import Conditions, combined
from phaze.exports.bash.variables import Value
from phaze_common.errors import InputError

MOST_DEPTH = 100  # of compound commands


@dataclass
class Frame:
    """A compound command: ``runs`` is its branch (None: perhaps), ``decided`` whether one before
    certainly did."""

    kind: str  # if, case, loop, group or single
    runs: bool | None
    decided: bool = False
    covers: bool = False  # its branches are all there are: it has an else
    subject: str | None = None  # of a case; of others the reserved word
    awaits: bool = False  # a condition, or a pattern of a case
    skipped: bool = False  # what a single command comes to where it does not run
    before: dict[str, Value | None] = field(default_factory=dict)  # of this branch's assignments
    found: dict[str, list[Value]] = field(default_factory=dict)  # by branches that may run
    branches: int = 0  # of those
    origins: dict[str, Value | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Outside:
    """What commands in brackets leave as it was."""

    frames: list[Frame]
    values: dict[str, Value]


@dataclass
class Branches(Conditions):
    """Variables within compound commands: ``frames`` are those that are open, ``condition`` is what
    the innermost awaits."""

    frames: list[Frame] = field(default_factory=list)
    condition: list[tuple[bool | None, str]] = field(default_factory=list)
    outside: list[Outside] = field(default_factory=list)

    @property
    def certain(self) -> bool:
        """Whether what stands here is known to run."""
        return all(frame.runs for frame in self.frames)

    def skipping(self, frames: Iterable[Frame]) -> bool:
        """Whether what stands here is known not to run."""
        return any(frame.runs is False for frame in frames)

    def enter(self, frame: Frame) -> None:
        """Begin a compound command.

        Raises:
            InputError: too many are open.
        """
        if len(self.frames) >= MOST_DEPTH:
            raise InputError(
                f"the commands are nested more than {MOST_DEPTH} deep; give the command that is "
                "run alone"
            )
        self.frames.append(frame)

    def begin_branch(self) -> None:
        """Behind a condition."""
        if not self.frames:
            return
        frame = self.frames[-1]
        if not frame.awaits or frame.kind == "case":
            return
        met = combined(self.condition)
        self.condition, frame.awaits = [], False
        if frame.subject == "until" and met is not None:
            met = not met
        if frame.kind == "loop" and met is True:
            met = None  # how often it runs is not known
        frame.runs = False if frame.decided else (None if met and frame.branches else met)
        frame.covers = frame.covers or met is True
        frame.decided = frame.decided or met is True

    def begin_else(self) -> None:
        """Behind all other branches."""
        self.next_branch()
        if self.frames:
            frame = self.frames[-1]
            frame.covers = True
            frame.runs = False if frame.decided else (None if frame.branches else True)

    def next_branch(self) -> None:
        """What the branch that ends here assigned is put aside where it may not have run."""
        if not self.frames:
            return
        frame = self.frames[-1]
        if frame.runs is None:
            frame.branches += 1
            for name, before in frame.before.items():
                frame.found.setdefault(name, []).append(self.values.get(name, ""))
                frame.origins.setdefault(name, before)
                self._put_back(name, before)
        frame.before = {}

    def leave_compound(self) -> None:
        """End a compound command, and what decided whether it runs: ``test && { ...; }``."""
        self.leave()
        while self.frames and self.frames[-1].kind == "single":
            self.leave()

    def enter_subshell(self) -> None:
        """Begin commands in brackets, which change nothing outside."""
        runs = False if self.skipping(self.frames) else True if self.certain else None
        self.outside.append(Outside(self.frames, dict(self.values)))
        self.frames = [Frame("subshell", runs)]

    def leave_subshell(self) -> None:
        """End commands in brackets."""
        if not self.outside:
            return
        outside = self.outside.pop()
        self.frames, self.values = outside.frames, outside.values
        while self.frames and self.frames[-1].kind == "single":
            self.leave()

    def leave(self) -> None:
        """End a compound command: variables have the values of its branches, where these agree."""
        if not self.frames:
            return
        self.next_branch()
        frame = self.frames.pop()
        for name, options in frame.found.items():
            every = frame.covers and len(options) == frame.branches
            before = frame.origins[name]
            met = options if every else [*options, *([] if before is None else [before])]
            self.assign(name, self.merged(name, met, before))

    def assign(self, name: str, value: Value) -> None:
        """See base class; what a branch that may run changes is put aside."""
        self._note(name)
        super().assign(name, value)

    def forget(self, name: str) -> None:
        """A variable is not set any more."""
        self._note(name)
        self.values.pop(name, None)

    def restore(self, name: str, value: Value | None) -> None:
        """Give a variable a value, or none."""
        if value is None:
            self.forget(name)
        else:
            self.assign(name, value)

    def _note(self, name: str) -> None:
        for frame in reversed(self.frames):
            if frame.runs is None:
                frame.before.setdefault(name, self.values.get(name))
                break

    def _put_back(self, name: str, before: Value | None) -> None:
        if before is None:
            self.values.pop(name, None)
        else:
            self.values[name] = before
