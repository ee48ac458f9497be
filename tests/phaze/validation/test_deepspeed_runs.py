"""Published runs of DeepSpeed's ZeRO stage 3, and of BLOOM on Jean Zay."""

import csv
from pathlib import Path

import pytest
from unpriced import no_plan_of_ours

from phaze.validation.records import RunResult
from phaze.validation.run import validate
from phaze_common.progress import SilentProgress

COMMON = {
    "seq": "2048",
    "gpu": "A100-80GB-SXM",
    "recompute": "full",
    "seq_parallel": "no",
    "precision": "fp16",
}
# Narayanan et al., SC'21, table 2: layers, hidden, heads, devices, micro-batch, batch, TFLOP/s
ZERO_3 = (
    (96, 12288, 96, 384, 4, 1536, 144),
    (96, 12288, 96, 768, 2, 1536, 88),
    (96, 12288, 96, 1536, 1, 1536, 44),
    (105, 20480, 128, 640, 4, 2560, 138),
    (105, 20480, 128, 1120, 2, 2240, 98),
    (105, 20480, 128, 2240, 1, 2240, 48),
)
# BigScience, tr11-176B-ml, chronicles-prequel.md, tables of 24 to 26 February 2022: layers, hidden,
# heads, tp, pp, dp, micro-batch, seconds; the last two have heads of 108
BLOOM = (
    (78, 13824, 64, 4, 12, 8, 2, 103.51),
    (78, 13824, 96, 8, 6, 8, 4, 118.12),
    (96, 12288, 64, 1, 48, 8, 1, 142.17),
    (84, 13312, 64, 8, 6, 8, 2, 129.61),
    (78, 13824, 128, 4, 12, 8, 2, 147.41),
    (78, 13824, 128, 8, 6, 8, 4, 156.84),
)


def reports_of(rows: list[dict[str, str]], folder: Path) -> tuple[RunResult, ...]:
    path = folder / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    graphs = folder / "graphs"
    report = validate(path, None, None, None, graphs, SilentProgress(), no_plan_of_ours)
    return report.runs


def mean_error(reports: tuple[RunResult, ...]) -> float:
    errors = [each.error for each in reports]
    found = [abs(each) for each in errors if each is not None]
    assert len(found) == len(reports)
    return sum(found) / len(found)


def test_zero_3_of_deepspeed_does_not_get_faster_with_devices(tmp_path: Path) -> None:
    """Each of its gathers waits for the host, which treats the parts of all devices one by one."""
    rows = [
        {
            "source": "Narayanan et al. SC'21 (arXiv 2104.04473), Table 2",
            "model": "GPT",
            "layers": str(layers),
            "hidden": str(hidden),
            "heads": str(heads),
            "ffn": str(4 * hidden),
            "vocab": "51200",
            "n_gpus": str(devices),
            "tp": "1",
            "pp": "1",
            "dp": str(devices),
            "micro_batch": str(micro_batch),
            "global_batch": str(batch),
            "achieved_tflops_per_gpu": str(tflops),
            "tflops_convention": "HFU-like (incl. recompute, eq.3)",
            "zero": "3",
            "framework": "DeepSpeed ZeRO-3",
            "network": "DGX A100 (NVSwitch) 8x200Gb HDR IB",
            **COMMON,
        }
        for layers, hidden, heads, devices, micro_batch, batch, tflops in ZERO_3
    ]
    reports = reports_of(rows, tmp_path)
    assert mean_error(reports) < 0.2
    twice, most = reports[1].predicted_s, reports[2].predicted_s
    assert twice is not None and most is not None
    assert most > 0.9 * twice  # on twice as many devices


def test_bloom_waits_for_every_kernel_and_for_heads_of_odd_widths(tmp_path: Path) -> None:
    rows = [
        {
            "source": "BigScience BLOOM chronicles (2022)",
            "model": "BLOOM",
            "layers": str(layers),
            "hidden": str(hidden),
            "heads": str(heads),
            "ffn": str(4 * hidden),
            "vocab": "250880",
            "n_gpus": "384",
            "tp": str(tp),
            "pp": str(pp),
            "dp": str(dp),
            "micro_batch": str(micro_batch),
            "global_batch": "2048",
            "measured_iter_time_s": str(seconds),
            "zero": "1",
            "framework": "Megatron-DeepSpeed",
            **COMMON,
        }
        for layers, hidden, heads, tp, pp, dp, micro_batch, seconds in BLOOM
    ]
    reports = reports_of(rows, tmp_path)
    assert mean_error(reports) < 0.07
    told = {each.value for report in reports for each in report.assumptions}
    assert any("the host waits for every kernel" in each for each in told)
    aligned, unaligned = reports[0].predicted_s, reports[4].predicted_s
    assert aligned is not None and unaligned is not None
    assert unaligned / aligned == pytest.approx(147.41 / 103.51, rel=0.1)
