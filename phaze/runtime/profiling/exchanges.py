"""Seconds of collectives and messages between processes of this machine: gloo on CPUs, NCCL with
one process per GPU.

The processes are started once, as many as the largest group; smaller groups are their first ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from Estimator.profiled.machine import DeviceKind
from Estimator.profiled.rows import CollectiveRow, Exchange, Timing
from phaze.runtime.forked import Member, die_with_parent, forked
from phaze.runtime.profiling.timing import Repeats, timing_of
from phaze_common.errors import PhazeError

CPU_SIZES = (2**12, 2**15, 2**18, 2**20, 2**22, 2**24)
CUDA_SIZES = (2**12, 2**16, 2**20, 2**22, 2**24, 2**26, 2**28)
IN_A_BLOCK = 5  # samples between two decisions whether to go on
WATCH_S = 1.0
START_S = 120.0  # for all processes to be there, and then for each exchange


@dataclass(frozen=True)
class Wanted:
    """An exchange to measure; ``payload_bytes`` as of ``CollectiveRow``."""

    kind: Exchange
    payload_bytes: int
    group_size: int


def wanted_exchanges(group_sizes: Sequence[int], device_kind: DeviceKind) -> tuple[Wanted, ...]:
    """Every exchange in groups of these sizes; messages go between two."""
    sizes = CPU_SIZES if device_kind is DeviceKind.CPU else CUDA_SIZES
    groups = sorted({size for size in group_sizes if size > 1})
    found = [
        Wanted(kind, size, group)
        for group in groups
        for kind in Exchange
        if kind is not Exchange.SEND
        for size in sizes
    ]
    return (*found, *(Wanted(Exchange.SEND, size, 2) for size in sizes if groups))


def measured_exchanges(
    wanted: Sequence[Wanted], device_kind: DeviceKind, repeats: Repeats
) -> Iterator[CollectiveRow]:
    """The rows of ``wanted``, each as soon as it is measured; what a library does not have is left
    out.

    Raises:
        PhazeError: a process ended or does not answer.
    """
    if not wanted:
        return
    processes = max(each.group_size for each in wanted)
    modules, arguments = ("torch.distributed", __name__), (device_kind, tuple(wanted), repeats)
    with forked(modules, processes, _member, *arguments) as members:
        for each in wanted:
            timing = _received(members)
            if timing is not None:
                yield CollectiveRow(each.kind, each.payload_bytes, each.group_size, 1, timing)
        for member in members:
            member.process.join(WATCH_S)


def _received(members: Sequence[Member]) -> Timing | None:
    """What the first process sends next."""
    first = members[0]
    try:
        if first.pipe.poll(START_S):
            found: Timing | None = first.pipe.recv()
            return found
    except EOFError:
        first.process.join(WATCH_S)
    processes = [member.process for member in members]
    ended = [each.exitcode for each in processes if each.exitcode is not None]
    raise PhazeError(
        f"a process that measures exchanges ended with {ended[0]}; free memory or ports, and "
        "start the same profile again"
        if ended
        else f"processes that measure exchanges do not answer for {START_S:.0f} s; start the same "
        "profile again"
    )


def _member(*arguments: Any) -> None:
    """One of the processes; what goes wrong in it is said by the process that started it, once."""
    die_with_parent()
    try:
        _measure(*arguments)
    except Exception:  # noqa: BLE001 - mostly that another one is gone
        os._exit(1)


def _measure(
    rank: int,
    processes: int,
    meeting: str,
    results: Connection,
    device_kind: DeviceKind,
    wanted: Sequence[Wanted],
    repeats: Repeats,
) -> None:
    """Take part in all exchanges; the first one sends what it measures."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    on_cuda = device_kind is DeviceKind.CUDA
    if on_cuda:
        torch.cuda.set_device(rank)
    device = f"cuda:{rank}" if on_cuda else "cpu"
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=processes,
    )
    groups = {
        size: dist.new_group(range(size)) for size in sorted({each.group_size for each in wanted})
    }
    for each in wanted:
        dist.barrier()
        if rank >= each.group_size:
            continue
        timing = _timing(each, rank, groups[each.group_size], device, repeats)
        if rank == 0:
            results.send(timing)
    dist.barrier()
    dist.destroy_process_group()


def _timing(wanted: Wanted, rank: int, group: Any, device: str, repeats: Repeats) -> Timing | None:
    """Seconds of one exchange on this member, which all members repeat as often; None where the
    library has it not."""
    import torch
    import torch.distributed as dist

    run = _exchange(wanted, rank, group, device)
    go_on = torch.zeros(1, device=device)
    samples: list[float] = []
    started = time.monotonic()
    try:
        for _ in range(repeats.warm_up):
            run()
    except (RuntimeError, NotImplementedError):
        return None
    while True:
        for _ in range(IN_A_BLOCK):
            dist.barrier(group)
            samples.append(_seconds(run, device))
        enough = repeats.enough([samples], started) or len(samples) >= repeats.most
        go_on.fill_(0.0 if enough else 1.0)
        dist.broadcast(go_on, 0, group=group)
        if not go_on.item():
            return timing_of(samples)


def _seconds(run: Callable[[], object], device: str) -> float:
    import torch

    started = time.perf_counter()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _exchange(wanted: Wanted, rank: int, group: Any, device: str) -> Callable[[], object]:
    """What one member runs; of a message there and back, half is one way, so that a run sends half
    of the bytes twice."""
    import torch
    import torch.distributed as dist

    from phaze.runtime.flat_collectives import all_gather, reduce_scatter

    size = wanted.group_size
    elements = max(wanted.payload_bytes // 4, size)
    whole = torch.zeros(elements, device=device)
    part = torch.zeros(max(elements // size, 1), device=device)
    parts = torch.zeros(part.numel() * size, device=device)
    runs: dict[Exchange, Callable[[], object]] = {
        Exchange.ALL_REDUCE: lambda: dist.all_reduce(whole, group=group),
        Exchange.ALL_GATHER: lambda: all_gather(parts, part, group),
        Exchange.REDUCE_SCATTER: lambda: reduce_scatter(part, parts, group),
        Exchange.ALL_TO_ALL: lambda: dist.all_to_all_single(
            torch.empty_like(parts), parts, group=group
        ),
        Exchange.BROADCAST: lambda: dist.broadcast(whole, 0, group=group),
        Exchange.SEND: lambda: _there_and_back(whole[: max(elements // 2, 1)], rank, group),
    }
    return runs[wanted.kind]


def _there_and_back(message: Any, rank: int, group: Any) -> None:
    """Half of a message to the other process, and the same back: as long as all of it one way, but
    for one start more."""
    import torch.distributed as dist

    if rank == 0:
        dist.send(message, 1, group=group)
        dist.recv(message, 1, group=group)
    else:
        dist.recv(message, 0, group=group)
        dist.send(message, 0, group=group)
