"""Values that people mistype, tools write and attackers choose: numbers, texts, nestings."""

from __future__ import annotations

import math
from random import Random
from typing import Any

INTEGERS = (
    0,
    -1,
    1,
    2,
    3,
    5,
    7,
    64,
    10**4,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    10**19,
    10**40,
    -(2**63),
    -(10**40),
)
NUMBERS = (
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-320,
    1e-9,
    1.0000001,
    1e9,
    1e18,
    1e30,
    1e40,
    1e150,
    1e308,
    -1e308,
)
NOT_FINITE = (math.nan, math.inf, -math.inf)
LONG = 100_000  # letters of a long text

TEXTS = (
    *(
        "",
        " ",
        "null",
        "nan",
        "inf",
        "-inf",
        "1e40",
        "-1",
        "0",
        "true",
        "~",
        "all",
        "none",
        "-",
        "--",
        "=",
        ":",
        ",",
        "a=b",
        "a:b",
    ),
    *(
        "%s",
        "{0}",
        "{",
        "é",
        "日本",
        "🙂",
        "\x1b[31m",
        "\0",
        "\n",
        "a\nb",
        "\t",
        "‮abc",
        "\udcff",
        "../../etc",
        "~nosuchuser/x",
        "./",
    ),
    *(
        "a" * 300,
        "a" * LONG,
        "a/" * 2500,
        "bytes",
        "GHz",
        "1 GiB",
        "8x",
        "0x10",
        "1_000",
        "１２",
        "9" * 400,
        "1e400",
        "*",
        "[",
        "[]",
    ),
    *(
        "gpt:",
        "gpt:layers=1e40,hidden=64,heads=2",
        "gpt:layers=2,hidden=64",
        "bert:layers=-1,hidden=64,heads=2",
        "nosuch.yaml",
    ),
    *(
        "gpt:layers=2,hidden=64,heads=0",
        "gpt:layers=2,hidden=64,heads=2=nan",
        "gpt:layers=2,hidden=64,heads=2=1e400",
        ".",
    ),
)
FILES = (
    *(
        "study.yaml",
        "run",
        "run/best.json",
        "missing.json",
        "missing.yaml",
        "/dev/null",
        "/dev/zero",
        "empty.yaml",
        "folder.yaml",
    ),
    *(
        "loop.yaml",
        "binary.yaml",
        "mine.py",
        "runs.csv",
        "llama.json",
        "plan.yaml",
        "cluster.yaml",
        "device.yaml",
        "space.yaml",
    ),
)
DEPTHS = (40, 150, 20_000)  # of lists within lists; the last one as text alone


def number(random: Random, like: float | None = None) -> Any:
    """A number that a field may not hold; sometimes one near ``like``, which it holds now."""
    if like is not None and math.isfinite(like) and random.random() < 0.3:
        factor = random.choice((-1, 0.1, 0.5, 2, 10, 1000, 1e6, 1e12))
        return int(like * factor) if isinstance(like, int) and abs(like) < 1e300 else like * factor
    chosen = random.choice((INTEGERS, NUMBERS, NOT_FINITE))
    return random.choice(chosen)


def text(random: Random) -> str:
    """A text that a field may not hold."""
    return random.choice(TEXTS)


def nested(random: Random, depth: int | None = None) -> Any:
    """Lists or mappings within each other, ``depth`` of them."""
    value: Any = 1
    for _ in range(depth or random.choice(DEPTHS[:2])):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def anything(random: Random) -> Any:
    """A value of any type."""
    kind = random.randrange(7)
    if kind == 0:
        return random.choice((None, True, False))
    if kind == 1:
        return text(random)
    if kind == 2:
        return nested(random)
    if kind == 3:
        return [number(random) for _ in range(random.choice((0, 1, 3, 200)))]
    if kind == 4:
        return {text(random): number(random) for _ in range(random.choice((0, 1, 3)))}
    return number(random)
