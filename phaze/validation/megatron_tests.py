"""Runs of Megatron-LM's functional tests: the arguments of each, and what its golden values say of
time and memory."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from phaze.validation.csv_table import (
    Column,
    Reader,
    RefusedRow,
    UnclearError,
    columns_of,
    read_typed_csv,
)
from phaze.validation.published_runs import PublishedRow, count, measured
from phaze.validation.typed_run import MOST_MEASURED, NO_DEGREES, StatedDegrees

MARKS = frozenset({"golden", "nodes_gpus", "iteration_s_median"})  # columns of no other table
SOURCE = "Megatron-LM functional tests"
DATE = "2026"  # of the golden values (NVIDIA/Megatron-LM d98e8a6), which follow the program
# Megatron-LM, tests/functional_tests: data is tokenised with GPT-2's vocabulary
GPT_VOCABULARY = 50257
# ``--no-gradient-accumulation-fusion`` of nearly all of them
_NOTES = "memory as allocated on the last stage; no gradient accumulation fusion"
_INSTANCES = "; 2 distributed-optimizer instances"
_MUON = "; optimizer Muon"
_EAGER = "; eager attention"
# ``--attention-backend unfused`` of their configurations (the same commit): all of BERT, and of GPT
# under the Transformer Engine those that neither resume, nor divide sequences, nor compare speeds
_UNFUSED = re.compile(r"(?:gpt|moe)/gpt3_(?:moe_)?mcore_(?!.*_cp\d|.*nondeterministic|.*fusion)")
_RESUMES = re.compile(r"resume|reruns|fsdp2|dsa")
_OLDER = "dracooci"  # in the names of golden values from before resumed tests got fused attention
_LONG_TERM = "_lts_"  # so are those of programs with long-term support where the recipe is gone
_MEASURED = {name: Column(measured(most)) for name, most in MOST_MEASURED.items()}
# --num-virtual-stages-per-pipeline-rank, where embedding and loss count as layers
_VIRTUAL_STAGES = re.compile(r"_vp(\d)_account_for_embedding_loss")
# devices of the one server on which 293 of 294 tests of known recipes run; of GB200 some take half
_SERVERS = {"a100": 8, "h100": 8}
_MACHINES = re.compile(r"(\d+)x(\d+)")  # nodes and devices of each


def _devices(text: str) -> int:
    found = _MACHINES.fullmatch(text)
    if found is None:
        raise UnclearError
    return math.prod(int(each) for each in found.groups())


@dataclass(frozen=True)
class MegatronTest:
    """A test on one kind of machine. ``mem_max_bytes`` were allocated at most, on a device of the
    last stage, which writes the log; empty texts and None are arguments that are not given."""

    line: int
    source: str = SOURCE
    test: str = ""
    golden: str = ""
    device: str = ""
    nodes_gpus: Annotated[int | None, Column(_devices)] = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    ffn: int | None = None
    seq: int | None = None
    experts: int | None = None
    topk: int | None = None
    moe_ffn: int | None = None
    degrees: StatedDegrees = NO_DEGREES
    vpp_layers: int | None = None
    mbs: int | None = None
    gbs: int | None = None
    recompute: str = ""
    modules: str = ""
    dist_opt: str = ""
    bf16: str = ""
    fp8: str = ""
    iteration_s_median: Annotated[float | None, _MEASURED["iteration_s"]] = None
    mem_max_bytes: Annotated[float | None, _MEASURED["memory_bytes"]] = None
    unclear: tuple[str, ...] = ()

    @property
    def row(self) -> PublishedRow:
        """The same in the words of a published table."""
        return PublishedRow(
            line=self.line,
            source=SOURCE,
            model=self._mixture or self.test,
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            ffn=self.ffn,
            sequence_length=self.seq,
            vocabulary=GPT_VOCABULARY if self.test.startswith(("gpt/", "moe/")) else None,
            gpu=self.device,
            devices=self._devices,
            degrees=self.degrees,
            interleave=self._chunks,
            micro_batch_size=self.mbs,
            global_batch=None if self.gbs is None else float(self.gbs),
            recompute=f"{self.recompute} {self.modules}".strip() or "none",
            iteration_s=self.iteration_s_median,
            memory_bytes=self.mem_max_bytes,
            zero="1" if self.dist_opt else "0",
            precision="fp8" if self.fp8 else "bf16" if self.bf16 else "fp16",
            framework="Megatron-LM",
            date=DATE,
            notes=_NOTES
            + (_EAGER if self._is_eager else "")
            + (_INSTANCES if "multi_dist_optimizer_instances" in self.test else "")
            + (_MUON if "_muon" in self.test else ""),
            experts=self.experts,
            experts_per_token=self.topk,
            expert_ffn=self.moe_ffn,
        )

    @property
    def _devices(self) -> int | None:
        """A test whose recipe is gone ran on one server, as all others do, but not a release's."""
        known = self.nodes_gpus is not None or "release" in self.test
        return self.nodes_gpus if known else _SERVERS.get(self.device)

    @property
    def _mixture(self) -> str:
        """GPT's blocks with experts, by their sizes: tests that give an ffn besides have gates and
        attention of other kinds."""
        sizes = self.layers, self.hidden, self.heads, self.experts
        if not self.test.startswith("moe/gpt3_") or self.ffn is not None or None in sizes:
            return ""
        ffn = self.moe_ffn or 4 * (self.hidden or 0)
        return (
            f"gptmoe:layers={self.layers},hidden={self.hidden},heads={self.heads},ffn={ffn},"
            f"experts={self.experts},chosen={self.topk or 2},vocabulary={GPT_VOCABULARY}"
        )

    @property
    def _is_eager(self) -> bool:
        """Whether its scores are in memory, as blocks of Megatron-LM's own have them
        (``attention-backend: unfused``), and those of the Transformer Engine where a test says so,
        with experts or without."""
        if _UNFUSED.match(self.test) is None:
            return self.test.startswith("bert/")
        is_local = self.test.startswith("gpt/gpt3_mcore_") and "_te_" not in self.test
        is_older = _OLDER in self.golden or (self.nodes_gpus is None and _LONG_TERM in self.golden)
        return is_local or is_older or _RESUMES.search(self.test) is None

    @property
    def _chunks(self) -> str:
        """Chunks per stage, which the argument tells by the layers of each."""
        ranks = _VIRTUAL_STAGES.search(self.test)
        if ranks is not None:
            return ranks[1]
        if self.vpp_layers is None or self.layers is None:
            return "1"
        return str(max(self.layers // ((self.degrees.pp or 1) * self.vpp_layers), 1))


_READERS: dict[type, Reader] = {int: count, str: str}
_FIELDS = columns_of(MegatronTest, _READERS)


def has_tests(header: Sequence[str]) -> bool:
    """Whether line 1 of a table names the columns of these tests."""
    return set(header) >= MARKS


def read_tests(path: Path) -> tuple[PublishedRow | RefusedRow, ...]:
    """The runs of the tests; a line that is none is kept with its reason.

    Raises:
        InputError: no readable table, or no row of it can be read.
    """
    read = read_typed_csv(path, MegatronTest, _FIELDS, list)
    return tuple(each.row if isinstance(each, MegatronTest) else each for each in read)


def unread_columns(header: Sequence[str]) -> tuple[str, ...]:
    """Columns of such a table that nothing reads."""
    return tuple(name for name in header if name and name not in _FIELDS)
