"""Tables of measured operators, read for calibration: our own CSV, and tables of others that have
no header.

Our own has a header and one row per measurement, empty where a column does not apply:

    operator,batch,m,k,n,rows,row_length,dtype,seconds
    gemm,1,8192,4096,4096,,,float16,0.00102
    softmax,,,,,4096,2048,bfloat16,0.00005

``operator`` is ``gemm`` (``batch`` products of an m x k by a k x n matrix) or a vector function (on
``rows`` rows of ``row_length`` elements). Columns that no row needs may be left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from Estimator.devices.functions import TENSORS_MOVED
from Estimator.devices.isolated import IsolatedOperator, Stream
from GraphExtractor.graph import DTYPE_BYTES, Gemm
from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.ranges import positive_number
from phaze_common.units import GIGA

GEMM = "gemm"
COLUMNS = ("operator", "batch", "m", "k", "n", "rows", "row_length", "dtype", "seconds")
# of operands; no tensor of a graph is in float8
ELEMENT_BYTES = MappingProxyType({**DTYPE_BYTES, "float8": 1})
MOST_DIGITS = 16


@dataclass(frozen=True)
class MeasuredOperator:
    """Seconds that an operator took when it was timed by itself; ``where`` is the file and line
    that say so."""

    operator: IsolatedOperator
    seconds: float
    where: str


@dataclass(frozen=True)
class OperatorTable:
    """Measurements of one source, at least one."""

    name: str
    rows: tuple[MeasuredOperator, ...]


def measured_product(gemm: Gemm, dtype: str, seconds: float, where: str) -> MeasuredOperator:
    """A matrix product as a row of a table."""
    return MeasuredOperator(
        IsolatedOperator(GEMM, dtype, ELEMENT_BYTES[dtype], products=(gemm,)), seconds, where
    )


def measured_function(
    function: str, rows: int, row_length: int, dtype: str, seconds: float, where: str
) -> MeasuredOperator:
    """A vector function as a row of a table."""
    stream = Stream(function, rows, row_length)
    return MeasuredOperator(
        IsolatedOperator(function, dtype, ELEMENT_BYTES[dtype], streams=(stream,)), seconds, where
    )


def read_operator_table(path: Path) -> OperatorTable:
    """Read a table; its file name says which layout one without a header has.

    Raises: InputError: the file cannot be read, is empty, or has a line that is no measurement;
        names file and line.
    """
    text = read_text(path, "a CSV file")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path} is empty; give a table with the columns {', '.join(COLUMNS)}")
    rows = _headed(lines, path) if "seconds" in lines[0][1] else _headless(lines, path)
    if not rows:
        raise InputError(f"{path} has a header and no measurement; add rows below it")
    return OperatorTable(path.name, rows)


def _headed(lines: list[tuple[int, str]], path: Path) -> tuple[MeasuredOperator, ...]:
    header = [name.strip() for name in lines[0][1].split(",")]
    unknown = [name for name in header if name not in COLUMNS]
    if unknown or len(set(header)) < len(header):
        given = f"the unknown column {unknown[0]!r}" if unknown else "a column twice"
        raise InputError(f"{path}:{lines[0][0]}: has {given}; the columns are {', '.join(COLUMNS)}")
    rows = _split(lines[1:], path, len(header))
    return tuple(_headed_row(dict(zip(header, cells, strict=True)), where) for cells, where in rows)


def _headed_row(cells: dict[str, str], where: str) -> MeasuredOperator:
    operator = _cell(cells, "operator", where)
    dtype = _cell(cells, "dtype", where)
    if dtype not in ELEMENT_BYTES:
        raise InputError(
            f"{where}: dtype is {dtype!r}; it must be one of {', '.join(ELEMENT_BYTES)}"
        )
    seconds = positive_number(_cell(cells, "seconds", where), "seconds", where)
    if operator == GEMM:
        batch = _count(cells["batch"], "batch", where) if cells.get("batch") else 1
        m, k, n = (_count(_cell(cells, name, where), name, where) for name in ("m", "k", "n"))
        return measured_product(Gemm(batch, m, k, n), dtype, seconds, where)
    if operator not in TENSORS_MOVED:
        raise InputError(
            f"{where}: operator is {operator!r}; it must be {GEMM} or one of "
            f"{', '.join(sorted(TENSORS_MOVED))}"
        )
    rows, row_length = (
        _count(_cell(cells, name, where), name, where) for name in ("rows", "row_length")
    )
    return measured_function(operator, rows, row_length, dtype, seconds, where)


def _cell(cells: dict[str, str], name: str, where: str) -> str:
    if not cells.get(name):
        raise InputError(f"{where}: {name} is missing; the columns are {', '.join(COLUMNS)}")
    return cells[name]


def _headless(lines: list[tuple[int, str]], path: Path) -> tuple[MeasuredOperator, ...]:
    name = path.stem.split("_")[0].lower()
    if name not in LAYOUTS:
        raise InputError(
            f"{path}:{lines[0][0]} is no header with the columns {', '.join(COLUMNS)}; "
            f"add one, or call the file after the layout of the table ({', '.join(LAYOUTS)})"
        )
    layout = LAYOUTS[name]
    return tuple(layout.row(cells, where) for cells, where in _split(lines, path, layout.cells))


def _split(lines: list[tuple[int, str]], path: Path, cells: int) -> Iterator[tuple[list[str], str]]:
    """Cells of every line and where it is."""
    for number, line in lines:
        found = [cell.strip() for cell in line.split(",")]
        if len(found) != cells:
            raise InputError(f"{path}:{number}: has {len(found)} cells; it must have {cells}")
        yield found, f"{path}:{number}"


@dataclass(frozen=True)
class _Layout:
    cells: int
    row: Callable[[list[str], str], MeasuredOperator]


def _matmul(cells: list[str], where: str) -> MeasuredOperator:
    """``m, k, n, 1.2345ms, 123.4Tflops``."""
    m, k, n = (_count(cell, name, where) for cell, name in zip(cells, "mkn", strict=False))
    milliseconds = positive_number(cells[3].removesuffix("ms"), "the time", where)
    return measured_product(Gemm(1, m, k, n), "float16", milliseconds / 1e3, where)


def _rows_and_rate(function: str) -> _Layout:
    """``rows, row length, 1e9 elements a second``."""

    def row(cells: list[str], where: str) -> MeasuredOperator:
        rows, length = _count(cells[0], "rows", where), _count(cells[1], "row length", where)
        seconds = rows * length / GIGA / positive_number(cells[2], "the rate", where)
        return measured_function(function, rows, length, "float16", seconds, where)

    return _Layout(3, row)


def _gelu(cells: list[str], where: str) -> MeasuredOperator:
    """``elements, 1e9 elements a second``."""
    elements = _count(cells[0], "elements", where)
    seconds = elements / GIGA / positive_number(cells[1], "the rate", where)
    return measured_function("gelu", 1, elements, "float16", seconds, where)


# of LLMCompass (ISCA 2024, artifact): name before the first underscore of the file -> its lines
LAYOUTS = MappingProxyType(
    {
        "matmul": _Layout(5, _matmul),
        "softmax": _rows_and_rate("softmax"),
        "layernorm": _rows_and_rate("layer_norm"),
        "gelu": _Layout(2, _gelu),
    }
)


def _count(text: str, name: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < MOST_DIGITS) or int(text) < 1:
        raise InputError(f"{where}: {name} is {text!r}; it must be a whole number, at least 1")
    return int(text)
