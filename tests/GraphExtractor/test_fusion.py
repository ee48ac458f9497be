"""Fusing changes who pays for a memory round trip and nothing else."""

from collections import Counter
from dataclasses import replace

import pytest
from whole_traces import traced_step

from GraphExtractor.graph import Attention, GraphKey, OperatorKind, Yields
from GraphExtractor.models.registry import find_model

TRACED = [
    ("gpt2", 1, "flash"),
    ("bertbase", 2, "flash"),
    ("llama2", 1, "flash"),
    ("opt", 1, "eager"),
]


@pytest.fixture(scope="module", params=TRACED, ids=lambda case: case[0])
def passes(request):
    """Per layer and pass of a traced model: (unfused operators, groups they are fused into, readers
    of every value)."""
    from GraphExtractor.fusion import fuse
    from GraphExtractor.operators import readers, traced_operators
    from GraphExtractor.values import ValueTable

    model, tp, attention = request.param
    family = replace(find_model(model), layers=2)
    key = GraphKey(model, 2, 256, tp, Attention(attention))
    step = traced_step(key, family)
    operators = traced_operators(step, ValueTable(step))
    users = readers(operators)
    found = []
    for layer in range(step.layer_count):
        for backward in (False, True):
            chosen = tuple(
                traced
                for traced in operators
                if (traced.layer, traced.backward) == (layer, backward)
            )
            found.append((chosen, fuse(chosen, users), users))
    return found


def unfused(operators):
    from GraphExtractor.fusion import Group

    return tuple(Group((traced,)) for traced in operators)


def totals(groups, users):
    """FLOPs, vector elements per function, and bytes moved, of the operators that the groups
    become."""
    from GraphExtractor.layers import GraphBuilder

    builder = GraphBuilder(users, frozenset(), ())
    builder.ids.update({m.forward: 0 for group in groups for m in group.members if m.forward})
    graph = builder.graph(groups)
    work = Counter()
    for operator in graph.operators:
        for item in operator.vector:
            work[item.function] += item.elements
    return (
        graph.flops,
        work,
        sum(operator.bytes_read + operator.bytes_written for operator in graph.operators),
    )


def test_fused_and_unfused_graphs_do_equal_work_and_fused_ones_move_less(passes):
    saved_bytes = 0
    for operators, groups, users in passes:
        flops, work, moved = totals(groups, users)
        flops_unfused, work_unfused, moved_unfused = totals(unfused(operators), users)
        assert (flops, work) == (flops_unfused, work_unfused)
        assert moved <= moved_unfused
        saved_bytes += moved_unfused - moved
    assert saved_bytes > 0


def test_no_operator_is_lost_or_doubled(passes):
    for operators, groups, _ in passes:
        assert sorted(m.node for group in groups for m in group.members) == sorted(
            traced.node for traced in operators
        )


def test_only_elementwise_tails_are_fused_and_never_across_borders(passes):
    tails = {OperatorKind.ELEMENTWISE, OperatorKind.MOVE}
    for _, groups, _ in passes:
        for group in groups:
            others = [member for member in group.members if member.kind not in tails]
            if (
                len(others) == 2
            ):  # a weight gradient with its bias gradient, which read the same output gradient
                product, total = sorted(others, key=lambda member: not member.gemms)
                assert product.yields is total.yields is Yields.WEIGHT_GRADIENT
                assert total.kind is OperatorKind.REDUCTION and [
                    work.function for work in total.vector
                ] == ["sum"]
                assert {use.value for use in total.uses} <= {use.value for use in product.uses}
                assert group.head is product
            assert len(others) <= 2
            assert len({(m.layer, m.backward, m.core_attention) for m in group.members}) == 1
            if group.head.kind is OperatorKind.COLLECTIVE:
                assert len(group.members) == 1


def test_groups_come_in_an_executable_order(passes):
    for operators, groups, _ in passes:
        inside = {value for traced in operators for value in traced.outputs}
        made = set()
        for group in groups:
            made |= group.made
            assert {use.value for member in group.members for use in member.uses} & inside <= made


def test_bias_dropout_and_residual_join_the_product(extracted):
    names = [operator.name for operator in extracted("bertlarge").layers[1].forward.operators]
    assert "attention.output.dense.addmm+dropout+add" in names
    assert "intermediate.dense.addmm+gelu" in names


def test_what_backward_needs_is_still_written(extracted):
    block = extracted("bertlarge").layers[1]
    gelu = next(operator for operator in block.forward.operators if operator.name.endswith("+gelu"))
    assert (
        sorted(operand.bytes for operand in gelu.writes) == [2 * 512 * 4096] * 2
    )  # input and output of the GELU
    down = next(
        operator
        for operator in block.forward.operators
        if operator.name == "output.dense.addmm+dropout+add"
    )
    assert sorted(operand.dtype for operand in down.writes) == [
        "bfloat16",
        "bool",
    ]  # the sum and the dropout mask


def test_all_reduces_stand_alone(extracted):
    block = extracted("bertlarge", tp=4).layers[1]
    for operator in (*block.forward.operators, *block.backward.operators):
        if operator.kind is OperatorKind.COLLECTIVE:
            assert operator.vector == () and len(operator.reads) == len(operator.writes) == 1


def test_rotation_of_queries_joins_their_projection(extracted):
    block = extracted("llama2").layers[1]
    names = [operator.name.partition("+")[0] for operator in block.forward.operators]
    assert len(block.forward.operators) == 10 and names[1:4] == [
        "self_attn.q_proj.mm",
        "self_attn.k_proj.mm",
        "self_attn.v_proj.mm",
    ]
    functions = Counter(work.function for work in block.forward.operators[1].vector)
    assert functions == {"mul": 2, "neg": 1, "copy": 1, "add": 1}
