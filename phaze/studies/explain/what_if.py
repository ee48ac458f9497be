"""What a finished run would have answered with other settings: ``hbm_bandwidth=2x``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.design_space import DesignSpace
from Estimator.plans.axes import COMPARED
from Estimator.plans.results import Status
from phaze.report.sentences.designs import EQUAL, listed
from phaze.report.sentences.records import WhatIf
from phaze.runs.finished_run import FinishedRun
from phaze.settings.problem import hardware_report
from phaze.settings.request import Request, settings_for
from phaze.studies.explain.constraints import SEPARATOR
from phaze.studies.explain.repeat import hardware_alone, repeating, request_of, run_of
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.progress import Progress, SilentProgress
from phaze_common.records import parse_yaml
from phaze_common.setting_fields import Mode
from Solver.designs.re_solve import priced
from Solver.designs.search import search
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips, Hardware
from Solver.results import DesignPoint

CONSTANTS = {  # by their shorthands
    "glb_bandwidth": "platform.glb_bandwidth_bytes_per_cycle",
    "startup": "platform.startup_s",
    "network_bandwidth": "cluster.tiers.*.bandwidth_bytes_per_s",
    "network_latency": "cluster.tiers.*.latency_s",
}
OTHER_QUESTIONS = frozenset(
    {
        *("model", "objective", "combine", "time_shares", "front", "chip"),
        *("setting", "name", "output", "csv"),
    }
)
# constants behind settings that are values, for factors of these
FACTORS = {"memory_bandwidth": "device.memory.bandwidth", "peak_flops": "device.matrix.peak.*"}


def what_if(finished: FinishedRun, asked: str, progress: Progress | None = None) -> WhatIf:
    """The best design of ``finished`` with the changes in ``asked``, and the best there is then.

    Raises:
        InputError: the run found nothing, or the changes cannot be read or made.
    """
    best = finished.result.best
    if best is None:
        raise InputError(
            f"{finished.folder} found nothing feasible, so there is no design to ask about"
        )
    changes, named = _changes(asked, finished.settings), f"--what-if {asked:.200}"
    with repeating(finished):
        request_of(finished)
    changes = settings_for(Mode.SEARCH).canonical(changes, named)
    for key in OTHER_QUESTIONS & changes.keys():
        raise InputError(
            f"{named}: {key} is no circumstance of what the run asked, but another question; run "
            "one with it and compare the two folders with 'phaze report ONE OTHER'"
        )
    if "device" in changes and not finished.on_device:
        raise InputError(
            f"{named}: the run designed chips, and a device takes a search of its own; run one "
            "with --device"
        )
    try:
        request = request_of(finished, changes, source=named)
        run = run_of(request, progress or SilentProgress())
        return _answer(asked, best, run, request)
    except InputError as error:
        said = str(error)
        raise InputError(said if said.startswith(named) else f"{named}: {said}") from error


def _answer(asked: str, best: DesignPoint, run: SearchContext, request: Request) -> WhatIf:
    searched = search(run, hardware_report(request), "")
    now, reason = searched.result.best, searched.result.reason
    if now is None:
        nothing = WhatIf(asked, Status.INFEASIBLE, None, None, None, False, False)
        return replace(nothing, reason=reason)
    own = _same(run.hardware, best)
    impossible = _impossible(own)
    same = None if impossible else priced(searched.context, own).best_optimum()
    value = None if same is None else same.value
    return WhatIf(
        asked,
        now.status,
        now,
        None if value is None else value / best.value,
        now.value / best.value,
        same_design=value is not None and value >= now.value * (1.0 - EQUAL),
        same_plan=all(
            each.of(now.models[name]) == each.of(plan)
            for name, plan in best.models.items()
            for each in COMPARED
        ),
        not_possible=impossible,
    )


def _same(hardware: Hardware, best: DesignPoint) -> Hardware:
    """The design of a run on the hardware of now, which may give it another area."""
    chip = best.accelerator
    if chip is None or not isinstance(hardware, DesignedChips) or hardware.space is None:
        return hardware_alone(hardware, best)
    return hardware.only([hardware.space.with_area(_offered(chip, hardware.space))])


def _impossible(hardware: Hardware) -> str:
    """Why the one chip of ``hardware`` could not be of its space; empty where it could."""
    if not isinstance(hardware, DesignedChips) or hardware.space is None:
        return ""
    space, whole = hardware.space, hardware.space.whole(hardware.accelerators)
    if not whole.buildable.all():
        return "its dies cannot carry that memory"
    beyond = [each for each in space.limits.stated if not each.holds(whole).all()]
    takes = [each.kind.words(number(float(each.taken(whole)[0]))) for each in beyond]
    if not takes and whole.area_mm2[0] > space.budget_mm2:
        takes = [f"take {number(float(whole.area_mm2[0]))} mm2"]
    return f"it would {listed(takes)}" if takes else ""


def _offered(chip: Accelerator, space: DesignSpace) -> Accelerator:
    """``chip`` with memory and links that ``space`` offers, else the first of these."""
    memory, links = space.axes.memory or (), space.axes.links or ()
    if memory and chip.memory_system not in memory:
        chip = replace(chip, memory_system=memory[0])
    return chip if not links or chip.links in links else replace(chip, links=links[0])


def _changes(asked: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings that differ, by key."""
    changes: dict[str, object] = {}
    earlier = settings.get("constants")
    constants = list(earlier) if isinstance(earlier, list) else []
    for part in asked.split(SEPARATOR):
        key, equals, text = (each.strip() for each in part.partition("="))
        if not equals or not key or not text:
            raise InputError(
                f"--what-if {asked!r:.200} has no value for {key!r:.100}; write KEY=VALUE, such "
                "as hbm_bandwidth=2x"
            )
        name = key.replace("-", "_")
        if "." in key:
            constants.append(f"{key}={''.join(text.split())}")
        elif name in CONSTANTS:
            constants.append(f"{CONSTANTS[name]}={''.join(text.split())}")
        elif name in FACTORS and text.endswith("x"):
            constants.append(f"{FACTORS[name]}={text}")
        else:
            changes[name] = parse_yaml(text, f"the value in --what-if {asked!r:.200}")
    return changes | ({"constants": constants} if constants else {})
