"""The spatial accelerator model against published TPU runs: utilization of a block within 15 %.

The chips have the vector units of a TPU: in each of two cores 128 lanes of 8 sublanes with 2 adders
(Austin et al. 2025, How to scale your model, part 2). Tensor parallelism spans a dimension of the
torus, sequence-parallel, not overlapped; the whole block is recomputed. PaLM 540B and MLPerf's 480B
are stood in for by MT-NLG 530B, LaMDA 137B by GPT-3 175B.
"""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
from Estimator.chips.latency_table import populate_estimates
from Estimator.hardware_files import load_cluster
from GraphExtractor import extract
from GraphExtractor.graph import Attention, GraphKey
from Solver.designs.schedule_times import schedule_problem
from Solver.schedule.registry import solver_named
from tests.builders.operators_by_hand import innermost_network

MIB = 2**20
VECTOR_LANES = 128 * 8 * 2
RECOMPUTED = 4 / 3  # FLOPs of a step with the forward pass run again, of those without


def hardware_utilization(
    platform: Platform, chip: Accelerator, cluster: str, model: str, micro_batch: int, tp: int
) -> float:
    """FLOPs of two forward passes and a backward pass over what the matrix units could have done in
    their time."""
    graph = extract.extract_graph(
        GraphKey(model, micro_batch, 2048, tp, Attention.EAGER, sequence_parallel=True)
    )
    block = graph.layers[int(np.bincount(np.array(graph.sequence)).argmax())]
    chips = AcceleratorSet.of([chip])
    table, network = (
        populate_estimates([graph], chips, platform),
        innermost_network(load_cluster(cluster)),
    )
    solver = solver_named("native")
    forward, backward = (
        solver.solve(schedule_problem(part, table, 0, network)).makespan_s
        for part in (block.forward, block.backward)
    )
    peak = 2 * chip.num_tc * chip.depth * chip.width * platform.frequency_hz
    return 4 * block.forward.flops / (2 * forward + backward) / peak


@pytest.fixture(scope="module")
def tpu_v4_530b(platform: Platform) -> float:
    chip = Accelerator(8, 2, 128, 128, VECTOR_LANES, 128 * MIB, area_mm2=0.0)
    return hardware_utilization(platform, chip, "tpu_v4", "mt-nlg-530b", micro_batch=2, tp=16)


def test_palm_on_tpu_v4(tpu_v4_530b: float) -> None:
    """Chowdhery et al. 2022, PaLM, section 4.1 and appendix B: 46.2 % of the FLOPs of the model,
    57.8 % with recomputation."""
    assert tpu_v4_530b / RECOMPUTED == pytest.approx(0.462, rel=0.15)
    assert tpu_v4_530b == pytest.approx(0.578, rel=0.15)


def test_mlperf_on_tpu_v4(tpu_v4_530b: float) -> None:
    """Google, MLPerf Training 1.1, open division: 480B parameters on 2,048 chips, 63 % with
    recomputation."""
    assert tpu_v4_530b == pytest.approx(0.63, rel=0.15)


@pytest.mark.thorough
def test_lamda_on_tpu_v3(platform: Platform) -> None:
    """Thoppilan et al. 2022, LaMDA, section 3: 56.5 % on 1,024 chips of 4 matrix units at 0.94 GHz
    and 900 GB/s."""
    tpu_v3 = replace(platform, frequency_hz=0.94e9, hbm_bandwidth_bytes_per_s=0.9e12)
    chip = Accelerator(4, 2, 128, 128, VECTOR_LANES, 32 * MIB, area_mm2=0.0)
    reached = hardware_utilization(tpu_v3, chip, "tpu_v3", "megatrongpt3", micro_batch=4, tp=32)
    assert reached == pytest.approx(0.565, rel=0.15)
