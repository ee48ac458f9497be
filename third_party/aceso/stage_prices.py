"""Seconds and memory of one stage, exactly as Aceso's cost model has them (its oddities included).

Oddities that are kept, since the predictions must be the published ones: the output of a stage is
measured at the tensor parallel width of its first operator; the last operator counts nothing
towards reserved memory; what is recomputed at the very end of a stage behind a shared buffer or
attention dropout is never charged to the peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from phaze_common.errors import InputError

from .database import Database, Field
from .models import activation_factor, is_layer_start
from .plans import StagePlan
from .resharding import Choice, resharding_us


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
    at = [_measured_at(database, micro_batch, choice) for choice in stage.choices]
    sizes, widths, algorithms = (np.array(each) for each in zip(*at, strict=True))
    values = database.values[:, rows, sizes, widths, algorithms]
    _check_measured(database, rows, values, stage, micro_batch)
    output = float(database.values[Field.OUTPUT, rows[-1], sizes[-1], widths[0], algorithms[-1]])
    recomputed = np.array(stage.recomputed)
    family = database.model.family
    weights = float(values[Field.WEIGHTS].sum())
    saved, peak = _recomputed_memory(database, rows, values[Field.ACTIVATIONS], stage.recomputed)
    factors = np.array([activation_factor(database.names[row]) for row in rows])
    kept = float(values[Field.INPUT, 0] + (values[Field.ACTIVATIONS] * factors).sum()) - saved
    inner = values[:, :-1]
    largest = float(
        inner[Field.FORWARD_RESERVED].max(initial=0.0)
        + inner[Field.BACKWARD_RESERVED].max(initial=0.0)
    )
    return StagePrice(
        forward_us=float(values[Field.FORWARD].sum()),
        backward_us=float(values[Field.BACKWARD].sum()),
        recompute_us=float(values[Field.FORWARD][recomputed].sum()),
        receive_us=database.transfer_us(float(values[Field.INPUT, 0]), between_nodes=enters_node),
        send_us=database.transfer_us(output, between_nodes=leaves_node),
        resharding_us=_resharding(database, rows, stage, micro_batch),
        weights_mib=weights * family.weight_copies,
        gradients_mib=weights,
        optimizer_mib=weights * family.optimizer_copies,
        kept_mib=kept * behind,
        working_mib=kept + peak,
        reserved_mib=max(largest, weights),
    )


def _measured_at(database: Database, micro_batch: int, choice: Choice) -> tuple[int, ...]:
    rows, rest = divmod(micro_batch, choice.dp)
    if rest:
        raise InputError(
            f"micro-batches of {micro_batch} cannot be divided over {choice.dp} replicas; give a "
            "plan whose degrees divide them"
        )
    needed = (
        (rows, database.micro_batch_sizes, "micro-batches per replica of"),
        (choice.tp, database.tensor_parallel, "tensor parallel width"),
        (choice.algorithm, database.algorithms, "algorithm"),
    )
    for value, known, what in needed:
        if value not in known:
            raise InputError(
                f"the plan has {what} {value}, which {database.folder} did not profile; it has "
                f"{', '.join(map(str, known))}"
            )
    return tuple(known.index(value) for value, known, _ in needed)


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
    change_us = cache(partial(resharding_us, database, micro_batch=micro_batch))
    total = 0.0
    for at in range(1, len(rows)):
        before, after = int(rows[at - 1]), int(rows[at])
        left, right = stage.choices[at - 1], stage.choices[at]
        change = sum(change_us(before, left, after, right))
        if not np.isfinite(change):
            raise InputError(
                f"{database.folder} has no measured collective for the change before "
                f"{database.names[after]} from tensor parallel width {left.tp} to {right.tp}; "
                "profile it, or give another plan"
            )
        total += change
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
