"""A profile: measures what a database does not hold yet, keeps every row at once, and says what it
found."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from Estimator.profiled.database import (
    ProfileDatabase,
    append_collective,
    append_operator,
    append_passes,
    pack_tables,
    read_database,
)
from Estimator.profiled.device import rates_of
from Estimator.profiled.fits import held_out_errors
from Estimator.profiled.machine import (
    MACHINE,
    DeviceKind,
    MachineRecord,
    profile_folder,
    read_machine,
    write_machine,
)
from Estimator.profiled.rows import PROBE, OperatorRow, PassRow, Timing, anonymous, gradient_bytes
from GraphExtractor.graph import Attention, GraphKey, Operator, Phase
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.storage import traced_key
from phaze.runtime.allocator import keep_freed_memory
from phaze.runtime.profiling.exchanges import measured_exchanges, wanted_exchanges
from phaze.runtime.profiling.kernels import Kernel, NotRunnableError, kernels_of
from phaze.runtime.profiling.layer_passes import LayerPass, measured_layer_passes
from phaze.runtime.profiling.passes import measured_passes
from phaze.runtime.profiling.probes import probes
from phaze.runtime.profiling.this_machine import this_machine
from phaze.runtime.profiling.timing import Repeats, Timed, timed
from phaze_common.errors import InputError
from phaze_common.progress import Progress

logger = logging.getLogger(__name__)

LOCK = ".lock"
PASS_MEMORY = (
    0.5  # of what is free: more is not taken for weights, gradients and activations of a whole pass
)
COPIES = 4  # of the weights that a pass holds, activations included, roughly


class Runnable(Protocol):
    """An operator and what makes a function that runs it."""

    @property
    def operator(self) -> Operator:
        """What is measured."""

    def prepared(self) -> object:
        """Makes the function."""


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """What is to be measured, and where it is kept.

    ``group_sizes`` are those of exchanges; ``devices`` how many a cluster of this machine has
    (None: what is there).
    """

    model: str
    folder: Path
    tp: tuple[int, ...] = (1,)
    micro_batch_sizes: tuple[int, ...] = (1,)
    sequence_length: int | None = None
    attention: Attention = Attention.FLASH
    sequence_parallel: tuple[bool, ...] = (False,)
    dtype: str = "float32"
    device_kind: DeviceKind = DeviceKind.CPU
    threads: int = 1
    devices: int | None = None
    group_sizes: tuple[int, ...] = (2, 4)
    passes: bool = True
    noise: float = 0.2
    repeats: Repeats = field(default=Repeats())


@dataclass(frozen=True)
class NoisyRow:
    """A row whose spread is a larger part of its median than was allowed."""

    what: str
    seconds: float
    spread: float


@dataclass(frozen=True)
class ProfileSummary:
    """What a database holds, and what of it this profile measured.

    ``not_run`` are the names of operators that nothing here runs, ``held_out_error`` is the median
    of the relative errors of what fits say of rows that they were made without (None: no kind has
    two sizes).
    """

    database: ProfileDatabase
    measured: int
    kept: int
    not_run: tuple[str, ...]
    noisy: tuple[NoisyRow, ...]
    held_out_error: float | None


def profile(request: ProfileRequest, progress: Progress) -> ProfileSummary:
    """Measure what ``request`` asks for and the database does not hold.

    Raises: InputError: the model, a width or a size is not possible, or the database is of another
        machine; nothing is measured then.
    """
    request = replace(request, model=canonical_name(request.model))
    family = find_model(request.model)
    keys = _keys(request, family)
    machine = this_machine(
        request.folder.name or "machine", request.device_kind, request.threads, request.devices
    )
    _check_machine(request.folder, machine)
    with _locked(request.folder):
        if profile_folder(request.folder) is None:
            write_machine(request.folder, machine)
        if request.device_kind is DeviceKind.CPU:
            keep_freed_memory()
        threads = torch.get_num_threads()
        torch.set_num_threads(request.threads)
        try:
            return _Profile(request, family, machine, progress).run(keys)
        finally:
            torch.set_num_threads(threads)


def _keys(request: ProfileRequest, family: ModelFamily) -> list[GraphKey]:
    """The graphs whose operators are measured.

    Raises:
        InputError: a width or a size does not suit the model.
    """
    from GraphExtractor.widths import check_key

    length = request.sequence_length or family.sequence_length
    keys = []
    for tp in request.tp:
        for size in request.micro_batch_sizes:
            for split in dict.fromkeys(each and tp > 1 for each in request.sequence_parallel):
                key = GraphKey(
                    request.model, size, length, tp, request.attention, split, request.dtype
                )
                check_key(key, family)
                keys.append(key)
    return keys


def _check_machine(folder: Path, machine: MachineRecord) -> None:
    """Refuse to add to a database what another machine, or other software, would measure."""
    if profile_folder(folder) is None:
        if folder.exists() and (
            not folder.is_dir() or any(each.name != LOCK for each in folder.iterdir())
        ):
            raise InputError(
                f"{folder} is there and is no profiled database; give another --output"
            )
        return
    known = read_machine(folder)
    for key in ("description", "device_kind", "threads", "clock", "versions", "dropout"):
        was, now = getattr(known, key), getattr(machine, key)
        if was != now:
            raise InputError(
                f"{folder / MACHINE} says {key} {was}, this machine has {now}; give another "
                "--output"
            )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / LOCK).open("wb")
    except OSError as error:
        raise InputError(
            f"cannot write {folder}: {error.strerror}; give another --output"
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"another profile writes {folder} now; wait for it, or give another --output"
            ) from error
        yield


class _Profile:
    """One profile, as it goes on."""

    def __init__(
        self,
        request: ProfileRequest,
        family: ModelFamily,
        machine: MachineRecord,
        progress: Progress,
    ) -> None:
        self._request = request
        self._family = family
        self._machine = machine
        self._progress = progress
        database = read_database(request.folder)
        self._kept = len(database.operators) + len(database.collectives) + len(database.passes)
        self._rows = {row.operator: row for row in database.operators}
        self._passes = {
            (row.model, row.micro_batch_size, row.sequence_length, row.dtype, row.phase)
            for row in database.passes
        }
        self._exchanges = {
            (row.kind, row.payload_bytes, row.group_size) for row in database.collectives
        }
        self._measured = 0
        self._not_run: dict[str, None] = {}

    def run(self, keys: Sequence[GraphKey]) -> ProfileSummary:
        """Measure all that is missing."""
        request = self._request
        self._operators(
            "probes",
            probes(request.device_kind, request.dtype),
            GraphKey(PROBE, 1, 1, 1, dtype=request.dtype),
        )
        for key in keys:
            kernels = kernels_of(
                traced_key(key), self._traced_family(key), request.device_kind.value
            )
            name = f"operators of {key.label}, tp {key.tp}, micro-batch {key.micro_batch_size}"
            self._operators(name, kernels, key)
            if request.passes and key.tp == 1:
                self._pass(key, kernels)
        self._collectives()
        pack_tables(request.folder)
        return self._summary()

    def _traced_family(self, key: GraphKey) -> ModelFamily:
        return find_model(traced_key(key).model)

    def _operators(self, name: str, runnables: Iterable[Runnable], key: GraphKey) -> None:
        wanted = {anonymous(each.operator): each for each in runnables}
        missing = {
            operator: each for operator, each in wanted.items() if operator not in self._rows
        }
        if not missing:
            return
        with self._progress.phase(name, len(missing)) as advance:
            for operator, runnable in missing.items():
                found = self._timed(runnable)
                if found is not None:
                    row = OperatorRow(
                        operator,
                        found.timing,
                        found.host_s,
                        key.tp,
                        key.model,
                        key.micro_batch_size,
                        key.sequence_length,
                    )
                    append_operator(self._request.folder, row)
                    self._rows[operator] = row
                    self._measured += 1
                advance(1)

    def _timed(self, runnable: Runnable) -> Timed | None:
        name = runnable.operator.name
        try:
            run = runnable.prepared()
            assert callable(run)
            with torch.no_grad():
                return timed(run, self._machine.clock, self._request.repeats)
        except (NotRunnableError, NotImplementedError) as error:
            logger.debug("%s is not measured: %s", name, error)
        except (torch.OutOfMemoryError, MemoryError):
            logger.warning("%s needs more memory than there is; it is not measured", name)
        except (RuntimeError, IndexError) as error:
            logger.warning(
                "%s is not measured, since it does not run alone: %s",
                name,
                str(error).splitlines()[0],
            )
        finally:
            gc.collect() if self._request.device_kind is DeviceKind.CUDA else None
        self._not_run[name] = None
        return None

    def _pass(self, key: GraphKey, kernels: Sequence[Kernel]) -> None:
        """Passes beside their operators: those through each block, or through all where there are
        none."""
        done = [
            (key.model, key.micro_batch_size, key.sequence_length, key.dtype, phase) in self._passes
            for phase in Phase
        ]
        if all(done) or not self._fits(key):
            return
        if any(anonymous(kernel.operator) not in self._rows for kernel in kernels):
            logger.info(
                "no whole pass of %s is measured, since some of its operators do not run alone",
                key.label,
            )
            return
        parts: dict[tuple[Phase, str], list[OperatorRow]] = {}
        for kernel in kernels:
            row = self._rows[anonymous(kernel.operator)]
            for place in {"", kernel.layer, kernel.block}:
                parts.setdefault((kernel.operator.phase, place), []).append(row)
        with self._progress.phase(
            f"passes of {key.label}, micro-batch {key.micro_batch_size}", 1
        ) as advance:
            repeats = replace(self._request.repeats, cap_s=4 * self._request.repeats.cap_s)
            try:
                found = self._timed_parts(key, kernels, repeats)
            except (
                RuntimeError,
                ValueError,
                TypeError,
                NotImplementedError,
                AttributeError,
            ) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                logger.warning("no whole pass of %s is measured: %s", key.label, reason)
                return
            sizes = key.dtype, key.model, key.micro_batch_size, key.sequence_length
            rows = [
                PassRow(
                    phase,
                    len(alone),
                    sum(row.timing.seconds for row in alone),
                    each.timing,
                    *sizes,
                    sum(gradient_bytes(row.operator) for row in alone)
                    if self._request.device_kind is DeviceKind.CPU
                    else 0,
                    each.start_s,
                    each.again_s,
                )
                for (phase, place), each in found.items()
                if (alone := parts.get((phase, place)))
            ]
            append_passes(self._request.folder, rows)
            self._measured += len(rows)
            advance(1)

    def _timed_parts(
        self, key: GraphKey, kernels: Sequence[Kernel], repeats: Repeats
    ) -> Mapping[tuple[Phase, str], LayerPass]:
        """Passes through the layers as a training here runs them; on GPUs through blocks, or
        through all where there are none."""
        family, kind = self._traced_family(key), self._request.device_kind
        if kind is DeviceKind.CPU:
            return measured_layer_passes(traced_key(key), family, self._machine.clock, repeats)
        blocks = tuple(dict.fromkeys(kernel.block for kernel in kernels if kernel.block))
        found = measured_passes(
            traced_key(key), family, kind.value, self._machine.clock, repeats, blocks
        )
        return {place: LayerPass(timing) for place, timing in found.items()}

    def _fits(self, key: GraphKey) -> bool:
        """Whether the weights of a pass find room, roughly; a pass that does not is left out."""
        weights = sum(
            each.bytes
            for row in self._rows.values()
            for each in row.operator.reads
            if row.model == key.model
        )
        if self._request.device_kind is DeviceKind.CUDA:
            free = float(torch.cuda.mem_get_info()[0])
        else:
            free = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
        if COPIES * weights <= PASS_MEMORY * free:
            return True
        logger.info("no whole pass of %s is measured: it would not fit in memory", key.label)
        return False

    def _collectives(self) -> None:
        request = self._request
        if request.device_kind is DeviceKind.CUDA:
            present = torch.cuda.device_count()
        else:
            present = max(request.group_sizes, default=1)
        groups = [size for size in request.group_sizes if size <= present]
        wanted = [
            each
            for each in wanted_exchanges(groups, request.device_kind)
            if (each.kind, each.payload_bytes, each.group_size) not in self._exchanges
        ]
        if not wanted:
            return
        with self._progress.phase("exchanges between processes", len(wanted)) as advance:
            for row in measured_exchanges(wanted, request.device_kind, request.repeats):
                append_collective(request.folder, row)
                self._measured += 1
                advance(1)

    def _summary(self) -> ProfileSummary:
        database = read_database(self._request.folder)
        errors = held_out_errors(database.operators, rates_of(database, self._request.dtype))
        return ProfileSummary(
            database=database,
            measured=self._measured,
            kept=self._kept,
            not_run=tuple(self._not_run),
            noisy=tuple(_noisy(database, self._request.noise)),
            held_out_error=float(np.median(np.abs(errors))) if len(errors) else None,
        )


def _words(operator: Operator) -> str:
    functions = "+".join(each.function for each in operator.vector)
    return f"{operator.phase.value} {operator.kind.value} {functions}".strip()


def _noisy(database: ProfileDatabase, allowed: float) -> Iterator[NoisyRow]:
    named: list[tuple[str, Timing]] = [
        (_words(row.operator), row.timing) for row in database.operators
    ]
    named += [
        (f"{row.kind.value} of {row.payload_bytes} bytes, {row.group_size} processes", row.timing)
        for row in database.collectives
    ]
    named += [(f"{row.phase.value} pass of {row.model}", row.timing) for row in database.passes]
    for what, timing in named:
        if timing.spread_s > allowed * timing.seconds:
            yield NoisyRow(what, timing.seconds, timing.spread_s / timing.seconds)
