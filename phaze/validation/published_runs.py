"""Published tables from CSV, in their own words: the usual columns, or those of vTrain's
single-node measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from phaze.validation.csv_table import (
    Column,
    Reader,
    RefusedRow,
    UnclearError,
    check_columns,
    column_name,
    columns_of,
    header_of,
    read_typed_csv,
)
from phaze.validation.published_numbers import number_in
from phaze.validation.typed_run import MOST_MEASURED, NO_DEGREES, StatedDegrees
from phaze_common.errors import InputError

LARGEST = 1e15  # no count, batch in tokens or time of a run is as large
NOTHING_SAID = frozenset({"nan", "na", "n/a", "none", "-", "--", "?", "unknown"})


def number(text: str) -> float | None:
    """A number above zero; 0 and words for nothing are what a table writes where it says nothing.

    Raises:
        ValueError: it is negative or too large.
        UnclearError: it is no number.
    """
    value = number_in(text)
    if value is None and text.lower() not in NOTHING_SAID:
        raise UnclearError
    if value is not None and not 0 <= value < LARGEST:
        raise ValueError(f"a positive number below {LARGEST:.0e}")
    return value or None


def count(text: str) -> int | None:
    """A count; a number that is not whole is a remark of the table, not a count."""
    value = number(text)
    if value is not None and not value.is_integer():
        raise UnclearError
    return None if value is None else int(value)


def measured(most: float, factor: float = 1.0) -> Reader:
    """Of what was measured: above zero and possible, for a table says nothing with an empty cell
    and not with 0 or NaN."""

    def read(text: str) -> float | None:
        value = math.nan if text.lower() == "nan" else number_in(text)
        if value is None:
            return number(text)  # words
        if not 0 < value <= most:
            raise ValueError(f"a number above 0, at most {most:g}")
        return value * factor

    return read


def tokens_in(text: str) -> int | None:
    """Tokens, of which 8k are 8192."""
    length = count(text)
    thousands = length is not None and text.lower().endswith("k") and length % 1000 == 0
    return length if length is None or not thousands else length // 1000 * 1024


def parameters_in(text: str) -> float | None:
    """Parameters from billions of them (175) or their number (175B, 350M)."""
    value = number(text)
    return value * 1e9 if value is not None and value < 1e6 else value


def utilisation(text: str) -> object:
    """A fraction from percent (42) or a fraction (0.42)."""
    value = measured(100.0)(text)
    return value / 100 if isinstance(value, float) and value > 1 else value


def name_for(flag: str) -> Reader:
    """Of something that ships: a table is data, and opens no other file."""

    def read(text: str) -> str:
        if "/" in text or text.endswith((".yaml", ".yml")):
            raise ValueError(f"a name, or the file for all runs with --{flag}")
        return text

    return read


def _named(read: Reader, *names: str) -> Column:
    return Column(read, names)


@dataclass(frozen=True)
class PublishedRow:
    """A published run: one line of the file. None and empty texts are what the line does not say.

    Words that decide something (``interleave``, ``recompute``, ``zero``, ``network``...) are kept
    as they are written; ``cluster`` and ``software`` name what ships. ``unclear`` lists the columns
    that hold words where a number belongs. A column has the first of the names behind its reader,
    and may be called as other tables or the flags of ``phaze evaluate`` call it.
    """

    line: int
    source: str = ""
    model: str = ""
    parameters: Annotated[
        float | None, _named(parameters_in, "params_B", "total_params_b", "params_b")
    ] = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    sequence_length: Annotated[
        int | None, _named(tokens_in, "seq", "sequence_length", "seq_len")
    ] = None
    vocabulary: Annotated[int | None, _named(count, "vocab", "vocabulary")] = None
    gpu: Annotated[str, _named(str, "gpu", "device")] = ""
    devices: Annotated[
        int | None, _named(count, "n_gpus", "devices", "n_devices", "num_gpus", "gpus")
    ] = None
    degrees: StatedDegrees = NO_DEGREES
    interleave: Annotated[str, _named(str, "interleave", "vpp", "virtual_pipeline")] = ""
    micro_batch_size: Annotated[int | None, _named(count, "micro_batch", "micro_batch_size")] = None
    global_batch: Annotated[float | None, _named(number, "global_batch", "global_batch_size")] = (
        None
    )
    global_batch_in_tokens: Annotated[
        bool, _named(lambda text: "tok" in text.lower(), "global_batch")
    ] = False
    recompute: Annotated[str, _named(str.lower, "recompute", "activation_recompute")] = ""
    sequence_parallel: Annotated[str, _named(str.lower, "seq_parallel", "sequence_parallel")] = ""
    iteration_s: Annotated[
        float | None,
        _named(
            measured(MOST_MEASURED["iteration_s"]),
            "measured_iter_time_s",
            "iteration_s",
            "step_time_s",
        ),
    ] = None
    tflops_per_device: Annotated[
        float | None,
        _named(
            measured(MOST_MEASURED["tflops_per_device"]),
            "achieved_tflops_per_gpu",
            "tflops_per_gpu",
            "tflops_per_device",
        ),
    ] = None
    tflops_convention: str = ""
    mfu: Annotated[float | None, _named(utilisation, "mfu_pct", "mfu")] = None
    memory_bytes: Annotated[
        float | None,
        _named(measured(MOST_MEASURED["memory_bytes"] / 1e9, 1e9), "mem_GB_measured", "memory_gb"),
    ] = None
    zero: Annotated[str, _named(str.lower, "zero", "zero_stage")] = ""
    precision: Annotated[str, Column(str.lower)] = ""
    framework: Annotated[str, _named(str, "framework", "framework_version")] = ""
    network: str = ""
    notes: str = ""
    tokens_per_s_per_device: Annotated[
        float | None,
        _named(measured(1e8), "tokens_per_s_per_gpu", "tokens_per_s_per_device"),
    ] = None
    date: str = ""
    overlap: Annotated[str, _named(str, "overlap_notes")] = ""
    url: Annotated[str, _named(str, "url_or_path")] = ""
    experts: int | None = None
    experts_per_token: Annotated[int | None, _named(count, "top_k")] = None
    expert_ffn: Annotated[int | None, _named(count, "moe_ffn")] = None
    cluster: Annotated[str, Column(name_for("cluster"))] = ""
    software: Annotated[str, Column(name_for("software"))] = ""
    unclear: tuple[str, ...] = ()


FIELDS = columns_of(PublishedRow, {int: count, float: number, str: str})
_UNREAD = ("iter_time_kind", "confidence", "active_params_b")  # of published tables
COLUMNS = tuple(dict.fromkeys((*(column_name(*each) for each in FIELDS.items()), *_UNREAD)))
# columns that may also be called as the flags of ``phaze evaluate``, or as other tables do
ALSO_CALLED = {other: column_name(*each) for each in FIELDS.items() for other in each[1].names[1:]}
REQUIRED = (("gpu",), ("n_gpus",), ("global_batch",))
DIMENSIONS = (("layers",), ("hidden",))  # required where the model is not named
MEASURED = ("measured_iter_time_s", "achieved_tflops_per_gpu", "mfu_pct", "tokens_per_s_per_gpu")

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
    "vocabulary": 51200,
    "interleave": "1",
    "recompute": "full",
    "sequence_parallel": "no",
    "zero": "0",
    "precision": "fp16",
    "framework": "Megatron-DeepSpeed 1F1B",
    "network": "one node of 8 A100, NVSwitch",
}


def read_rows(path: Path) -> tuple[PublishedRow | RefusedRow, ...]:
    """The rows of a published table; a line that is none is kept with its reason.

    Raises: InputError: not a readable CSV of these columns, or no row of it can be read; names the
        line and the column.
    """
    if not _is_single_node(header_of(path)):
        return read_typed_csv(path, PublishedRow, FIELDS, lambda given: _header(path, given))
    milliseconds = _named(measured(1e9, 1e-3), "milliseconds")
    rows = read_typed_csv(path, PublishedRow, FIELDS | {"iteration_s": milliseconds}, _columns)
    return tuple(
        replace(row, model=f"hidden {row.hidden}, {row.layers} layers", **SINGLE_NODE_FACTS)  # type: ignore[arg-type]
        if isinstance(row, PublishedRow)
        else row
        for row in rows
    )


def unread_columns(path: Path) -> tuple[str, ...]:
    """Columns of a published table that nothing reads.

    Raises:
        InputError: the file cannot be read.
    """
    given = header_of(path)
    known = {*COLUMNS, *SINGLE_NODE_COLUMNS.values()}
    pairs = zip(given, _columns(given), strict=True)
    return tuple(name for name, column in pairs if name and column not in known)


def _is_single_node(given: Sequence[str]) -> bool:
    return set(SINGLE_NODE_COLUMNS) <= set(given)


def _columns(given: Sequence[str]) -> list[str]:
    """The columns that a header means: as published tables call them, or as our flags do, with
    hyphens or underscores."""
    if _is_single_node(given):
        return [SINGLE_NODE_COLUMNS.get(name, name) for name in given]
    usual = {column.lower(): column for column in COLUMNS} | ALSO_CALLED
    plain = (name.lower().lstrip("-").replace("-", "_").replace(" ", "_") for name in given)
    return [usual.get(each, name) for each, name in zip(plain, given, strict=True)]


def _header(path: Path, given: Sequence[str]) -> list[str]:
    if not any(given):
        raise InputError(f"{path} is empty; give a CSV file with the columns {', '.join(COLUMNS)}")
    names = _columns(given)
    required = REQUIRED if "model" in names else (*REQUIRED, *DIMENSIONS)
    also = ", ".join(f"{flag} for {column}" for flag, column in ALSO_CALLED.items())
    known = f"{', '.join(COLUMNS)}, or as the flags are called: {also}"
    check_columns(path, names, (*required, MEASURED), known)
    return names
