"""Published tables from CSV, in their own words: the usual columns, or those of vTrain's
single-node measurements.

A line that is no run is kept with its reason, and refuses no other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phaze.validation.csv_lines import CsvLine, csv_lines
from phaze.validation.published_numbers import number_in
from phaze.validation.published_row import PublishedRow, RefusedRow
from phaze_common.errors import InputError
from phaze_common.files import read_text

LARGEST = 1e15  # no count, batch in tokens or time of a run is as large
WANTED = "a CSV file of measured runs"
REQUIRED = ("gpu", "n_gpus", "global_batch")
DIMENSIONS = ("layers", "hidden")  # required where the model is not named
MEASURED = ("measured_iter_time_s", "achieved_tflops_per_gpu", "mfu_pct", "tokens_per_s_per_gpu")
MOST_MEASURED = {  # more is a slip: a run of eleven days a step, or what no chip has
    "measured_iter_time_s": 1e6,
    "milliseconds": 1e9,
    "achieved_tflops_per_gpu": 1e5,
    "mfu_pct": 100.0,
    "tokens_per_s_per_gpu": 1e8,
    "mem_GB_measured": 1e4,
}
COLUMNS = (
    *(
        "model",
        "params_B",
        "layers",
        "hidden",
        "heads",
        "ffn",
        "seq",
        "vocab",
        "gpu",
        "n_gpus",
        "tp",
        "pp",
        "dp",
        "interleave",
    ),
    *(
        "micro_batch",
        "global_batch",
        "recompute",
        "seq_parallel",
        "measured_iter_time_s",
        "achieved_tflops_per_gpu",
    ),
    *(
        "tflops_convention",
        "mfu_pct",
        "iter_time_kind",
        "mem_GB_measured",
        "cp",
        "ep",
        "zero",
        "precision",
        "framework",
    ),
    *(
        "network",
        "confidence",
        "source",
        "notes",
        "tokens_per_s_per_gpu",
        "date",
        "overlap_notes",
        "url_or_path",
    ),
    *("experts", "top_k", "moe_ffn", "active_params_b", "etp"),
)
OWN_COLUMNS = ("cluster", "software")  # names of ours, which no published table has
# columns that may also be called as the flags of ``phaze evaluate``, or as other tables do
FLAG_COLUMNS = {
    "sequence_length": "seq",
    "vocabulary": "vocab",
    "device": "gpu",
    "devices": "n_gpus",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "sequence_parallel": "seq_parallel",
    "zero_stage": "zero",
    "iteration_s": "measured_iter_time_s",
    "step_time_s": "measured_iter_time_s",
    "tflops_per_gpu": "achieved_tflops_per_gpu",
    "tflops_per_device": "achieved_tflops_per_gpu",
    "tokens_per_s_per_device": "tokens_per_s_per_gpu",
    "mfu": "mfu_pct",
    "memory_gb": "mem_GB_measured",
    "total_params_b": "params_B",
    "params_b": "params_B",
    "seq_len": "seq",
    "n_devices": "n_gpus",
    "num_gpus": "n_gpus",
    "gpus": "n_gpus",
    "vpp": "interleave",
    "virtual_pipeline": "interleave",
    "framework_version": "framework",
    "activation_recompute": "recompute",
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
NOTHING_SAID = frozenset({"nan", "na", "n/a", "none", "-", "--", "?", "unknown"})


@dataclass(frozen=True)
class _Line:
    """The cells of a line by column, where they stand, and how line 1 calls the columns."""

    path: Path
    number: int
    cells: Mapping[str, str]
    headings: Mapping[str, str]
    unclear: list[str]

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def number_of(self, column: str, factor: float = 1.0) -> float | None:
        """A number above zero; 0, an empty cell and words are what a table writes where it says
        nothing."""
        text = self.text(column)
        value = number_in(text)
        if value is None:
            if text and text.lower() not in NOTHING_SAID:
                self.unclear.append(column)
            return None
        if not 0 <= value < LARGEST:
            raise InputError(
                f"{self._given(column)}; give a positive number below {LARGEST:.0e}, or leave it "
                "empty"
            )
        return value * factor or None

    def measured(self, column: str, factor: float = 1.0) -> float | None:
        """What was measured: above zero and possible, for a table says nothing with an empty cell
        and not with 0 or NaN."""
        text = self.text(column)
        value = math.nan if text.lower() == "nan" else number_in(text)
        if value is None:
            return self.number_of(column)  # words
        most = MOST_MEASURED[column]
        if not 0 < value <= most:
            raise InputError(
                f"{self._given(column)}; give a number above 0, at most {most:g}, or leave it empty"
            )
        return value * factor

    def _given(self, column: str) -> str:
        called = self.headings.get(column, column)
        return f"{self.path}, line {self.number}, column {called} is {self.text(column)!r:.60}"

    def name_of(self, column: str) -> str:
        """A name of something that ships: a table is data, and opens no other file."""
        text = self.text(column)
        if "/" in text or text.endswith((".yaml", ".yml")):
            raise InputError(
                f"{self._given(column)}; give a name, or the file for all runs with --{column}"
            )
        return text

    def whole(self, column: str) -> int | None:
        """A count; a number that is not whole is a remark of the table, not a count."""
        value = self.number_of(column)
        if value is not None and not value.is_integer():
            self.unclear.append(column)
            return None
        return None if value is None else int(value)


def read_rows(path: Path) -> tuple[PublishedRow | RefusedRow, ...]:
    """The rows of a published table; a line that is none is kept with its reason.

    Raises: InputError: not a readable CSV of these columns, or no row of it can be read; names the
        line and the column.
    """
    lines = csv_lines(read_text(path, WANTED))
    given, names = _header(path, next(lines, CsvLine(1, ())))
    single_node = set(SINGLE_NODE_COLUMNS) <= set(given)
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        other = next(
            (
                f" (also called {flag})"
                for flag, column in FLAG_COLUMNS.items()
                if column == twice[0] and flag in given
            ),
            "",
        )
        raise InputError(f"{path}, line 1 names column {twice[0]}{other} twice; name it once")
    complete = _single_node_cells if single_node else _published_cells(path, names)
    headings = dict(zip(names, given, strict=True))
    rows = [_read(path, line, names, headings, complete) for line in lines]
    if not rows:
        raise InputError(f"{path} has a header but no runs; add a line per run")
    refuse_where_none_is_read(rows)
    return tuple(rows)


def unread_columns(path: Path) -> tuple[str, ...]:
    """Columns of a published table that nothing reads.

    Raises:
        InputError: the file cannot be read.
    """
    given, names = _header(path, next(csv_lines(read_text(path, WANTED)), CsvLine(1, ())))
    known = (
        SINGLE_NODE_COLUMNS if set(SINGLE_NODE_COLUMNS) <= set(given) else {*COLUMNS, *OWN_COLUMNS}
    )
    return tuple(
        name for name, column in zip(given, names, strict=True) if name and column not in known
    )


def _header(path: Path, line: CsvLine) -> tuple[Sequence[str], Sequence[str]]:
    """The columns as the file calls them, and as they are meant."""
    if line.wrong:
        raise InputError(f"{path}, line 1 {line.wrong}")
    given = [name.strip() for name in line.cells]
    if not any(given):
        raise InputError(f"{path} is empty; give a CSV file with the columns {', '.join(COLUMNS)}")
    return given, given if set(SINGLE_NODE_COLUMNS) <= set(given) else [
        _column(name) for name in given
    ]


def refuse_where_none_is_read(rows: Sequence[object]) -> None:
    """Refuse a table all of whose rows are refused.

    Raises:
        InputError: says why the first one is, and how many others are.
    """
    refused = [row for row in rows if isinstance(row, RefusedRow)]
    if rows and len(refused) == len(rows):
        others = len(refused) - 1
        raise InputError(
            refused[0].reason + (f" (and so it is with {others} other lines)" if others else "")
        )


def _read(
    path: Path,
    line: CsvLine,
    names: Sequence[str],
    headings: Mapping[str, str],
    complete: Callable[[dict[str, str]], Mapping[str, str]],
) -> PublishedRow | RefusedRow:
    """A line of the table, or why it is none."""
    where, wrong = f"{path}, line {line.number}", line.wrong
    cells = dict(zip(names, line.cells, strict=False))
    if not wrong and len(line.cells) > len(names):
        wrong = (
            f"has {len(line.cells)} cells, column {len(names) + 1} has no name in line 1; put "
            "text with commas in quotes"
        )
    try:
        if wrong:
            raise InputError(f"{where} {wrong}")
        return _run(_Line(path, line.number, complete(cells), headings, []))
    except InputError as error:
        source, model = (cells.get(name, "").strip() for name in ("source", "model"))
        return RefusedRow(line.number, source or path.name, model, str(error))


def _column(name: str) -> str:
    """The column that a header means: as published tables call it, or as our flags do, with hyphens
    or underscores."""
    plain = name.lower().lstrip("-").replace("-", "_").replace(" ", "_")
    if plain in FLAG_COLUMNS:
        return FLAG_COLUMNS[plain]
    return next((column for column in (*COLUMNS, *OWN_COLUMNS) if column.lower() == plain), name)


def _published_cells(
    path: Path, names: Sequence[str]
) -> Callable[[dict[str, str]], Mapping[str, str]]:
    required = REQUIRED if "model" in names else REQUIRED + DIMENSIONS
    missing = [name for name in required if name not in names]
    if not set(MEASURED) & set(names):
        missing.append(" or ".join(MEASURED))
    if missing:
        *first, last = missing
        lacking = f"columns {', '.join(first)} and {last}" if first else f"column {last}"
        also = ", ".join(f"{flag} for {column}" for flag, column in FLAG_COLUMNS.items())
        columns = (
            f"the columns are {', '.join((*COLUMNS, *OWN_COLUMNS))}, or as the flags are "
            f"called: {also}"
        )
        raise InputError(f"{path}, line 1 lacks {lacking}; {columns}")
    return lambda cells: cells


def _single_node_cells(cells: dict[str, str]) -> Mapping[str, str]:
    renamed = {
        SINGLE_NODE_COLUMNS[name]: cell
        for name, cell in cells.items()
        if name in SINGLE_NODE_COLUMNS
    }
    model = f"hidden {renamed.get('hidden', '')}, {renamed.get('layers', '')} layers"
    return {**SINGLE_NODE_FACTS, "model": model, **renamed}


def _run(line: _Line) -> PublishedRow:
    milliseconds = line.measured("milliseconds")
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
        iteration_s=milliseconds / 1e3
        if milliseconds is not None
        else line.measured("measured_iter_time_s"),
        tflops_per_device=line.measured("achieved_tflops_per_gpu"),
        tflops_convention=line.text("tflops_convention"),
        mfu=_utilisation(line),
        memory_bytes=line.measured("mem_GB_measured", 1e9),
        cluster=line.name_of("cluster"),
        software=line.name_of("software"),
        date=line.text("date"),
        url=line.text("url_or_path"),
        overlap=line.text("overlap_notes"),
        etp=line.whole("etp"),
        experts=line.whole("experts"),
        experts_per_token=line.whole("top_k"),
        expert_ffn=line.whole("moe_ffn"),
        tokens_per_s_per_device=line.measured("tokens_per_s_per_gpu"),
        unclear=tuple(line.unclear),
    )


def _parameters(line: _Line) -> float | None:
    """Parameters from billions of them (175) or their number (175B, 350M)."""
    value = line.number_of("params_B")
    return value * 1e9 if value is not None and value < 1e6 else value


def _utilisation(line: _Line) -> float | None:
    """A fraction from percent (42) or a fraction (0.42)."""
    value = line.measured("mfu_pct")
    return value / 100 if value is not None and value > 1 else value


def _sequence_length(line: _Line) -> int | None:
    """Tokens, of which 8k are 8192."""
    length = line.whole("seq")
    thousands = length is not None and line.text("seq").lower().endswith("k") and length % 1000 == 0
    return length if length is None or not thousands else length // 1000 * 1024
