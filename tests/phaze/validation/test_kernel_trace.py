"""Traces of PyTorch's profiler: parts, exposed communication and idle time by hand, and beside a
prediction."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phaze
from Estimator.plans.degrees import UniformPlan
from phaze.exports.chakra.ranks import Ranks
from phaze.studies.traced_stages import traced_stages
from phaze.validation.kernel_trace import read_trace
from phaze.validation.traced_kernels import (
    COMMUNICATION,
    ELEMENTWISE,
    MESSAGES,
    ProductShape,
    TracedKernel,
    iteration_of,
    part_of,
)
from phaze_common.errors import InputError

PLAN = (
    "--model gpt:layers=4,hidden=256,heads=4,vocabulary=1024,sequence_length=128 --device "
    "a100_80gb --dp 2 --global-batch-size 8"
)
TWO_STAGES = f"{PLAN} --pp 2"
# name, begin and length in microseconds: 10 of product, 4 beside a reduction of 6, 2 of nothing, 3
# of the optimizer
EVENTS = (
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8", 100, 10),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 106, 6),
    ("void multi_tensor_apply_kernel<AdamFunctor>", 114, 3),
)


def trace(path: Path, *more: dict[str, Any], steps: int = 1) -> Path:
    events: list[dict[str, Any]] = []
    for step in range(steps):
        events.append(
            {
                "name": f"ProfilerStep#{step}",
                "cat": "user_annotation",
                "ph": "X",
                "ts": 90 + 17 * step,
                "dur": 17,
            }
        )
        for name, begin, length in EVENTS:
            events.append(
                {"name": name, "cat": "kernel", "ph": "X", "ts": begin + 17 * step, "dur": length}
            )
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
def test_parts_exposed_communication_and_idle_time_are_what_lines_say(
    name: str, tmp_path: Path
) -> None:
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
        (
            b'{"traceEvents": [3, null, {"cat": "kernel"}, {"cat": "kernel", "ts": "x", "dur": '
            b"1}]}",
            "has no kernels of a device",
        ),
        (
            b'{"traceEvents": [{"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]}',
            "has no kernels of a device",
        ),
    ],
)
def test_what_is_no_trace_of_a_device_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_trace(tmp_path / "odd.json")


def test_a_trace_stands_beside_its_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "trace.json")
    assert phaze.main(["compare", str(path), *PLAN.split(), "--format", "json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    (stage,) = found["stages"]
    parts = {each["name"]: each for each in stage["parts"]}
    assert stage["stage"] == found["pp"] == 1 and stage["traces"] == ["trace.json"]
    assert (
        parts["products"]["measured_s"] == pytest.approx(10e-6)
        and parts["products"]["predicted_s"] > 0.0
    )
    assert phaze.main(["evaluate", *PLAN.split(), "--format", "json", "--quiet"]) == 0
    priced = json.loads(capsys.readouterr().out)
    assert (
        parts["iteration"]["predicted_s"] == priced["iteration_s"]
        and parts["iteration"]["remedy"] == ""
    )
    kinds = (
        "products",
        "attention",
        "norms and softmax",
        "element-wise",
        "optimizer",
        "of it exposed",
        "no kernel runs",
    )
    assert sum(parts[each]["predicted_s"] for each in kinds) == pytest.approx(
        priced["iteration_s"], rel=0.35
    )  # launches aside
    assert parts["products"]["remedy"]  # which is far off in this trace that somebody drew
    assert phaze.main(["compare", str(path), *PLAN.split(), "--quiet"]) == 0
    assert "the kernels that take most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "nowhere.json", *PLAN.split()], "cannot read"),
        (
            ["compare", "trace.json", *PLAN.split(), "--iterations", "0"],
            "give a whole number from 1 on",
        ),
        (["compare", "trace.json"], "model"),
        (
            ["compare", "trace.json", "trace.json", *TWO_STAGES.split()],
            "nothing says of which rank trace.json is",
        ),
        (
            ["compare", "rank1.json", "rank1.json", *TWO_STAGES.split()],
            "are both of rank 1; give one trace of each rank",
        ),
        (
            ["compare", "rank4.json", *TWO_STAGES.split()],
            "rank4.json is of rank 4, and the plan is one for 4 devices, 0 to 3",
        ),
    ],
)
def test_odd_questions_are_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("trace.json", "rank1.json", "rank4.json"):
        trace(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert phaze.main(words) == 2
    assert said in capsys.readouterr().err


def test_traces_of_ranks_stand_beside_their_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [trace(tmp_path / f"rank{rank}.json", steps=rank + 1) for rank in (0, 1, 3)]
    words = ["compare", *map(str, paths), *TWO_STAGES.split(), "--quiet"]
    assert phaze.main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["stage"], each["traces"]) for each in found["stages"]] == [
        (1, ["rank0.json", "rank1.json"]),
        (2, ["rank3.json"]),
    ]
    assert phaze.main(["evaluate", *TWO_STAGES.split(), "--format", "json", "--quiet"]) == 0
    priced = json.loads(capsys.readouterr().out)
    for stage in found["stages"]:
        parts = {each["name"]: each["predicted_s"] for each in stage["parts"]}
        assert parts["iteration"] == priced["iteration_s"]
    predicted = [
        {part["name"]: part["predicted_s"] for part in each["parts"]} for each in found["stages"]
    ]
    assert (
        predicted[0]["products"] != predicted[1]["products"]
    )  # one has the embedding, the other the head
    assert phaze.main(words) == 0
    assert "iterations of 2 of 2 stages" in capsys.readouterr().out


def test_a_profiler_says_its_rank(tmp_path: Path) -> None:
    path = trace(tmp_path / "rank0.json")
    content = json.loads(path.read_bytes())
    path.write_text(
        json.dumps(content | {"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4}})
    )
    plan = UniformPlan(dp=2, pp=2, global_batch_size=8)
    (found,) = traced_stages([path], plan, busiest=0)
    assert found.stage == Ranks(plan).stage_of(3) == 1
    with pytest.raises(InputError, match="of a run on 4 devices, and the plan is one for 8"):
        traced_stages([path], UniformPlan(dp=4, pp=2, global_batch_size=8), busiest=0)


def test_products_are_told_apart_by_the_shapes_of_their_operands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def launched(
        number: int, name: str, dimensions: list[list[int]], length: float
    ) -> list[dict[str, Any]]:
        operator = {"External id": number, "Input Dims": dimensions}
        kernel = {
            "name": "sm80_xmma_gemm_bf16",
            "cat": "kernel",
            "ts": 200 + 10 * number,
            "dur": length,
            "args": {"External id": number},
        }
        return [{"name": name, "cat": "cpu_op", "ts": 1, "dur": 1, "args": operator}, kernel]

    events = [
        *launched(1, "aten::mm", [[512, 256], [256, 1024]], 3.0),
        *launched(2, "aten::addmm", [[1024], [512, 256], [256, 1024]], 4.0),
        *launched(3, "aten::mm", [[1024, 256], [256, 512]], 5.0),  # of the same shape, transposed
        *launched(4, "aten::bmm", [[8, 128, 64], [8, 64, 128]], 1.0),
        *launched(5, "aten::mm", [[512, 256], [128, 1024]], 1.0),  # which do not fit together
    ]
    path = trace(tmp_path / "trace.json", *events)
    found = {each.shape: each for each in read_trace(path).products}
    assert found.keys() == {ProductShape(1, 512, 1024, 256), ProductShape(8, 128, 128, 64)}
    wide = found[ProductShape(1, 512, 1024, 256)]
    assert wide.count == 3 and wide.seconds == pytest.approx(12e-6)
    assert phaze.main(["compare", str(path), *PLAN.split(), "--format", "json", "--quiet"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert phaze.main(["evaluate", *PLAN.split(), "--format", "json", "--quiet"]) == 0
    micro_batches = json.loads(capsys.readouterr().out)["micro_batches_per_pipeline"]
    products = {tuple(each["shape"].values()): each for each in stage["products"]}
    # Forward and gradients of four blocks: 128 tokens, 256 wide, to 4 x 256 and back; and the head
    # to as many tokens.
    assert products[1, 128, 1024, 256]["predicted_count"] == (4 * 2 + 1) * micro_batches
    assert products[1, 256, 1024, 128]["predicted_count"] == (4 * 2 + 1) * micro_batches
    assert (
        products[1, 512, 1024, 256]["predicted_s"] == 0.0
        and products[1, 512, 1024, 256]["measured_count"] == 3
    )
    assert phaze.main(["compare", str(path), *PLAN.split(), "--quiet"]) == 0
    assert "matrix products" in capsys.readouterr().out


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["products", COMMUNICATION, MESSAGES]),
            st.integers(0, 50),
            st.integers(0, 20),
        ),
        min_size=1,
    )
)
def test_an_iteration_is_what_its_microseconds_are(kernels: list[tuple[str, int, int]]) -> None:
    found = iteration_of(
        [TracedKernel(part, part, begin, begin + length) for part, begin, length in kernels], 1
    )
    running: list[set[str]] = [set() for _ in range(80)]
    for part, begin, length in kernels:
        for each in running[begin : begin + length]:
            each.add(part)
    first, last = (
        min(begin for _, begin, _ in kernels),
        max(begin + length for _, begin, length in kernels),
    )
    whole = running[first:last]
    assert found.iteration_s == pytest.approx(1e-6 * (last - first))
    assert found.idle_s == pytest.approx(1e-6 * sum(not each for each in whole))
    assert found.messages_s == pytest.approx(1e-6 * sum(each == {MESSAGES} for each in whole))
    exposed = sum(COMMUNICATION in each and "products" not in each for each in whole)
    assert found.exposed_s == pytest.approx(1e-6 * exposed)


KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.0, "dur": 2.0}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([KERNEL | {"dur": 0}], "of no kernel that it took any time"),
        ([KERNEL | {"dur": 0, "ts": at} for at in (1, 2)], "of no kernel that it took any time"),
        ([KERNEL | {"cat": ["kernel"]}], "no kernels of a device"),
        ([KERNEL | {"cat": {"a": 1}}], "no kernels of a device"),
        ([KERNEL | {"dur": float("nan")}], "dur is NaN in line"),
        ([KERNEL | {"ts": 1e17, "dur": 1e-3}], "of no kernel that it took any time"),
    ],
)
def test_odd_events_are_refused_in_a_sentence(
    events: list[dict[str, object]], said: str, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(InputError, match=said):
        read_trace(tmp_path / "trace.json")


def test_odd_fields_beside_sound_ones_change_nothing(tmp_path: Path) -> None:
    odd = [
        {"cat": [1]},
        {"cat": "kernel", "dur": [1], "ts": 1},
        KERNEL | {"name": ["a"], "args": [1]},
        {"name": {}, "dur": 1},
    ]
    (tmp_path / "trace.json").write_text(
        json.dumps({"traceEvents": [KERNEL, *odd], "distributedInfo": [1]})
    )
    assert read_trace(tmp_path / "trace.json").iteration_s == pytest.approx(2e-6)


def test_a_trace_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze.validation.kernel_trace.MOST_BYTES", 2**20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2**22))
    for path in (tmp_path / "bomb.json.gz", Path("/dev/zero")):
        with pytest.raises(InputError, match="more than 1 MiB"):
            read_trace(path)
