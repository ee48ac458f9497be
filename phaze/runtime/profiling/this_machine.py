"""The machine at hand as the record of a database."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from Estimator.profiled.machine import Clock, DeviceKind, MachineRecord
from phaze_common.errors import InputError

CPU_PROCESSES = 8  # of a cluster of processes on CPUs, unless told


def this_machine(
    name: str, device_kind: DeviceKind, threads: int, devices: int | None
) -> MachineRecord:
    """The record of this machine.

    Raises:
        InputError: it has no CUDA device, or fewer than asked for.
    """
    on_cuda = device_kind is DeviceKind.CUDA
    if on_cuda and not torch.cuda.is_available():
        raise InputError(
            "this machine has no CUDA device that torch can use; give --device-kind cpu"
        )
    present = torch.cuda.device_count() if on_cuda else CPU_PROCESSES
    if on_cuda and devices is not None and devices > present:
        raise InputError(
            f"this machine has {present} CUDA devices, {devices} were asked for; ask for fewer"
        )
    count = devices or present
    if on_cuda:
        properties = torch.cuda.get_device_properties(0)
        description = properties.name
        memory_bytes = float(properties.total_memory)
        clock = Clock.EVENTS
    else:
        description = f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"
        memory_bytes = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / count
        clock = Clock.THREAD if threads == 1 else Clock.WALL
    versions = {
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
    if on_cuda:
        versions |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return MachineRecord(
        name=name,
        description=description,
        device_kind=device_kind,
        memory_bytes=memory_bytes,
        devices=count,
        threads=threads,
        clock=clock,
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        versions=versions,
        power=_power_of_gpu() if on_cuda else _governor(),
        dropout=False,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _governor() -> str:
    try:
        return (
            "governor "
            + Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
        )
    except OSError:
        return ""


def _power_of_gpu() -> str:
    """Limits and clocks as the driver's tool says them, where it is there."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    fields = "power.limit,clocks.max.sm,clocks.sm,persistence_mode"
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"]
    try:
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{fields}: {output}"
