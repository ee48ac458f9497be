"""Traces of PyTorch's profiler: parts, exposed communication and idle time by hand, and beside a prediction."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import phaze
from Common.errors import InputError
from Validation.kernel_trace import COMMUNICATION, ELEMENTWISE, part_of, read_trace

PLAN = (
    "--model gpt:layers=4,hidden=256,heads=4,vocabulary=1024,sequence_length=128 --device a100_80gb --dp 2 --global-batch-size 8"
)
EVENTS = (  # name, begin and length in microseconds: 10 of product, 4 beside a reduction of 6, 2 of nothing, 3 of the optimizer
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8", 100, 10),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 106, 6),
    ("void multi_tensor_apply_kernel<AdamFunctor>", 114, 3),
)


def trace(path: Path, *more: dict[str, Any], steps: int = 1) -> Path:
    events: list[dict[str, Any]] = []
    for step in range(steps):
        events.append({"name": f"ProfilerStep#{step}", "cat": "user_annotation", "ph": "X", "ts": 90 + 17 * step, "dur": 17})
        for name, begin, length in EVENTS:
            events.append({"name": name, "cat": "kernel", "ph": "X", "ts": begin + 17 * step, "dur": length})
    content = json.dumps({"traceEvents": [*events, *more]})
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", "products"),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x128x64", "products"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma", "attention"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", COMMUNICATION),
        ("void at::native::vectorized_layer_norm_kernel<float>", "norms and softmax"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>", ELEMENTWISE),
        ("Memcpy DtoD (Device -> Device)", "copies"),
    ],
)
def test_kernels_belong_to_parts_by_their_names(kernel: str, part: str) -> None:
    assert part_of(kernel) == part


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_parts_exposed_communication_and_idle_time_are_what_lines_say(name: str, tmp_path: Path) -> None:
    found = read_trace(trace(tmp_path / name))
    assert {key: round(value * 1e6, 6) for key, value in found.parts_s.items()} == {
        "products": 10.0,
        COMMUNICATION: 6.0,
        "optimizer": 3.0,
    }
    assert found.exposed_s == pytest.approx(2e-6) and found.idle_s == pytest.approx(2e-6)
    assert found.iteration_s == pytest.approx(17e-6) and found.longest[0].part == "products"
    several = read_trace(trace(tmp_path / name, steps=3))
    assert several.steps == 3 and several.parts_s["products"] == pytest.approx(10e-6)
    assert several.exposed_s == pytest.approx(2e-6) and several.iteration_s == pytest.approx(17e-6)
    assert read_trace(tmp_path / name, steps=1).iteration_s == pytest.approx(51e-6)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\x1f\x8b broken", "is no JSON"),
        (b"3", "has no traceEvents"),
        (b'{"traceEvents": 3}', "has no traceEvents"),
        (b'{"traceEvents": [3, null, {"cat": "kernel"}, {"cat": "kernel", "ts": "x", "dur": 1}]}', "has no kernels of a device"),
        (b'{"traceEvents": [{"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]}', "has no kernels of a device"),
    ],
)
def test_what_is_no_trace_of_a_device_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_trace(tmp_path / "odd.json")


def test_a_trace_stands_beside_its_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace(tmp_path / "trace.json")
    assert phaze.main(["compare", str(path), *PLAN.split(), "--format", "json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts = {each["name"]: each for each in found["parts"]}
    assert parts["products"]["measured_s"] == pytest.approx(10e-6) and parts["products"]["predicted_s"] > 0.0
    assert phaze.main(["evaluate", *PLAN.split(), "--format", "json", "--quiet"]) == 0
    priced = json.loads(capsys.readouterr().out)
    assert parts["iteration"]["predicted_s"] == priced["iteration_s"] and parts["iteration"]["remedy"] == ""
    kinds = ("products", "attention", "norms and softmax", "element-wise", "optimizer", "of it exposed", "no kernel runs")
    assert sum(parts[each]["predicted_s"] for each in kinds) == pytest.approx(priced["iteration_s"], rel=0.35)  # launches aside
    assert parts["products"]["remedy"]  # which is far off in this trace that somebody drew
    assert phaze.main(["compare", str(path), *PLAN.split(), "--quiet"]) == 0
    assert "the kernels that take most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "nowhere.json", *PLAN.split()], "cannot read"),
        (["compare", "trace.json", *PLAN.split(), "--iterations", "0"], "give a whole number from 1 on"),
        (["compare", "trace.json"], "model"),
    ],
)
def test_odd_questions_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    assert phaze.main(words) == 2
    assert said in capsys.readouterr().err
