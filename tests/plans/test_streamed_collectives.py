"""Collectives beside products: what is exposed, against pipelines run step by step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from training_cases import device_model

from GraphExtractor.graph import Collective, CollectiveGroup, CollectiveKind, Gemm, Operator, OperatorKind, Phase, Yields
from Plans.device_costs import pass_work
from Plans.layer_costs import PassCosts
from Plans.streams import exposed_s

START_S, BYTE_S = 3e-6, 2e-9
sizes = st.integers(1, 10**6)
seconds = st.floats(0.0, 0.01)


def network_s(collective: Collective) -> float:
    return START_S + BYTE_S * collective.payload_bytes


def product(streamed: Sequence[Collective], phase: Phase = Phase.FORWARD) -> Operator:
    gemms = (Gemm(1, 512, 512, 512),)
    return Operator(0, "product", OperatorKind.GEMM, phase, Yields.OUTPUT, gemms, streamed=tuple(streamed))


def panels_of(kind: CollectiveKind, payload: int) -> Collective:
    return Collective(kind, payload, 4, CollectiveGroup.TENSOR)


def two_machines(received_s: float, product_s: float, reduced_s: float, panels: int) -> float:
    """End of a pipeline on links and cores, which receive, multiply and reduce each panel, the next one received first."""
    links = cores = 0.0
    arrived = [received_s]
    links = received_s
    for panel in range(panels):
        multiplied = max(cores, arrived[panel]) + product_s
        cores = multiplied
        if panel + 1 < panels:
            links += received_s
            arrived.append(links)
        links = max(links, multiplied) + reduced_s
    return max(links, cores)


@given(received=sizes, reduced=st.one_of(st.just(0), sizes), product_s=seconds, panels=st.sampled_from([1, 2, 4, 16]))
@example(received=1, reduced=0, product_s=0.01, panels=4)
def test_panels_are_a_pipeline_whose_ends_are_exposed(received: int, reduced: int, product_s: float, panels: int) -> None:
    streamed = [panels_of(CollectiveKind.BROADCAST, received * panels)]
    if reduced:
        streamed.append(panels_of(CollectiveKind.REDUCE, reduced * panels))
    found = exposed_s(product(streamed), product_s, network_s, panels)
    messages = panels + 4 - math.gcd(panels, 4)  # of parts of panels that one of the four devices has
    each = [messages / panels * network_s(replace(one, payload_bytes=-(-one.payload_bytes // messages))) for one in streamed]
    run_s = two_machines(each[0], product_s / panels, sum(each[1:]), panels)
    if not reduced:
        assert found + product_s == pytest.approx(run_s)
    assert sum(each) <= found * (1 + 1e-9)
    assert run_s <= found + product_s + 1e-12 <= panels * sum(each) + product_s + 1e-9
    assert panels > 1 or found == pytest.approx(sum(each))


@given(payload=sizes, product_s=seconds, devices=st.sampled_from([2, 3, 8]))
def test_keys_pass_around_a_ring_beside_attention(payload: int, product_s: float, devices: int) -> None:
    around = Collective(CollectiveKind.PASS, payload, devices, CollectiveGroup.CONTEXT)
    step_s, part_s = network_s(around) / (devices - 1), product_s / devices
    run_s = (devices - 1) * max(step_s, part_s) + part_s  # every step but the last beside a part of attention
    assert exposed_s(product([around]), product_s, network_s) + product_s == pytest.approx(run_s)
    back_s = (devices - 1) * max(2 * step_s, part_s) + part_s + step_s  # gradients have to get home
    assert exposed_s(product([around] * 2, Phase.BACKWARD), product_s, network_s) + product_s == pytest.approx(back_s)


@given(panels=st.integers(1, 64), devices=st.integers(1, 16))
def test_every_part_of_a_panel_that_one_device_has_is_a_message(panels: int, devices: int) -> None:
    """Columns counted one by one: of so many in all that panels and devices both have whole ones."""
    columns = range(panels * devices)
    pieces = {(column // devices, column // panels) for column in columns}  # panel and owner of a column
    one = Collective(CollectiveKind.BROADCAST, 1, devices, CollectiveGroup.TENSOR)
    assert one.messages(panels) == len(pieces)


def test_nothing_is_exposed_where_nothing_streams() -> None:
    assert exposed_s(product([]), 1.0, network_s) == 0.0


@dataclass(frozen=True)
class Links:
    """A network that takes as long for every kind."""

    def __len__(self) -> int:
        return 1

    def seconds(self, collective: Collective) -> NDArray[np.float64]:
        return np.array([network_s(collective)])


def test_a_pass_pays_for_what_is_exposed_and_hides_no_other_collective_behind_such_products() -> None:
    panels = product([panels_of(CollectiveKind.BROADCAST, 10**8)])
    ring = replace(product([Collective(CollectiveKind.PASS, 10**8, 4, CollectiveGroup.CONTEXT)]), kind=OperatorKind.ATTENTION)
    model = device_model()
    alone = model.operator_time(product([])).device_s
    in_panels, attention = (model.operator_time(each, 4).device_s for each in (panels, ring))
    plain, streamed, around = (pass_work([each], model, 4).priced(Links(), 4)[:, 0] for each in (product([]), panels, ring))  # type: ignore[arg-type]
    names = [each.name for each in fields(PassCosts)]
    products, sequence, context = (names.index(name) for name in ("products_s", "sequence_s", "context_s"))
    assert [each[products] for each in (plain, streamed, around)] == [alone, 0.0, 0.0]
    assert [each[sequence] for each in (plain, streamed, around)] == [0.0, exposed_s(panels, in_panels, network_s, 4), 0.0]
    assert [each[context] for each in (plain, streamed, around)] == [0.0, 0.0, exposed_s(ring, attention, network_s)]
    assert streamed[:3].sum() == in_panels > alone
