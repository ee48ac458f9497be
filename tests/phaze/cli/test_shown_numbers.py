"""Nothing that is printed is nonsense: utilisations of at most all, parts that add up, memory that
fits where it is said to."""

import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import phaze
from Estimator.plans.flops import TrainedFlops, utilization
from phaze.report.sentences.utilization import mfu_note, mfu_share, mfu_text
from phaze_common.errors import DefectError
from phaze_common.file_formats import BEST, KEY

ROOT = Path(phaze.__file__).parents[1]
MODEL = "gpt:layers=4,hidden=256,heads=8,vocabulary=2048"


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document with the keys that lead to it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers_of(each, f"{path}.{key}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from numbers_of(each, f"{path}.{place}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


PLANS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2]),
        "pp": st.sampled_from([1, 2, 3, 4]),
        "dp": st.integers(1, 12),
        "micro-batch-size": st.sampled_from([1, 2]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "zero-stage": st.integers(0, 3),
        "group-order": st.sampled_from(["tensor-data-pipeline", "tensor-pipeline-data"]),
        "batches": st.integers(1, 40),
        "attention": st.sampled_from(["flash", "eager"]),
        "hardware": st.sampled_from(
            [
                "--device a100_80gb",
                "--device gb200",
                "--device l4",
                "--chip tpu_v4",
                "--chip tpuv4_like",
            ]
        ),
        "sequence-length": st.sampled_from([256, 2048]),
    }
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=PLANS)
@example(
    plan={
        **dict.fromkeys(("tp", "pp", "dp", "micro-batch-size", "batches"), 1),
        **{
            "recompute": "none",
            "zero-stage": 0,
            "group-order": "tensor-data-pipeline",
            "attention": "flash",
        },
        **{"hardware": "--chip tpu_v4", "sequence-length": 2048},
    }
)
def test_an_evaluation_of_any_plan_says_what_can_be(
    plan: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path_factory.getbasetemp() / "graphs"
    batch = plan["micro-batch-size"] * plan["dp"] * plan["batches"]
    given_plan = {key: value for key, value in plan.items() if key not in {"hardware", "batches"}}
    words = [word for key, value in given_plan.items() for word in (f"--{key}", str(value))]
    words += [*plan["hardware"].split(), "--global-batch-size", str(batch), "--output", str(output)]
    assert phaze.main(["evaluate", "--model", MODEL, *words, "--format", "json", "--quiet"]) in {
        0,
        3,
    }
    found = json.loads(capsys.readouterr().out)
    for path, number in numbers_of(found):
        assert math.isfinite(number) and number >= 0.0, path
        if "utilization" in path and "all_scores" not in path:
            assert number <= 1.0, path
    parts = {
        key: value for key, value in found["breakdown_s"].items() if not key.startswith("hidden_")
    }
    assert math.fsum(parts.values()) == pytest.approx(found["iteration_s"], rel=1e-9)
    assert found["model_flops_utilization"] <= found["all_scores_flops_utilization"]
    assert found["model_flops_utilization"] <= found["hardware_flops_utilization"] * (1 + 1e-9)
    for stage in found["stages"]:
        held = (
            stage[f"{part}_bytes"]
            for part in ("parameter_state", "activation", "workspace", "reserved")
        )
        assert math.fsum(held) == pytest.approx(stage["memory_bytes"], rel=1e-9)
        assert stage["load_s"] <= found["iteration_s"] * (1 + 1e-9)
    fits = found["memory_bytes"] <= found["memory_capacity_bytes"]
    assert fits == (found["status"] == "feasible")
    assert (
        found["placement"]["devices"] == found["devices"] <= found["placement"]["devices_occupied"]
    )
    for domain in found["placement"]["domains"]:
        assert 1 <= domain["used"] <= domain["devices"]
    assert phaze.main(["evaluate", "--model", MODEL, *words, "--quiet"]) in {0, 3}
    shown = capsys.readouterr().out
    for percentage in re.findall(
        r"(-?[0-9.,]+)%", "\n".join(line for line in shown.splitlines() if "sure" not in line)
    ):
        assert 0.0 <= float(percentage.replace(",", "")) <= (100.0 if fits else math.inf), shown
    shares = [
        float(each)
        for each in re.findall(
            r"  ([0-9.]+)%$", shown.split("where the time goes")[1].split("iteration")[0], re.M
        )
    ]
    assert sum(shares) == pytest.approx(100.0, abs=0.1 * len(shares))


def test_more_than_the_peak_is_a_defect_and_never_shown() -> None:
    assert utilization(1.0, 1.0) == utilization(1.0 + 1e-12, 1.0) == 1.0
    for attempt in (
        lambda: utilization(1.032, 1.0),
        lambda: mfu_share(1.032),
        lambda: mfu_text(1.032, None),
        lambda: TrainedFlops(model=2.0, all_scores=2.0, computed=2.0).rates(1.0, 1.0),
        lambda: utilization(math.nan, 1.0),
    ):
        with pytest.raises(DefectError, match="this is a defect in phaze") as raised:
            attempt()
        assert raised.value.exit_status == 1
    skipping = TrainedFlops(model=0.92, all_scores=1.032, computed=0.92).rates(
        1.0, 1.0
    )  # a chip that skips masked scores
    assert mfu_text(skipping.model_flops_utilization, skipping.all_scores_flops_utilization) == (
        "MFU 92.0%; counting all scores, also those that are skipped, it would be more than the "
        "peak"
    )
    assert mfu_text(0.4, 0.45) == "MFU 40.0%; 45.0% counting all scores, as many papers do"
    assert mfu_text(0.4, 0.4) == mfu_text(0.4, None) == "MFU 40.0%"
    assert "103" not in mfu_note(0.92, 1.032, 2048)


def test_every_utilisation_is_shown_by_the_one_function() -> None:
    """Whatever reads a utilisation of FLOPs in the rooms that print hands it to
    ``phaze.report.sentences.utilization``."""
    seen, odd = 0, []
    for room in ("phaze/report", "phaze/cli", "phaze/studies", "phaze/settings", "phaze/runs"):
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                name = call.func.id if isinstance(call.func, ast.Name) else ""
                texts = [
                    ast.unparse(each)
                    for each in (*call.args, *(word.value for word in call.keywords))
                ]
                for text in texts:
                    if re.search(r"flops_utilization", text):
                        seen += name.startswith("mfu_")
                        if name in {"share", "percent", "number", "rate", "round", "format"}:
                            odd.append(f"{path}:{call.lineno}")
            for value in (node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)):
                if re.match(r"[\w.]*flops_utilization$", ast.unparse(value.value)):
                    odd.append(f"{path}:{value.lineno}")
    assert odd == [] and seen >= 7


def test_a_file_of_before_keeps_both_conventions() -> None:
    plan = {
        "model_flops_utilization": 1.032,
        "causal_model_flops_utilization": 0.92,
        "stages": [{"x": 1}],
    }
    older = {"model_flops_utilization": 0.3}
    read = BEST.current({KEY: 1, "models": {"a": plan, "b": older}}, "best.json")["models"]
    assert read["a"] == {
        "model_flops_utilization": 0.92,
        "all_scores_flops_utilization": 1.032,
        "stages": [{"x": 1}],
    }
    assert read["b"] == {"model_flops_utilization": 0.3, "all_scores_flops_utilization": 0.3}
