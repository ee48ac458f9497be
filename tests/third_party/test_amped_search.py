"""All permutations of batch size and degrees: counted and priced as a loop over single runs would,
and what obeys no rule."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phaze_common.errors import InfeasibleError, InputError
from tests.third_party.amped_cases import LEFT_OUT, answer, configuration
from third_party.amped import optimize
from third_party.amped.catalogue import DEGREE_NAMES
from third_party.amped.corrections import NAMES
from third_party.amped.search import splits

KEPT: list[tuple[str, ...]] = [(), NAMES, ("micro_batches", "group_volumes")]


def enumerated(per_node: int, nodes: int) -> list[tuple[int, ...]]:
    """Every assignment of the six degrees, by trying all numbers."""
    inside = [
        each
        for each in itertools.product(range(1, per_node + 1), repeat=3)
        if math.prod(each) == per_node
    ]
    between = [
        each
        for each in itertools.product(range(1, nodes + 1), repeat=3)
        if math.prod(each) == nodes
    ]
    return [(*one, *two) for one in inside for two in between]


def one_by_one(
    batches: tuple[int, ...], per_node: int, nodes: int, kept: tuple[str, ...], **changes: Any
) -> dict[tuple[int, ...], float]:
    """Seconds of each permutation that ``run`` takes and that fits, by (batch, degrees)."""
    found = {}
    for batch, degrees in itertools.product(batches, enumerated(per_node, nodes)):
        point = {
            "batch_size": batch,
            **dict(zip(DEGREE_NAMES, degrees, strict=True)),
            "number_of_accelerators_per_node": per_node,
        }
        try:
            single = answer(kept, **{**changes, **point})
        except InputError:
            continue
        if single.fits:
            found[(batch, *degrees)] = single.seconds
    return found


@pytest.mark.parametrize("kept", KEPT, ids=["corrected", "published", "some"])
@pytest.mark.parametrize(
    ("batches", "per_node", "nodes", "changes"),
    [
        ((8,), 2, 4, {}),
        ((4, 12), 4, 2, {"memory": "12 kB"}),
        ((6, 8), 1, 4, {"zero_stage": 3, "number_of_experts": 4}),
        ((16,), 4, 1, {"attention_heads": 4, "number_of_microbatches_per_minibatch": 2}),
    ],
)
def test_the_search_is_a_loop_over_runs(
    batches: tuple[int, ...],
    per_node: int,
    nodes: int,
    changes: dict[str, Any],
    kept: tuple[str, ...],
) -> None:
    expected = one_by_one(batches, per_node, nodes, kept, **changes)
    asked = configuration(
        **changes, number_of_accelerators_per_node=per_node, number_of_nodes=nodes
    )
    result = optimize(asked, batches, kept, best=10_000)
    assert {(each.batch_size, *each.degrees): each.time_s for each in result.best} == pytest.approx(
        expected, rel=1e-12
    )
    assert [each.time_s for each in result.best] == sorted(each.time_s for each in result.best)
    certificate = result.certificate
    assert certificate.permutations == len(batches) * len(enumerated(per_node, nodes))
    assert certificate.feasible == len(expected)
    assert certificate.permutations == certificate.feasible + sum(
        each.permutations for each in certificate.excluded
    )
    assert (
        certificate.permutations
        == len(batches) * certificate.splits_inside * certificate.splits_between
    )


def test_the_best_runs_as_the_search_said() -> None:
    best = optimize(configuration(), (8, 16)).best[0]
    single = answer(**best.instead())
    assert (single.seconds, single.totals.memory_bytes) == (best.time_s, best.memory_bytes)
    names = ("data_parallel_degree", "tensor_parallel_degree", "pipeline_parallel_degree")
    assert best.total == tuple(int(single.table.number(name)) for name in names)


def test_each_permutation_breaks_one_rule_or_none() -> None:
    """8 accelerators, 4 layers, 2 heads, batch 4: counted by hand from the degrees."""
    asked = configuration(memory="7 kB")
    counts = {each.rule: each.permutations for each in optimize(asked, (4,)).certificate.excluded}
    points = [
        (one * two, three * four, five * six)
        for one, three, five, two, four, six in enumerated(2, 4)
    ]
    batch = [each for each in points if 4 % each[0] == 0]
    heads = [each for each in batch if 2 % each[1] == 0]
    layers = [each for each in heads if 4 % each[2] == 0]
    assert list(counts.values())[:4] == [
        len(points) - len(batch),
        0,
        len(batch) - len(heads),
        len(heads) - len(layers),
    ]
    free = optimize(asked, (4,), ignore_memory=True).certificate
    assert free.feasible == len(layers)
    assert (
        optimize(asked, (4,)).certificate.feasible
        == len(layers) - list(counts.values())[4]
        < free.feasible
    )


def test_batch_sizes_come_from_the_file_or_the_command() -> None:
    assert optimize(configuration(batch_size=[16, 8, 8])).certificate.batch_sizes == (8, 16)
    assert optimize(configuration()).certificate.batch_sizes == (8,)
    assert optimize(configuration(batch_size=LEFT_OUT), (4,)).certificate.batch_sizes == (4,)


def test_degrees_are_not_needed_where_the_nodes_are_given() -> None:
    free = dict.fromkeys(DEGREE_NAMES, LEFT_OUT)
    by_degrees = optimize(configuration())
    assert optimize(configuration(**free, number_of_nodes=4)).best == by_degrees.best
    assert optimize(configuration(**free, total_number_of_accelerators=8)).best == by_degrees.best


@pytest.mark.parametrize(
    ("changes", "batches", "words"),
    [
        (
            {"batch_size": LEFT_OUT},
            (),
            "batch_size has no value; give one, a list of them, or --batch-sizes",
        ),
        ({}, (0,), "--batch-sizes: batch_size is 0; it must be a whole number"),
        ({}, (10**30,), "--batch-sizes: batch_size is"),
        ({"number_of_accelerators_per_node": 3}, (), "8 accelerators are not the whole nodes of 3"),
        (
            {"number_of_nodes": 3, "total_number_of_accelerators": 8},
            (),
            "8 accelerators are not the whole nodes of 2",
        ),
        (
            {"number_of_accelerators_per_node": LEFT_OUT},
            (),
            "number_of_accelerators_per_node has no value",
        ),
        (
            {DEGREE_NAMES[0]: LEFT_OUT},
            (),
            "says neither number_of_nodes nor total_number_of_accelerators nor all six degrees",
        ),
        (
            {"number_of_nodes": 2**20},
            tuple(range(1, 1500)),
            "permutations (1499 batch sizes, 3 splits inside a node, 231 between nodes)",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    changes: dict[str, Any], batches: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        optimize(configuration(**changes), batches)
    assert words in str(refused.value)


def test_where_nothing_is_possible_the_rules_are_counted() -> None:
    with pytest.raises(InfeasibleError) as refused:
        optimize(configuration(memory=1))
    assert "none of the 18 permutations is possible; " in str(refused.value)
    assert "break 'total_required_memory_per_accelerator is at most memory'" in str(refused.value)
    assert refused.value.exit_status == 3


@given(st.integers(1, 400))
def test_splits_are_all_triples_of_factors(number: int) -> None:
    triples = {
        (one, two, number // one // two)
        for one in range(1, number + 1)
        if number % one == 0
        for two in range(1, number // one + 1)
        if number // one % two == 0
    }
    found = [tuple(each) for each in splits(number).tolist()]
    assert set(found) == triples and len(found) == len(triples) and found == sorted(found)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
@given(
    per_node=st.sampled_from([1, 2, 4]),
    nodes=st.sampled_from([1, 2, 3, 4]),
    heads=st.sampled_from([1, 2, 4, 6]),
    layers=st.integers(1, 6),
    batch=st.integers(1, 12),
    zero_stage=st.integers(0, 3),
    experts=st.sampled_from([1, 2, 8]),
)
def test_the_best_of_random_small_spaces_is_the_least_of_all_runs(
    per_node: int, nodes: int, heads: int, layers: int, batch: int, zero_stage: int, experts: int
) -> None:
    changes = {
        **{
            "attention_heads": heads,
            "dimensionality": 3 * heads,
            "layers": layers,
            "zero_stage": zero_stage,
        },
        **{
            "hidden_layer_dimension_MLP_1": LEFT_OUT,
            "hidden_layer_dimension_MLP_2": LEFT_OUT,
            "number_of_experts": experts,
        },
    }
    expected = one_by_one((batch,), per_node, nodes, (), **changes)
    asked = configuration(
        **changes, number_of_accelerators_per_node=per_node, number_of_nodes=nodes
    )
    if not expected:
        with pytest.raises(InfeasibleError):
            optimize(asked, (batch,))
        return
    result = optimize(asked, (batch,), best=1)
    assert result.best[0].time_s == pytest.approx(min(expected.values()), rel=1e-12)
    assert result.certificate.feasible == len(expected)
