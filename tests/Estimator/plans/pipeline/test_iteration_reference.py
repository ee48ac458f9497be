"""The price of plans on whole makespans, against sums and a longest path written out by hand (no
overlap, no sharding)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from pipeline_reference import starts_s

from Estimator.devices.operator_cost import PassStarts
from Estimator.network.collectives import collective_s
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.pipeline.schedule import PipelineCosts, PipelineSchedule
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import Messages, between_s
from GraphExtractor.graph import CollectiveKind
from Solver.paths.layer_graph import edges_between
from tests.builders.random_searches import every_cut, random_case


@pytest.mark.parametrize("seed", range(900, 920))
def test_an_iteration_is_its_pipeline_its_synchronisation_and_its_step(seed: int) -> None:
    case = random_case(seed, configurations=2, most_layers=4)
    cluster = case.hardware.cluster
    software = replace(case.hardware.software, overlap_gradients=False)
    machine = replace(case.hardware.machine(1, 1e12), software=software)
    for pp, dp in ((1, 1), (1, 3), (2, 1), (2, 2), (3, 2)):
        plan = UniformPlan(global_batch_size=8, pp=pp, dp=dp)
        (name,) = case.models
        graph = case.graph(plan.graph_key(name, 8))
        if pp > len(graph.sequence):
            continue
        costs = case.hardware.costs(graph, plan.recompute, LayerGroups())
        sequence, layers = list(costs.sizes.sequence), len(graph.sequence)
        state = policy_under(software, plan).state
        tied = costs.sizes.tied_parameters[sequence].sum()
        for cut in every_cut(plan, layers, edges_between(graph.tensors)):
            order = cut.layer_order or tuple(range(layers))
            bounds = np.cumsum([0, *(cut.stage_layers or ())])
            stages = [
                [sequence[layer] for layer in order[a:b]] for a, b in itertools.pairwise(bounds)
            ]
            home = {
                layer: stage
                for stage in range(pp)
                for layer in order[bounds[stage] : bounds[stage + 1]]
            }
            sent = np.zeros((2, pp - 1))
            for tensor in graph.tensors:
                for boundary in range(
                    home[tensor.source], max(home[end] for end in tensor.destinations)
                ):
                    sent[:, boundary] += tensor.bytes, tensor.gradient_bytes
            messages = Messages(cut, cluster)
            transfers = (
                [messages.seconds(each, messages.boundary_tiers()) for each in sent]
                if pp > 1
                else [np.zeros(0)] * 2
            )
            waits = machine.pass_starts if pp > 1 else PassStarts()
            forward = np.array(
                [costs.forward.arithmetic_s[1, stage].sum() + waits.forward_s for stage in stages]
            )
            backward = np.array(
                [costs.backward.arithmetic_s[1, stage].sum() + waits.backward_s for stage in stages]
            )
            pipeline = PipelineCosts(pp, forward, backward, transfers[0], transfers[1], False)
            starts = starts_s(pipeline, PipelineSchedule.ONE_F_ONE_B, plan.micro_batches)
            ends = [
                max(at for each, at in starts.items() if not each.forward and each.chunk == s)
                + backward[s]
                for s in range(pp)
            ]
            held = np.array([costs.sizes.parameters[stage].sum() for stage in stages]) - (
                tied if pp == 1 else 0.0
            )
            stride, bytes_each = cut.replica_stride, state.gradient
            after = [
                max(
                    collective_s(
                        CollectiveKind.ALL_REDUCE,
                        each * bytes_each,
                        dp,
                        stride,
                        cluster,
                        place * cut.stage_stride,
                    )
                    for place in range(pp)
                )
                for each in held
            ]
            if pp > 1 and tied:
                apart = (pp - 1) * cut.stage_stride
                both_s = collective_s(
                    CollectiveKind.ALL_REDUCE, tied * bytes_each, 2, apart, cluster
                )
                after[0], after[-1] = after[0] + both_s, after[-1] + both_s
            step_s = held.max() * state.step / machine.stream_bytes_per_s + between_s(
                machine.software
            )
            wanted_s = max(end + more for end, more in zip(ends, after, strict=True)) + step_s
            assert price_iteration(cut, costs, machine, 1).iteration_s == pytest.approx(
                wanted_s, rel=1e-9
            )
