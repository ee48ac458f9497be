"""Streamed collectives as operators of their own."""

import networkx as nx
import pytest
from sampled_models import SMALL, SMALL_LENGTH

from GraphExtractor.graph import CollectiveKind, KeyExchange, TensorLayout, Yields
from GraphExtractor.models.registry import canonical_name
from GraphExtractor.streams import streams_apart

MODEL = canonical_name(SMALL["gpt"].format(2))
LAYOUTS = [{"tp": 2, "tp2": 2, "layout": TensorLayout.TWO_D}, {"cp": 4, "exchange": KeyExchange.RING}]


def passes(extracted, layout):
    block = extracted(MODEL, sequence_length=SMALL_LENGTH, **layout).layers[1]
    return block.forward, block.backward, block.backward_selective


def in_order(graph):
    """Whether operators are listed as they can run."""
    place = {operator.id: index for index, operator in enumerate(graph.operators)}
    return all(place[a] < place[b] for a, b in graph.edges)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_work_is_done_in_an_order_that_still_works(layout, extracted):
    for graph in passes(extracted, layout):
        apart = streams_apart(graph)
        streamed = [each for operator in graph.operators for each in operator.streamed]
        collectives = [each.collective for each in apart.operators if each.collective]
        kept = [each.collective for each in graph.operators if each.collective]
        assert sorted(map(repr, collectives)) == sorted(map(repr, [*kept, *streamed])) and streamed
        assert apart.flops == graph.flops and not any(each.streamed for each in apart.operators)
        assert len({operator.id for operator in apart.operators}) == len(apart.operators)
        assert in_order(apart) == in_order(graph)
        closure = nx.transitive_closure_dag(apart.dag)
        assert all(closure.has_edge(a, b) for a, b in graph.edges)


def test_products_wait_for_what_they_are_sent_and_readers_for_what_is_reduced(extracted):
    forward, backward, _ = (streams_apart(graph) for graph in passes(extracted, LAYOUTS[0]))
    for graph in (forward, backward):
        sources = {id for id, degree in graph.dag.in_degree() if degree == 0}
        for operator in graph.operators:
            if operator.collective and operator.collective.kind is CollectiveKind.BROADCAST:
                (product,) = graph.dag.successors(operator.id)
                assert graph.dag.nodes[product]["operator"].gemms
                of_parameters = operator.collective.group == "tensor2" or graph is backward
                assert (operator.id in sources) == of_parameters
            if operator.collective and operator.collective.kind is CollectiveKind.REDUCE:
                (product,) = graph.dag.predecessors(operator.id)
                assert set(graph.dag.successors(product)) == {operator.id}
                assert graph.dag.out_degree(operator.id) or operator.yields is Yields.WEIGHT_GRADIENT


def test_graphs_that_stream_nothing_stay_as_they_are(extracted):
    for graph in passes(extracted, {"cp": 2}):
        assert streams_apart(graph) is graph
