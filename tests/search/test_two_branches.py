"""The search of a model with two towers: exact over all orders of its layers, and honest where too many are left out."""

import dataclasses
import json
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from small_study import SPACE, small_study, solved, write_hardware
from Solver.placement import evaluate_plan, lattice, place_chain
from Solver.placement.layer_graph import edges_between, in_order
from Solver.search.doubts import model_inputs
from Solver.search.inputs import placement_problem
from Solver.search.variants import batch_times
from Studies.adapters import chip_study

from Common.progress import SilentProgress
from GraphExtractor.graph import LayerTensor, ModelGraph
from Plans.results import Status
from Reporter.tables import print_result
from Solver.schedule import solver_named
from Solver.search import inputs as search_inputs
from Solver.search.points import row_times
from Solver.search.run import Run, Stores
from Solver.search.winners import layer_names
from Studies.hardware import hardware_to_design

BLOCKS = (3, 4)  # of the towers


def two_towers(graph: ModelGraph) -> ModelGraph:
    """Two towers of the model's blocks, each after an embedding of its own with one table, and a head that needs both.

    The blocks of the towers are distinct layers of one name, the second ones with half of the parameters.
    """
    embedding, block, head = graph.layers
    second = dataclasses.replace(embedding, tied_count=embedding.parameter_count)
    lighter = dataclasses.replace(block, parameter_count=block.parameter_count // 2)
    first, other = BLOCKS
    sequence = (0, *[1] * first, 3, *[4] * other, 2)
    made = next(tensor.bytes for tensor in graph.tensors)
    ends = first, len(sequence) - 2
    steps = [(k, k + 1) for k in range(len(sequence) - 2) if k != first] + [(end, len(sequence) - 1) for end in ends]
    tensors = tuple(LayerTensor(start, (end,), made, made) for start, end in steps)
    return dataclasses.replace(graph, layers=(embedding, block, head, second, lighter), sequence=sequence, tensors=tensors)


@pytest.fixture(autouse=True)
def towers_instead(monkeypatch):
    """Every graph that is extracted becomes two towers."""
    extract = search_inputs.load_or_extract
    monkeypatch.setattr(search_inputs, "load_or_extract", lambda *key, **options: two_towers(extract(*key, **options)))


def study_of(folder, **changes):
    few = SPACE | {"axes": SPACE["axes"] | {"num_tc": [4, 16], "num_vc": [16], "glb_mib": [32]}}
    settings = {"model": "bertbase", "micro_batch_size": [4], "hbm_size": [0.6], **write_hardware(folder, few)}
    return small_study(folder, **(settings | changes))


@contextmanager
def at_most(stages, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(lattice, "MOST_STAGES", stages)
        lattice.lattice_of.cache_clear()
        yield
    lattice.lattice_of.cache_clear()


def orders(edges, layers):
    """All orders of the layers in which every edge leads forwards."""
    if not layers:
        yield ()
    for layer in layers:
        if not any(end == layer and start in layers for start, end in edges):
            for rest in orders(edges, [other for other in layers if other != layer]):
                yield (layer, *rest)


def test_the_optimum_is_the_best_chain_of_every_order(tmp_path):
    study = study_of(tmp_path)
    result = solved(study)
    folders = study.folders
    stores = Stores(folders.graphs, folders.estimates, folders.run / "points")
    run = Run(chip_study(study), hardware_to_design(study), solver_named("native"), stores, SilentProgress())
    graph = search_inputs.extract_graphs(run, "bertbase", 4, lambda _: None)
    inputs = model_inputs(run, graph)
    problem = placement_problem(run, inputs, study.hbm_sizes_bytes[0])
    times = batch_times(inputs.times, study.recompute, graph[0].sequence)
    edges = edges_between(graph[0].tensors)
    chains = list(orders(edges, list(range(len(graph[0].sequence)))))
    assert len(chains) == 126  # nine layers but the head, four of them of one tower
    best = result.best
    row = next(
        row for row in range(len(run.hardware.accelerators)) if run.hardware.accelerators.accelerator(row) == best.accelerator
    )
    least = min(place_chain(*in_order(problem, row_times(times, row), order)).iteration_s for order in chains)
    plan = best.models["bertbase"]
    assert plan.time_per_batch_s == pytest.approx(least, rel=1e-9)
    assert best.optimal and best.status is Status.OPTIMAL
    assert plan.time_per_batch_bound_s == plan.time_per_batch_s
    assert plan.plans_lost == ""
    assert plan.pp > 1, "one stage has every order, so this test shows nothing"
    _the_stages_are_a_plan(plan, graph[0], problem, row_times(times, row))
    executed = place_chain(*in_order(problem, row_times(times, row), range(len(graph[0].sequence)))).iteration_s
    assert least < executed * (1 - 1e-3), "the execution order is as good as any, so this test shows little"


def _the_stages_are_a_plan(plan, graph, problem, times):
    """Their names, taken for layers, are in an order that can run, and the plan costs what it says."""
    names = layer_names(graph)
    assert len(set(names)) == len(names)
    order = [names.index(name) for stage in plan.stages for name in stage.layers]
    assert sorted(order) == list(range(len(names)))
    cuts = np.cumsum([len(stage.layers) for stage in plan.stages])[:-1].tolist()
    variant = next(index for index, each in enumerate(problem.variants) if each.recompute.value == plan.recompute)
    chain, chain_times = in_order(problem, times, order)
    assert evaluate_plan(chain, chain_times, variant, plan.dp, cuts).iteration_s == pytest.approx(plan.time_per_batch_s)
    for stage in plan.stages:
        assert stage.memory_bytes == pytest.approx(stage.parameter_state_bytes + stage.activation_bytes + stage.workspace_bytes)
    layers = [graph.layers[index] for index in graph.sequence]
    held = sum(stage.parameter_state_bytes for stage in plan.stages)
    assert held == pytest.approx(16 * sum(layer.parameter_count for layer in layers))


def test_where_plans_are_lost_nothing_is_called_optimal_and_the_bound_holds(tmp_path, monkeypatch, capsys):
    larger = {"model": "bertlarge", "hbm_size": [1]}
    exact = solved(study_of(tmp_path / "exact", **larger)).best
    with at_most(60, monkeypatch):
        result = solved(study_of(tmp_path / "some", **larger))
    best = result.best
    plan = best.models["bertlarge"]
    assert {point.status for point in (result, best, *result.rows, *result.references)} == {Status.FEASIBLE}
    assert not best.optimal
    assert best.value <= exact.value * (1 + 1e-9) <= best.certificate.best_open_bound * (1 + 1e-9)
    assert plan.time_per_batch_bound_s < plan.time_per_batch_s
    assert plan.plans_lost.startswith("the 10 layers branch into more than 60 possible stages; considered were those that cut")
    assert result.rows[0].reason == plan.plans_lost
    written = json.loads(Path(result.run_directory, "best.json").read_text())
    assert written["models"]["bertlarge"]["plans_lost"] == plan.plans_lost
    print_result(result, sys.stdout)
    assert plan.plans_lost in capsys.readouterr().out
    assert plan.expert.status is Status.INFEASIBLE
    assert "are no such chain" in plan.expert.reason
    assert plan.speedup_over_expert is None
