"""Plans that need no look, where replicas lie unevenly over the blocks of a network."""

import itertools

import numpy as np

from Estimator.devices.files import load_software
from Estimator.network.cluster import Cluster, Tier
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.layer_costs import LayerCosts, PassCosts, layer_sizes
from Estimator.plans.rates import Machine
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import LayerGraph, LayerTensor, ModelGraph, Recompute, SavedBytes
from phaze_common.choices import GroupOrder
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.replicas import undominated
from Solver.plans.shape_plans import ShapePlans
from Solver.plans.space import PlanSpace
from tests.builders.random_searches import NOTHING

LAYERS = 4


def best_s(plans: UniformPlans, cluster: Cluster) -> float:
    """Seconds of the best of ``plans``, of four layers alike."""
    shape = plans.shape
    nothing = NOTHING, NOTHING, NOTHING
    parts = tuple(
        LayerGraph(f"layer{at}", *nothing, 2000, 0, 0, 0, SavedBytes(1, 1, 1), ())
        for at in range(LAYERS)
    )
    tensors = tuple(LayerTensor(at, (at + 1,), 9, 9) for at in range(LAYERS - 1))
    graph = ModelGraph(shape.graph_key("made up", 8), parts, tuple(range(LAYERS)), tensors, 1)
    sizes, again = layer_sizes(graph, Recompute.NONE), np.zeros((1, LAYERS))
    once = PassCosts.of_total(np.ones((1, LAYERS)))
    costs = LayerCosts(
        graph, Recompute.NONE, sizes, once, PassCosts.of_total(again), once, again, None
    )
    machine = Machine("made up", 1e12, 1e12, 1e12, cluster, load_software("megatron_2022"))
    return (
        ConfigurationPlans(ShapePlans(graph, sizes, plans, machine), costs, 0, 1e12)
        .best()
        .iteration_s
    )


def test_the_best_is_among_what_is_left() -> None:
    """Of 4 and 5 replicas over blocks of 3 devices none lie evenly."""
    orders, fewer = (GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER), 0
    for devices, replicas, tp, order, batch in itertools.product(
        (14, 70), (None, (2, 5), (4, 5)), (1, 2), orders, (5, 16)
    ):
        tiers = (Tier(str(size), size, 1e5 / size, 0.01 * size) for size in (3, 6, devices))
        cluster = Cluster("odd", devices, tuple(tiers))
        space = PlanSpace(
            devices,
            False,
            UniformPlan(global_batch_size=batch),
            8,
            (tp,),
            (1,),
            (Recompute.NONE,),
            group_orders=(order,),
            dp_degrees=replicas,
        )
        for shape in space.shapes():
            plans = space.every_plan(shape, LAYERS, cluster)
            left = undominated(plans, cluster)
            fewer += len(plans) - len(left)
            assert best_s(plans.some(left), cluster) == best_s(plans, cluster)
    assert fewer > 0
