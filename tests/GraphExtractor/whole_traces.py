"""Traces in which every block stands for itself."""

from dataclasses import replace


def traced_step(key, family):
    """The traced step of one device, no block left out."""
    from GraphExtractor.extract import BuiltModel

    return BuiltModel.of(key, family).trace({})


def step_of(model, inputs):
    """The traced step of a small model as it is, with the sum of its output for a loss; ``inputs``
    are tensors by name."""
    from GraphExtractor.layer_modules import each_layer_module, find_layer_modules

    return step_over(model, each_layer_module(model, find_layer_modules(model)), inputs)


def step_over(model, modules, inputs):
    """The same with these ``LayerModule``s for layers."""
    import torch

    from GraphExtractor.fake_mode import FakeMode
    from GraphExtractor.graph import Attention
    from GraphExtractor.tracing import trace_step

    fake = FakeMode()
    with fake:
        values = {
            name: torch.empty(value.shape, dtype=value.dtype) for name, value in inputs.items()
        }
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(torch.empty(parameter.shape)))
    return trace_step(
        model, modules, values, lambda m, v: m(*v.values()).sum(), fake, Attention.FLASH
    )


def kept_alone(graph, position, recompute):
    """Bytes that a layer keeps and no other one does."""
    shared = sum(tensor.bytes for tensor in graph.shared if position in tensor.kept_by(recompute))
    return graph.layers[graph.sequence[position]].saved.under(recompute) - shared


def cut_bytes(graph, position):
    """Bytes (activations, gradients) of the tensors that cross the cut before a layer."""
    crossing = [
        tensor for tensor in graph.tensors if tensor.source < position <= max(tensor.destinations)
    ]
    return sum(tensor.bytes for tensor in crossing), sum(
        tensor.gradient_bytes for tensor in crossing
    )


def shared_by(layer, tp):
    """A layer of one device as all ``tp`` of a group compute it alike: the model's FLOPs are shared
    among them."""
    operators = tuple(
        replace(each, model_share=1 / tp if each.flops else 1.0) for each in layer.forward.operators
    )
    return replace(layer, forward=replace(layer.forward, operators=operators))
