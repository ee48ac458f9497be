"""What is done to the scores of attention: learned biases, sinks and caps, with their gradients,
and masks."""

import json

import pytest
import torch
from torch import nn
from whole_traces import step_of

from GraphExtractor.attention import Scores, _eager
from GraphExtractor.context_parallel import UNSHARED
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, GraphKey, OperandRole, OperatorKind
from GraphExtractor.layers import layers_of

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 6, 8
SWIN = {
    "embed_dim": 16,
    "depths": [1, 2],
    "num_heads": [2, 4],
    "image_size": 16,
    "patch_size": 2,
    "window_size": 4,
}
SINKS = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


def config(folder, model_type, **values):
    path = folder / f"{model_type}.json"
    path.write_text(json.dumps({"model_type": model_type} | values))
    return str(path)


def queries_keys_values(kv_heads=HEADS):
    generator = torch.Generator().manual_seed(0)
    shapes = ((BATCH, heads, LENGTH, WIDTH) for heads in (HEADS, kv_heads, kv_heads))
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)
        for shape in shapes
    ]


def learned(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)


def blocks(graph):
    """The layers that attend, in execution order."""
    layers = [graph.layers[index] for index in graph.sequence]
    return [
        layer for layer in layers if any(each.core_attention for each in layer.forward.operators)
    ]


def gradients(output, tensors):
    weights = torch.arange(output.numel(), dtype=output.dtype).view(output.shape).sin()
    return torch.autograd.grad((output * weights).sum(), tensors)


def test_the_gradient_of_a_bias_is_that_of_torch():
    q, k, v = queries_keys_values()
    bias = learned(1, HEADS, LENGTH, LENGTH)
    ours = _eager(q, k, v, UNSHARED, Scores(False, 0.0, WIDTH**-0.5, bias=bias))
    theirs = nn.functional.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2)
    for own, expected in zip(
        gradients(ours, (q, k, v, bias)), gradients(theirs, (q, k, v, bias)), strict=True
    ):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("kind", ["sinks", "cap"])
def test_sinks_and_caps_are_those_of_the_models_that_have_them(kind):
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as capped
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as sunk

    module = nn.Module()
    module.num_key_value_groups, module.sinks = 2, nn.Parameter(learned(HEADS).detach())
    q, k, v = queries_keys_values(kv_heads=HEADS // 2)
    if kind == "sinks":
        theirs, _ = sunk(module, q, k, v, None, WIDTH**-0.5)
        own = _eager(q, k, v, UNSHARED, Scores(False, 0.0, WIDTH**-0.5, sinks=module.sinks))
        tensors = q, k, v, module.sinks
    else:
        theirs, _ = capped(module, q, k, v, None, scaling=WIDTH**-0.5, softcap=0.5)
        own = _eager(q, k, v, UNSHARED, Scores(False, 0.0, WIDTH**-0.5, cap=0.5))
        tensors = q, k, v
    # transformers takes the softmax of capped scores in single precision
    near = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(own, theirs, **near)
    for one, expected in zip(gradients(own, tensors), gradients(theirs, tensors), strict=True):
        torch.testing.assert_close(one, expected, **near)


class Biased(nn.Module):
    """Attention with a learned bias that all samples share."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = (
            nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH),
            nn.Linear(HEADS * WIDTH, HEADS * WIDTH),
        )
        self.table = nn.Parameter(torch.empty(HEADS, LENGTH, LENGTH))

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.table[None])
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_a_fused_kernel_reads_a_learned_bias_in_both_passes_and_writes_its_gradient_once():
    layer = layers_of(
        step_of(nn.Sequential(Biased(), Biased()), {"x": torch.zeros(BATCH, LENGTH, HEADS * WIDTH)})
    ).layers[0]
    (forward,) = [each for each in layer.forward.operators if each.kind is OperatorKind.ATTENTION]
    (backward,) = [each for each in layer.backward.operators if each.kind is OperatorKind.ATTENTION]
    table = (HEADS, LENGTH, LENGTH)
    for operator in (forward, backward):
        assert [each.role for each in operator.reads if each.shape[-3:] == table] == [
            OperandRole.PARAMETER
        ]
        assert ("add", BATCH * HEADS * LENGTH**2) in {
            (work.function, work.elements) for work in operator.vector
        }
    assert [each.role for each in backward.writes if each.shape[-3:] == table] == [
        OperandRole.GRADIENT
    ]
    assert layer.parameter_count == sum(parameter.numel() for parameter in Biased().parameters())


@pytest.mark.some(1)
@pytest.mark.parametrize("attention", Attention)
def test_no_learned_bias_of_a_windowed_image_model_is_lost(tmp_path, attention, caplog):
    graph = extract_graph(GraphKey(config(tmp_path, "swin", **SWIN), 1, 1, 1, attention))
    layers = [graph.layers[index] for index in graph.sequence]
    assert (
        sum(layer.parameter_count - layer.tied_count for layer in layers)
        == graph.total_parameter_count
    )
    assert "no gradient" not in caplog.text


@pytest.mark.some(1)
@pytest.mark.parametrize("attention", Attention)
def test_no_learned_sink_is_lost(tmp_path, attention, caplog):
    path = config(tmp_path, "granite_swa", **SINKS)
    whole, part = (extract_graph(GraphKey(path, 1, 16, tp, attention)) for tp in (1, 2))
    layers = [whole.layers[index] for index in whole.sequence]
    assert (
        sum(layer.parameter_count - layer.tied_count for layer in layers)
        == whole.total_parameter_count
    )
    assert not [
        message for message in caplog.messages if "no gradient" in message or "left out" in message
    ]
    sinks = [
        read.shape
        for block in blocks(part)
        for each in block.forward.operators
        for read in each.reads
        if read.role is OperandRole.PARAMETER
    ]
    assert (HEADS // 2,) in sinks


def test_a_cap_of_the_scores_is_vector_work_in_both_passes(tmp_path):
    values = SINKS | {"head_dim": 8, "sliding_window": 4, "num_hidden_layers": 4}
    graph = extract_graph(GraphKey(config(tmp_path, "gemma2", **values), 1, 16, 1))
    operators = [
        each
        for block in blocks(graph)
        for each in block.forward.operators
        if each.kind is OperatorKind.ATTENTION
    ]
    left = {
        3: 16 * 4 - (3 + 2 + 1),
        None: 16 * 17 // 2,
    }  # scores of a head: 4 of each row but the first three, or half of all
    assert sorted(map(str, (each.window for each in operators))) == ["3", "3", "None", "None"]
    for operator in operators:
        assert operator.causal
        work = {each.function: each.elements for each in operator.vector}
        assert work["tanh"] == work["softmax"] == 4 * left[operator.window]
    for block in blocks(graph):
        (backward,) = [
            each for each in block.backward.operators if each.kind is OperatorKind.ATTENTION
        ]
        assert "tanh_backward" in {each.function for each in backward.vector}
