"""How the nodes of a trace are divided into layers, on graphs written by hand."""

import torch
from torch.fx import Graph

from GraphExtractor.layer_modules import LayerModule
from GraphExtractor.segments import LayerPlace, Stamp, segments

A, B, C = (LayerModule(name, name) for name in "abc")


class Trace:
    """A graph of additions; ``node(run, inside, *sources)`` adds one."""

    def __init__(self, *runs):
        self.graph, self.runs, self.stamps, self.parameters = Graph(), runs, {}, set()

    def input(self, *, parameter=False):
        node = self.graph.placeholder(f"x{len(self.graph.nodes)}")
        if parameter:
            self.parameters.add(node)
        return node

    def node(self, run, inside, *sources, module=""):
        node = self.graph.call_function(torch.cat, (list(sources),))
        self.stamps[node] = Stamp(run, inside, module)
        return node

    def layers(self):
        found = segments(self.stamps, self.runs, frozenset(self.parameters))
        return found.places, [found.layer[node] for node in self.stamps]


def test_a_chain_has_an_embedding_its_runs_and_a_head():
    trace = Trace(A, A)
    x = trace.node(0, False, trace.input(), trace.input(parameter=True))
    x = trace.node(1, True, x)
    x = trace.node(2, True, x)
    trace.node(2, False, x, trace.input(parameter=True))
    places, layers = trace.layers()
    assert places == (
        LayerPlace("embedding", ""),
        LayerPlace("a", "a"),
        LayerPlace("a", "a"),
        LayerPlace("head", ""),
    )
    assert layers == [0, 1, 2, 3]


def test_what_follows_a_run_without_parameters_belongs_to_it():
    trace = Trace(A, B)
    x = trace.node(1, True, trace.input())
    x = trace.node(1, False, x)
    trace.node(2, True, x)
    places, layers = trace.layers()
    assert [place.name for place in places] == ["a", "b"]
    assert layers == [0, 0, 1]


def test_an_embedding_behind_an_encoder_is_a_layer_that_depends_on_nothing():
    trace = Trace(A, B)
    memory = trace.node(1, True, trace.node(0, False, trace.input(), trace.input(parameter=True)))
    words = trace.node(1, False, trace.input(), trace.input(parameter=True), module="decoder.embed")
    trace.node(2, True, memory, words)
    places, layers = trace.layers()
    assert [place.name for place in places] == ["embedding", "a", "decoder.embed", "b"]
    assert layers == [0, 1, 2, 3]


def test_branches_that_come_together_are_a_layer_of_their_own():
    trace = Trace(A, B)
    left, right = trace.node(1, True, trace.input()), trace.node(2, True, trace.input())
    trace.node(2, False, left, right)
    places, layers = trace.layers()
    assert [place.name for place in places] == ["a", "b", "head"]
    assert layers == [0, 1, 2]


def test_a_skip_that_joins_the_stream_again_belongs_to_the_run_it_follows():
    trace = Trace(A, B, C)
    first = trace.node(1, True, trace.input())
    second = trace.node(2, True, first)
    trace.node(3, True, trace.node(2, False, first, second))
    places, layers = trace.layers()
    assert [place.name for place in places] == ["a", "b", "c"]
    assert layers == [0, 1, 1, 2] or layers == [0, 1, 2, 1]


def test_what_is_made_of_parameters_alone_goes_with_its_reader():
    trace = Trace(A, B)
    x = trace.node(1, True, trace.input())
    weight = trace.node(1, False, trace.input(parameter=True))
    trace.node(2, True, x, weight)
    places, layers = trace.layers()
    assert [place.name for place in places] == ["a", "b"]
    assert layers == [0, 1, 1]


def test_a_model_without_layer_modules_is_one_layer():
    trace = Trace()
    trace.node(0, False, trace.node(0, False, trace.input()))
    places, layers = trace.layers()
    assert places == (LayerPlace("model", ""),)
    assert layers == [0, 0]
