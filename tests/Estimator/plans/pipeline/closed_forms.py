"""Closed forms of a pipeline's makespan where all chunks are alike and so are all transfers."""

from __future__ import annotations

from Estimator.plans.pipeline.schedule import PipelineSchedule, check
from phaze_common.errors import InputError


def closed_form_s(
    schedule: PipelineSchedule,
    pp: int,
    chunks_per_stage: int,
    micro_batches: int,
    forward_s: float,
    backward_s: float,
    transfer_s: float,
    backward_transfer_s: float,
    overlap_transfers: bool,
    whole_warm_up: bool = False,
) -> float:
    """Exactly ``simulate``'s total seconds for equal chunks, whose passes and transfers take the
    seconds given.

    Without transfers it is (m v + pp - 1)(f + b) for m micro-batches and v chunks per stage
    (Narayanan et al. 2021, section 2.2); the transfers' share is derived from the longest paths and
    tested against the simulation.

    Raises: InputError: the schedule does not exist for these numbers, or it is an interleaved one
        for which no closed form holds:
            with transfers that occupy the sender, or that take longer than the pass of the other
            direction.
    """
    check(schedule, pp, chunks_per_stage, micro_batches)
    both_ways_s = transfer_s + backward_transfer_s
    slots = micro_batches * chunks_per_stage + pp - 1
    compute_s = slots * (forward_s + backward_s)
    if schedule is PipelineSchedule.INTERLEAVED:
        # In turn with the other direction's passes, a transfer hides behind one; what is left is
        # the way of one micro-batch.
        hidden = (whole_warm_up and micro_batches == pp) or (
            transfer_s <= backward_s and backward_transfer_s <= forward_s
        )
        if both_ways_s == 0.0 or (overlap_transfers and hidden):
            return compute_s + (pp * chunks_per_stage - 1) * both_ways_s
        raise InputError(
            "no closed form holds for an interleaved schedule with blocking or long transfers; "
            "simulate it"
        )
    if schedule is PipelineSchedule.GPIPE:
        crossed = pp - 1 if overlap_transfers else slots - 1
        return compute_s + (crossed * both_ways_s if pp > 1 else 0.0)
    if overlap_transfers:
        # A micro-batch enters when the one pp before it has come back: every pp slots, all
        # transfers lie on the path.
        return compute_s + slots * (pp - 1) // pp * both_ways_s
    if pp == 1 or micro_batches == 1:
        return compute_s + (pp - 1) * both_ways_s
    # Between the first two micro-batches, and with two stages between all, a stage sends only one
    # way and waits meanwhile.
    saved_s = min(transfer_s, backward_s + backward_transfer_s)
    if pp == 2:
        saved_s += (micro_batches - 2) * min(transfer_s, backward_transfer_s)
    return compute_s + (slots - 1) * both_ways_s - saved_s
