"""Flags of every mode with values of every kind, read from the parser itself."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random

from phaze.cli.arguments import mode_parsers
from phaze.cli.modes import MODES
from phaze.cli.parser import Parser
from phaze_common.settings import Kind, Setting
from scripts.fuzzing import values
from scripts.fuzzing.targets import BASES

WEIGHTS = {
    "run_solver": 6.0,
    "evaluate": 6.0,
    "extract_graph": 2.0,
    "sweep": 2.0,
    "explain": 3.0,
}  # of modes; others 1
WRITTEN = frozenset(
    {"output", "figures", "plot"}
)  # names of what is written, which must stay below the working folder
LEFT_OUT = frozenset({"--help", "-h", "--version", "--address"})
KEPT = {
    "executor": ("joblib", "dask"),
    "workers": ("1", "0", "-1", "x", "1.5", "nan"),
}  # processes are the kernel's to fuzz
INSTEAD = (
    "num_tc=1",
    "num_tc=4,width=32",
    "pp=1",
    "tp=2",
    "chip=known",
    "hbm_size=2",
    "recompute=full",
    "num_tc=0",
    "pp=10000000000",
)
SETTINGS = ("model", "tp", "hbm_size", "micro_batch_size", "nosuch", "device", "recompute", "")


@dataclass(frozen=True)
class Flags:
    """A command, flags put behind it (each with its values), and one word that may stand alone."""

    base: tuple[str, ...]
    added: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command line."""
        return (*self.base, *(word for flag in self.added for word in flag))


def parsers() -> dict[str, Parser]:
    """The parser of every mode."""
    return mode_parsers()


def flags(random: Random, modes: dict[str, Parser]) -> Flags:
    """A command line of any mode with one to three flags that may not fit."""
    mode = random.choices(list(MODES), [WEIGHTS.get(mode, 1.0) for mode in MODES])[0]
    base = random.choice(BASES.get(mode, (mode,))).split()
    actions = [each for each in modes[mode]._actions if not LEFT_OUT & set(each.option_strings)]
    added = tuple(
        _given(random.choice(actions), random) for _ in range(random.choice((1, 1, 1, 2, 3)))
    )
    if random.random() < 0.05:
        del base[random.randrange(1, len(base) + 1) :]
    return Flags(tuple(base), added)


def _given(action: argparse.Action, random: Random) -> tuple[str, ...]:
    if not action.option_strings:  # a word of its own
        return (_value(action, random),)
    flag = random.choice(action.option_strings)
    if random.random() < 0.02:
        flag = flag[:-1] or "-"
    if action.nargs == 0:
        return (flag,)
    many = action.nargs in {"+", "*"}
    given = [
        _value(action, random)
        for _ in range(random.choice((0, 1, 1, 1, 2, 3, 40) if many else (0, 1, 1, 1, 1, 1, 1, 2)))
    ]
    return (f"{flag}={given[0]}",) if len(given) == 1 and random.random() < 0.2 else (flag, *given)


def _value(action: argparse.Action, random: Random) -> str:
    if action.dest in KEPT:
        return random.choice(KEPT[action.dest])
    if action.dest == "instead" and random.random() < 0.6:
        return random.choice(INSTEAD)
    if action.dest == "set":
        key = random.choice(SETTINGS)
        number, text = str(values.number(random)), values.text(random)
        return f"{key}={random.choice((number, text, '[1, 2]', '{a: 1}'))}"
    setting = _setting(action)
    right = random.random() < 0.45
    if right and (setting is not None or action.choices):
        return _right(setting, action, random)
    chosen = random.random()
    if chosen < 0.35:
        value = str(values.number(random))
    elif chosen < 0.7:
        value = values.text(random)
    else:
        value = random.choice(values.FILES)
    return value if action.dest not in WRITTEN else value.replace("~", "").lstrip("/") or "x"


def _setting(action: argparse.Action) -> Setting | None:
    table = getattr(action, "table", None)
    return (
        next((each for each in table.settings if each.key == action.dest), None)
        if table is not None
        else None
    )


def _right(setting: Setting | None, action: argparse.Action, random: Random) -> str:
    """A value that the flag takes."""
    if setting is None:
        return str(random.choice(list(action.choices or ("x",))))
    if setting.choices:
        return random.choice(setting.choices)
    if setting.kind is Kind.SWITCH:
        return random.choice(("true", "false"))
    if setting.kind in {Kind.INTEGER, Kind.NUMBER}:
        few = [
            each
            for each in (0, 1, 2, 3, 4, 8, 16, setting.least)
            if setting.least <= each <= setting.most
        ]
        edge = [setting.most, setting.least] if random.random() < 0.2 else few
        return (
            f"{random.choice(edge):.0f}"
            if setting.kind is Kind.INTEGER
            else f"{random.choice(edge)}"
        )
    return (
        random.choice(("out", "a/b", "name"))
        if action.dest in {*WRITTEN, "name"}
        else random.choice(values.FILES)
    )
