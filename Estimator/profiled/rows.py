"""Rows of a database: measured operators, collectives and whole passes, to and from the columns of
its tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from GraphExtractor.graph import DTYPE_BYTES, Gemm, Operator, OperatorKind, Phase, Yields
from phaze_common.errors import InputError
from phaze_common.json_text import parse_json
from phaze_common.records import from_json

Columns = Mapping[str, object]
NOTHING = Gemm(0, 0, 0, 0)
PROBE = "probe"  # the model of rows that every profile measures
# of an operator: what is timed
TIMED = ("kind", "phase", "yields", "gemms", "vector", "reads", "writes", "causal", "window")


class Exchange(StrEnum):
    """What processes exchange: collectives by the names of ``CollectiveKind``, and a message from
    one to another."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND = "send"


@dataclass(frozen=True)
class Timing:
    """Seconds of something that was repeated: their median and the distance between their
    quartiles."""

    seconds: float
    spread_s: float
    repeats: int


@dataclass(frozen=True)
class OperatorRow:
    """A measured ``operator`` (see ``anonymous``); ``host_s`` is what its issue takes the host,
    where that runs ahead.

    ``tp`` is the tensor parallel width of the graph that it is from, with the model and the sizes
    of that graph.
    """

    operator: Operator
    timing: Timing
    host_s: float
    tp: int
    model: str
    micro_batch_size: int
    sequence_length: int


@dataclass(frozen=True)
class CollectiveRow:
    """An exchange among ``group_size`` processes of ``nodes`` nodes; ``payload_bytes`` as of
    ``Collective``."""

    kind: Exchange
    payload_bytes: int
    group_size: int
    nodes: int
    timing: Timing


@dataclass(frozen=True)
class PassRow:
    """One pass through layers, run as a framework runs them: what ``operators`` of it, which alone
    take ``operators_s``, cost.

    ``gradient_bytes`` are those of the weights' gradients that it adds to others (see
    ``gradient_bytes``), 0 where it does not. ``start_s`` is what they took longer where the pass
    that they are a part of began behind a wait, less than zero by chance. ``again_s``, of a
    backward pass, is what both passes took longer than three of them where the forward one was run
    again in the backward one; None where that was not measured.
    """

    phase: Phase
    operators: int
    operators_s: float
    timing: Timing
    dtype: str
    model: str
    micro_batch_size: int
    sequence_length: int
    gradient_bytes: int = 0
    start_s: float = 0.0
    again_s: float | None = None


def gradient_bytes(operator: Operator) -> int:
    """Bytes of the gradients of weights that an operator makes."""
    if operator.yields is Yields.WEIGHT_GRADIENT:
        return sum(each.bytes for each in operator.writes)
    return 0


def anonymous(operator: Operator) -> Operator:
    """What decides the seconds of an operator: without number, name, place in its graph, part of
    the model, and what streams."""
    return replace(
        operator,
        id=0,
        name="",
        forward_id=None,
        core_attention=False,
        collective=None,
        streamed=(),
        model_share=1.0,
    )


def dtype_of(operator: Operator) -> str:
    """Number format of the largest floating-point operand."""
    floats = [
        each
        for each in (*operator.reads, *operator.writes)
        if each.dtype.startswith(("float", "bfloat"))
    ]
    return max(floats, key=lambda each: each.bytes).dtype if floats else "float32"


def operator_columns(row: OperatorRow) -> dict[str, object]:
    """A row of the table of operators: what people read of the operator, the measurement, and the
    operator itself."""
    return {
        **_described(row.operator),
        "tp": row.tp,
        **_timed(row.timing),
        "host_s": row.host_s,
        "model": row.model,
        "micro_batch_size": row.micro_batch_size,
        "sequence_length": row.sequence_length,
        "operator": _signature(row.operator),
    }


def _described(operator: Operator) -> dict[str, object]:
    gemm = operator.gemms[0] if operator.gemms else NOTHING
    return {
        "kind": operator.kind.value,
        "phase": operator.phase.value,
        "yields": operator.yields.value,
        "dtype": dtype_of(operator),
        "batch": gemm.batch,
        "m": gemm.m,
        "k": gemm.k,
        "n": gemm.n,
        "functions": "+".join(work.function for work in operator.vector),
        "elements": sum(work.elements for work in operator.vector),
        "flops": operator.flops,
        "bytes": operator.bytes_read + operator.bytes_written,
    }


def operator_row(columns: Columns, where: str) -> OperatorRow:
    """The inverse of ``operator_columns``.

    Raises:
        InputError: a column is missing or wrong, or disagrees with the operator of the row.
    """
    operator = _operator(_text(columns, "operator", where), where)
    for name, value in _described(operator).items():
        given: object = str(columns.get(name) or "")
        if isinstance(value, int):
            given = _number(columns, name, where)
        if given != value:
            raise InputError(
                f"{where}: {name} is {given!r}, the operator of the row has {value!r}; profile "
                "the machine again"
            )
    return OperatorRow(
        operator=operator,
        timing=_timing(columns, where),
        host_s=_number(columns, "host_s", where),
        tp=_count(columns, "tp", where),
        model=str(columns.get("model") or ""),
        micro_batch_size=_count(columns, "micro_batch_size", where),
        sequence_length=_count(columns, "sequence_length", where),
    )


def collective_columns(row: CollectiveRow) -> dict[str, object]:
    """A row of the table of collectives; also one that ``phaze calibrate --table`` reads."""
    return {
        "op": row.kind.value,
        "size_bytes": row.payload_bytes,
        "num_nodes": row.nodes,
        "gpus_per_node": row.group_size // row.nodes,
        **_timed(row.timing),
    }


def collective_row(columns: Columns, where: str) -> CollectiveRow:
    """The inverse of ``collective_columns``.

    Raises:
        InputError: a column is missing or wrong.
    """
    kind = _text(columns, "op", where)
    if kind not in list(Exchange):
        raise InputError(f"{where}: op is {kind!r}; it must be one of {', '.join(Exchange)}")
    nodes, inside = _count(columns, "num_nodes", where), _count(columns, "gpus_per_node", where)
    if nodes * inside < 2:
        raise InputError(
            f"{where} is an exchange of one process; leave out rows in which nothing is sent"
        )
    return CollectiveRow(
        Exchange(kind),
        _count(columns, "size_bytes", where),
        nodes * inside,
        nodes,
        _timing(columns, where),
    )


def pass_columns(row: PassRow) -> dict[str, object]:
    """A row of the table of passes."""
    stated = {key: value for key, value in asdict(row).items() if key != "timing"}
    return stated | {"phase": row.phase.value} | _timed(row.timing)


def pass_row(columns: Columns, where: str) -> PassRow:
    """The inverse of ``pass_columns``.

    Raises:
        InputError: a column is missing or wrong.
    """
    phase = _text(columns, "phase", where)
    if phase not in list(Phase):
        raise InputError(f"{where}: phase is {phase!r}; it must be one of {', '.join(Phase)}")
    return PassRow(
        phase=Phase(phase),
        operators=_count(columns, "operators", where),
        operators_s=_positive(columns, "operators_s", where),
        timing=_timing(columns, where),
        dtype=_text(columns, "dtype", where),
        model=str(columns.get("model") or ""),
        micro_batch_size=_count(columns, "micro_batch_size", where),
        sequence_length=_count(columns, "sequence_length", where),
        gradient_bytes=int(_number(columns, "gradient_bytes", where))
        if "gradient_bytes" in columns
        else 0,
        start_s=_number(columns, "start_s", where) if "start_s" in columns else 0.0,
        again_s=_number(columns, "again_s", where) if _is_given(columns.get("again_s")) else None,
    )


def _signature(operator: Operator) -> str:
    """Canonical JSON of what is timed."""
    kept = asdict(operator)
    return json.dumps({key: kept[key] for key in TIMED}, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Operator:
    stated = parse_json(text, "it")
    if not isinstance(stated, dict) or set(stated) != set(TIMED):
        raise ValueError(f"its keys must be {', '.join(TIMED)}")
    return from_json(Operator, json.dumps({"id": 0, "name": "", **stated}), "the operator")


def _operator(text: str, where: str) -> Operator:
    try:
        operator = _parsed(text)
    except (ValueError, InputError, RecursionError) as error:
        raise InputError(
            f"{where}: operator is not one of this format ({error}); profile the machine again"
        ) from error
    operands = (*operator.reads, *operator.writes)
    if operator.kind is OperatorKind.COLLECTIVE or any(
        each.dtype not in DTYPE_BYTES for each in operands
    ):
        raise InputError(
            f"{where}: operator is a collective, or of an unknown dtype; profile the machine again"
        )
    return operator


def _timed(timing: Timing) -> dict[str, object]:
    return {"seconds": timing.seconds, "spread_s": timing.spread_s, "repeats": timing.repeats}


def _timing(columns: Columns, where: str) -> Timing:
    spread_s = _number(columns, "spread_s", where)
    if spread_s < 0:
        raise InputError(f"{where}: spread_s is {spread_s}; it must be zero or positive")
    return Timing(_positive(columns, "seconds", where), spread_s, _count(columns, "repeats", where))


def _text(columns: Columns, name: str, where: str) -> str:
    value = columns.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where} has no {name}; every row must have one")
    return value


def _is_given(value: object) -> bool:
    """Whether a cell that may be empty is not; an empty one of numbers is read as NaN from a
    parquet table."""
    return value not in (None, "") and value == value


def _number(columns: Columns, name: str, where: str) -> float:
    value: Any = columns.get(name)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: {name} is {value!r}; it must be a finite number")
    return number


def _positive(columns: Columns, name: str, where: str) -> float:
    number = _number(columns, name, where)
    if number <= 0:
        raise InputError(f"{where}: {name} is {number}; it must be positive")
    return number


def _count(columns: Columns, name: str, where: str) -> int:
    number = _positive(columns, name, where)
    if number != int(number):
        raise InputError(f"{where}: {name} is {number}; it must be a whole number")
    return int(number)


def distinct(rows: Sequence[OperatorRow]) -> tuple[OperatorRow, ...]:
    """One row per operator, the last one measured."""
    return tuple({row.operator: row for row in rows}.values())
