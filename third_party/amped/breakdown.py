"""The training time by cause, under AMPeD's labels: one number of the whole training for each."""

from __future__ import annotations

from dataclasses import dataclass

from .times import PHASES, TimeQuantities

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
        return next(line.value for line in self.lines if line.label == label)

    def text(self) -> str:
        """As ``training_time_breakdown.txt`` has it: label, dashes, number; DeepFlow's scripts
        split it there."""
        width = max(len(line.label) for line in self.lines)
        rows = [f"{line.label:-<{width}} {line.value!r}\n" for line in self.lines]
        return f"{TITLE}\n\n{''.join(rows)}"


def breakdown(table: TimeQuantities) -> Breakdown:
    """The breakdown of a resolved configuration.

    Computation, communication and waiting add up to the total; the communication of a pass is the
    sum of its lines and of its MoE line below; "Total MoE communication overhead time" is that of
    both passes. The rates count two operations for a multiply-accumulate (``OPS_per_MAC``); the
    peak is that at the weights' precision.
    """
    times = float(table.layer_batches)
    accelerators = float(table.number_of_accelerators_required)
    total_s = float(table.total_time_to_train)
    lines = {
        "Total time to train (s)": total_s,
        "Total time to train (days)": total_s / SECONDS_PER_DAY,
        "Total time to train (years)": total_s / SECONDS_PER_DAY / DAYS_PER_YEAR,
    }
    passes_s = {
        "forward pass": table.computation_forward,
        "backward pass": table.computation_backward,
        "weight updates": table.computation_update,
    }
    computation = {name: times * float(each) / accelerators for name, each in passes_s.items()}
    lines |= {f"Computation time {name} (s)": seconds for name, seconds in computation.items()}
    lines["Total computation time (s)"] = sum(computation.values())
    communication = 0.0
    for phase, traffic in zip(PHASES, (table.forward, table.backward), strict=True):
        # The gathering of the model is its own line, whatever it was charged as.
        zero_s = float(traffic.zero_overhead) + float(table.zero_gathering)
        label = f"ommunication time {phase} pass"  # behind C, or behind "Total c"
        lines |= {
            f"C{label}: tensor parallelism intra node (s)": times * float(traffic.tensor_intra),
            f"C{label}: tensor parallelism inter node (s)": times * float(traffic.tensor_inter),
            f"C{label}: pipeline parallelism (s)": times * float(traffic.pipeline),
            f"C{label}: Zero-DP (ad-hoc model gathering) (s)": times * zero_s,
            f"Total c{label} (s)": times * float(traffic.communication),
        }
        communication += times * float(traffic.communication)
    intra_s, inter_s = times * float(table.gradients_intra), times * float(table.gradients_inter)
    moe_forward_s = times * float(table.forward.moe)
    moe_backward_s = times * float(table.backward.moe)
    tera_operations = float(table.total_MACs) * float(table.OPS_per_MAC) / TERA
    # Gating counts half in forward and backward each.
    passes = float(
        0.5 * (table.mac_passes_forward + table.mac_passes_backward) + table.mac_passes_update
    )
    gating_s = times * float(table.seconds_per_MAC) * float(table.gating_MACs_per_layer) * passes
    peak = float(table.peak_compute_8bit_OPS) / float(table.mac_passes_forward)
    gradients = "Communication time: all-reduce gradients for DP"
    lines |= {
        f"{gradients} intra node (s)": intra_s,
        f"{gradients} inter node (s)": inter_s,
        f"{gradients} total (s)": intra_s + inter_s,
        "Total communication time (s)": communication + (intra_s + inter_s),
        "Waiting Time due to pipeline bubbles (s)": times * float(table.pipeline_bubble),
        "total MACs": float(table.total_MACs),
        "TFLOPS": tera_operations,
        "total TFLOPS/sec": tera_operations / total_s,
        "TFLOP/sec/GPU": tera_operations / total_s / accelerators,
        "TFLOP/sec/GPU (peak)": peak / TERA,
        "MoE FW pass communication overhead time (s)": moe_forward_s,
        "MoE BW pass communication overhead time (s)": moe_backward_s,
        "MoE Gating network: compute overhead time (s)": gating_s / accelerators,
        "Total MoE communication overhead time": moe_forward_s + moe_backward_s,
    }
    return Breakdown(tuple(Line(label, value) for label, value in lines.items()))
