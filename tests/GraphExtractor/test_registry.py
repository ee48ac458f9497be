"""Published models under their names."""

import math
from dataclasses import replace

import pytest

from GraphExtractor.graph import Attention, GraphKey, OperandRole, OperatorKind
from GraphExtractor.models.base import TransformerFamily
from GraphExtractor.models.registry import canonical_name, find_model, listed_aliases, listed_models


@pytest.fixture(scope="module")
def size():
    """Parameters of a model, from what one block of each stack adds to it behind the first few,
    which may be others."""
    from GraphExtractor.extract import BuiltModel

    def count(family, layers):
        shallow = replace(family, layers=layers)
        key = GraphKey("any", 1, family.sequence_length, 1)
        return BuiltModel.of(key, shallow).published_size()

    def total(family):
        stacks = len(family.blocks)
        four, five = count(family, 4 * stacks), count(family, 5 * stacks)
        return four + (family.layers // stacks - 4) * (five - four)

    return total


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "model",
    [model for model, family in listed_models().items() if family.published_parameter_count],
)
def test_parameter_count_is_the_published_one(model, size):
    published = find_model(model).published_parameter_count
    if published % 10**6:
        assert size(find_model(model)) == published
    else:  # papers round, to two digits at least
        half_digit = 10 ** (math.floor(math.log10(published)) - 1) / 2
        assert abs(size(find_model(model)) - published) <= max(0.02 * published, half_digit)


@pytest.mark.parametrize("model", listed_models())
def test_sizes_are_consistent(model):
    family = find_model(model)
    assert canonical_name(model) == model
    if isinstance(family, TransformerFamily):
        assert family.heads % family.kv_heads == 0
        assert getattr(family, "head_width", 0) or family.hidden % family.heads == 0


def test_a_published_size_within_a_table_is_as_that_table_has_it(size):
    for model, billions in (
        ("megatron-1.7b", 1.7),
        ("megatron-76.1b", 76.1),
        ("megatron-310.1b", 310.1),
        ("megatron-1t", 1008),
    ):
        assert round(size(find_model(model)) / 1e9, 1) == pytest.approx(
            billions, abs=0.051
        )  # SC'21, table 1


def test_aliases_name_listed_models():
    assert set(listed_aliases().values()) <= set(listed_models()) and not set(
        listed_aliases()
    ) & set(listed_models())
    assert canonical_name("gpt2-xl") == "gpt2" and canonical_name("llama2-7b") == "llama2"
    assert (
        canonical_name("gpt3-175b") == "megatrongpt3"
        and canonical_name("megatron-530b") == "megatron-529.6b"
    )


@pytest.mark.parametrize("model", ["bloom-560m", "mpt-1b"])
def test_alibi_is_part_of_attention(model, extracted):
    family, length = find_model(model), 2048
    block = extracted(model).layers[1]
    (attention,) = [operator for operator in block.forward.operators if operator.core_attention]
    assert attention.kind is OperatorKind.ATTENTION and attention.causal
    assert [work.function for work in attention.vector] == ["add", "softmax"]
    assert (
        attention.vector[0].elements == family.heads * length * (length + 1) // 2
    )  # scores that the mask leaves
    biases = [operand for operand in attention.reads if operand.role is OperandRole.CONSTANT]
    assert [operand.shape for operand in biases] == [(family.heads, 1, length)]
    assert attention.bytes_read - biases[0].bytes == 3 * length * family.hidden * 2
    assert (
        len(extracted(model).tensors) == family.layers + 1
    )  # nothing but hidden states between layers
    product, softmax, _ = [
        o
        for o in extracted(model, attention=Attention.EAGER).layers[1].forward.operators
        if o.core_attention
    ]
    assert [work.function for work in product.vector] == [
        "mul",
        "add",
        "where",
    ] and softmax.kind is OperatorKind.REDUCTION
    assert product.bytes_read == (2 * length * family.hidden + family.heads * length) * 2


def test_alibi_is_split_with_the_heads(extracted):
    (attention,) = [
        o for o in extracted("mpt-1b", tp=2).layers[1].forward.operators if o.core_attention
    ]
    assert [
        operand.shape for operand in attention.reads if operand.role is OperandRole.CONSTANT
    ] == [(8, 1, 2048)]
