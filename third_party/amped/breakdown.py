"""The training time by cause, under AMPeD's labels: one number of the whole training for each."""

from __future__ import annotations

from dataclasses import dataclass

from third_party.amped.table import ParameterTable
from third_party.amped.time_formulas import TOTAL_S

TITLE = "TRAINING TIME BREAKDOWN"
SECONDS_PER_DAY, DAYS_PER_YEAR = 86_400.0, 365.0
TERA = 1e12


@dataclass(frozen=True)
class Line:
    """A label as AMPeD writes it, with its unit where it has one, and the number."""

    label: str
    value: float


@dataclass(frozen=True)
class Breakdown:
    """All lines in AMPeD's order."""

    lines: tuple[Line, ...]

    def __getitem__(self, label: str) -> float:
        """The number under a label."""
        return next(line.value for line in self.lines if line.label == label)

    def text(self) -> str:
        """As ``training_time_breakdown.txt`` has it: label, dashes, number; DeepFlow's scripts
        split it there."""
        width = max(len(line.label) for line in self.lines)
        return (
            "\n".join(
                [TITLE, "", *(f"{line.label:-<{width}} {line.value!r}" for line in self.lines)]
            )
            + "\n"
        )


def _of_phase(table: ParameterTable, phase: str, times: float) -> list[Line]:
    """Communication of one pass. The gathering of the model is its own line, whatever it was
    charged as."""
    name = f"Communication time {phase} pass"
    parts = [
        Line(
            f"{name}: tensor parallelism intra node (s)",
            times * table.number(f"tensor_intra_{phase}"),
        ),
        Line(
            f"{name}: tensor parallelism inter node (s)",
            times * table.number(f"tensor_inter_{phase}"),
        ),
        Line(f"{name}: pipeline parallelism (s)", times * table.number(f"pipeline_{phase}")),
        Line(
            f"{name}: Zero-DP (ad-hoc model gathering) (s)",
            times * (table.number(f"zero_overhead_{phase}") + table.number("zero_gathering")),
        ),
    ]
    return [
        *parts,
        Line(
            f"Total communication time {phase} pass (s)",
            times * table.number(f"communication_{phase}"),
        ),
    ]


def breakdown(table: ParameterTable) -> Breakdown:
    """The breakdown of a resolved configuration.

    Computation, communication and waiting add up to the total; the communication of a pass is the
    sum of its lines and of its MoE line below; "Total MoE communication overhead time" is that of
    both passes. The rates count two operations for a multiply-accumulate (``OPS_per_MAC``); the
    peak is that at the weights' precision.
    """
    times = table.number("layer_batches")
    accelerators = table.number("number_of_accelerators_required")
    total_s = table.number(TOTAL_S)
    computation = [
        times * table.number(f"computation_{phase}") / accelerators
        for phase in ("forward", "backward", "update")
    ]
    forward, backward = (_of_phase(table, phase, times) for phase in ("forward", "backward"))
    gradients = [times * table.number(f"gradients_{place}") for place in ("intra", "inter")]
    moe_forward, moe_backward = (
        times * table.number(f"moe_{phase}") for phase in ("forward", "backward")
    )
    tera_operations = table.number("total_MACs") * table.number("OPS_per_MAC") / TERA
    passes = 0.5 * (
        table.number("mac_passes_forward") + table.number("mac_passes_backward")
    ) + table.number("mac_passes_update")
    gating_s = (
        times
        * table.number("seconds_per_MAC")
        * table.number("gating_MACs_per_layer")
        * passes
        / accelerators
    )
    return Breakdown(
        (
            Line("Total time to train (s)", total_s),
            Line("Total time to train (days)", total_s / SECONDS_PER_DAY),
            Line("Total time to train (years)", total_s / SECONDS_PER_DAY / DAYS_PER_YEAR),
            Line("Computation time forward pass (s)", computation[0]),
            Line("Computation time backward pass (s)", computation[1]),
            Line("Computation time weight updates (s)", computation[2]),
            Line("Total computation time (s)", sum(computation)),
            *forward,
            *backward,
            Line("Communication time: all-reduce gradients for DP intra node (s)", gradients[0]),
            Line("Communication time: all-reduce gradients for DP inter node (s)", gradients[1]),
            Line("Communication time: all-reduce gradients for DP total (s)", sum(gradients)),
            Line(
                "Total communication time (s)",
                forward[-1].value + backward[-1].value + sum(gradients),
            ),
            Line(
                "Waiting Time due to pipeline bubbles (s)", times * table.number("pipeline_bubble")
            ),
            Line("total MACs", table.number("total_MACs")),
            Line("TFLOPS", tera_operations),
            Line("total TFLOPS/sec", tera_operations / total_s),
            Line("TFLOP/sec/GPU", tera_operations / total_s / accelerators),
            Line(
                "TFLOP/sec/GPU (peak)",
                table.number("peak_compute_8bit_OPS") / table.number("mac_passes_forward") / TERA,
            ),
            Line("MoE FW pass communication overhead time (s)", moe_forward),
            Line("MoE BW pass communication overhead time (s)", moe_backward),
            Line("MoE Gating network: compute overhead time (s)", gating_s),
            Line("Total MoE communication overhead time", moe_forward + moe_backward),
        )
    )
