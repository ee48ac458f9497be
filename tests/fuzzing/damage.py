"""Values that people mistype, tools write and attackers choose, and files damaged by their structure
or by bytes, as strategies of Hypothesis."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import yaml
from hypothesis import strategies as st

LONG = 100_000  # letters of a long text
MANY = 300  # copies of an entry
HOLE = 64  # bytes that a damage reaches
DEPTHS = (40, 150, 20_000)  # of lists within lists; the last one as text alone

INTEGERS = (
    st.sampled_from((0, -1, 1, 2, 3, 7, 64, 10**4, 2**31, 2**53, 2**63 - 1, 2**63, 2**64))
    | st.sampled_from((10**19, 10**40, -(2**63), -(10**40)))
    | st.integers()
)
NUMBERS = (
    INTEGERS
    | st.sampled_from((-0.0, 0.5, -1.5, 1e-320, 1e-9, 1.0000001, 1e9, 1e18, 1e30, 1e40, 1e150))
    | st.sampled_from((1e308, -1e308, math.nan, math.inf, -math.inf))
    | st.floats()
)
WORDS = (
    *("", " ", "null", "nan", "inf", "-inf", "1e40", "-1", "0", "true", "~", "all", "none", "-"),
    *("--", "=", ":", ",", "a=b", "a:b", "%s", "{0}", "{", "é", "日本", "🙂", "\x1b[31m", "\0"),
    *("\n", "a\nb", "\t", "\u202eabc", "\udcff", "../../etc", "~nosuchuser/x", "./", ".", "*", "["),
    *("a" * 300, "a" * LONG, "a/" * 2500, "bytes", "GHz", "1 GiB", "8x", "0x10", "1_000", "１２"),
    *("9" * 400, "1e400", "[]", "gpt:", "gpt:layers=1e40,hidden=64,heads=2", "nosuch.yaml"),
    *(
        "gpt:layers=2,hidden=64",
        "gpt:layers=2,hidden=64,heads=0",
        "gpt:layers=2,hidden=64,heads=2=nan",
    ),
    *("bert:layers=-1,hidden=64,heads=2", "gpt:layers=2,hidden=64,heads=2=1e400"),
)
TEXTS = st.sampled_from(WORDS) | st.text(max_size=40)
NESTED = st.sampled_from(DEPTHS[:2]).map(lambda depth: json.loads("[" * depth + "]" * depth))
ANYTHING = NESTED | st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
)
YAML_SNIPPETS = (
    *("? [a, b]\n: c\n", "<<: *nowhere\n", "&a [*a]\n", "---\na: 1\n---\nb: 2\n", "\ta: 1\n"),
    *("%YAML 9.9\n---\n", "x: !!binary zz\n", "x: !!python/object/apply:os.getcwd []\n"),
    *("x: 2001-99-99\n", "x: 1:60:60\n", "x: .inf\n", "x: !!float abc\n", "x: !!set {a, b}\n"),
    *("x: &b {y: *b}\n", "x: [[[[", "x: |\n  a\n b\n", "1: 2\n", "true: 1\n", "[a]: 1\n"),
    *("? {a: 1}\n: 2\n", "null: 1\n", "x: 0o17\n", *(f"x: {'[' * depth}\n" for depth in DEPTHS)),
    "x0: &x0 [a, a, a, a, a, a, a, a, a]\n"
    + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 9)),
)
BYTES = (b"\0", b"\xff\xfe", b"\r", b"\x1b[2J", b"'", b'"', b"{", b"]", b": ", b"&a *a ")
DIGITS = (b"0", b"-1", b"9" * 20, b"1e40", b"1e308", b".5", b"NaN", b"Infinity")
CODE = (
    *("(", "raise ValueError('no')", "raise SystemExit(7)", "import nosuchmodule", "1 / 0"),
    *("assert False", "return", "print('hello')", "pass", "def build(): pass", "x = yield", "\0"),
    *("import torch; torch.manual_seed(0)", "raise MemoryError", "raise RecursionError"),
    *("raise StopIteration", "raise Exception('a' * 5000)", "raise ValueError('a. B. C. D. E.')"),
    *(
        "import warnings; warnings.warn('mine')",
        "async def build(): pass",
        "torch.tensor(1).item()",
    ),
)
RETURNED = ("None", "1", "[]", "{}", "object()", "'a'", "(1, 2)")


@st.composite
def damaged(draw: st.DrawFn, name: str, content: bytes) -> bytes:
    """The file ``name`` that had ``content``, damaged by the structure of its format, or by bytes."""
    by_structure = next((way for end, way in BY_ENDING.items() if name.endswith(end)), None)
    if by_structure is None or draw(st.integers(0, 3)) == 3:
        return draw(damaged_bytes(content))
    return draw(by_structure(content))


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """What disks, editors, transfers and other programs do to a file."""
    start = draw(st.integers(0, len(content)))
    end = start + draw(st.integers(1, HOLE))
    before, hole, after = content[:start], content[start:end], content[end:]
    digits = [each.start() for each in re.finditer(rb"\d", content[:LONG])]
    inserted = draw(st.sampled_from(BYTES) | st.binary(max_size=HOLE))
    ways = {
        "truncated": before,
        "removed": before + after,
        "repeated": before + hole * draw(st.sampled_from((2, 50))) + after,
        "inserted": before + inserted + hole + after,
        "flipped": before + bytes(each ^ 1 << draw(st.integers(0, 7)) for each in hole) + after,
        "zeros": bytes(len(content)),
        "noise": inserted,
        "empty": b"",
        "marked": b"\xef\xbb\xbf" + content,
        "UTF-16": content.decode("latin-1").encode("utf-16"),
        "lines of another system": content.replace(b"\n", b"\r\n"),
        "compressed": gzip.compress(content, mtime=0),
    }
    if digits:
        place = draw(st.sampled_from(digits))
        digit = draw(st.sampled_from(DIGITS))
        ways["digits"] = content[:place] + digit + content[place + 1 :]
    return ways[draw(st.sampled_from(list(ways)))]


@st.composite
def damaged_document(draw: st.DrawFn, document: Any) -> Any:
    """A parsed document with one to three of its entries deleted, renamed, replaced, copied or
    exchanged."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            return draw(ANYTHING)
        holder, key = draw(st.sampled_from(places))
        way = draw(st.sampled_from(("replaced", "deleted", "copied", "exchanged", "many")))
        if way == "replaced":
            holder[key] = draw(_instead_of(holder[key]))
        elif way == "deleted":
            del holder[key]
        elif way == "exchanged":
            others = list(holder) if isinstance(holder, dict) else range(len(holder))
            other = draw(st.sampled_from(others))
            holder[key], holder[other] = holder[other], holder[key]
        elif isinstance(holder, dict):  # copied, or renamed
            value = copy.deepcopy(holder[key]) if way == "copied" else holder.pop(key)
            name = str(key)
            near = (f"{name}s", name[:-1], name.upper(), name.replace("_", "-"))
            holder[draw(st.sampled_from(near) | TEXTS)] = value
        else:
            count = 1 if way == "copied" else draw(st.sampled_from((2, MANY)))
            holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(count)]
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry as its holder and its key there."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    for key in keys:
        yield document, key
        if isinstance(document[key], dict | list):
            yield from _places(document[key])


@st.composite
def _instead_of(draw: st.DrawFn, value: Any) -> Any:
    """A value near ``value``, of another type, or any."""
    others: tuple[Any, ...] = (
        str(value),
        [value],
        {"value": value},
        None,
        bool(value),
        [value] * 2,
    )
    if isinstance(value, dict | list | str):
        others += (type(value)(),)
    elif isinstance(value, int | float) and math.isfinite(value):
        others += tuple(value * factor for factor in (-1, 2, 10, 1000, 10**6, 10**12, 0.1, 0.5))
    return draw(st.sampled_from(others) | NUMBERS | TEXTS | ANYTHING)


@st.composite
def damaged_yaml(draw: st.DrawFn, content: bytes) -> bytes:
    """A YAML file with other entries, or lines of the format's own traps."""
    if draw(st.integers(0, 5)) == 5:
        lines = content.decode().splitlines(keepends=True)
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(YAML_SNIPPETS)))
        return "".join(lines).encode()
    document = draw(damaged_document(yaml.safe_load(content)))
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


@st.composite
def damaged_json(draw: st.DrawFn, content: bytes) -> bytes:
    """A JSON file with other entries, or deep within lists."""
    if draw(st.integers(0, 19)) == 19:
        depth = draw(st.sampled_from(DEPTHS))
        return b"[" * depth + content + b"]" * depth
    return json.dumps(draw(damaged_document(json.loads(content)))).encode()


@st.composite
def damaged_packed_json(draw: st.DrawFn, content: bytes) -> bytes:
    """A compressed JSON file with other entries, or one that unpacks to a quarter of a GiB."""
    if draw(st.integers(0, 29)) == 29:
        return gzip.compress(b" " * 2**28, 1, mtime=0)
    return gzip.compress(draw(damaged_json(gzip.decompress(content))), mtime=0)


@st.composite
def damaged_csv(draw: st.DrawFn, content: bytes) -> bytes:
    """A table with other cells, rows and columns."""
    document = draw(damaged_document(list(csv.reader(io.StringIO(content.decode())))))
    rows = document if isinstance(document, list) else [document]
    if draw(st.integers(0, 5)) == 5:
        column = draw(st.integers(0, 10))
        rows = [row[:column] + row[column + 1 :] if isinstance(row, list) else row for row in rows]
    text = io.StringIO()
    csv.writer(text).writerows(row if isinstance(row, list) else [row] for row in rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


@st.composite
def damaged_parquet(draw: st.DrawFn, content: bytes) -> bytes:
    """A table with another column, or another number of rows."""
    table = pd.read_parquet(io.BytesIO(content))
    column = draw(st.sampled_from(list(table.columns)))
    ways: dict[str, Callable[[], pd.DataFrame]] = {
        "dropped": lambda: table.drop(columns=[column]),
        "renamed": lambda: table.rename(columns={column: f"{column}_"}),
        "no rows": lambda: table.iloc[:0],
        "many rows": lambda: pd.concat([table] * 20),
        "replaced": lambda: table.assign(
            **{column: draw(st.sampled_from(("x", None, math.inf, -1, 1e300)))}
        ),
    }
    buffer = io.BytesIO()
    ways[draw(st.sampled_from(list(ways)))]().to_parquet(buffer, index=False)
    return buffer.getvalue()


@st.composite
def damaged_python(draw: st.DrawFn, content: bytes) -> bytes:
    """Only what people leave out or mistype: the file is run."""
    lines = content.decode().splitlines(keepends=True)
    at = draw(st.integers(0, len(lines) - 1))
    line = lines[at]
    way = draw(st.sampled_from(("deleted", "inserted", "misspelt", "number", "returned")))
    if way == "deleted":
        del lines[at]
    elif way == "inserted":
        indent = line[: len(line) - len(line.lstrip())].strip("\n")
        lines.insert(at, f"{indent}{draw(st.sampled_from(CODE))}\n")
    elif way == "misspelt":
        names = sorted(set(re.findall(r"\b[a-z_]{3,}\b", content.decode())))
        name = draw(st.sampled_from(names))
        lines = [re.sub(rf"\b{name}\b", f"{name}x", each, count=1) for each in lines]
    elif way == "number":
        number = draw(st.sampled_from((0, -1, 1, 3, 10**6, 2**63, 10**40, 1.5)))
        lines[at] = re.sub(r"\d+", str(number), line, count=1)
    else:
        lines[at] = re.sub(r"return .*", f"return {draw(st.sampled_from(RETURNED))}", line)
    return "".join(lines).encode()


BY_ENDING: dict[str, Callable[[bytes], st.SearchStrategy[bytes]]] = {
    ".json.gz": damaged_packed_json,
    ".json": damaged_json,
    ".yaml": damaged_yaml,
    ".csv": damaged_csv,
    ".parquet": damaged_parquet,
    ".py": damaged_python,
}
