"""The best design that leaves room in memory, where the optimum leaves next to none."""

from dataclasses import dataclass, replace

from phaze.runs.kept_answers import kept_answer
from Solver.designs.re_solve import priced
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips, Hardware
from Solver.results import DesignPoint, TightMemory

# of a memory: allocators leave gaps, and what a framework keeps for itself varies by some per cent
MOST_SHARE = 0.95


@dataclass(frozen=True)
class _Kept:
    """What is kept of a finished answer."""

    tight_memory: TightMemory


def tight_memory(run: SearchContext, best: DesignPoint) -> TightMemory | None:
    """The best plans on the hardware of ``best`` within ``MOST_SHARE`` of its memory, exactly; None
    where ``best`` has room.

    An earlier run of the same question may have found them.
    """
    used_share = max(plan.memory_bytes for plan in best.models.values()) / best.hbm_bytes
    if used_share <= MOST_SHARE:
        return None
    return kept_answer(
        run, "room", _Kept, best, lambda: _Kept(_found(run, best, used_share))
    ).tight_memory


def _found(run: SearchContext, best: DesignPoint, used_share: float) -> TightMemory:
    with run.progress.phase("best design with room in memory", 1) as advance:
        found = priced(run, _alone(run.hardware, best)).design(int(MOST_SHARE * best.hbm_bytes))
        advance(1)
    return TightMemory(
        used_share, MOST_SHARE, None if found is None else _in_memory(found, best.hbm_bytes)
    )


def _alone(hardware: Hardware, best: DesignPoint) -> Hardware:
    if isinstance(hardware, DesignedChips) and best.accelerator is not None:
        return hardware.only([best.accelerator])
    return hardware


def _in_memory(point: DesignPoint, hbm_bytes: int) -> DesignPoint:
    """``point``, found in less memory, in what its devices have."""
    models = {name: replace(plan, hbm_bytes=hbm_bytes) for name, plan in point.models.items()}
    return replace(point, hbm_bytes=hbm_bytes, models=models)
