"""Small models on real devices for tests of training plans and their search."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration
from GraphExtractor import extract
from GraphExtractor.graph import ModelGraph
from GraphExtractor.models.deepseek_v3 import DeepseekV3
from GraphExtractor.models.gpt import Gpt
from phaze_common.choices import ExpertWidth, Precision, TensorLayout

SEQUENCE = 256


@lru_cache
def small_gpt(layers: int = 6, hidden: int = 512) -> Gpt:
    return Gpt(
        layers=layers,
        hidden=hidden,
        heads=8,
        ffn=4 * hidden,
        vocabulary=8000,
        sequence_length=SEQUENCE,
        published_parameter_count=1,
    )


@lru_cache
def graph_of_shape(
    tp: int, micro_batch_size: int, sequence_parallel: bool, eager: bool, layers: int = 6
) -> ModelGraph:
    plan = plan_of(
        tp=tp, micro_batch_size=micro_batch_size, sequence_parallel=sequence_parallel, eager=eager
    )
    return extract.extract_graph(plan.graph_key("small", SEQUENCE), small_gpt(layers))


def graph_for(plan: UniformPlan, layers: int = 6) -> ModelGraph:
    if plan.layout is not TensorLayout.ONE_D:
        return extract.extract_graph(plan.graph_key("small", SEQUENCE), small_gpt(layers))
    eager = plan.attention.value == "eager"
    return graph_of_shape(
        plan.tp, plan.micro_batch_size, plan.sequence_parallel and plan.tp > 1, eager, layers
    )


def plan_of(eager: bool = True, **given: Any) -> UniformPlan:
    from GraphExtractor.graph import Attention

    defaults = {
        "precision": Precision.FP16,
        "attention": Attention.EAGER if eager else Attention.FLASH,
    }
    return UniformPlan(**(defaults | given))


def device_model(
    memory_bytes: float | None = None, host_issue_s: float | None = None
) -> DeviceModel:
    """An A100 under Megatron, with another memory or another speed of the host where given."""
    device, software = load_device("a100_80gb"), load_software("megatron_2022")
    if memory_bytes is not None:
        memory = replace(
            device.memory, capacity=replace(device.memory.capacity, value=memory_bytes)
        )
        device = replace(device, memory=memory)
    if host_issue_s is not None:
        software = replace(software, host_issue=replace(software.host_issue, value=host_issue_s))
    return DeviceModel(device, software, "float16")


@lru_cache
def small_experts(layers: int = 4, dense_layers: int = 1) -> DeepseekV3:
    """Blocks of two kinds: some dense, the others with 8 experts, of which a token meets two."""
    return DeepseekV3(
        layers=layers,
        dense_layers=dense_layers,
        hidden=512,
        heads=8,
        ffn=2048,
        expert_ffn=1024,
        experts=8,
        chosen=2,
        query_rank=128,
        key_rank=64,
        vocabulary=8000,
        sequence_length=SEQUENCE,
    )


@lru_cache
def expert_graph(
    tp: int = 1,
    ep: int = 1,
    cp: int = 1,
    sequence_parallel: bool = False,
    etp: ExpertWidth = ExpertWidth.SAME,
) -> ModelGraph:
    plan = plan_of(
        eager=False,
        tp=tp,
        ep=ep,
        etp=etp,
        cp=cp,
        dp=ep,
        global_batch_size=ep,
        sequence_parallel=sequence_parallel,
    )
    return extract.extract_graph(plan.graph_key("experts", SEQUENCE), small_experts())


def expert_graph_for(plan: UniformPlan) -> ModelGraph:
    split = plan.sequence_parallel and plan.tp > 1
    return expert_graph(plan.tp, plan.ep, plan.cp, split, plan.etp)


def iteration_of(
    graph: ModelGraph, plan: UniformPlan, model: DeviceModel, cluster: Cluster
) -> Iteration:
    """An iteration of ``plan`` on the device of ``model``."""
    costs = DeviceCosts(model, cluster).layer_costs(
        graph, plan.recompute, layer_groups(plan, cluster)
    )
    return price_iteration(plan, costs, device_machine(model, cluster))
