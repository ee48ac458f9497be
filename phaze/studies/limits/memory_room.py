"""The best design that leaves room in memory, where the optimum leaves next to none."""

from dataclasses import dataclass, replace

from phaze.runs.kept_answers import kept_answer
from phaze.studies.explain.repeat import hardware_alone
from Solver.designs.re_solve import priced
from Solver.designs.search_context import SearchContext
from Solver.results import MOST_SHARE, DesignPoint, TightMemory


@dataclass(frozen=True)
class _Kept:
    """What is kept of a finished answer."""

    tight_memory: TightMemory


def tight_memory(run: SearchContext, best: DesignPoint) -> TightMemory | None:
    """The best plans within ``MOST_SHARE`` of the memory of ``best``; None where it has room.

    An earlier run of the same question may have found them.
    """
    used_share = max(plan.memory_bytes for plan in best.models.values()) / best.hbm_bytes
    if used_share <= MOST_SHARE:
        return None
    kept = kept_answer(run, "room", _Kept, best, lambda: _Kept(_found(run, best, used_share)))
    return kept.tight_memory


def _found(run: SearchContext, best: DesignPoint, used_share: float) -> TightMemory:
    with run.progress.phase("best design with room in memory", 1) as advance:
        chip = hardware_alone(run.hardware, best)
        found = priced(run, chip).design(int(MOST_SHARE * best.hbm_bytes))
        advance(1)
    if found is not None:  # in less memory than its devices have
        size = best.hbm_bytes
        models = {name: replace(plan, hbm_bytes=size) for name, plan in found.models.items()}
        found = replace(found, hbm_bytes=size, models=models)
    return TightMemory(used_share, MOST_SHARE, found)
