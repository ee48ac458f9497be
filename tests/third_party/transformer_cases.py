"""Cases of transformer-perf-estimates that tests share: published ones, and random small ones with
their whole spaces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

SYSTEM = {  # its A100, under the keys of its file
    "matrix_flops_fp16": 312,
    "vector_flops_fp32": 19.5,
    "vector_flops_fp16": 78,
    "hbm_bandwidth": 1555,
    "hbm_capacity": 80,
    "nvlink_bandwidth": 300,
    "nvlink_eff": 0.7,
    "nvlink_latency": 2.5e-6,
    "ib_bandwidth": 25,
    "ib_eff": 0.7,
    "ib_latency": 5e-6,
    "nvlink_size": 4,
    "nic_factor": 1,
    "empirical": False,
    "summa_nb": 4,
    "element_size": 2e-9,
    "mask_element_size": 1e-9,
    "flops_units": 1e-12,
}
CASE = {  # the best 1D configuration for 512 A100; arXiv 2410.00273, outputs of its repository
    "strategy": "1d",
    "model_name": "gpt3_1T",
    "system_name": "A100",
    "nvlink_size": 4,
    "n_gpus": 512,
    "global_batch_size": 4096,
    "config": {"dp": 1, "tp": 16, "pp": 32, "mbs": 1},
    "nv": {"nv_tp": 4, "nv_dp": 1, "nv_pp": 1},
}
TWO_D = {  # for 4096 A100
    **CASE,
    "strategy": "2d",
    "nvlink_size": 8,
    "n_gpus": 4096,
    "config": {"dp": 4, "tp": 8, "tp1": 8, "tp2": 1, "pp": 128, "mbs": 1, "nb": 32},
    "nv": {"nv_tp1": 8, "nv_tp2": 1, "nv_dp": 1, "nv_pp": 1},
}


@dataclass(frozen=True)
class SmallSpace:
    """A question small enough that every configuration can be written down."""

    question: dict[str, Any]
    configurations: tuple[dict[str, Any], ...]  # cases, with config and nv


def random_question(random: Random, strategy: str) -> dict[str, Any]:
    """A small model on a small system of any balance; numbers of tokens and layers need not divide
    evenly."""
    heads = random.choice([1, 2, 3, 4, 6, 8])
    width = heads * random.choice([64, 96, 128, 320])
    model = {
        "l": random.choice([256, 510, 1024, 1030]),
        "e": width,
        "h": heads,
        "f": 4 * width,
        "depth": random.choice([1, 2, 6, 8, 12]),
    }
    system = dict(SYSTEM)
    for key in (
        "matrix_flops_fp16",
        "vector_flops_fp16",
        "hbm_bandwidth",
        "nvlink_bandwidth",
        "ib_bandwidth",
    ):
        system[key] *= random.choice([0.01, 0.3, 1, 4])
    system["hbm_capacity"] = random.choice([0.05, 0.3, 2, 80])
    system["nic_factor"] = random.choice([0.5, 1, 2])
    return {
        "strategy": strategy,
        "model": model,
        "system": system,
        "nvlink_size": random.choice([1, 2, 4, 6, 8, 16]),
        "n_gpus": random.choice([1, 4, 6, 8, 12, 16, 24]),
        "global_batch_size": random.choice([2, 4, 12, 16, 24]),
    }


def small_space(question: dict[str, Any]) -> SmallSpace:
    """Every configuration, by trying all numbers against the rules."""
    strategy, model, gpus, size = (
        question[key] for key in ("strategy", "model", "n_gpus", "nvlink_size")
    )
    batch, found = question["global_batch_size"], []
    degrees = range(1, gpus + 1)
    for tp1, tp2, pp in product(degrees, degrees, degrees):
        if gpus % (tp1 * tp2 * pp) or not _degrees_allowed(strategy, model, tp1, tp2, pp):
            continue
        dp = gpus // (tp1 * tp2 * pp)
        if batch % dp:
            continue
        parts = tp2 if strategy == "2d" else tp1 * tp2
        batches = [
            each
            for each in range(1, batch // dp + 1)
            if batch // dp % each == 0 and each * model["l"] % parts == 0
        ]
        shares = [
            share
            for share in product(*(range(1, each + 1) for each in (tp1, tp2, dp, pp)))
            if all(each % one == 0 for each, one in zip((tp1, tp2, dp, pp), share, strict=True))
            and share[0] * share[1] * share[2] * share[3] == min(size, gpus)
        ]
        for micro_batch, panels, share in product(
            batches, _panels(strategy, model, tp1, tp2), shares
        ):
            found.append(
                question | _written(strategy, tp1, tp2, pp, dp, micro_batch, panels, share)
            )
    return SmallSpace(question, tuple(found))


def _degrees_allowed(strategy: str, model: dict[str, int], tp1: int, tp2: int, pp: int) -> bool:
    if model["h"] % tp1 or model["e"] % tp1 or model["depth"] % pp:
        return False
    if strategy == "1d":
        return tp2 == 1 and 3 * model["e"] // tp1 >= 128
    if strategy == "2d" and model["e"] % tp2:
        return False
    return model["e"] // tp1 >= 128 and model["l"] // tp2 >= 128


def _panels(strategy: str, model: dict[str, int], tp1: int, tp2: int) -> list[int]:
    if strategy != "2d":
        return [1]
    first = max(tp1, tp2)
    if model["e"] / first < 512:
        return [first]
    return [
        first * 2**power
        for power in range(12)
        if model["e"] % (first * 2**power) == 0 and model["e"] // first >> power >= 512
    ]


def _written(strategy, tp1, tp2, pp, dp, micro_batch, panels, share) -> dict[str, Any]:
    config = {"dp": dp, "tp": tp1 * tp2, "pp": pp, "mbs": micro_batch}
    if strategy == "1d":
        return {"config": config, "nv": {"nv_tp": share[0], "nv_dp": share[2], "nv_pp": share[3]}}
    config |= {"tp1": tp1, "tp2": tp2} | ({"nb": panels} if strategy == "2d" else {})
    return {
        "config": config,
        "nv": {"nv_tp1": share[0], "nv_tp2": share[1], "nv_dp": share[2], "nv_pp": share[3]},
    }
