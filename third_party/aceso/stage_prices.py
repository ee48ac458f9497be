"""Seconds and memory of one stage, exactly as Aceso's cost model has them (its oddities included).

Oddities that are kept, since the predictions must be the published ones: the output of a stage is
measured at the tensor parallel width of its first operator; the last operator counts nothing
towards reserved memory; what is recomputed at the very end of a stage behind a shared buffer or
attention dropout is never charged to the peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_common.errors import InputError

from .database import (
    ACTIVATIONS,
    BACKWARD,
    BACKWARD_RESERVED,
    FORWARD,
    FORWARD_RESERVED,
    INPUT,
    OUTPUT,
    WEIGHTS,
    Database,
)
from .models import activation_factor, is_layer_start
from .plans import StagePlan
from .resharding import resharding_us


@dataclass(frozen=True)
class StagePrice:
    """One stage: microseconds per micro-batch by what they are spent on, and MiB per device by what
    they hold."""

    forward_us: float
    backward_us: float
    recompute_us: float
    receive_us: float
    send_us: float
    resharding_us: float
    weights_mib: float
    gradients_mib: float
    optimizer_mib: float
    kept_mib: float  # of all micro-batches behind it
    working_mib: float  # of the micro-batch at hand, with what is recomputed at once
    reserved_mib: float

    @property
    def us(self) -> float:
        """Per micro-batch."""
        passes_us = self.forward_us + self.backward_us + self.recompute_us
        return passes_us + self.receive_us + self.send_us + self.resharding_us

    @property
    def memory_mib(self) -> float:
        """Per device."""
        state_mib = self.weights_mib + self.gradients_mib + self.optimizer_mib
        return state_mib + self.kept_mib + self.working_mib + self.reserved_mib


def stage_price(
    database: Database,
    operators: Sequence[int],
    stage: StagePlan,
    micro_batch: int,
    behind: int,
    *,
    enters_node: bool,
    leaves_node: bool,
) -> StagePrice:
    """Price a stage that holds ``operators`` (rows of the database) and has ``behind`` stages after
    it.

    ``enters_node``, ``leaves_node``: whether its input and output cross from one node to another.

    Raises:
        InputError: the plan asks for something that was not measured; names it.
    """
    rows = np.array(operators)
    at = [
        _measured_at(database, micro_batch, choice.dp, choice.tp, choice.algorithm)
        for choice in stage.choices
    ]
    sizes, widths, algorithms = (np.array(each) for each in zip(*at, strict=True))
    values = database.values[:, rows, sizes, widths, algorithms]
    _check_measured(database, rows, values, stage, micro_batch)
    output = float(database.values[OUTPUT, rows[-1], sizes[-1], widths[0], algorithms[-1]])
    recomputed = np.array(stage.recomputed)
    family = database.model.family
    weights = float(values[WEIGHTS].sum())
    saved, peak = _recomputed_memory(database, rows, values[ACTIVATIONS], stage.recomputed)
    factors = np.array([activation_factor(database.names[row]) for row in rows])
    kept = float(values[INPUT, 0] + (values[ACTIVATIONS] * factors).sum()) - saved
    inner = values[:, :-1]
    largest = float(
        inner[FORWARD_RESERVED].max(initial=0.0) + inner[BACKWARD_RESERVED].max(initial=0.0)
    )
    return StagePrice(
        forward_us=float(values[FORWARD].sum()),
        backward_us=float(values[BACKWARD].sum()),
        recompute_us=float(values[FORWARD][recomputed].sum()),
        receive_us=database.transfer_us(float(values[INPUT, 0]), between_nodes=enters_node),
        send_us=database.transfer_us(output, between_nodes=leaves_node),
        resharding_us=_resharding(database, rows, stage, micro_batch),
        weights_mib=weights * family.weight_copies,
        gradients_mib=weights,
        optimizer_mib=weights * family.optimizer_copies,
        kept_mib=kept * behind,
        working_mib=kept + peak,
        reserved_mib=max(largest, weights),
    )


def _measured_at(
    database: Database, micro_batch: int, dp: int, tp: int, algorithm: int
) -> tuple[int, int, int]:
    rows, rest = divmod(micro_batch, dp)
    if rest:
        raise InputError(
            f"micro-batches of {micro_batch} cannot be divided over {dp} replicas; give a plan "
            "whose degrees divide them"
        )
    for value, known, what in (
        (rows, database.micro_batch_sizes, "micro-batches per replica of"),
        (tp, database.tensor_parallel, "tensor parallel width"),
        (algorithm, database.algorithms, "algorithm"),
    ):
        if value not in known:
            allowed = ", ".join(map(str, known))
            raise InputError(
                f"the plan has {what} {value}, which {database.folder} did not profile; it has "
                f"{allowed}"
            )
    return (
        database.micro_batch_sizes.index(rows),
        database.tensor_parallel.index(tp),
        database.algorithms.index(algorithm),
    )


def _check_measured(
    database: Database, rows: np.ndarray, values: np.ndarray, stage: StagePlan, micro_batch: int
) -> None:
    missing = np.flatnonzero(~np.isfinite(values).all(axis=0))
    if missing.size:
        at = int(missing[0])
        choice = stage.choices[at]
        raise InputError(
            f"{database.folder} has no measurement of {database.names[rows[at]]} for "
            f"{micro_batch // choice.dp} samples, tensor parallel width {choice.tp} and algorithm "
            f"{choice.algorithm}; profile it, or give another plan"
        )


def _resharding(database: Database, rows: np.ndarray, stage: StagePlan, micro_batch: int) -> float:
    known: dict[object, float] = {}
    total = 0.0
    for at in range(1, len(rows)):
        left, right = stage.choices[at - 1], stage.choices[at]
        key = (rows[at - 1], left, rows[at], right)
        if key not in known:
            known[key] = sum(
                resharding_us(database, int(rows[at - 1]), left, int(rows[at]), right, micro_batch)
            )
            if not np.isfinite(known[key]):
                raise InputError(
                    f"{database.folder} has no measured collective for the change before "
                    f"{database.names[rows[at]]} from tensor "
                    f"parallel width {left.tp} to {right.tp}; profile it, or give another plan"
                )
        total += known[key]
    return total


def _recomputed_memory(
    database: Database, rows: np.ndarray, activations: np.ndarray, recomputed: Sequence[bool]
) -> tuple[float, float]:
    """MiB of activations that need not be kept, and the most that exists at once while a run of
    operators is recomputed."""
    saved = segment = peak = 0.0
    for at in range(len(rows) - 1):
        if recomputed[at] and recomputed[at + 1]:
            factor = activation_factor(database.names[rows[at]])
            own = float(activations[at]) * factor
            segment += own
            if factor != 1.0:
                saved += own
                continue
            before_layer = is_layer_start(database.names[rows[at + 1]])
            saved += 0.0 if before_layer else own
            if before_layer or at + 2 == len(rows):
                peak, segment = max(peak, segment), 0.0
        elif segment > 0:
            peak, segment = max(peak, segment), 0.0
    return saved, peak
