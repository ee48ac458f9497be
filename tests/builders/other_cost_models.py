"""Products as they are priced beside what other cost models and an A100 take for them: a table of
docs/explanation/latency.md.

Every row prices with the model that searches use. Where another tool assumes other constants, these
are set as ``--set`` sets them; what has no constant (double buffering, ports) stays, and the
difference is printed. Written to the page anew by

    PYTHONPATH=. .venv/bin/python tests/builders/other_cost_models.py ../shared/data
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Dataflow, TensorCores
from Estimator.chips.design_space_files import SpaceChanges, load_design_space
from Estimator.chips.tensor_core import TensorCoreModel, TensorWork
from Estimator.constants import constant_changes
from GraphExtractor.graph import Gemm

MANUAL = Path(__file__).parents[2] / "docs" / "explanation" / "latency.md"
BOTH = (Dataflow.WEIGHT_STATIONARY, Dataflow.OUTPUT_STATIONARY)  # of all platforms that ship
WORD_BYTES = 2
NO_STARTUP = "platform.startup=0"
AT_ONCE = "platform.weight_rows_per_cycle=1e9"  # a whole tile of weights in a cycle
A100 = (
    "platform.frequency=1.41e9",
    "platform.hbm_bandwidth=2.039e12",
    "platform.glb_bandwidth=5120",
)
A100_LOCAL = "platform.l2_bytes_per_pe=192"  # 192 KiB of an SM for its four arrays of 16x16


@dataclass(frozen=True)
class Run:
    """A product on ``num`` arrays of rows x columns, and what another tool or a device took for it,
    in seconds or cycles."""

    gemm: Gemm
    num: int
    rows: int
    columns: int
    buffer_bytes: int
    took: float
    seconds: bool = False


@dataclass(frozen=True)
class Comparison:
    """Errors of priced products against those of one source: priced over taken, less one; shape
    (runs,)."""

    source: str
    constants: str  # that it is priced with, in words
    errors: NDArray[np.float64]

    def row(self) -> str:
        """Of the table."""
        sizes = np.abs(self.errors)
        within = " | ".join(str(int((sizes <= share).sum())) for share in (0.05, 0.10))
        metrics = (
            f"{self.errors.mean():+.1%} | {np.median(sizes):.1%} | "
            f"{self.errors[sizes.argmax()]:+.1%}"
        )
        return (
            f"| {self.source} | {self.constants} | {len(sizes)} | {metrics} | {within} |".replace(
                "%", " %"
            )
        )


HEAD = (
    "| other | priced with | runs | mean | median size | worst | within 5 % | within 10 % |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def priced(
    run: Run, constants: Sequence[str] = (), dataflows: tuple[Dataflow, ...] = BOTH
) -> float:
    """What the product's model says of ``run`` on Phaze's platform with these constants changed, in
    the unit of ``run.took``."""
    platform = load_design_space(
        "phaze_icml24", SpaceChanges(constants=constant_changes(constants))
    ).platform
    platform = replace(platform, dataflows=dataflows)
    num, width, depth, buffer = (
        np.array([each]) for each in (run.num, run.columns, run.rows, run.buffer_bytes)
    )
    gemm = run.gemm
    moved = WORD_BYTES * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    model = TensorCoreModel(TensorCores(num, width, depth, buffer, np.zeros_like(num)), platform)
    seconds = float(model.estimate(TensorWork((gemm,), moved, False)).all_s[0])
    return seconds if run.seconds else seconds * platform.frequency_hz


def error(run: Run, constants: Sequence[str] = (), dataflows: tuple[Dataflow, ...] = BOTH) -> float:
    """Priced over taken, less one."""
    return priced(run, constants, dataflows) / run.took - 1


def stored(data: Path, name: str) -> list[dict[str, Any]]:
    """The runs of one tool."""
    runs: list[dict[str, Any]] = json.loads((data / "cost_models" / f"{name}.json").read_text())
    return runs


def scalesim_run(each: dict[str, Any]) -> Run:
    """Its cycles of computation, with stalls and without what it fetches before."""
    gemm = Gemm(1, each["M"], each["K"], each["N"])
    return Run(gemm, 1, each["array_h"], each["array_w"], each["buffer_MiB"] << 20, each["cycles"])


def zigzag_run(each: dict[str, Any]) -> Run:
    """Its cycles with loading and unloading."""
    gemm = Gemm(1, each["M"], each["K"], each["N"])
    return Run(gemm, 1, each["rows_K"], each["cols_N"], each["buffer_MiB"] << 20, each["cycles"])


def sunstone_run(each: dict[str, Any]) -> Run:
    """On so many cores."""
    rows, columns = each["PE"]
    return Run(
        Gemm(1, each["M"], each["K"], each["N"]),
        each["num"],
        rows,
        columns,
        each["glb"],
        each["cycles"],
    )


def bandwidth(bytes_per_cycle: float) -> str:
    """The memory's, at the clock of Phaze's platform."""
    return f"platform.hbm_bandwidth={bytes_per_cycle * load_design_space('phaze_icml24').platform.frequency_hz}"


def zigzag_constants(each: dict[str, Any]) -> tuple[str, ...]:
    """What its runs assume and a constant can say, but for how fast a tile of weights is loaded."""
    return NO_STARTUP, bandwidth(each["hbm_bytes_per_cycle"])


def scalesim(data: Path) -> Iterator[Comparison]:
    """Against SCALE-Sim 3."""
    runs = stored(data, "scalesim")
    source, own = "SCALE-Sim 3", []
    yield Comparison(
        source, "platform as it ships", np.array([error(scalesim_run(each)) for each in runs])
    )
    for each in runs:
        constants = NO_STARTUP, bandwidth(WORD_BYTES * each["bandwidth_words_per_cycle"])
        own.append(error(scalesim_run(each), constants, (Dataflow(each["dataflow"]),)))
    yield Comparison(source, "its dataflow and memory, no start-up", np.array(own))


def zigzag(data: Path) -> Iterator[Comparison]:
    """Against ZigZag 3.9."""
    stationary = (Dataflow.WEIGHT_STATIONARY,)
    for ports, source in (
        ("wide_ports", "ZigZag, a port for each operand"),
        ("shared_port", "ZigZag, one port"),
    ):
        runs = [each for each in stored(data, "zigzag") if each["ports"] == ports]
        yield Comparison(
            source, "platform as it ships", np.array([error(zigzag_run(each)) for each in runs])
        )
        kept = [error(zigzag_run(each), zigzag_constants(each), stationary) for each in runs]
        yield Comparison(source, "its dataflow and memory, no start-up", np.array(kept))
        if ports == "wide_ports":
            loaded = [
                error(zigzag_run(each), (*zigzag_constants(each), AT_ONCE), stationary)
                for each in runs
            ]
            yield Comparison(source, "besides, weights loaded in one cycle", np.array(loaded))


def sunstone(data: Path) -> Iterator[Comparison]:
    """Against Sunstone as Phaze calls it: 256 words per cycle of the global buffer, 128 of the
    memory, whatever the cores."""
    own = NO_STARTUP, bandwidth(WORD_BYTES * 128), f"platform.glb_bandwidth={WORD_BYTES * 256}"
    for num, cores in ((1, "one core"), (8, "eight cores")):
        runs = [sunstone_run(each) for each in stored(data, "sunstone") if each["num"] == num]
        source = f"Sunstone as in Phaze, {cores}"
        yield Comparison(source, "platform as it ships", np.array([error(run) for run in runs]))
        yield Comparison(
            source, "its bandwidths, no start-up", np.array([error(run, own) for run in runs])
        )


def llmcompass() -> Iterator[Comparison]:
    """Against one product of LLMCompass on its GA100 (configs/GA100.json: 128 cores of four arrays,
    five channels of memory)."""
    run = Run(
        Gemm(1, 2048, 4096, 16384), 512, 16, 16, 48 << 20, 0.820e-3, True
    )  # what its artifact prints, to three digits
    constants = *A100, "platform.hbm_bandwidth=2.048e12"
    yield Comparison(
        "LLMCompass, GA100", "its clock and bandwidths", np.array([error(run, constants)])
    )
    yield Comparison(
        "LLMCompass, GA100",
        "besides, its local memories",
        np.array([error(run, (*constants, A100_LOCAL))]),
    )


def a100(data: Path) -> Iterator[Comparison]:
    """An A100 described as a chip (108 SMs of four arrays of 16x16) against measured products."""
    with (data / "measured" / "matmul_A100.csv").open(newline="") as file:
        rows = [[field.strip() for field in row] for row in csv.reader(file)]
    arrays = 432, 16, 16, 40 << 20
    runs = [
        Run(Gemm(1, int(m), int(k), int(n)), *arrays, float(ms.removesuffix("ms")) * 1e-3, True)
        for m, k, n, ms, _ in rows
    ]
    source = "A100, measured"
    yield Comparison(
        source, "its clock and bandwidths", np.array([error(run, A100) for run in runs])
    )
    local = np.array([error(run, (*A100, A100_LOCAL)) for run in runs])
    yield Comparison(source, "besides, its local memories", local)
    long = np.array([run.took > 1e-4 for run in runs])
    yield Comparison(f"{source}, above 0.1 ms", "the same", local[long])


def table(data: Path) -> str:
    """All comparisons, as the manual shows them."""
    found = [*scalesim(data), *zigzag(data), *sunstone(data), *llmcompass(), *a100(data)]
    return "\n".join([HEAD, *(each.row() for each in found)])


if __name__ == "__main__":
    written = MANUAL.read_text(encoding="utf-8")
    before, _, behind = written.partition(HEAD)
    MANUAL.write_text(
        before + table(Path(sys.argv[1])) + "\n\n" + behind.partition("\n\n")[2], encoding="utf-8"
    )
