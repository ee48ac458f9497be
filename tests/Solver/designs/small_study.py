"""A study small enough to check by exhaustion: a few hundred accelerators, one short model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from phaze import run_solver
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze_common.progress import SilentProgress
from Solver.results import SearchResult

SPACE: dict[str, Any] = {
    "name": "small",
    "technology": "phaze_22nm",
    "platform": "phaze_hbm2",
    "vector_functions": "phaze",
    "axes": {
        "num_tc": [1, 4, 16],
        "num_vc": [1, 16, 64],
        "width": [32, 128],
        "depth": [64],
        "width_vc": None,
        "glb_mib": [4, 32],
    },
    "budget": {"area_mm2": 200.0},
    "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
    "references": [
        {
            "name": "outside",
            "source": "made up for the test, not in the space",
            "accelerator": {
                "num_tc": 2,
                "num_vc": 2,
                "width": 64,
                "depth": 64,
                "width_vc": 64,
                "glb_mib": 16,
            },
        }
    ],
}
CLUSTER: dict[str, Any] = {
    "name": "sixteen",
    "num_devices": 16,
    "tiers": [
        {"name": "link", "group_size": 16, "bandwidth_bytes_per_s": 2.0e10, "latency_s": 1.0e-6}
    ],
}


def write_hardware(
    folder: Path, space: dict[str, Any] = SPACE, cluster: dict[str, Any] = CLUSTER
) -> dict[str, str]:
    """Write the design space and the cluster, and give the settings that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(yaml.safe_dump(space))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return {"design_space": str(folder / "space.yaml"), "cluster": str(folder / "cluster.yaml")}


def small_study(folder: Path, **changes: object) -> Request:
    """BERT-base at 128 tokens on sixteen devices."""
    settings: dict[str, object] = {
        "model": "bertbase",
        "micro_batch_size": [1, 4],
        "sequence_length": 128,
        "hbm_size": [2, 16],
        "global_batch_size": 64,
        "output": str(folder / "out"),
    }
    hardware = {} if "design_space" in changes else write_hardware(folder)
    return resolve({}, settings | hardware | changes)


@contextmanager
def without_limits() -> Iterator[None]:
    """Searches in this process do not look for what limits their best design."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phaze.studies.written_answer.limits_of", lambda run, best, groups: ())
        yield


def solved(
    study: Request, folder: Path | None = None, *, limits: bool = False, axes: bool = False
) -> SearchResult:
    """The answer to ``study``, in another folder if given.

    What limits the best design and what other values of its axes allow is left out unless asked
    for, together or the axes alone: of a study this small it takes several times the search.
    """
    asked = study if folder is None else study.with_settings(output=folder)
    with nullcontext() if limits else without_limits():
        result = run_solver(asked, SilentProgress(), limits=limits or axes)
    assert isinstance(result, SearchResult)
    return result
