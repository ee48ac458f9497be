"""What explain and trace say of waiting for other devices: panels of 2D layouts and rings, on a
device and on a chip."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

import phaze
from phaze.report.sentences.designs import plan_text
from phaze.report.sentences.explanation import explain
from phaze.report.sentences.glossary import used_in
from phaze.report.trace.timeline import timeline_of
from phaze.runs.finished_run import FinishedRun
from phaze_common.numbers import percent
from Solver.plan_report import PlanReport

ASKED = {
    "model": "gpt:layers=2,hidden=256,heads=4,ffn=512,vocabulary=512",
    "sequence_length": 512,
    "devices": 4,
    "global_batch_size": 8,
    "recompute": "none",
    "pp": 1,
}
HARDWARE = {
    "device": {"device": "h100_sxm"},
    "chip": {"chip": "tpu_v4", "hbm_size": 32, "cluster": "nvlink_infiniband"},
}
LAYOUTS = {
    "2d": {"layout": "2d", "tp": 2, "tp2": 2, "panels": 4, "exchange": "gather"},
    "ring": {"layout": "sequence", "tp": 1, "cp": 4, "exchange": "ring"},
}


@dataclass(frozen=True, eq=False)
class Told:
    """A run, what is said of where its time goes, and its trace."""

    run: FinishedRun
    said: str
    slices: list[dict[str, object]]

    @property
    def plan(self) -> PlanReport:
        assert self.run.result.best is not None
        (plan,) = self.run.result.best.models.values()
        return plan


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Told]:
    @cache
    def of(hardware: str, layout: str) -> Told:
        asked = phaze.study(
            **ASKED,
            **HARDWARE[hardware],
            **LAYOUTS[layout],
            output=tmp_path_factory.mktemp("waiting"),
        )
        phaze.run_solver(asked)
        run = phaze.open_run(asked.folders.run)
        events = json.loads(timeline_of(run).content)["traceEvents"]
        explained = explain(run)
        said = " ".join([explained.answer, *explained.time_in_words])
        return Told(run, said, [each for each in events if each["ph"] == "X"])

    return of


EVERY = pytest.mark.parametrize(
    ("hardware", "layout"), [(one, other) for one in HARDWARE for other in LAYOUTS]
)


@pytest.mark.some(2)
@EVERY
def test_what_is_sent_is_called_by_its_layout(
    told: Callable[[str, str], Told], hardware: str, layout: str
) -> None:
    """Nothing of these plans is sequence parallelism, and nothing around a ring is tensor
    parallelism."""
    found = told(hardware, layout)
    parts = found.plan.breakdown_s
    assert parts.sequence_communication_s == 0.0 and "sequence-parallel" not in found.said
    assert (parts.tensor_communication_s > 0.0) == (layout == "2d")
    assert parts.context_communication_s > 0.0
    largest = "tensor" if layout == "2d" else "context"
    seconds = getattr(parts, f"{largest}_communication_s")
    assert (
        f"{largest}-parallel communication {percent(seconds / found.plan.time_per_batch_s)}"
        in found.said
    )
    degrees = (
        "tp 2 x pp 1 x dp 1 x tp2 2, 2d layout"
        if layout == "2d"
        else "tp 1 x pp 1 x dp 1 x cp 4 (ring)"
    )
    assert plan_text(found.plan) == degrees and degrees in found.said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_share_of_waiting_is_that_of_the_schedules(
    told: Callable[[str, str], Told], layout: str
) -> None:
    found = told("chip", layout)
    schedules = found.run.schedules
    waited_s = sum(
        operator.exposed_s * each.repeats for each in schedules for operator in each.operators
    )
    whole_s = sum(each.makespan_s * each.repeats for each in schedules)
    assert 0.0 < waited_s < whole_s
    (said,) = re.findall(
        r"Of that computation (\S+) is waiting for what operators exchange with other devices",
        found.said,
    )
    assert said == percent(waited_s / whole_s)
    parts, many = found.plan.breakdown_s, found.plan.micro_batches_per_pipeline
    sent_s = parts.tensor_communication_s + parts.context_communication_s
    if layout == "ring":  # nothing else is sent within a layer
        assert many * waited_s == pytest.approx(sent_s, rel=1e-6)
    else:  # norms and softmax wait for small all-reduces too, which are operators of their own
        assert many * waited_s < sent_s


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trace_says_of_every_operator_how_long_it_waits(
    told: Callable[[str, str], Told], layout: str
) -> None:
    found = told("chip", layout)
    waiting = [
        each["args"] for each in found.slices if "seconds waiting for other devices" in each["args"]
    ]  # type: ignore[operator]
    kept = {
        (each.layer, each.graph, operator.name): operator
        for each in found.run.schedules
        for operator in each.operators
        if operator.exposed_s
    }
    assert waiting and len({(args["layer"], args["pass"]) for args in waiting}) > 1  # type: ignore[index]
    for each in found.slices:
        args = each["args"]
        assert isinstance(args, dict)
        operator = kept.get((args.get("layer"), args.get("pass"), each["name"]))
        if operator is not None:
            assert (
                0.0
                < args["seconds waiting for other devices"]
                == operator.exposed_s
                <= args["seconds"] * (1 + 1e-9)
            )
        else:
            assert "seconds waiting for other devices" not in args


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_a_device_nothing_is_said_of_operators(
    told: Callable[[str, str], Told], layout: str
) -> None:
    """Its breakdown says what no product hides."""
    found = told("device", layout)
    assert "waiting for what" not in found.said
    (iteration,) = [
        each["args"] for each in found.slices if str(each["name"]).startswith("iteration of")
    ]
    assert isinstance(iteration, dict)
    assert iteration["tp x pp x dp"] == (
        "2 x 1 x 1 x tp2 2, 2d layout" if layout == "2d" else "1 x 1 x 1 x cp 4 (ring)"
    )


def test_words_for_the_degrees_are_explained() -> None:
    assert [each.word for each in used_in("tp 1 x pp 1 x dp 1 x tp2 2 x cp 4, ep 2")] == [
        "tp",
        "tp2",
        "cp",
        "ep",
        "pp",
        "dp",
    ]
