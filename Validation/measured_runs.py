"""Published tables from CSV, in their own words: the usual columns, or those of vTrain's single-node measurements."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from Common.errors import InputError
from Common.files import read_text
from Validation.published_numbers import number_in
from Validation.published_row import PublishedRow

LARGEST = 1e15  # no count, batch in tokens or time of a run is as large
REQUIRED = ("gpu", "n_gpus", "global_batch")
DIMENSIONS = ("layers", "hidden")  # required where the model is not named
MEASURED = ("measured_iter_time_s", "achieved_tflops_per_gpu", "mfu_pct")
COLUMNS = (
    *("model", "params_B", "layers", "hidden", "heads", "ffn", "seq", "vocab", "gpu", "n_gpus", "tp", "pp", "dp", "interleave"),
    *("micro_batch", "global_batch", "recompute", "seq_parallel", "measured_iter_time_s", "achieved_tflops_per_gpu"),
    *("tflops_convention", "mfu_pct", "iter_time_kind", "mem_GB_measured", "cp", "ep", "zero", "precision", "framework"),
    *("network", "confidence", "source", "notes"),
)
OWN_COLUMNS = ("cluster", "software")  # names of ours, which no published table has
FLAG_COLUMNS = {  # columns that may also be called as the flags of ``phaze evaluate``
    "sequence_length": "seq",
    "vocabulary": "vocab",
    "device": "gpu",
    "devices": "n_gpus",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "sequence_parallel": "seq_parallel",
    "zero_stage": "zero",
    "iteration_s": "measured_iter_time_s",
}

# vTrain's data/ground_truth_single.csv, and what its configurations and paper say of all its rows
SINGLE_NODE_COLUMNS = {
    "# GPUs": "n_gpus",
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "seq",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
    "iteration time (ms)": "milliseconds",
}
SINGLE_NODE_FACTS = {
    "source": "vTrain (MICRO'24) repo data/ground_truth_single.csv",
    "gpu": "A100-80GB-SXM",
    "vocab": "51200",
    "interleave": "1",
    "recompute": "full",
    "seq_parallel": "no",
    "zero": "0",
    "precision": "fp16",
    "framework": "Megatron-DeepSpeed 1F1B",
    "network": "one node of 8 A100, NVSwitch",
}


@dataclass(frozen=True)
class _Line:
    """The cells of a line by column, and where they stand."""

    path: Path
    number: int
    cells: Mapping[str, str]
    unclear: list[str]

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def number_of(self, column: str, factor: float = 1.0) -> float | None:
        """A number above zero; 0, an empty cell and words are what a table writes where it says nothing."""
        text = self.text(column)
        value = number_in(text)
        if value is None:
            if text and text.lower() not in {"nan", "na", "n/a", "none", "-", "--", "?", "unknown"}:
                self.unclear.append(column)
            return None
        if not 0 <= value < LARGEST:
            given = f"{self.path}, line {self.number}, column {column} is {text!r}"
            raise InputError(f"{given}; give a positive number below {LARGEST:.0e}, or leave it empty")
        return value * factor or None

    def name_of(self, column: str) -> str:
        """A name of something that ships: a table is data, and opens no other file."""
        text = self.text(column)
        if "/" in text or text.endswith((".yaml", ".yml")):
            given = f"{self.path}, line {self.number}, column {column} is {text!r:.200}"
            raise InputError(f"{given}; give a name, or the file for all runs with --{column}")
        return text

    def whole(self, column: str) -> int | None:
        """A count; a number that is not whole is a remark of the table, not a count."""
        value = self.number_of(column)
        if value is not None and not value.is_integer():
            self.unclear.append(column)
            return None
        return None if value is None else int(value)


def read_rows(path: Path) -> tuple[PublishedRow, ...]:
    """The rows of a published table.

    Raises:
        InputError: not a readable CSV of these columns, or a number that cannot be; names the line and the column.
    """
    lines = _lines(path)
    _, header = next(lines, (0, ()))
    names = [name.strip() for name in header]
    if not any(names):
        raise InputError(f"{path} is empty; give a CSV file with the columns {', '.join(COLUMNS)}")
    single_node = set(SINGLE_NODE_COLUMNS) <= set(names)
    if not single_node:
        names = [_column(name) for name in names]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        other = next((f" (also called {flag})" for flag, column in FLAG_COLUMNS.items() if column == twice[0]), "")
        raise InputError(f"{path}, line 1 names column {twice[0]}{other} twice; name it once")
    complete = _single_node_cells if single_node else _published_cells(path, names)
    runs = []
    for number, cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(names):
            raise InputError(
                f"{path}, line {number} has {len(cells)} cells, column {len(names) + 1} has no name in line 1; "
                "put text with commas in quotes"
            )
        runs.append(_run(_Line(path, number, complete(dict(zip(names, cells, strict=False))), [])))
    if not runs:
        raise InputError(f"{path} has a header but no runs; add a line per run")
    return tuple(runs)


def _column(name: str) -> str:
    """The column that a header means: as published tables call it, or as our flags do, with hyphens or underscores."""
    plain = name.lower().lstrip("-").replace("-", "_")
    if plain in FLAG_COLUMNS:
        return FLAG_COLUMNS[plain]
    return plain if plain in COLUMNS or plain in OWN_COLUMNS else name


def _lines(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    """Lines as cells, each with the number of its first line in the file."""
    reader = csv.reader(io.StringIO(read_text(path, "a CSV file of measured runs")), strict=True)
    number = 1
    try:
        for cells in reader:
            yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is not CSV: {error}; correct it") from error


def _published_cells(path: Path, names: Sequence[str]) -> Callable[[dict[str, str]], Mapping[str, str]]:
    required = REQUIRED if "model" in names else REQUIRED + DIMENSIONS
    missing = [name for name in required if name not in names]
    if not set(MEASURED) & set(names):
        missing.append(" or ".join(MEASURED))
    if missing:
        *first, last = missing
        lacking = f"columns {', '.join(first)} and {last}" if first else f"column {last}"
        also = ", ".join(f"{flag} for {column}" for flag, column in FLAG_COLUMNS.items())
        columns = f"the columns are {', '.join((*COLUMNS, *OWN_COLUMNS))}, or as the flags are called: {also}"
        raise InputError(f"{path}, line 1 lacks {lacking}; {columns}")
    return lambda cells: cells


def _single_node_cells(cells: dict[str, str]) -> Mapping[str, str]:
    """A line of vTrain's in the columns of published runs."""
    renamed = {SINGLE_NODE_COLUMNS[name]: cell for name, cell in cells.items() if name in SINGLE_NODE_COLUMNS}
    model = f"hidden {renamed.get('hidden', '')}, {renamed.get('layers', '')} layers"
    return {**SINGLE_NODE_FACTS, "model": model, **renamed}


def _run(line: _Line) -> PublishedRow:
    milliseconds = line.number_of("milliseconds")
    return PublishedRow(
        line=line.number,
        source=line.text("source") or line.path.name,
        model=line.text("model"),
        parameters=_parameters(line),
        **{name: line.whole(name) for name in ("layers", "hidden", "heads", "ffn")},
        sequence_length=_sequence_length(line),
        vocabulary=line.whole("vocab"),
        gpu=line.text("gpu"),
        devices=line.whole("n_gpus"),
        **{name: line.whole(name) for name in ("tp", "pp", "dp", "cp", "ep")},
        interleave=line.text("interleave"),
        micro_batch_size=line.whole("micro_batch"),
        global_batch=line.number_of("global_batch"),
        global_batch_in_tokens="tok" in line.text("global_batch").lower(),
        recompute=line.text("recompute").lower(),
        sequence_parallel=line.text("seq_parallel").lower(),
        zero=line.text("zero").lower(),
        precision=line.text("precision").lower(),
        framework=line.text("framework"),
        network=line.text("network"),
        notes=line.text("notes"),
        iteration_s=milliseconds / 1e3 if milliseconds is not None else line.number_of("measured_iter_time_s"),
        tflops_per_device=line.number_of("achieved_tflops_per_gpu"),
        tflops_convention=line.text("tflops_convention"),
        mfu=_utilisation(line),
        memory_bytes=line.number_of("mem_GB_measured", 1e9),
        cluster=line.name_of("cluster"),
        software=line.name_of("software"),
        unclear=tuple(line.unclear),
    )


def _parameters(line: _Line) -> float | None:
    """Parameters from billions of them (175) or their number (175B, 350M)."""
    value = line.number_of("params_B")
    return value * 1e9 if value is not None and value < 1e6 else value


def _utilisation(line: _Line) -> float | None:
    """A fraction from percent (42) or a fraction (0.42)."""
    value = line.number_of("mfu_pct")
    return value / 100 if value is not None and value > 1 else value


def _sequence_length(line: _Line) -> int | None:
    """Tokens, of which 8k are 8192."""
    length = line.whole("seq")
    thousands = length is not None and line.text("seq").lower().endswith("k") and length % 1000 == 0
    return length if length is None or not thousands else length // 1000 * 1024
