"""Formats of files: how each is taken apart, mutated by its structure and put together again."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

from scripts.fuzzing import octets, structure, values

Mutation = tuple[bytes, str]
SHARE_OF_BYTES = 0.25  # of the mutations of a file; the others are of its structure
_SNIPPETS = (  # of YAML
    *(
        "? [a, b]\n: c\n",
        "<<: *nowhere\n",
        "&a [*a]\n",
        "---\na: 1\n---\nb: 2\n",
        "%YAML 9.9\n---\n",
        "\ta: 1\n",
        "x: !!binary zz\n",
    ),
    *(
        "x: !!python/object/apply:os.getcwd []\n",
        "x: 2001-99-99\n",
        "x: 1:60:60\n",
        "x: .inf\n",
        "x: !!float abc\n",
        "x: !!set {a, b}\n",
    ),
    *(
        "x: &b {y: *b}\n",
        "x: [[[[",
        "x: |\n  a\n b\n",
        "1: 2\n",
        "true: 1\n",
        "[a]: 1\n",
        "? {a: 1}\n: 2\n",
        "null: 1\n",
        "x: 0o17\n",
    ),
)


def mutated(name: str, content: bytes, random: Random) -> Mutation:
    """The file ``name`` with ``content`` mutated, and how."""
    if random.random() < SHARE_OF_BYTES:
        return octets.mutated(content, random)
    for ending, change in _BY_ENDING.items():
        if name.endswith(ending):
            return change(content, random)
    return octets.mutated(content, random)


def _yaml(content: bytes, random: Random) -> Mutation:
    if random.random() < 0.15:
        lines = content.decode().splitlines(keepends=True)
        snippet = random.choice(
            (*_SNIPPETS, f"x: {'[' * random.choice(values.DEPTHS)}\n", _aliases(9))
        )
        lines.insert(random.randrange(len(lines) + 1), snippet)
        return "".join(lines).encode(), f"inserted {snippet[:30]!r}"
    document, what = structure.mutated(yaml.safe_load(content), random)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=random.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    ), what


def _aliases(levels: int) -> str:
    """A few lines that stand for nine to the power of ``levels`` values."""
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a]\n"]
    lines += [
        f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]\n" for level in range(1, levels)
    ]
    return "".join(lines)


def _json(content: bytes, random: Random) -> Mutation:
    if random.random() < 0.05:
        depth = random.choice(values.DEPTHS)
        return b"[" * depth + content + b"]" * depth, f"within {depth} lists"
    document, what = structure.mutated(json.loads(content), random)
    return json.dumps(document).encode(), what


def _packed_json(content: bytes, random: Random) -> Mutation:
    if random.random() < 0.03:
        return gzip.compress(b" " * 2**28, 1, mtime=0), "a compressed file of 256 MiB of blanks"
    text, what = _json(gzip.decompress(content), random)
    return gzip.compress(text, mtime=0), what


def _csv(content: bytes, random: Random) -> Mutation:
    rows = [list(row) for row in csv.reader(io.StringIO(content.decode()))]
    for _ in range(random.choice((1, 1, 2))):
        row = random.choice(rows)
        column = random.randrange(len(row)) if row else 0
        choice = random.randrange(7)
        if choice <= 2 and row:
            row[column] = (
                str(values.number(random))
                if random.random() < 0.7
                else values.text(random).replace("\udcff", "?")
            )
        elif choice == 3:
            rows.remove(row)
        elif choice == 4:
            rows.insert(random.randrange(len(rows) + 1), list(row))
        elif choice == 5:
            for each in rows:
                del each[column : column + 1]
        else:
            row.insert(column, values.text(random).replace("\udcff", "?"))
        if not rows:
            break
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass"), "cells"


def _parquet(content: bytes, random: Random) -> Mutation:
    import pandas as pd

    table = pd.read_parquet(io.BytesIO(content))
    column = random.choice(list(table.columns))
    what = random.choice(
        (
            "dropped",
            "renamed",
            "texts",
            "missing",
            "infinite",
            "no rows",
            "negative",
            "huge",
            "many rows",
        )
    )
    if what == "dropped":
        table = table.drop(columns=[column])
    elif what == "renamed":
        table = table.rename(columns={column: column + "_"})
    elif what == "no rows":
        table = table.iloc[:0]
    elif what == "many rows":
        table = pd.concat([table] * 20)
    else:
        new: Any = {
            "texts": "x",
            "missing": None,
            "infinite": float("inf"),
            "negative": -1,
            "huge": 1e300,
        }[what]
        table[column] = new
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue(), f"{column}: {what}"


def _python(content: bytes, random: Random) -> Mutation:
    """Only what people leave out or mistype: the file is run."""
    lines = content.decode().splitlines(keepends=True)
    at = random.randrange(len(lines))
    choice = random.randrange(5)
    if choice == 0:
        what = f"without line {at + 1}"
        del lines[at]
    elif choice == 1:
        inserted = random.choice(_CODE)
        indent = re.match(r"\s*", lines[at])
        lines.insert(at, (indent[0].strip("\n") if indent else "") + inserted + "\n")
        what = f"line {at + 1}: {inserted}"
    elif choice == 2:
        names = sorted(set(re.findall(r"\b[a-z_]{3,}\b", "".join(lines))))
        name = random.choice(names)
        lines = [re.sub(rf"\b{name}\b", f"{name}x", line, count=1) for line in lines]
        what = f"{name} misspelt"
    elif choice == 3:
        number = str(random.choice((0, -1, 1, 3, 10**6, 2**63, 10**40, 1.5)))
        lines[at] = re.sub(r"\d+", number, lines[at], count=1)
        what = f"line {at + 1} with {number}"
    else:
        lines[at] = re.sub(r"return .*", f"return {random.choice(_RETURNED)}", lines[at])
        what = f"line {at + 1} returns something else"
    return "".join(lines).encode(), what


_RETURNED = ("None", "1", "[]", "{}", "object()", "'a'", "(1, 2)")
_CODE = (
    *(
        "(",
        "raise ValueError('no')",
        "raise SystemExit(7)",
        "import nosuchmodule",
        "assert False",
        "1 / 0",
    ),
    *(
        "return",
        "print('hello')",
        "pass",
        "def build(): pass",
        "x = yield",
        "import torch; torch.manual_seed(0)",
        "raise MemoryError",
    ),
    *(
        "raise RecursionError",
        "raise StopIteration",
        "raise Exception('a' * 5000)",
        "raise ValueError",
        "raise ValueError('a. B. C. D. E.')",
    ),
    *(
        "import warnings; warnings.warn('mine')",
        "\0",
        "async def build(): pass",
        "torch.tensor(1).item()",
    ),
)
_BY_ENDING: dict[str, Callable[[bytes, Random], Mutation]] = {
    ".json.gz": _packed_json,
    ".json": _json,
    ".yaml": _yaml,
    ".csv": _csv,
    ".parquet": _parquet,
    ".py": _python,
}
