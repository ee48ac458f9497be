"""Design-point groups against evaluating every point: optimum, front and counts; resuming; several models at once."""

import numpy as np
import pytest
from Solver.placement.problem import BatchTimes, PlacementProblem, PlanVariant, TrainingPolicy

from Common.choices import Objective
from Estimator.network.cluster import Cluster, Tier
from GraphExtractor.graph import Recompute
from Solver.search.joint import joint_optimum
from Solver.search.pareto import better_is_larger, nondominated
from Solver.search.point_store import PointStore
from Solver.search.points import PointGroup, PointKey, PointStatus

SEQUENCE = (0, 1, 1, 1, 1, 2)
ADAM = TrainingPolicy("adam", 2.0, 2.0, 12.0, 28.0, 0)
FLAT = Cluster("flat", 16, (Tier("link", 16, 4e9, 0.0),))


def random_group(seed, folder, *, model="some", hbm_bytes=4e9, accelerators=60):
    """A group whose accelerators trade speed, area and energy, with many near ties."""
    random = np.random.default_rng(seed)
    layers = len(SEQUENCE)

    def variant(recompute, saved):
        return PlanVariant(
            tp=1,
            recompute=recompute,
            parameter_count=np.array([3e7, 1e7, 1e7, 1e7, 1e7, 3e7]),
            saved_bytes=np.full(layers, saved),
            workspace_bytes=np.full(layers, 1e7),
            cut_bytes=np.array([0, *[1e6] * (layers - 1)]),
            cut_gradient_bytes=np.array([0, *[1e6] * (layers - 1)]),
            tied_parameter_count=0.0,
        )

    problem = PlacementProblem(
        variants=(variant(Recompute.NONE, 4e8), variant(Recompute.FULL, 2e7)),
        cluster=FLAT,
        hbm_bytes=hbm_bytes,
        hbm_bandwidth_bytes_per_s=1e12,
        micro_batches=64,
        policy=ADAM,
    )
    area_mm2 = random.integers(1, 12, accelerators).astype(float)
    speed = area_mm2 * random.uniform(0.5, 1.5, accelerators)
    forward_s = random.uniform(0.8, 1.2, (accelerators, 2, 3)) * 1e-2 / speed[:, None, None]
    recompute_s = np.stack([np.zeros_like(forward_s[:, 0]), forward_s[:, 1]], axis=1)
    energy_j = random.integers(1, 6, (accelerators, 1)) * np.array([[1.0, 1.3]])
    times = BatchTimes(forward_s, 2 * forward_s, recompute_s, SEQUENCE)
    return PointGroup(PointKey(model, 1, int(hbm_bytes)), problem, times, area_mm2, energy_j, 64, PointStore(folder))


def everything(group):
    """The same group with every point evaluated."""
    group.evaluate(np.arange(len(group.status)))
    return group


def front_values(group):
    points = np.flatnonzero(group.status == PointStatus.EVALUATED)
    values = better_is_larger(group.throughput_bound[points], group.area_mm2[points], group.energy_j[points])
    return {tuple(value) for value in values[nondominated(values)]}


@pytest.mark.parametrize("seed", range(12))
def test_pruning_keeps_the_optimum_of_every_objective_and_the_front(seed, tmp_path):
    hbm_bytes = (4e9, 1.3e9)[seed % 2]  # with the small memory only full recomputation fits
    searched = random_group(seed, tmp_path / "searched", hbm_bytes=hbm_bytes)
    searched.explore(lambda count: None)
    brute = everything(random_group(seed, tmp_path / "brute", hbm_bytes=hbm_bytes))
    for objective in Objective:
        assert searched.objective(objective).max() == brute.objective(objective).max()
    assert front_values(searched) == front_values(brute)
    assert not np.any(searched.status == PointStatus.OPEN)
    assert np.array_equal(searched.status == PointStatus.INFEASIBLE, brute.status == PointStatus.INFEASIBLE)
    assert np.any(searched.status == PointStatus.PRUNED), "nothing was pruned, so this test shows nothing"
    pruned = searched.status == PointStatus.PRUNED
    assert np.all(searched.throughput_bound[pruned] >= brute.throughput_bound[pruned] * (1 - 1e-12))


def test_a_group_goes_on_where_a_killed_run_stopped(tmp_path):
    undisturbed = random_group(3, tmp_path / "undisturbed")
    undisturbed.explore(lambda count: None)
    killed = random_group(3, tmp_path / "store")
    killed.evaluate(np.arange(0, 30))
    resumed = random_group(3, tmp_path / "store")
    assert np.count_nonzero(resumed.status == PointStatus.EVALUATED) == 30
    resumed.explore(lambda count: None)
    assert front_values(resumed) == front_values(undisturbed)


def test_a_finished_group_given_again_has_the_same_counts(tmp_path):
    first = random_group(5, tmp_path)
    first.explore(lambda count: None)
    again = random_group(5, tmp_path)
    again.explore(lambda count: None)
    assert np.array_equal(first.status, again.status)


def test_no_stored_point_is_computed_again(tmp_path, monkeypatch):
    everything(random_group(3, tmp_path))

    def refused(*_arguments):
        raise AssertionError("a stored point was computed again")

    monkeypatch.setattr("Solver.search.points.place_batch", refused)
    again = everything(random_group(3, tmp_path))
    assert not np.any(again.status == PointStatus.OPEN)


def test_a_damaged_batch_is_set_aside_and_its_points_are_computed_again(tmp_path, caplog):
    whole = everything(random_group(4, tmp_path))
    damaged = sorted(tmp_path.glob("points-*.npz"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    again = random_group(4, tmp_path)
    assert np.any(again.status == PointStatus.OPEN)
    assert damaged.name in caplog.text
    everything(again)
    assert np.array_equal(again.iteration_s, whole.iteration_s)


def test_a_group_in_which_nothing_fits_says_what_would(tmp_path):
    group = random_group(0, tmp_path, hbm_bytes=1e7)
    assert np.all(group.status == PointStatus.INFEASIBLE)
    assert "needs" in group.why_infeasible()


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(4))
def test_the_joint_optimum_of_several_models_is_the_best_weighted_mean(seed, objective, tmp_path):
    weights = {"one": 2.0, "other": 0.5}

    def groups(folder):
        return {
            "one": [random_group(seed, folder / "a", model="one"), random_group(seed + 50, folder / "b", model="one")],
            "other": [random_group(seed + 100, folder / "c", model="other")],
        }

    found = joint_optimum(groups(tmp_path / "search"), weights, objective)
    best_of = {
        model: np.max([everything(group).objective(objective).reshape(2, -1).max(axis=0) for group in model_groups], axis=0)
        for model, model_groups in groups(tmp_path / "brute").items()
    }
    mean = (2.0 * best_of["one"] + 0.5 * best_of["other"]) / 2.5
    assert found.value == pytest.approx(mean.max(), rel=1e-12)
    assert mean[found.row] == pytest.approx(mean.max(), rel=1e-12)
    for model, choice in found.choices.items():
        assert choice.group.key.model == model
        assert choice.group.locate(choice.point)[0] == found.row
    assert found.best_open_bound is None or found.best_open_bound <= found.value * (1 + 1e-12)
