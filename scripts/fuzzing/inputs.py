"""Inputs of a seed by their number: what is mutated and which command reads it. An input depends on
nothing before it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from phaze.cli.parser import Parser
from scripts.fuzzing import formats
from scripts.fuzzing.flags import Flags, flags
from scripts.fuzzing.targets import AMPED, ICML24, LAYOUTS, NEST, TARGETS

SHARE_OF_FLAGS = 0.3  # of the inputs


@dataclass(frozen=True)
class Input:
    """A command line and what was mutated: a ``file`` (below the working folder) with new
    ``content``, or flags."""

    number: int
    kind: str
    words: tuple[str, ...]
    change: str
    file: str | None = None
    content: bytes = b""
    flags: Flags | None = None

    @property
    def mode(self) -> str:
        """Of phaze, or the name of a bridge."""
        return self.words[0]


def input_of(seed: int, number: int, folder: Path, modes: dict[str, Parser]) -> Input:
    """Input ``number`` of ``seed``, made from the files in ``folder``."""
    random = Random(f"{seed}:{number}")
    if random.random() < SHARE_OF_FLAGS:
        given = flags(random, modes)
        return Input(
            number, "flags", (*given.words, *_form(given.base[0], random)), "flags", flags=given
        )
    target = random.choices(TARGETS, [each.weight for each in TARGETS])[0]
    found = sorted(path for path in folder.glob(target.files) if path.is_file())
    if not found:
        raise FileNotFoundError(
            f"{folder} has no {target.files}: a base command does not write it any more"
        )
    path = random.choice(found)
    content, change = formats.mutated(path.name, path.read_bytes(), random)
    command = random.choice(target.commands).split()
    name = str(path.relative_to(folder))
    return Input(
        number, target.files, (*command, *_form(command[0], random)), change, name, content
    )


def _form(mode: str, random: Random) -> tuple[str, ...]:
    """Flags of every mode that say in which form the answer is wanted."""
    if mode in {NEST, ICML24, AMPED, LAYOUTS}:
        return ()
    form = ("--format", "json") if random.random() < 0.7 else ()
    return (*form, *(("--quiet",) if random.random() < 0.8 else ()))
