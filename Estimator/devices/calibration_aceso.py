"""Aceso's profiled operators (EuroSys 2024) as measurements: GPT layers of Megatron-LM, operator by
operator, on V100s.

A file ``gpt_<size>_mbs<micro-batch>_tp<width>_algo0.csv`` has the microseconds of each operator of
one layer, forward and backward, as they pass when it runs many times in a row: those of the device,
or of the host where it issues kernels no faster. Left out is what contains an all-reduce
(row-parallel products forward and column-parallel ones backward, from width 2), what moves more
than its operands (embedding, head, dropout with bias and residual), and the softmax that is not one
kernel.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from Estimator.devices.calibration_tables import MeasuredOperator, OperatorTable
from Estimator.devices.isolated import IsolatedOperator, Stream
from GraphExtractor.graph import DTYPE_BYTES, Gemm
from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.ranges import positive_number

FILES = "gpt_*_algo0.csv"
FILE_NAME = re.compile(r"gpt_(.+)_mbs(\d+)_tp(\d+)_algo0\.csv")
SHAPES = MappingProxyType(  # hidden size, heads (Aceso's aceso_utils.py)
    {
        "scale-layer": (512, 8),
        "350M": (1024, 16),
        "1_3B": (2048, 32),
        "2_6B": (2560, 32),
        "6_7B": (4096, 32),
        "13B": (5120, 40),
        "22B": (6144, 64),
    }
)
SEQUENCE = 2048
FUSED_SOFTMAX_MULTIPLE = (
    4  # Megatron-LM runs another softmax where micro-batch x heads is no multiple
)
COLUMN_PARALLEL = ("enc-attention-qkv", "enc-MLP-GEMM-1")
ROW_PARALLEL = ("enc-attention-dense", "enc-MLP-GEMM-2")
MICRO = 1e-6


@dataclass(frozen=True)
class _Layer:
    """Sizes of one file's layer, per device."""

    tokens: int
    hidden: int
    width: int  # tensor parallel
    batches: int  # micro-batch x heads of the device
    head: int

    def operators(self) -> dict[tuple[str, str], IsolatedOperator]:
        """Operators by name and column of the file."""
        tokens = self.tokens
        hidden = self.hidden
        ffn = 4 * self.hidden // self.width
        qkv = 3 * self.hidden // self.width
        head, length = self.head, SEQUENCE
        # queries, keys and values are copied out of, and into, the joint product
        split = (Stream("copy", tokens, qkv),)
        scores = Gemm(self.batches, length, head, length)
        values = Gemm(self.batches, length, length, head)
        found = {
            **_product("enc-attention-qkv", Gemm(1, tokens, hidden, qkv), split),
            **_product("enc-attention-dense", Gemm(1, tokens, hidden // self.width, hidden)),
            **_product("enc-MLP-GEMM-1", Gemm(1, tokens, hidden, ffn)),
            **_product("enc-MLP-GEMM-2", Gemm(1, tokens, ffn, hidden)),
            ("enc-attention-score", "forward"): _operator("batched_gemm", (scores,)),
            ("enc-attention-score", "backward"): _operator(
                "batched_gemm_backward", (values, values)
            ),
            ("enc-attention-context", "forward"): _operator("batched_gemm", (values,)),
            ("enc-attention-context", "backward"): _operator(
                "batched_gemm_backward", (scores, values)
            ),
            **_function("enc-1st-layernorm", "layer_norm", tokens, hidden),
            **_function("enc-2nd-layernorm", "layer_norm", tokens, hidden),
            **_function("enc-attention-dropout", "dropout", self.batches * length, length),
            **_function("enc-MLP-gelu", "gelu", tokens, ffn),
        }
        if self.batches % FUSED_SOFTMAX_MULTIPLE == 0:
            found |= _function(
                "enc-attention-softmax", "causal_softmax", self.batches * length, length
            )
        if self.width > 1:
            reduced = [(name, "backward") for name in COLUMN_PARALLEL] + [
                (name, "forward") for name in ROW_PARALLEL
            ]
            found = {key: operator for key, operator in found.items() if key not in reduced}
        return found


def _operator(
    launch: str, products: tuple[Gemm, ...] = (), streams: tuple[Stream, ...] = ()
) -> IsolatedOperator:
    return IsolatedOperator(launch, "float16", DTYPE_BYTES["float16"], products, streams)


def _product(
    name: str, gemm: Gemm, streams: tuple[Stream, ...] = ()
) -> dict[tuple[str, str], IsolatedOperator]:
    launch = "gemm_copy" if streams else "gemm"
    gradients = (Gemm(1, gemm.m, gemm.n, gemm.k), Gemm(1, gemm.k, gemm.m, gemm.n))
    return {
        (name, "forward"): _operator(launch, (gemm,), streams),
        (name, "backward"): _operator(f"{launch}_backward", gradients, streams),
    }


def _function(
    name: str, function: str, rows: int, length: int
) -> dict[tuple[str, str], IsolatedOperator]:
    return {
        (name, "forward"): _operator(function, streams=(Stream(function, rows, length),)),
        (name, "backward"): _operator(
            f"{function}_backward", streams=(Stream(f"{function}_backward", rows, length),)
        ),
    }


def read_aceso_operators(folder: Path) -> OperatorTable:
    """All GPT files of a folder as one table.

    Raises:
        InputError: the folder has none, or one has another layout or sizes; names file and line.
    """
    rows = tuple(row for path in sorted(folder.glob(FILES)) for row in _file_rows(path))
    if not rows:
        raise InputError(
            f"{folder} has no files {FILES}; give a folder of Aceso's profiled operators, or a "
            "CSV file"
        )
    return OperatorTable(folder.name, rows)


def _file_rows(path: Path) -> Iterator[MeasuredOperator]:
    named = FILE_NAME.fullmatch(path.name)
    if named is None or named[1] not in SHAPES:
        raise InputError(
            f"{path} is no file of a known model; known are {', '.join(SHAPES)}; take it out of "
            "the folder"
        )
    hidden, heads = SHAPES[named[1]]
    micro_batch, width = int(named[2]), int(named[3])
    layer = _Layer(
        micro_batch * SEQUENCE, hidden, width, micro_batch * heads // width, hidden // heads
    )
    operators = layer.operators()
    reader = csv.DictReader(
        io.StringIO(read_text(path, "a CSV file of Aceso's profiled operators"))
    )
    try:
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            for phase in ("forward", "backward"):
                operator = operators.get((cells.get("op_name") or "", phase))
                if operator is not None:
                    column = f"{phase}-compute"
                    microseconds = positive_number(cells.get(column) or "", column, where)
                    yield MeasuredOperator(operator, microseconds * MICRO, where)
    except csv.Error as error:
        raise InputError(
            f"{path}:{reader.line_num} is not CSV: {error}; correct it, or take it out of the "
            "folder"
        ) from error
