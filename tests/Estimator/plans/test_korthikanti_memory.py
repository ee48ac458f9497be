"""Activation memory of the first stage against Korthikanti et al. 2022 for their four models
(tables 3 and 5)."""

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from GraphExtractor import extract
from GraphExtractor.graph import Attention, Recompute
from GraphExtractor.models.registry import find_model
from phaze_common.choices import Precision
from tests.builders.training_cases import iteration_of

RUNS = [  # model, tp, pp, chunks per stage, micro-batch, global batch
    ("megatron-22b", 8, 1, 1, 4, 4),
    ("megatron-175b", 8, 8, 3, 1, 64),
    ("megatron-530b", 8, 35, 3, 1, 280),
    ("megatron-1t", 8, 64, 1, 1, 512),
]


@pytest.mark.some(1)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0])
@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_first_stage_holds_what_the_paper_says(
    run: tuple[str, int, int, int, int, int], recompute: Recompute
) -> None:
    """Section 4.2.3: L layers' worth on the first stage, times 1 + (p-1)/(p v) where interleaved,
    and the embedding's dropout.

    Per layer 34 s·b·h/t with sequence parallelism and selective recomputation (equation 6), 2 s·b·h
    with full recomputation. The embedding adds a mask of s·b·h bytes per micro-batch in flight on
    its chunk, divided by t likewise (section 4.3, which counts p (1 + (p-1)/(p v)) of them where
    the interleaved schedule makes 2p - 1). One stage holds the head's activations too: the parts of
    its two inputs and the fp32 logits, 4 s·b·v/t (section 4.3).
    """
    name, tp, pp, chunks, size, batch = run
    sequence = recompute is Recompute.SELECTIVE
    plan = UniformPlan(
        micro_batch_size=size,
        global_batch_size=batch,
        tp=tp,
        pp=pp,
        interleave=chunks,
        recompute=recompute,
        sequence_parallel=sequence,
        precision=Precision.FP16,
        attention=Attention.EAGER,
    )
    family = find_model(name)
    model = DeviceModel(load_device("a100_80gb"), load_software("megatron_2022"), "float16")
    graph = extract.extract_graph(plan.graph_key(name, 2048))
    held = iteration_of(graph, plan, model, load_cluster("dgx_a100")).stages[0].activation_bytes
    tokens_wide = 2048 * size * family.hidden
    parts = tp if sequence else 1
    in_flight = 1 + (pp - 1) / (pp * chunks) if chunks > 1 else 1.0
    per_layer = 34 * tokens_wide / tp if sequence else 2 * tokens_wide
    masks = 2 * pp - 1 if chunks > 1 else pp
    wanted = per_layer * family.layers * in_flight + tokens_wide * masks / parts
    if pp == 1:
        wanted += 4 * tokens_wide / parts + 4 * 2048 * size * family.padded_vocabulary(tp) / tp
    assert held == pytest.approx(
        wanted, rel=0.01
    )  # what is allocated; the allocator holds more besides
