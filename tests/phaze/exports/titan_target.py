"""torchtitan itself as the judge of an exported configuration: its ``Trainer`` is built on a fake
network, without a GPU.

``Trainer.__init__`` runs until parameters would get memory: reading of the configuration, batch and
sequence rules, the world size, meshes, the model on the meta device, the split into stages, tensor,
expert and context parallelism, recomputation and FSDP.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from phaze.exports.launch import Launch
from phaze.exports.torchtitan.exporter import EXPORTER, FAMILIES


class _Built(Exception):
    """Everything before the parameters' memory went well."""


class Titan:
    """The target: ``refuses`` says why it does, in its own words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        import torch
        import torchtitan.components.metrics
        import torchtitan.components.quantization.float8
        import torchtitan.distributed.parallel_dims
        from torchtitan.tools import utils

        def stop(*_: object, **__: object) -> None:
            raise _Built

        nothing = SimpleNamespace(set_device=lambda *_: None, manual_seed=lambda *_: None)
        monitor = SimpleNamespace(device_name="NVIDIA H100", reset_peak_stats=lambda: None)
        for home, name, value in (
            (torch.nn.Module, "to_empty", stop),
            (utils, "get_local_device", lambda: torch.device("cpu")),
            (utils, "device_type", "cpu"),
            (utils, "device_module", nothing),
            (torchtitan.distributed.parallel_dims, "device_type", "cpu"),
            (torchtitan.components.metrics, "build_device_memory_monitor", lambda: monitor),
            (torchtitan.components.quantization.float8, "has_cuda_capability", lambda *_: True),
        ):
            monkeypatch.setattr(home, name, value)
        monkeypatch.syspath_prepend(str(folder))
        self._patch, self._folder, self._count = monkeypatch, folder, 0
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)

    def refuses(self, launch: Launch) -> str | None:
        """Why torchtitan does not run what is exported of ``launch``, on any rank that begins a
        stage; None where it does."""
        import torch
        from torchtitan.config import ConfigManager

        if launch.shape is None or launch.shape.family not in FAMILIES:
            return "no such model"
        self._count += 1
        name = f"exported_plan_{self._count}"
        (self._folder / f"{name}.py").write_text(EXPORTER.files(launch)[0].content)  # type: ignore[arg-type]
        importlib.invalidate_caches()
        devices = launch.nodes * launch.processes_per_node  # those that run.sh starts
        self._patch.setenv("NGPU", str(devices))
        self._patch.setenv("LOCAL_RANK", "0")
        try:
            for stage in range(launch.degrees.pp):
                self._patch.setenv("RANK", str(stage * devices // launch.degrees.pp))
                config = ConfigManager().parse_args(
                    ["--module", name, "--config", "plan", "--comm.mode", "fake_backend"]
                )
                try:
                    config.build()
                except _Built:
                    self._schedule(config)
                finally:
                    if torch.distributed.is_initialized():
                        torch.distributed.destroy_process_group()
        except Exception as error:  # noqa: BLE001 whatever a target raises is a refusal
            return f"{type(error).__name__}: {error}"
        finally:
            sys.modules.pop(name, None)
        return None

    def _schedule(self, config: object) -> None:
        """What it looks at only where the schedule is asked for by name."""
        from torch.distributed.pipelining.schedules import get_schedule_class

        get_schedule_class(config.parallelism.pipeline_parallel_schedule)  # type: ignore[attr-defined]
