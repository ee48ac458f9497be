"""The context of the search that a request asks for."""

from __future__ import annotations

from dataclasses import replace

from phaze.settings.problem import front_of, hardware_of, search_problem
from phaze.settings.request import Request
from phaze.studies.sweep.points import key_of
from phaze_common.progress import Progress
from Solver.designs.search_context import SearchContext, Stores
from Solver.designs.shared_incumbent import SharedIncumbent


def search_context(request: Request, progress: Progress) -> SearchContext:
    """The context of the search that ``request`` asks for."""
    folders = request.folders
    stores = Stores(folders.graphs, folders.estimates, folders.run / "points")
    hardware = hardware_of(request)
    problem = replace(search_problem(request), front=front_of(request, hardware))
    return SearchContext(problem, hardware, stores, progress, shared_incumbent=_best_known(request))


def _best_known(request: Request) -> SharedIncumbent | None:
    """What all parts of a space know together; a part that is run by itself knows nothing."""
    if request.hardware.space_part is None:
        return None
    if request.run_folder is None:
        return SharedIncumbent()
    whole = key_of(request.with_settings(space_part=None))
    part = request.hardware.space_part.replace("/", "-of-")
    return SharedIncumbent(request.run_folder.parent / f"known-{whole}", part)
