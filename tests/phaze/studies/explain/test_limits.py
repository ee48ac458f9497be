"""What limits a design, against searches of a space that holds its chip alone under circumstances
that really differ."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from phaze.studies.explain.repeat import request_of, run_of
from phaze.studies.limits import limits
from phaze.studies.limits.limits import limits_of
from phaze_common.progress import SilentProgress
from Solver.designs.re_solve import priced
from tests.Solver.designs.small_study import CLUSTER, SPACE, small_study, solved, write_hardware


def axes_of(chip):
    """A space of one chip."""
    axes = {
        name: [getattr(chip, name)] for name in ("num_tc", "num_vc", "width", "depth", "width_vc")
    }
    return SPACE | {"axes": axes | {"glb_mib": [chip.glb_bytes // 2**20]}, "references": []}


def searched(finished, folder, *, limits=True, **settings):
    """The answer to a whole search, over the graphs of ``finished``."""
    shutil.copytree(finished.folder / "GraphExtractor", folder / "out" / "GraphExtractor")
    return solved(small_study(folder, **settings), limits=limits)


def value_on(finished, folder, *, cluster=CLUSTER, hbm_gib, **changes):
    """The best of a whole search whose only accelerator is the best one of ``finished``."""
    hardware = write_hardware(folder, axes_of(finished.result.best.accelerator), cluster)
    return searched(
        finished, folder, limits=False, hbm_size=[hbm_gib], **hardware, **changes
    ).best.value


def limit(finished, resource):
    return next(each for each in finished.result.best.limits if each.resource == resource)


def test_gains_are_ordered_and_say_whether_they_bind(finished):
    limits = finished.result.best.limits
    assert {each.resource for each in limits} == {
        "HBM capacity",
        "HBM bandwidth",
        "on-chip buffer bandwidth",
        "clock of the cores",
        "number of devices",
        "network bandwidth",
        "network latency",
        "chip area",
    }
    for each in limits:
        assert 0.0 <= each.one_more_gain <= each.unlimited_gain
        assert each.binds == ("does not bind" not in each.words)
    assert sum(each.binds for each in limits) >= 3


@pytest.mark.thorough
def test_more_devices_are_not_asked_for_where_their_plans_would_fill_memories(finished, tmp_path):
    found = searched(finished, tmp_path, global_batch_size=2**24, hbm_size=[80])
    resources = {each.resource for each in found.best.limits}
    assert "number of devices" not in resources
    assert "network bandwidth" in resources


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("resource", "cluster", "more_gib"),
    [
        (
            "network bandwidth",
            {"tiers": [CLUSTER["tiers"][0] | {"bandwidth_bytes_per_s": 2.1e10}]},
            0,
        ),
        ("network latency", {"tiers": [CLUSTER["tiers"][0] | {"latency_s": 0.0}]}, 0),
        (
            "number of devices",
            {"num_devices": 17, "tiers": [CLUSTER["tiers"][0] | {"group_size": 17}]},
            0,
        ),
        ("HBM capacity", {}, 1),
    ],
)
def test_one_more_is_what_a_search_with_one_more_finds(
    finished, tmp_path, resource, cluster, more_gib
):
    best = finished.result.best
    value = value_on(
        finished, tmp_path, cluster=CLUSTER | cluster, hbm_gib=best.hbm_bytes / 2**30 + more_gib
    )
    assert limit(finished, resource).one_more_gain == pytest.approx(
        max(0.0, value / best.value - 1), abs=1e-9
    )


def test_memory_that_is_missing_binds(finished, tmp_path):
    hardware = write_hardware(tmp_path, axes_of(finished.result.best.accelerator))
    asked = {"micro_batch_size": [1], "recompute": ["none"]}
    tight = searched(finished, tmp_path / "tight", hbm_size=[0.42], **asked, **hardware)
    (capacity,) = (each for each in tight.best.limits if each.resource == "HBM capacity")
    more, plenty = (
        value_on(finished, tmp_path / str(gib), hbm_gib=gib, **asked) for gib in (1.42, 4096)
    )
    assert capacity.binds and "binds" in capacity.words
    assert capacity.one_more_gain == pytest.approx(more / tight.best.value - 1, abs=1e-9)
    assert capacity.unlimited_gain == pytest.approx(plenty / tight.best.value - 1, abs=1e-9)


def test_memory_that_is_not_missing_does_not_bind(finished):
    capacity = limit(finished, "HBM capacity")
    assert not capacity.binds and "does not bind" in capacity.words


def test_a_larger_area_budget_is_what_a_search_of_the_larger_space_finds(finished, tmp_path):
    space = SPACE | {"budget": {"area_mm2": 60.0}, "references": []}
    small, larger = (
        searched(
            finished,
            tmp_path / str(area),
            micro_batch_size=[1],
            hbm_size=[16],
            **write_hardware(tmp_path / str(area), space | {"budget": {"area_mm2": area}}),
        )
        for area in (60.0, 61.0)
    )
    (area,) = (each for each in small.best.limits if each.resource == "chip area")
    assert area.amount == 60.0
    assert area.one_more_gain == pytest.approx(larger.best.value / small.best.value - 1, abs=1e-9)
    assert area.unlimited_gain > 0 and "binds" in area.words


def test_a_limit_of_area_is_a_budget_and_what_grows_keeps_the_other_limits(finished, tmp_path):
    sold = {
        "technology": "foundry_7nm",
        "axes": SPACE["axes"] | {"memory": ["hbm2e:1"]},
        "references": [],
    }
    asked = {
        "micro_batch_size": [1],
        "recompute": ["none"],
        "hbm_size": None,
        **write_hardware(tmp_path, SPACE | sold),
    }

    def under(name, *, limits=False, **most):
        return searched(finished, tmp_path / name, limits=limits, **asked, **most).best

    largest = under("free")
    tight = {"max_area": largest.accelerator.area_mm2 - 0.5}
    within = under("area", limits=True, **tight)
    (area,) = (each for each in within.limits if each.resource == "chip area")
    assert area.amount == tight["max_area"]
    assert (
        area.one_more_gain == pytest.approx(largest.value / within.value - 1, abs=1e-9)
        and area.one_more_gain > 0
    )
    peak_w = sum(part.amount for part in within.chip.peak_w)
    area = next(
        each
        for each in under("power", limits=True, max_power=peak_w * 1.0001, **tight).limits
        if each.resource == "chip area"
    )
    power = next(
        each
        for each in under("lower", limits=True, max_power=0.8 * peak_w).limits
        if each.resource == "chip power"
    )
    slower, free = (
        under("slower", max_power=0.8 * peak_w),
        under("one", max_power=0.8 * peak_w + 1.0),
    )
    assert power.amount == pytest.approx(0.8 * peak_w)
    assert (
        power.unlimited_gain == pytest.approx(largest.value / slower.value - 1, abs=1e-9)
        and power.unlimited_gain > 0
    )
    assert power.one_more_gain == pytest.approx(max(free.value / slower.value - 1, 0.0), abs=1e-9)
    wider = under("wider", max_power=peak_w * 1.0001, max_area=tight["max_area"] + 1)
    assert area.one_more_gain == pytest.approx(wider.value / within.value - 1, abs=1e-9)


@pytest.mark.some(1)
@pytest.mark.parametrize("objective", ["throughput_per_joule", "throughput_per_area"])
def test_other_objectives_have_limits_of_their_own(finished, tmp_path, objective):
    best = searched(
        finished, tmp_path, objective=objective, micro_batch_size=[1], hbm_size=[16]
    ).best
    gains = {each.resource: each.unlimited_gain for each in best.limits}
    if (
        objective == "throughput_per_joule"
    ):  # of the operators, which a faster network does not spare
        assert gains["network bandwidth"] == 0.0
    else:
        assert gains["network bandwidth"] > 0.0


def test_limits_are_kept_once_and_what_they_were_made_from_not_at_all(finished):
    folders = [path for path in (finished.folder / "points").iterdir() if path.is_dir()]
    assert len(folders) == 4  # micro-batch and HBM sizes
    (kept,) = (finished.folder / "points").glob("limits-*.json")
    (axes,) = (finished.folder / "points").glob("axes-*.json")
    estimates = [path.name for path in (finished.folder / "Estimator").rglob("*.npz")]
    run = run_of(request_of(finished), SilentProgress())
    found = replace(run, stores=replace(run.stores, points=finished.folder / "points"))
    assert limits_of(found, finished.result.best, ()) == finished.result.best.limits
    again = limits_of(run, finished.result.best, ())
    assert [each.words for each in again] == [each.words for each in finished.result.best.limits]
    assert np.allclose(
        [each.unlimited_gain for each in again],
        [each.unlimited_gain for each in finished.result.best.limits],
    )
    assert sorted((finished.folder / "points").iterdir()) == sorted([*folders, kept, axes])
    assert [path.name for path in (finished.folder / "Estimator").rglob("*.npz")] == estimates


def test_limits_go_on_where_a_run_was_killed(finished, tmp_path, monkeypatch):
    run = run_of(request_of(finished), SilentProgress())
    run = replace(run, stores=replace(run.stores, points=tmp_path))
    gain, asked = limits._Chip.gain, []

    def killed(chip, given, *more):
        if given.cluster.num_devices > chip.cluster.num_devices:
            raise KeyboardInterrupt
        asked.append(given)
        return gain(chip, given, *more)

    monkeypatch.setattr(limits._Chip, "gain", killed)
    with pytest.raises(KeyboardInterrupt):
        limits_of(run, finished.result.best, ())
    before = list(asked)
    assert before
    monkeypatch.setattr(
        limits._Chip,
        "gain",
        lambda chip, given, *more: asked.append(given) or gain(chip, given, *more),
    )
    found = limits_of(run, finished.result.best, ())
    assert [each.unlimited_gain for each in found] == pytest.approx(
        [each.unlimited_gain for each in finished.result.best.limits]
    )
    again = asked[len(before) :]
    assert all(each.platform == again[0].platform for each in again)  # network and devices alone


def test_values_are_kept_and_words_made_anew(finished, monkeypatch):
    """What a number looks like may change without a run being asked again."""
    run = run_of(request_of(finished), SilentProgress())
    found = replace(run, stores=replace(run.stores, points=finished.folder / "points"))
    monkeypatch.setattr(
        "phaze.studies.limits.limits._of_chip", lambda *_: pytest.fail("priced again")
    )
    monkeypatch.setattr("phaze.report.sentences.gains.number", lambda value, *_: f"<{value:g}>")
    told = limits_of(found, finished.result.best, ())
    assert [each.unlimited_gain for each in told] == [
        each.unlimited_gain for each in finished.result.best.limits
    ]
    assert any("<" in each.words for each in told)


@pytest.mark.parametrize("more_gib", [1, 2**20])
def test_more_memory_on_a_device_brings_what_a_search_with_it_finds(tight_plans, more_gib):
    run, best = tight_plans
    (memory,) = limits_of(run, best, priced(run, run.hardware).groups(best.hbm_bytes))
    more = priced(run, run.hardware).design(best.hbm_bytes + more_gib * 2**30)
    gain = memory.one_more_gain if more_gib == 1 else memory.unlimited_gain
    assert gain == pytest.approx(more.value / best.value - 1, abs=1e-9)
    assert memory.binds and "binds" in memory.words


@pytest.fixture(scope="module")
def tight_plans(finished_plans):
    """The problem of ``finished_plans`` on devices with so little memory that more would help, and
    its optimum."""
    run = run_of(request_of(finished_plans), SilentProgress())
    alone = priced(run, run.hardware)
    roomy = alone.design(max(run.problem.memory_bytes))
    (plan,) = roomy.models.values()
    little = next(
        size
        for part in range(999, 0, -1)
        if (at := alone.design(size := int(plan.memory_bytes * part / 1000))) is None
        or at.value < roomy.value
    )
    return replace(run, problem=replace(run.problem, memory_bytes=(little,))), alone.design(little)


def test_a_run_on_devices_tells_the_limit_of_its_memory(finished_plans):
    (memory,) = finished_plans.result.best.limits
    assert memory.resource == "HBM capacity"
    assert memory.amount == finished_plans.result.best.hbm_bytes / 2**30
