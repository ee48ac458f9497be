"""Command lines with flags that may not fit, read from the parser of each mode, as strategies of
Hypothesis."""

from __future__ import annotations

import argparse

from hypothesis import strategies as st

from phaze.cli.parser import Parser
from phaze_common.settings import Kind, Setting
from tests.fuzzing.damage import NUMBERS, TEXTS
from tests.fuzzing.targets import commands_of

WRITTEN = frozenset({"output", "figures", "plot"})  # what is written must stay in the folder
LEFT_OUT = frozenset({"--help", "-h", "--version", "--address"})
FILES = (
    *("study.yaml", "run", "run/best.json", "missing.json", "missing.yaml", "/dev/null"),
    *("/dev/zero", "empty.yaml", "folder.yaml", "loop.yaml", "binary.yaml", "mine.py", "runs.csv"),
    *("llama.json", "plan.yaml", "cluster.yaml", "device.yaml", "space.yaml"),
)
INSTEAD = (
    *("num_tc=1", "num_tc=4,width=32", "pp=1", "tp=2", "chip=known", "recompute=full"),
    *("hbm_size=2", "num_tc=0", "pp=10000000000"),
)
VALUES = {  # of flags that take few; processes are the kernel's to damage
    "executor": st.sampled_from(("joblib", "dask")),
    "workers": st.sampled_from(("1", "0", "-1", "x", "1.5", "nan")),
    "instead": st.sampled_from(INSTEAD) | TEXTS,
    "set": st.builds(
        "{}={}".format,
        st.sampled_from(("model", "tp", "hbm_size", "micro_batch_size", "nosuch", "device", "")),
        NUMBERS | TEXTS | st.sampled_from(("[1, 2]", "{a: 1}")),
    ),
}


def actions_of(parser: Parser) -> list[argparse.Action]:
    """Flags and words of a mode that are given values."""
    return [each for each in parser._actions if not LEFT_OUT & set(each.option_strings)]


@st.composite
def command_lines(draw: st.DrawFn, mode: str, parser: Parser) -> tuple[str, ...]:
    """A command of ``mode`` with one to three flags that may not fit, sometimes without its end."""
    base = draw(st.sampled_from(commands_of(mode))).split()
    if draw(st.integers(0, 19)) == 19:
        base = base[: draw(st.integers(1, len(base)))]
    actions = st.lists(st.sampled_from(actions_of(parser)), min_size=1, max_size=3)
    return (*base, *(word for action in draw(actions) for word in draw(_given(action))))


@st.composite
def _given(draw: st.DrawFn, action: argparse.Action) -> tuple[str, ...]:
    value = _values(action)
    if not action.option_strings:
        return (draw(value),)
    flag = draw(st.sampled_from(action.option_strings))
    if draw(st.integers(0, 49)) == 49:
        flag = flag[:-1] or "-"
    if action.nargs == 0:
        return (flag,)
    many = action.nargs in {"+", "*"}
    counts = (1, 1, 1, 2, 3, 40, 0) if many else (1, 1, 1, 1, 1, 1, 2, 0)
    count = draw(st.sampled_from(counts))
    given = [draw(value) for _ in range(count)]
    return (f"{flag}={given[0]}",) if count == 1 and draw(st.booleans()) else (flag, *given)


def _values(action: argparse.Action) -> st.SearchStrategy[str]:
    """Of a flag: those that it takes, and any others."""
    if action.dest in VALUES:
        return VALUES[action.dest]
    wrong = NUMBERS.map(str) | TEXTS | st.sampled_from(FILES)
    if action.dest in WRITTEN:
        return wrong.map(lambda value: value.replace("~", "").lstrip("/") or "x")
    return _right(action) | wrong


def _right(action: argparse.Action) -> st.SearchStrategy[str]:
    table = getattr(action, "table", None)
    settings: tuple[Setting, ...] = table.settings if table is not None else ()
    setting = next((each for each in settings if each.key == action.dest), None)
    choices = setting.choices if setting is not None else action.choices
    if choices:
        return st.sampled_from([str(each) for each in choices])
    if setting is None:
        return st.sampled_from(FILES)
    if setting.kind is Kind.SWITCH:
        return st.sampled_from(("true", "false"))
    if setting.kind not in {Kind.INTEGER, Kind.NUMBER}:
        return st.sampled_from(FILES)
    few = [each for each in (1, 2, 3, 4, 8, 16, 0) if setting.least <= each <= setting.most]
    form = "{:.0f}" if setting.kind is Kind.INTEGER else "{}"
    return st.sampled_from([form.format(each) for each in (*few, setting.most, setting.least)])
