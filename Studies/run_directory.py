"""The files of a finished run: study.yaml, manifest.json, best.json, schedules.json.gz, designs.parquet (and .csv)."""

from __future__ import annotations

import importlib.metadata
import io
import json
import platform
import resource
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from Common.errors import PhazeError
from Common.files import pack, write_atomically
from Common.records import to_json
from Estimator.chips.accelerator import AcceleratorSet, IntArray
from GraphExtractor.graph import Recompute
from Solver.results import Counts, SearchResult
from Solver.search.pareto import better_is_larger, nondominated
from Solver.search.points import PointGroup, PointStatus
from Solver.search.schedule_records import KeptSchedules

if TYPE_CHECKING:
    import pandas as pd

POINT_MEANING = (
    "a design point is one accelerator x HBM size x micro-batch size x tensor parallel width x recomputation mode of one model, "
    "with its best stages, pipeline depth and data parallel degree"
)


@dataclass(frozen=True)
class PhaseRecord:
    """Seconds a phase of the run took and the peak resident memory of the process when it ended."""

    name: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Manifest:
    """Provenance of a run. ``contents`` are hashes of the files that the study names."""

    versions: dict[str, str]
    contents: dict[str, str]
    git_commit: str | None
    machine: str
    schedule_solver: str
    confirmation_solvers: tuple[str, ...]
    phases: tuple[PhaseRecord, ...]
    point_meaning: str
    counts: Counts
    pareto_front_points: int


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def library_versions() -> dict[str, str]:
    """Versions of everything the numbers depend on."""
    names = ("phaze", "torch", "transformers", "numpy", "numba", "scipy", "gurobipy", "networkx")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def git_commit(repository: Path) -> str | None:
    """Commit of the code, with ``+changes`` where the work tree differs; None outside a git checkout."""
    try:
        commit, changes = (
            subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changes else "")


def designs_table(groups: Sequence[PointGroup], accelerators: AcceleratorSet) -> pd.DataFrame:
    """One row per design point of the space, with its status and, where pruned, the bound that closed it."""
    import pandas as pd

    models = sorted({group.key.model for group in groups})
    table = pd.concat([_group_frame(group, accelerators, models) for group in groups], ignore_index=True)
    table["on_front"] = _on_front(table)
    return table


def write_run(
    folder: Path,
    study_yaml: str,
    manifest: Manifest,
    result: SearchResult,
    schedules: KeptSchedules,
    designs: pd.DataFrame,
    *,
    csv: bool,
) -> None:
    """Write every file of the run, best.json last, so that its presence says that the rest is complete.

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    (folder / "best.json").unlink(missing_ok=True)
    write_atomically(folder / "study.yaml", study_yaml.encode())
    write_atomically(folder / "schedules.json.gz", pack(to_json(schedules)))
    buffer = io.BytesIO()
    designs.to_parquet(buffer, index=False, compression="zstd")
    write_atomically(folder / "designs.parquet", buffer.getvalue())
    if csv:
        write_atomically(folder / "designs.csv", designs.to_csv(index=False).encode())
    else:
        (folder / "designs.csv").unlink(missing_ok=True)  # of an earlier run, which these files replace
    write_atomically(folder / "manifest.json", to_json(manifest, indent=2))
    write_atomically(folder / "best.json", best_json(result))


def best_json(result: SearchResult) -> bytes:
    """The result as JSON: the optimum's fields at the top level, then the optimum per HBM size, references, rows and counts."""
    whole = json.loads(to_json(result))
    best = whole.pop("best") or {"status": whole["status"], "optimal": False}
    return json.dumps({**best, **{key: value for key, value in whole.items() if key != "status"}}, indent=2).encode()


def _group_frame(group: PointGroup, accelerators: AcceleratorSet, models: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    def category(codes: IntArray, names: Sequence[str]) -> pd.Categorical[int]:
        return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(names)))

    points = np.arange(len(group.status))
    rows, variant = group.rows(points), group.variant(points)
    evaluated = group.status[points] == PointStatus.EVALUATED
    iteration_s = np.where(evaluated, group.iteration_s[points], np.nan)
    modes = [plan.recompute for plan in group.problem.variants]
    return pd.DataFrame(
        {
            "model": category(np.full(len(points), models.index(group.key.model)), models),
            "micro_batch_size": group.key.micro_batch_size,
            "hbm_bytes": group.key.hbm_bytes,
            "tp": np.array([plan.tp for plan in group.problem.variants])[variant],
            "recompute": category(np.array([list(Recompute).index(mode) for mode in modes])[variant], tuple(Recompute)),
            "num_tc": accelerators.num_tc[rows],
            "num_vc": accelerators.num_vc[rows],
            "width": accelerators.width[rows],
            "depth": accelerators.depth[rows],
            "width_vc": accelerators.width_vc[rows],
            "glb_bytes": accelerators.glb_bytes[rows],
            "area_mm2": group.area_mm2[points],
            "status": category(group.status[points].astype(np.int64), [status.name.lower() for status in PointStatus]),
            "throughput_samples_per_s": group.batch_samples / iteration_s,
            "time_per_batch_s": iteration_s,
            "throughput_bound_samples_per_s": group.throughput_ceiling[points],
            "energy_per_sample_j": group.energy_j[points],
            "pp": np.where(evaluated, group.pp[points], 0),
            "dp": np.where(evaluated, group.dp[points], 0),
        }
    )


def _on_front(table: pd.DataFrame) -> np.ndarray:
    """Pareto front of throughput, area and energy per model and HBM size, over all its micro-batch sizes and plans."""
    front = np.zeros(len(table), dtype=bool)
    evaluated = (table["status"] == "evaluated").to_numpy()
    for _, part in table[evaluated].groupby(["model", "hbm_bytes"], observed=True):
        rows = part.index.to_numpy()
        values = better_is_larger(
            part["throughput_samples_per_s"].to_numpy(), part["area_mm2"].to_numpy(), part["energy_per_sample_j"].to_numpy()
        )
        front[rows[nondominated(values)]] = True
    return front


def folder_is_writable(folder: Path) -> None:
    """Refuse a run directory that cannot be written before hours are spent.

    Raises:
        PhazeError: names the folder and the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise PhazeError(f"cannot write in {folder}: {error.strerror}; choose another --output") from error
