"""What became of each key that a launch gives: read, without effect on any price, not expressible,
or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest

LONGEST_VALUE = 30  # characters of a value, where keys are told


class KeyKind(StrEnum):
    """What a reader makes of a key."""

    READ = "read"
    # known, and no price depends on it: logging, paths of data, checkpoints
    NO_EFFECT = "no effect"
    # known to change time or memory, in a way that no plan says
    NOT_EXPRESSIBLE = "not expressible"
    # known to change a price by what the software does inside, of which a plan says nothing
    USUAL = "priced as usual"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LaunchKey:
    """A key as the launch writes it, with the text of its value.

    ``reason`` says of one that is not expressible what it changes, of others why they are of their
    kind. One that is not ``given`` changes the answer by being left out.
    """

    name: str
    value: str
    kind: KeyKind
    reason: str = ""
    given: bool = True

    @property
    def bare(self) -> str:
        """The name without dashes before it."""
        return self.name.lstrip("-")

    @property
    def text(self) -> str:
        """Name and value, the value clipped."""
        cut = len(self.value) > LONGEST_VALUE
        value = f"{self.value[: LONGEST_VALUE - 3]}..." if cut else self.value
        return f"{self.name} {value}".rstrip()


@dataclass(frozen=True)
class LaunchReading:
    """A launch file of a ``program``: its plan as settings, and what became of its keys.

    ``ignored`` are names of keys that no plan says and that were to be left out, ``nodes`` those
    that it says its devices are on, ``no_model`` is why a model that it names is not read,
    ``software`` what of the listed frameworks is nearest to the program.
    """

    program: str
    settings: Mapping[str, object]
    keys: tuple[LaunchKey, ...] = field(default=())
    nodes: int | None = None
    no_model: str = ""
    software: str = ""
    ignored: tuple[str, ...] = field(default=())

    def of_kind(self, kind: KeyKind | str) -> tuple[LaunchKey, ...]:
        """The keys of one kind, in the order of the launch."""
        return tuple(key for key in self.keys if key.kind == kind)

    def ignoring(self, names: Iterable[str]) -> LaunchReading:
        """The same without the keys of these names, commas between several.

        Raises: InputError: the launch gives no such key, or one that is read, or others that change
            the answer in a way that no
                plan says.
        """
        wanted = tuple(
            name.strip().lstrip("-") for text in names for name in text.split(",") if name.strip()
        )
        read, others = (
            {key.bare: key for key in self.keys if (key.kind is KeyKind.READ) is is_read}
            for is_read in (True, False)
        )
        left = [key.bare for key in self.of_kind(KeyKind.NOT_EXPRESSIBLE)]
        which = f"it could ignore {', '.join(left)}" if left else "there is nothing in it to ignore"
        for name in wanted:
            if name in read and name not in others:
                raise InputError(
                    f"--ignore {name!r:.60}: {read[name].text} of the {self.program} launch is "
                    "read, and --ignore is for keys that no plan says; leave --ignore out, or "
                    f"change the plan by its own flags ({which})"
                )
            if name not in others:
                hint = nearest(name, sorted(others), which)
                raise InputError(
                    f"--ignore {name!r:.60}: the {self.program} launch gives no such key; {hint}"
                )
        self.check_expressible(wanted)
        return replace(self, ignored=wanted)

    def taking(self, taken: Mapping[str, object]) -> LaunchReading:
        """The same with settings that were ``taken`` since nobody specifies them."""
        reason = "taken, since neither the file nor the command line says it"
        return self._with_usual({name: str(value) for name, value in taken.items()}, reason)

    def under(self, software: str) -> LaunchReading:
        """The same, priced under ``software``: where that is another program's, that is said."""
        if not self.software or self.software.partition("_")[0] == software.partition("_")[0]:
            return self
        reason = (
            f"what such devices usually run, and not {self.program}; --software "
            f"{self.software} is nearer to it"
        )
        return self._with_usual({"software": software}, reason)

    def on_nodes(self, devices: int, per_node: int) -> LaunchReading:
        """The same on nodes of ``per_node``; says where the launch has others."""
        nodes = -(-devices // per_node)
        if self.nodes in (None, nodes):
            return self
        reason = (
            f"priced on {nodes} of {per_node}, as the hardware has them; give --fast-domain "
            "or --cluster for others"
        )
        return self._with_usual({"nodes": str(self.nodes)}, reason)

    def _with_usual(self, values: Mapping[str, str], reason: str) -> LaunchReading:
        usual = (
            LaunchKey(name, value, KeyKind.USUAL, reason, given=False)
            for name, value in values.items()
        )
        return replace(self, keys=(*self.keys, *usual))

    def check_expressible(self, ignored: Iterable[str]) -> None:
        """Refuse keys that change the answer as no plan can, unless they are ignored.

        Raises:
            InputError: names them, what they change and how to go on without them.
        """
        names = {name.lstrip("-") for name in ignored}
        left = [key for key in self.of_kind(KeyKind.NOT_EXPRESSIBLE) if key.bare not in names]
        if left:
            verbs = {True: "gives", False: "leaves out"}
            what = " and ".join(
                f"{verb} {'; '.join(keys)}"
                for given, verb in verbs.items()
                if (keys := [f"{key.text} ({key.reason})" for key in left if key.given is given])
            )
            flags = " ".join(f"--ignore {key.bare}" for key in left)
            raise InputError(
                f"the {self.program} launch {what}, which no plan of phaze says; to price it "
                f"without: {flags}"
            )
