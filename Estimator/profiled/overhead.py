"""What a framework adds to operators that run one after another, from whole passes that were
measured beside their operators.

A pass takes its operators' seconds, some part more (operands that were in the cache when an
operator was repeated alone are not when it follows others), so many seconds for every operator
(modules, the graph of gradients, views), and so many for every byte of gradients of weights (which
are added to those of other micro-batches): three constants of a machine for each direction, at
least zero, of the least relative error over all passes of the database, whatever the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from Estimator.devices.operator_cost import PassStarts
from Estimator.profiled.rows import PassRow
from GraphExtractor.graph import Phase

NANO = 1e9  # bytes of about a second, so that the columns of the fit are of one size


@dataclass(frozen=True)
class PhaseOverhead:
    """Seconds per operator, per second of an operator, and per byte of the gradients of weights
    that it makes."""

    per_operator_s: float = 0.0
    per_second: float = 0.0
    per_gradient_byte_s: float = 0.0


@dataclass(frozen=True)
class Overhead:
    """What is added to an operator, by phase; nothing where no pass was measured."""

    phases: Mapping[Phase, PhaseOverhead] = field(default_factory=dict)

    def seconds(self, phase: Phase, operator_s: float, gradient_bytes: int = 0) -> float:
        """What is added to an operator of ``operator_s`` seconds that makes so many bytes of
        gradients of weights."""
        found = self.phases.get(phase, PhaseOverhead())
        return (
            found.per_operator_s
            + found.per_second * operator_s
            + found.per_gradient_byte_s * gradient_bytes
        )


def overhead_of(passes: Iterable[PassRow]) -> Overhead:
    """The constants that suit ``passes`` best."""
    from scipy.optimize import nnls

    by_phase: dict[Phase, list[PassRow]] = {}
    for row in passes:
        by_phase.setdefault(row.phase, []).append(row)
    found = {}
    for phase, rows in by_phase.items():
        measured = np.array([row.timing.seconds for row in rows])
        alone = np.array([row.operators_s for row in rows])
        counts = np.array([float(row.operators) for row in rows])
        added = np.array([float(row.gradient_bytes) for row in rows])
        # one pass cannot tell the two apart
        if len({(row.operators, row.operators_s) for row in rows}) < 2:
            found[phase] = PhaseOverhead(
                per_operator_s=max(float(np.mean((measured - alone) / counts)), 0.0)
            )
            continue
        columns = np.stack([counts, alone, added / NANO], axis=1) / measured[:, None]
        per_operator_s, per_second, per_byte = nnls(columns, (measured - alone) / measured)[
            0
        ].tolist()
        found[phase] = PhaseOverhead(per_operator_s, per_second, per_byte / NANO)
    return Overhead(found)


def pass_starts_of(passes: Iterable[PassRow]) -> PassStarts:
    """What a pass takes longer behind a wait: of the models and sizes that were measured the
    median, at least zero.

    While a process waits, its core does other things, or sleeps: caches and predictions are others'
    then. What that costs is over after some milliseconds, so that it is the same for short passes
    and long ones.
    """
    rows = tuple(passes)
    forward = [row for row in rows if row.phase is Phase.FORWARD]
    backward = [row for row in rows if row.phase is Phase.BACKWARD]
    return PassStarts(_start_s(forward), _start_s(backward))


def run_again_s_of(passes: Iterable[PassRow]) -> float:
    """What a recomputed layer takes beyond its operators: of the layers that were measured the
    median, at least zero.

    A graph of gradients within another, and a forward pass that begins anew: the same for small
    layers and large ones.
    """
    found = [row.again_s for row in passes if row.again_s is not None]
    return max(float(np.median(found)), 0.0) if found else 0.0


def _start_s(rows: Sequence[PassRow]) -> float:
    whole: dict[tuple[str, str, int, int], float] = {}
    for row in rows:
        measured = row.model, row.dtype, row.micro_batch_size, row.sequence_length
        whole[measured] = whole.get(measured, 0.0) + row.start_s
    return max(float(np.median(list(whole.values()))), 0.0) if whole else 0.0
