"""The proof of layouts made by construction: devices in lockstep on real numbers get the whole
model's loss and gradients."""

from functools import partial
from itertools import cycle, product

import pytest
import torch
from lockstep_parts import constant, difference, whole_run
from torch.nn import functional

from GraphExtractor.graph import Attention, KeyExchange, TensorLayout
from GraphExtractor.models.bert import Bert
from GraphExtractor.models.bloom import Bloom
from GraphExtractor.models.dense_vit import DenseVit
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.llama import Llama
from GraphExtractor.models.mpt import Mpt
from GraphExtractor.models.opt import Opt
from GraphExtractor.models.qwen3 import Qwen3
from GraphExtractor.models.vit import Vit
from tests.builders.samples import sampled

CLOSE = 1e-13  # float64 sums of some hundred numbers of order 1
LENGTH = 16
SIZES = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "ffn": 64,
    "vocabulary": 512,
    "sequence_length": LENGTH,
}
GPT, LLAMA = Gpt(**SIZES), Llama(**SIZES, kv_heads=2)
MODELS = {
    "gpt": GPT,
    "llama": LLAMA,
    "qwen3": Qwen3(**SIZES, kv_heads=2, head_width=12),
    "opt": Opt(**SIZES),
    "mpt": Mpt(**SIZES),
    "bert": Bert(**SIZES, next_sentence=False),
    "bloom": Bloom(**SIZES),
    "narrow words": Opt(**SIZES, word_embedding=16, pre_norm=False),
    "dense vit": DenseVit(layers=2, hidden=32, heads=4, ffn=64, pixels=16, sequence_length=LENGTH),
}
TWO_D = {"layout": TensorLayout.TWO_D}


def check(model, **layout):
    found = difference(model, MODELS[model], LENGTH, **layout)
    assert found.largest > 1e-2
    assert found.gradients < CLOSE and found.loss < CLOSE


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_the_whole_model_on_one_device_has_the_gradients_of_torch(model):
    """The operators of the harness against modules of transformers, whose attention, norms and
    losses are their own."""
    import transformers

    family = MODELS[model]
    parameters, inputs, gradients, loss = whole_run(model, family, LENGTH, 2, Attention.FLASH)
    shared = {"vocab_size": 512, "attn_implementation": "eager"}
    if model == "gpt":
        config = transformers.GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_inner=64,
            n_positions=LENGTH,
            activation_function="gelu_pytorch_tanh",
            **shared,
        )
        made = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            rms_norm_eps=1e-5,
            **shared,
        )
        made = transformers.LlamaForCausalLM(config)
        made.model.rotary_emb.inv_freq = constant(torch.empty(4))
    made = made.double().eval()
    made.load_state_dict(parameters, strict=False)
    logits = made(input_ids=inputs["input_ids"], use_cache=False).logits
    own = functional.cross_entropy(logits.flatten(0, -2), inputs["labels"].flatten())
    own.backward()
    found = dict(made.named_parameters())
    assert abs(own.item() - loss.item()) < 1e-6  # rotary positions are float32 there
    assert all(
        (found[name].grad - gradient).abs().max() < 1e-6 for name, gradient in gradients.items()
    )


DENSE = ["gpt", "llama", "opt", "mpt", "bert", "qwen3", "dense vit"]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "sequence_parallel"),
    sampled(product(DENSE, [False, True]), list(zip(DENSE, cycle([True, False]), strict=False))),
)
def test_tensor_parallel_devices(model, sequence_parallel):
    check(model, tp=2, sequence_parallel=sequence_parallel)


def test_images_of_tensor_parallel_devices():
    family = Vit(layers=2, hidden=32, heads=4, ffn=64, patch=2, classes=10, sequence_length=10)
    assert difference("vit", family, 10, tp=4).gradients < CLOSE


def with_attention(*layouts):
    """Layouts with both kinds of attention, of which a usual session takes one for each, in
    turn."""
    every = [(*layout, attention) for layout in layouts for attention in Attention]
    kinds = cycle(Attention)
    return sampled(every, [(*layout, next(kinds)) for layout in layouts])


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "tp", "cp", "attention"),
    with_attention(("gpt", 1, 4), ("llama", 2, 2), ("bert", 1, 2), ("mpt", 2, 4)),
)
def test_devices_that_gather_keys_and_values(model, tp, cp, attention):
    check(model, tp=tp, cp=cp, attention=attention)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "tp", "cp"),
    [("gpt", 1, 4), ("llama", 2, 4), ("bert", 2, 2), ("mpt", 2, 2), ("dense vit", 1, 2)],
)
def test_devices_that_pass_keys_and_values_around_a_ring(model, tp, cp):
    check(model, tp=tp, cp=cp, exchange=KeyExchange.RING)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "tp", "cp", "attention"),
    with_attention(("gpt", 1, 4), ("llama", 1, 4), ("llama", 2, 2), ("bert", 2, 2), ("mpt", 2, 2)),
)
def test_devices_that_exchange_heads_for_tokens(model, tp, cp, attention):
    check(model, tp=tp, cp=cp, exchange=KeyExchange.ULYSSES, attention=attention)


@pytest.mark.parametrize("exchange", KeyExchange)
def test_devices_that_share_sequences_and_cut_them_between_blocks(exchange):
    check("gpt", tp=2, cp=2, exchange=exchange, sequence_parallel=True)


@pytest.mark.some(1)
@pytest.mark.parametrize(("tp", "tp2"), [(2, 1), (1, 2), (2, 2), (4, 2)])
@pytest.mark.parametrize("model", ["gpt", "dense vit"])
def test_devices_of_a_grid(model, tp, tp2):
    check(model, tp=tp, tp2=tp2, **TWO_D)


@pytest.mark.some(1)
@pytest.mark.parametrize("model", ["llama", "qwen3", "opt", "mpt", "bloom", "narrow words"])
def test_grids_divide_all_dense_language_models(model):
    check(model, tp=2, tp2=4, **TWO_D)


@pytest.mark.some(1)
@pytest.mark.parametrize("exchange", KeyExchange)
@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_devices_of_several_grids_that_share_sequences(model, exchange):
    cp = (
        1 if exchange is KeyExchange.ULYSSES else 2
    )  # two heads of a column are those of two devices
    check(model, tp=2, tp2=2, cp=cp, exchange=exchange, **TWO_D)


def test_eager_attention_of_a_grid():
    check("llama", tp=2, tp2=2, cp=2, attention=Attention.EAGER, **TWO_D)


def without_last(name, graph):
    """Let the last operator of this name give what it is given."""
    node = [each for each in graph.nodes if str(each.target) == f"phaze.{name}.default"][-1]
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)


def with_own_gradients(graph):
    """Let devices keep what they found of the gradients of their keys and values, and add up
    nothing."""
    for node in [
        each for each in graph.nodes if str(each.target) == "phaze.reduce_scatter_keys.default"
    ]:
        for user in list(node.users):
            with graph.inserting_before(user):
                kept = graph.call_function(
                    torch.ops.aten.slice.Tensor,
                    (node.args[user.args[1]], 2, 0, LENGTH // node.args[2]),
                )
            kept.meta = dict(user.meta)
            user.replace_all_uses_with(kept)


def without_a_ring(graph):
    """Let devices attend to their own keys alone."""
    for node in graph.nodes:
        if "attention" in str(node.target):
            node.args = node.args[:-1]


@pytest.mark.parametrize(
    ("layout", "spoiled"),
    [
        ({"tp": 2}, partial(without_last, "all_reduce")),
        (
            {"tp": 2, "tp2": 2, **TWO_D},
            partial(without_last, "all_reduce"),
        ),  # of the sums of a norm's gradients
        ({"cp": 2}, with_own_gradients),
        ({"tp": 2, "tp2": 2, **TWO_D}, with_own_gradients),
        ({"cp": 2, "exchange": KeyExchange.RING}, without_a_ring),
    ],
)
def test_a_wrong_collective_would_be_noticed(layout, spoiled):
    assert difference("gpt", GPT, LENGTH, **layout, spoiled=spoiled).gradients > 1e-4
