"""Recurrences over the tokens: one operator each, with the products that torch counts, and never a
trace of every token."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from GraphExtractor.check import check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, Gemm, GraphKey, OperatorKind
from GraphExtractor.models.registry import find_model
from phaze_common.errors import InputError

TOKENS = 12
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2}
JAMBA = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "num_experts": 1,
    "attn_layer_period": 2,
}
CONFIGURATIONS = {
    "mamba": {"architectures": ["MambaForCausalLM"], "state_size": 4},
    "falcon_mamba": {"architectures": ["FalconMambaForCausalLM"], "state_size": 4},
    "jamba": {
        "architectures": ["JambaForCausalLM"],
        "mamba_d_state": 4,
        "mamba_dt_rank": 2,
        "attn_layer_offset": 1,
        **JAMBA,
    },
    "rwkv": {
        "architectures": ["RwkvForCausalLM"],
        "attention_hidden_size": 16,
        "context_length": 64,
    },
    "mamba2": {
        "architectures": ["Mamba2ForCausalLM"],
        "state_size": 8,
        "num_heads": 4,
        "head_dim": 8,
        "n_groups": 1,
        "chunk_size": 4,
        "expand": 2,
    },
}
RECURRENT = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.layer = nn.{kind}(8, 16{settings})
        self.head = nn.Linear({width}, 50)
    def forward(self, ids):
        x = self.embed(ids)
        {run}
        return self.head(x)
def build(): return Model()
def example_inputs(micro_batch_size, sequence_length=12): return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
def loss(output): return output.float().mean()
"""
MODULES = {
    "lstm": ("LSTM", ", batch_first=True", 16, "x, _ = self.layer(x)"),
    "deep lstm both ways": (
        "LSTM",
        ", num_layers=2, bidirectional=True, batch_first=True",
        32,
        "x, _ = self.layer(x)",
    ),
    "gru, tokens first": ("GRU", "", 16, "x = self.layer(x.transpose(0, 1))[0].transpose(0, 1)"),
    "rnn without biases": ("RNN", ", bias=False, batch_first=True", 16, "x = self.layer(x)[0]"),
    "last state alone": ("GRU", ", batch_first=True", 16, "x = self.layer(x)[1][-1]"),
    "given states": (
        "LSTM",
        ", batch_first=True",
        16,
        "x, _ = self.layer(x, (x.new_zeros(1, x.shape[0], 16), x.new_zeros(1, x.shape[0], 16)))",
    ),
}


def configuration(folder, model_type):
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **SMALL, **CONFIGURATIONS[model_type]}))
    return path


def write(folder, text):
    path = folder / "model.py"
    path.write_text(text)
    return path


def operators(graph, direction="forward"):
    return [
        operator
        for index in graph.sequence
        for operator in getattr(graph.layers[index], direction).operators
    ]


def scans(graph, direction="forward"):
    return [
        operator for operator in operators(graph, direction) if operator.kind is OperatorKind.SCAN
    ]


def flops(graph):
    return tuple(
        sum(
            operator.flops
            for operator in operators(graph, direction)
            if operator.kind is not OperatorKind.CONV
        )
        for direction in ("forward", "backward")
    )


def counted(model, ids):
    """FLOPs of the products of the forward and of the backward pass of a model that really runs,
    token by token.

    Convolutions are left out: torch counts the backward pass of one in groups as if there were
    none.
    """
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # which does not say what it multiplies
    try:
        with FlopCounterMode(display=False) as forward:
            output = model(ids)
            output = output if isinstance(output, torch.Tensor) else output.logits
        with FlopCounterMode(display=False) as backward:
            output.float().mean().backward()
    finally:
        torch._C._set_mkldnn_enabled(enabled)
    return tuple(
        sum(
            flops
            for operator, flops in each.get_flop_counts()["Global"].items()
            if "convolution" not in str(operator)
        )
        for each in (forward, backward)
    )


@pytest.mark.some(2)
@pytest.mark.parametrize("model_type", CONFIGURATIONS)
def test_configurations_have_the_products_that_torch_counts(tmp_path, model_type):
    import transformers

    path = configuration(tmp_path, model_type)
    graph = extract_graph(
        GraphKey(str(path), 2, TOKENS, 1, attention=Attention.EAGER), find_model(str(path))
    )
    settings = transformers.AutoConfig.from_pretrained(tmp_path, use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(
        settings, attn_implementation="eager"
    ).train()
    assert flops(graph) == counted(model, torch.zeros(2, TOKENS, dtype=torch.long))
    assert check_structure(graph) == []
    assert graph.total_parameter_count == sum(parameter.numel() for parameter in model.parameters())


def test_a_selective_scan_has_a_state_per_channel_and_token_and_steps_as_tokens(tmp_path):
    path = configuration(tmp_path, "mamba")
    graph = extract_graph(GraphKey(str(path), 2, TOKENS, 1), find_model(str(path)))
    forward, backward = scans(graph), scans(graph, "backward")
    assert len(forward) == len(backward) == 2
    channels, states = 32, 4
    (work,) = [each for each in forward[0].vector if each.function == "selective_scan"]
    assert (work.elements, work.steps, work.macs) == (
        2 * channels * TOKENS * states,
        TOKENS,
        2 * channels * TOKENS * states,
    )
    (again,) = [each for each in backward[0].vector if each.function == "selective_scan_backward"]
    assert (again.elements, again.steps, again.macs) == (work.elements, TOKENS, 2 * work.macs)
    of_states = 4 * 2 * channels * 2 * states  # fp32, of both samples, at the end of the only chunk
    assert of_states in [operand.bytes for operand in forward[0].writes]
    assert (
        forward[0].bytes_read + forward[0].bytes_written < 20 * 2 * channels * TOKENS * 2
    )  # no states of every token


def test_the_number_of_operators_does_not_grow_with_the_tokens(tmp_path):
    for model_type in ("mamba", "rwkv"):
        path = configuration(tmp_path, model_type)
        short, long = (
            extract_graph(GraphKey(str(path), 1, n, 1), find_model(str(path))) for n in (8, 4096)
        )
        assert len(operators(short)) == len(operators(long))
        assert {
            work.steps for operator in scans(long) for work in operator.vector if work.steps > 1
        } == {4096}


@pytest.mark.parametrize("module", MODULES)
def test_recurrent_modules_have_the_products_that_torch_counts(tmp_path, module):
    kind, settings, width, run = MODULES[module]
    path = write(tmp_path, RECURRENT.format(kind=kind, settings=settings, width=width, run=run))
    graph = extract_graph(GraphKey(str(path), 3, TOKENS, 1))
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert flops(graph) == counted(names["build"]().train(), names["example_inputs"](3, TOKENS))
    assert check_structure(graph) == []
    every = sum(parameter.numel() for parameter in names["build"]().parameters())
    assert sum(graph.layers[index].parameter_count for index in graph.sequence) == every


def test_an_lstm_multiplies_all_tokens_with_the_input_weights_at_once_and_each_with_the_others(
    tmp_path,
):
    kind, settings, width, run = MODULES["lstm"]
    path = write(tmp_path, RECURRENT.format(kind=kind, settings=settings, width=width, run=run))
    graph = extract_graph(GraphKey(str(path), 3, TOKENS, 1))
    (scan,), (back,) = scans(graph), scans(graph, "backward")
    assert scan.gemms == (Gemm(TOKENS, 3, 16, 64, dependent=True),)
    assert back.gemms == (
        Gemm(TOKENS - 1, 3, 64, 16, dependent=True),
    )  # nobody trains the first state
    products = [
        gemm
        for operator in operators(graph)
        if operator.kind is OperatorKind.GEMM
        for gemm in operator.gemms
    ]
    assert Gemm(1, 3 * TOKENS, 8, 64) in products
    gradients = [
        gemm
        for operator in operators(graph, "backward")
        for gemm in operator.gemms
        if not gemm.dependent
    ]
    assert Gemm(1, 64, 3 * TOKENS, 16) in gradients  # of the recurrent weights, over all tokens
    assert scan.parameter_bytes == 2 * (64 * 16 + 64)


LOOP = """
import torch
from torch import nn
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.again = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = (self.into(x[:, t]) + self.again(h)).tanh()
            out.append(h)
        return torch.stack(out, 1)
def build(): return nn.Sequential(nn.Embedding(9, 8), Cell(), nn.Linear(8, 9))
def example_inputs(micro_batch_size, sequence_length=4): return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
def loss(output): return output.float().mean()
"""


def test_a_loop_over_many_tokens_is_refused_with_its_line_and_module(tmp_path):
    path = write(tmp_path, LOOP)
    with pytest.raises(
        InputError,
        match=r"model\.py:11 in module 1 runs more than 96 times .* use torch\.nn\.LSTM, GRU or "
        r"RNN",
    ):
        extract_graph(GraphKey(str(path), 1, 100_000, 1))


def test_a_loop_that_only_asks_for_what_tensors_are_is_none(tmp_path):
    asked = "assert all(h.dtype == x.dtype and h.is_cpu for _ in range(99))"
    asking = LOOP.replace("out.append(h)", f"out.append(h)\n            {asked}")
    assert asking != LOOP
    extract_graph(GraphKey(str(write(tmp_path, asking)), 1, 4, 1))


def test_a_loop_over_few_tokens_is_traced_step_by_step(tmp_path):
    graph = extract_graph(GraphKey(str(write(tmp_path, LOOP)), 1, 4, 1))
    assert (
        sum(gemm == Gemm(1, 1, 8, 8) for operator in operators(graph) for gemm in operator.gemms)
        == 2 * 4
    )


@pytest.mark.thorough
def test_a_loop_over_many_modules_is_no_loop_over_tokens(tmp_path):
    text = LOOP.replace("Cell(), ", "*(Cell() for _ in range(120)), ")
    graph = extract_graph(GraphKey(str(write(tmp_path, text)), 1, 1, 1))
    assert len(graph.sequence) == 122


def test_a_recurrent_module_that_is_not_priced_says_so(tmp_path):
    settings = ", batch_first=True, proj_size=4"
    path = write(
        tmp_path,
        RECURRENT.format(kind="LSTM", settings=settings, width=4, run="x, _ = self.layer(x)"),
    )
    with pytest.raises(InputError, match="proj_size is not priced"):
        extract_graph(GraphKey(str(path), 2, TOKENS, 1))
