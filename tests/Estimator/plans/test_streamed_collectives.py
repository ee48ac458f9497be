"""Collectives beside products: what is exposed, against pipelines run step by step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from Estimator.cost_model import PieceTimes
from Estimator.plans.device_costs import pass_work
from Estimator.plans.host_parts import HostPart
from Estimator.plans.layer_costs import PassCosts
from Estimator.plans.streams import exposed_s
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)
from phaze_common.choices import CudaGraphs
from tests.builders.operators_by_hand import ring_operator
from tests.builders.training_cases import device_model

START_S, BYTE_S = 3e-6, 2e-9
sizes = st.integers(1, 10**6)
seconds = st.floats(0.0, 0.01)


def network_s(collective: Collective) -> float:
    return START_S + BYTE_S * collective.payload_bytes


def product(streamed: Sequence[Collective], phase: Phase = Phase.FORWARD) -> Operator:
    gemms = (Gemm(1, 512, 512, 512),)
    return Operator(
        0, "product", OperatorKind.GEMM, phase, Yields.OUTPUT, gemms, streamed=tuple(streamed)
    )


def panels_of(kind: CollectiveKind, payload: int) -> Collective:
    return Collective(kind, payload, 4, CollectiveGroup.TENSOR)


def two_machines(received_s: float, products_s: Sequence[float], reduced_s: float) -> float:
    """End of a pipeline on links and cores, which receive, multiply and reduce each panel, the next
    one received first."""
    links = cores = 0.0
    arrived = [received_s]
    links = received_s
    for panel, product_s in enumerate(products_s):
        multiplied = max(cores, arrived[panel]) + product_s
        cores = multiplied
        if panel + 1 < len(products_s):
            links += received_s
            arrived.append(links)
        links = max(links, multiplied) + reduced_s
    return max(links, cores)


@given(
    received=sizes,
    reduced=st.one_of(st.just(0), sizes),
    first_s=seconds,
    more_s=seconds,
    panels=st.sampled_from([1, 2, 4, 16]),
)
@example(received=1, reduced=0, first_s=0.01, more_s=0.0, panels=4)
def test_panels_are_a_pipeline_whose_ends_are_exposed(
    received: int, reduced: int, first_s: float, more_s: float, panels: int
) -> None:
    """Panels behind the first take as long, or longer by what they are added to."""
    streamed = [panels_of(CollectiveKind.BROADCAST, received * panels)]
    if reduced:
        streamed.append(panels_of(CollectiveKind.REDUCE, reduced * panels))
    pieces = PieceTimes(first_s, first_s + more_s)
    products = [pieces.first_s] + [pieces.other_s] * (panels - 1)
    found = exposed_s(product(streamed), pieces, network_s, panels)
    messages = (
        panels + 4 - math.gcd(panels, 4)
    )  # of parts of panels that one of the four devices has
    each = [
        messages / panels * network_s(replace(one, payload_bytes=-(-one.payload_bytes // messages)))
        for one in streamed
    ]
    run_s = two_machines(each[0], products, sum(each[1:]))
    if not reduced:
        assert found + sum(products) == pytest.approx(run_s)
    assert sum(each) <= found * (1 + 1e-9)
    assert run_s <= found + sum(products) + 1e-12 <= panels * sum(each) + sum(products) + 1e-9
    assert panels > 1 or found == pytest.approx(sum(each))


@given(payload=sizes, piece_s=seconds, merge_s=seconds, devices=st.sampled_from([2, 3, 8]))
def test_keys_pass_around_a_ring_beside_attention(
    payload: int, piece_s: float, merge_s: float, devices: int
) -> None:
    """Every step but the last beside a piece of attention, which all but the first are merged
    behind."""
    around = Collective(CollectiveKind.PASS, payload, devices, CollectiveGroup.CONTEXT)
    pieces = PieceTimes(piece_s, piece_s + merge_s)
    parts = [piece_s] + [piece_s + merge_s] * (devices - 1)
    step_s = network_s(around) / (devices - 1)
    run_s = sum(max(step_s, part) for part in parts[:-1]) + parts[-1]
    assert exposed_s(product([around]), pieces, network_s) + sum(parts) == pytest.approx(run_s)
    back_s = (
        sum(max(2 * step_s, part) for part in parts[:-1]) + parts[-1] + step_s
    )  # gradients have to get home
    assert exposed_s(product([around] * 2, Phase.BACKWARD), pieces, network_s) + sum(
        parts
    ) == pytest.approx(back_s)


@given(panels=st.integers(1, 64), devices=st.integers(1, 16))
def test_every_part_of_a_panel_that_one_device_has_is_a_message(panels: int, devices: int) -> None:
    """Columns counted one by one: of so many in all that panels and devices both have whole
    ones."""
    columns = range(panels * devices)
    pieces = {
        (column // devices, column // panels) for column in columns
    }  # panel and owner of a column
    one = Collective(CollectiveKind.BROADCAST, 1, devices, CollectiveGroup.TENSOR)
    assert one.messages(panels) == len(pieces)


def test_nothing_is_exposed_where_nothing_streams() -> None:
    assert exposed_s(product([]), PieceTimes(1.0, 1.0), network_s) == 0.0


@dataclass(frozen=True)
class Links:
    """A network that takes as long for every kind."""

    panels: int
    graphs: CudaGraphs = CudaGraphs.NONE
    beside_shared: None = None

    def __len__(self) -> int:
        return 1

    def seconds(self, collective: Collective) -> NDArray[np.float64]:
        return np.array([network_s(collective)])


def priced(operator: Operator, panels: int) -> dict[str, float]:
    """A pass of nothing else, by its fields."""
    work = pass_work([operator], [HostPart.REST], device_model(), panels)
    found = work.priced(Links(panels))  # type: ignore[arg-type]
    return dict(zip((each.name for each in fields(PassCosts)), found[:, 0].tolist(), strict=True))


def busy_s(found: dict[str, float]) -> float:
    return found["arithmetic_s"] + found["memory_s"] + found["launch_s"]


def test_a_pass_pays_for_what_is_exposed_and_hides_no_other_collective_behind_such_products() -> (
    None
):
    model, panels = device_model(), product([panels_of(CollectiveKind.BROADCAST, 10**8)])
    ring = ring_operator(0, ring=4, rows=256)
    plain, streamed, around = (priced(each, 4) for each in (product([]), panels, ring))
    in_panels, attention = (
        model.operator_time(panels, 4).device_s,
        model.operator_time(ring).device_s,
    )
    assert (
        plain["products_s"] == model.operator_time(product([])).device_s
        and plain["sequence_s"] == 0.0
    )
    assert streamed["products_s"] == around["products_s"] == 0.0
    assert (
        streamed["sequence_s"]
        == exposed_s(panels, model.piece_times(panels, 4), network_s, 4)
        > 0.0
    )
    assert around["context_s"] == exposed_s(ring, model.piece_times(ring), network_s) > 0.0
    assert (streamed["context_s"], around["sequence_s"]) == (0.0, 0.0)
    assert busy_s(streamed) == pytest.approx(in_panels) and in_panels > plain["products_s"]
    assert busy_s(around) == pytest.approx(attention)


def test_panels_hide_behind_the_product_and_not_behind_the_tail_that_waits_for_the_last() -> None:
    """The tail's kernels add to the seconds of the device, as behind a product that nothing streams
    beside, and hide nothing."""
    bare = product([panels_of(CollectiveKind.BROADCAST, 10**6)])
    operand = Operand((512, 512), "float16", OperandRole.ACTIVATION)
    bare = replace(bare, reads=(operand, operand), writes=(operand,))
    tails = replace(bare, vector=(VectorWork("gelu", 512 * 512), VectorWork("dropout", 512 * 512)))
    without, behind = priced(bare, 4), priced(tails, 4)
    assert behind["sequence_s"] == without["sequence_s"]
    alone = [busy_s(priced(replace(each, streamed=()), 1)) for each in (bare, tails)]
    assert (
        busy_s(behind) - busy_s(without) == pytest.approx(alone[1] - alone[0])
        and alone[1] > alone[0]
    )
    panel_s = busy_s(without) / 4
    received_s = sum(
        network_s(replace(each, payload_bytes=-(-(10**6) // 4))) for each in bare.streamed
    )
    assert received_s > 1.2 * panel_s  # the links are what decides
    assert behind["sequence_s"] == pytest.approx(received_s + 3 * (received_s - panel_s), rel=0.1)
