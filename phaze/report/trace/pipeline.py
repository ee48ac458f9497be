"""A training pipeline as processes, one per stage: passes, sends, update, what is held."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import PipelinePasses, timeline
from Estimator.plans.results import PipelineReport
from phaze.report.trace.events import (
    Counter,
    Event,
    Flow,
    Process,
    Shown,
    Slice,
    Thread,
    nanoseconds,
)

COMPUTE, UPDATE, FIRST_SEND = 0, 1, 2  # rows of a stage


class PipelineTrace:
    """The passes of one model's pipeline and the events that show them.

    ``layers`` names the layers of each chunk, shape (chunks,). ``activation_bytes`` are the most
    that each stage holds at once, per device; None where its chunks may hold different amounts.
    """

    def __init__(
        self,
        model: str,
        report: PipelineReport,
        layers: Sequence[Sequence[str]],
        activation_bytes: Sequence[float | None],
    ) -> None:
        self.model = model
        self.report = report
        schedule = PipelineSchedule(report.schedule)
        self.passes: PipelinePasses = timeline(costs_of(report), schedule, report.micro_batches)
        self.chunks_per_stage = len(report.forward_s) // report.pp
        self._layers = [_range_of(names) for names in layers]
        self._activation_bytes = activation_bytes
        backward_s = np.where(self.passes.forward, 0.0, self.passes.end_s)
        self._last_backward_end_s = backward_s.max(axis=1)

    @property
    def end_s(self) -> float:
        """When the next iteration begins on all stages."""
        done_s = float((self._last_backward_end_s + np.array(self.report.sync_s)).max())
        return done_s + self.report.optimizer_s + self.report.between_s

    @property
    def events_per_pass(self) -> int:
        """Events that a pass takes: itself, what it sends, and a counter's value."""
        sends = max((*self.report.transfer_s, *self.report.backward_transfer_s), default=0.0) > 0
        return 2 + sends

    @property
    def events(self) -> int:
        """About how many events show everything."""
        return int(self.passes.start_s.size) * self.events_per_pass

    def draw(self, first_pid: int, first_flow: int, passes_per_stage: int) -> Iterator[Event]:
        """Processes ``first_pid`` on, one per stage, with at most so many passes of each.

        Where a stage runs more, the ones in the middle are left out, and a slice says so. Flows
        ``first_flow`` on join the passes of each micro-batch.
        """
        drawn = self._drawn(passes_per_stage)
        # micro-batches of which every pass is drawn
        whole = np.ones(self.report.micro_batches, dtype=bool)
        whole[self.passes.micro_batch[~drawn]] = False
        for stage in range(self.report.pp):
            pid = first_pid + stage
            yield Process(pid, f"pipeline {self.model}: stage {stage + 1} of {self.report.pp}")
            yield Thread(pid, COMPUTE, "compute")
            for position in np.flatnonzero(drawn[stage]).tolist():
                yield from self._pass(pid, stage, position, first_flow, whole)
            yield from self._gap(pid, stage, drawn[stage])
            yield from self._update(pid, stage)
            if self.report.overlap_transfers:
                yield from self._sends(pid, stage, drawn[stage])
            yield from self._held(pid, stage, drawn[stage])

    def _drawn(self, passes_per_stage: int) -> NDArray[np.bool_]:
        """Which passes are drawn, shape as ``passes``: all, or the first and last of each stage."""
        count = self.passes.start_s.shape[1]
        drawn: NDArray[np.bool_] = np.ones(self.passes.forward.shape, dtype=bool)
        if passes_per_stage < count:
            first = passes_per_stage // 2
            drawn[:, first : count - (passes_per_stage - first)] = False
        return drawn

    def _pass(
        self, pid: int, stage: int, position: int, first_flow: int, whole: NDArray[np.bool_]
    ) -> Iterator[Event]:
        """A pass, and after it a send that occupies the stage."""
        report, passes = self.report, self.passes
        forward, chunk = bool(passes.forward[stage, position]), int(passes.chunk[stage, position])
        batch = int(passes.micro_batch[stage, position])
        start_s, end_s = (float(each[stage, position]) for each in (passes.start_s, passes.end_s))
        name, args = self._label(forward, chunk, batch)
        flow = None
        if whole[batch]:  # from the forward pass on the first chunk to the backward pass there
            goes_in, goes_out = chunk > 0 or not forward, chunk > 0 or forward
            flow = Flow(first_flow + batch, goes_in, goes_out)
        kind = "forward" if forward else "backward"
        yield Slice(pid, COMPUTE, name, kind, nanoseconds(start_s), nanoseconds(end_s), args, flow)
        if not report.overlap_transfers and (send_s := self.report.sent_s(forward, chunk)) > 0:
            start_ns, end_ns = nanoseconds(end_s), nanoseconds(end_s + send_s)
            yield Slice(pid, COMPUTE, f"send {name}", "transfer", start_ns, end_ns, args)

    def _label(self, forward: bool, chunk: int, batch: int) -> tuple[str, dict[str, Shown]]:
        """What a pass is called, counted from 1, and what is shown beside it."""
        name = f"{'forward' if forward else 'backward'} {batch + 1}"
        args: dict[str, Shown] = {"micro-batch": batch + 1, "layers": self._layers[chunk]}
        if self.chunks_per_stage > 1:
            turn = chunk // self.report.pp + 1
            return f"{name}, chunk {turn}", args | {"chunk": turn}
        return name, args

    def _gap(self, pid: int, stage: int, drawn: NDArray[np.bool_]) -> Iterator[Event]:
        """A slice over the passes that are left out."""
        missing = np.flatnonzero(~drawn)
        if len(missing) == 0:
            return
        start_ns = 0 if missing[0] == 0 else self._occupied_until_ns(stage, int(missing[0]) - 1)
        last = int(missing[-1])
        end_ns = max(self._occupied_until_ns(stage, last), start_ns)
        name = f"{len(missing):,} passes that are not drawn"
        yield Slice(pid, COMPUTE, name, "left out", start_ns, end_ns, {})

    def _occupied_until_ns(self, stage: int, position: int) -> int:
        end_s = float(self.passes.end_s[stage, position])
        if not self.report.overlap_transfers:
            forward = bool(self.passes.forward[stage, position])
            end_s += self.report.sent_s(forward, int(self.passes.chunk[stage, position]))
        return nanoseconds(end_s)

    def _update(self, pid: int, stage: int) -> Iterator[Event]:
        """What follows the passes, on a thread of its own: the last send may still go on."""
        report = self.report
        yield Thread(pid, UPDATE, "update")
        start_s = float(self._last_backward_end_s[stage])
        if report.sync_s[stage] > 0:
            end_ns = nanoseconds(start_s + report.sync_s[stage])
            yield Slice(
                pid, UPDATE, "gradient synchronisation", "update", nanoseconds(start_s), end_ns, {}
            )
        if report.optimizer_s > 0:
            done_s = self.end_s - report.between_s
            start_ns, end_ns = nanoseconds(done_s - report.optimizer_s), nanoseconds(done_s)
            yield Slice(pid, UPDATE, "optimizer step", "update", start_ns, end_ns, {})
        if report.between_s > 0:
            start_ns, end_ns = nanoseconds(self.end_s - report.between_s), nanoseconds(self.end_s)
            yield Slice(pid, UPDATE, "host between iterations", "update", start_ns, end_ns, {})

    def _sends(self, pid: int, stage: int, drawn: NDArray[np.bool_]) -> Iterator[Event]:
        """Sends beside the passes, on as many threads per direction as go on at once."""
        row = FIRST_SEND
        for forward in (True, False):
            free_ns: list[int] = []  # of the threads of this direction
            mine = drawn & (self.passes.forward[stage] == forward)
            for position in np.flatnonzero(mine).tolist():
                chunk = int(self.passes.chunk[stage, position])
                send_s = self.report.sent_s(forward, chunk)
                if send_s <= 0:
                    continue
                start_s = float(self.passes.end_s[stage, position])
                start_ns, end_ns = nanoseconds(start_s), nanoseconds(start_s + send_s)
                lane = next(
                    (lane for lane, free in enumerate(free_ns) if free <= start_ns), len(free_ns)
                )
                if lane == len(free_ns):
                    free_ns.append(0)
                    more = f" ({lane + 1})" if lane else ""
                    what = "activations" if forward else "gradients"
                    yield Thread(pid, row + lane, f"{what} sent{more}")
                free_ns[lane] = end_ns
                batch = int(self.passes.micro_batch[stage, position])
                name, args = self._label(forward, chunk, batch)
                yield Slice(pid, row + lane, f"send {name}", "transfer", start_ns, end_ns, args)
            row += len(free_ns)

    def _held(self, pid: int, stage: int, drawn: NDArray[np.bool_]) -> Iterator[Event]:
        """Activations that the stage holds: one more per forward, one less per backward pass."""
        forward = self.passes.forward[stage]
        held = np.cumsum(np.where(forward, 1, -1))
        at_s = np.where(forward, self.passes.start_s[stage], self.passes.end_s[stage])
        most_bytes = self._activation_bytes[stage]
        unit = "micro-batches" if self.chunks_per_stage == 1 else "micro-batches x chunks"
        for position in np.flatnonzero(drawn).tolist():
            count = int(held[position])
            values: dict[str, float] = {unit: count}
            if most_bytes is not None:
                values["bytes"] = count * most_bytes / int(held.max())
            yield Counter(pid, "saved activations:", nanoseconds(float(at_s[position])), values)


def _range_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else "none"
