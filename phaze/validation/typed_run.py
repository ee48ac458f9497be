"""A measured run in typed fields: one meaning each, with units, and None for what is not known.

In a typed file its fields are the columns, with ``null`` for what is not known.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from GraphExtractor.models.dimensions import family_names
from phaze.validation.csv_table import (
    Column,
    Reader,
    RefusedRow,
    check_columns,
    columns_of,
    header_of,
    read_typed_csv,
)
from phaze_common.choices import (
    Attention,
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    MomentDtype,
    Optimizer,
    Precision,
    Recompute,
    StateDtype,
)
from phaze_common.errors import InputError
from phaze_common.recompute_modules import (
    EXAMPLE,
    Recomputation,
    RecomputedModules,
    recompute_of,
)
from phaze_common.suggestions import nearest
from phaze_common.written_files import write_output

NULL = "null"
MARK = "global_batch_samples"  # a column that no other table has
MEASURED = ("iteration_s", "tflops_per_device", "mfu")
LARGEST = 10**15
MOST_MEASURED = {  # more is a slip: a run of eleven days a step, or what no chip has
    "iteration_s": 1e6,
    "tflops_per_device": 1e5,
    "memory_bytes": 1e13,
}


class FlopsConvention(StrEnum):
    """What published FLOP/s and utilisations count."""

    HARDWARE = "hardware"  # with what is recomputed (Narayanan et al. SC'21, equation 3)
    MODEL = "model"  # without (Korthikanti et al. 2022, appendix A)
    MODEL_CAUSAL = "model_causal"  # and without the scores that a causal mask leaves out (Dao 2023)
    PARAMETERS = "parameters"  # 6 per parameter and token, no attention (Kaplan et al. 2020)


class MemoryFigure(StrEnum):
    """What a published figure of memory counts."""

    ALLOCATED = "allocated"  # by tensors (torch.cuda.max_memory_allocated)
    LAST_STAGE = "allocated_last_stage"  # the same, on a device of the last stage alone
    # held by PyTorch (torch.cuda.max_memory_reserved), without what the driver and NCCL hold
    POOL = "reserved_by_torch"
    RESERVED = "reserved"  # held from the device, as its driver shows


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < LARGEST):
        raise ValueError("a whole number above 0")
    return int(text)


def _recompute(text: str) -> Recomputation:
    try:
        return recompute_of(text)
    except InputError as error:
        raise ValueError(f"one of none, selective, full, or modules, as {EXAMPLE}") from error


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < LARGEST or "_" in text:
        raise ValueError(f"a number above 0 and below {LARGEST:.0e}")
    return value


def _at_most(most: float, what: str = "") -> Column:
    def read(text: str) -> float:
        value = _number(text)
        if value > most:
            raise ValueError(what or f"a number above 0, at most {most:g}")
        return value

    return Column(read)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _one_of(choices: Mapping[str, object], what: str = "") -> Reader:
    def read(text: str) -> object:
        if text not in choices:
            raise ValueError(what or f"one of {', '.join(choices)}")
        return choices[text]

    return read


def _few(allowed: Sequence[int], what: str = "") -> Column:
    return Column(_one_of({str(each): each for each in allowed}, what))


def _name(text: str) -> str:
    """Of what ships: a table opens no other file."""
    if "/" in text or text.endswith((".yaml", ".yml")):
        raise ValueError("a name that is listed, and a file for all runs by the flag of this name")
    return text


def _family(text: str) -> object:
    return _one_of({name: name for name in family_names(mixtures=False)})(text)


@dataclass(frozen=True)
class StatedDegrees:
    """Parallel degrees that a run states, of the plans of ``Estimator.plans.degrees``; None where
    it does not. ``etp`` is the tensor parallel width of experts."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None


NO_DEGREES = StatedDegrees()


ShippedName = Annotated[str | None, Column(_name)]


@dataclass(frozen=True)
class TypedRun:
    """A measured run. The fields behind ``line``, those of ``degrees`` among them, are the columns
    of a typed file, in this order.

    ``model`` is a listed model, or any name beside ``layers`` and ``hidden``; ``family`` are the
    blocks that are traced. ``parameters`` and ``vocabulary`` are counts, ``sequence_length``
    tokens. ``node_bytes_per_s`` is what a device has of the network between nodes. ``year`` is that
    of the software, ``attention_kernel`` the name of its fused attention
    (``Estimator/hardware/attention``), ``blocking_launches`` whether its host waited for every
    kernel, ``fused_gradients`` whether products add to the sums of gradients themselves,
    ``cuda_graphs`` what it did not issue kernel by kernel. ``gradient_bytes`` are those of a
    gradient as it is kept and reduced, ``moment_dtype`` and ``main_weight_dtype`` the formats of
    the optimizer's moments and weights, ``fp8_weights`` whether weights of blocks are held in fp8,
    ``offloaded_activations`` the part of them that is kept in host memory. ``interleave`` are
    chunks per pipeline stage. ``iteration_s`` is the measured time; without it follows from
    ``tflops_per_device`` or ``mfu`` (a fraction), counted by ``flops_convention``. ``memory_bytes``
    are those of the fullest device, counted as ``memory_kind`` says (None: reserved). ``notes`` are
    for readers: nothing reads them.
    """

    line: int
    source: str
    model: str = ""
    family: Annotated[str | None, Column(_family)] = None
    parameters: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    sequence_length: int | None = None
    vocabulary: int | None = None
    device: ShippedName = None
    devices: int | None = None
    cluster: ShippedName = None
    devices_per_node: int | None = None
    node_bytes_per_s: float | None = None
    software: ShippedName = None
    year: Annotated[int | None, _few(range(2012, 2100), "a year from 2012 on")] = None
    attention: Attention | None = None
    attention_kernel: ShippedName = None
    precision: Precision | None = None
    optimizer: Optimizer | None = None
    gradient_bytes: Annotated[int | None, _few((2, 4))] = None
    moment_dtype: MomentDtype | None = None
    main_weight_dtype: StateDtype | None = None
    fp8_weights: bool | None = None
    offloaded_activations: Annotated[float | None, _at_most(1.0, "a fraction, at most 1")] = None
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None
    blocking_launches: bool | None = None
    fused_gradients: bool | None = None
    dispatcher: Dispatcher | None = None
    dispatch_fp8: bool | None = None
    overlap_experts: ExpertOverlap | None = None
    expert_load: Annotated[float | None, _at_most(64.0, "a load, at most 64")] = None
    cuda_graphs: CudaGraphs | None = None
    degrees: StatedDegrees = NO_DEGREES
    interleave: int | None = None
    micro_batch_size: int | None = None
    global_batch_samples: int | None = None
    recompute: Annotated[Recompute | RecomputedModules | None, Column(_recompute)] = None
    sequence_parallel: bool | None = None
    zero_stage: Annotated[int | None, _few((0, 1, 2, 3))] = None
    shard_groups: int | None = None
    iteration_s: Annotated[float | None, _at_most(MOST_MEASURED["iteration_s"])] = None
    tflops_per_device: Annotated[float | None, _at_most(MOST_MEASURED["tflops_per_device"])] = None
    mfu: Annotated[float | None, _at_most(1.0, "a fraction, at most 1")] = None
    flops_convention: FlopsConvention | None = None
    memory_bytes: Annotated[float | None, _at_most(MOST_MEASURED["memory_bytes"])] = None
    memory_kind: MemoryFigure | None = None
    notes: str = ""


CHOICES = (
    *(Attention, MomentDtype, StateDtype, Precision, Recompute, FlopsConvention, MemoryFigure),
    *(Dispatcher, ExpertOverlap, CudaGraphs, Optimizer),
)
READERS: dict[type, Reader] = {
    **{int: _whole, float: _number, bool: _flag, str: str},
    **{choice: _one_of({each.value: each for each in choice}) for choice in CHOICES},
}
FIELDS = columns_of(TypedRun, READERS)
COLUMNS = tuple(FIELDS)


def is_typed(path: Path) -> bool:
    """Whether the first line of a file names typed columns.

    Raises:
        InputError: the file cannot be read.
    """
    return MARK in header_of(path)


def read_typed(path: Path) -> tuple[TypedRun | RefusedRow, ...]:
    """The runs of a typed file; a line that is none is kept with its reason.

    Raises: InputError: a column that is not allowed, or no line is a run; names line and column,
        and what is allowed.
    """

    def header(given: Sequence[str]) -> Sequence[str]:
        known = ", ".join(COLUMNS)
        for name in given:
            if name not in COLUMNS:
                raise InputError(
                    f"{path}, line 1 names column {name!r:.60}, which typed runs have not; "
                    f"{nearest(name, COLUMNS, f'the columns are {known}')}"
                )
        check_columns(path, given, (("device",), (MARK,), MEASURED), known)
        return given

    return read_typed_csv(path, TypedRun, FIELDS, header, NULL)


def write_typed(runs: Sequence[TypedRun], path: Path) -> None:
    """Write a typed file, where there may be one.

    Raises:
        InputError: nothing can be written there.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        values = vars(run) | vars(run.degrees)
        writer.writerow([_text(values[name]) for name in COLUMNS])
    write_output(path, text.getvalue().encode(), force=True)


def _text(value: object) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)
