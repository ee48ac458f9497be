"""Models divided over columns and rows of devices (SUMMA): work, panels, parameters and what is
kept."""

from collections import Counter

import pytest
from sampled_models import SMALL, SMALL_LENGTH
from whole_traces import kept_alone

from Estimator.hardware_files import load_vector_functions
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import (
    Attention,
    Collective,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    KeyExchange,
    OperandRole,
    OperatorKind,
    Recompute,
    TensorLayout,
    Yields,
)
from GraphExtractor.models.opt import Opt
from GraphExtractor.models.registry import canonical_name, find_model, listed_models
from GraphExtractor.storage import load_or_extract
from GraphExtractor.widths import panels_fit
from phaze_common.errors import InputError

TWO_D = {"layout": TensorLayout.TWO_D}
GRID = {"tp": 2, "tp2": 4, **TWO_D}
COLUMNS, ROWS = CollectiveGroup.TENSOR, CollectiveGroup.TENSOR2
BROADCAST, REDUCE = CollectiveKind.BROADCAST, CollectiveKind.REDUCE
FAMILIES = ("gpt", "llama", "opt", "bloom", "mpt")


def name(family):
    return canonical_name(SMALL[family].format(2))


def of(extracted, family, **layout):
    graph = extracted(name(family), sequence_length=SMALL_LENGTH, **layout)
    assert check_structure(graph) == check_invariants(graph) == []
    return graph


def products(operators):
    return [operator for operator in operators.operators if operator.streamed]


def vector_work(operators):
    """Elements by function: without norms, whose kernels differ, and copies, which a single head in
    memory does not need."""
    found = Counter()
    for operator in operators.operators:
        for work in operator.vector if "norm" not in operator.name else ():
            found[work.function] += work.elements
    del found["copy"]
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cp", [1, 2])
def test_all_devices_together_do_the_work_of_the_whole(family, cp, extracted):
    whole, part = of(extracted, family), of(extracted, family, cp=cp, **GRID)
    for layer, same in zip(whole.layers, part.layers, strict=True):
        assert 8 * cp * same.forward.flops == layer.forward.flops
        assert 8 * cp * same.backward.flops == layer.backward.flops
        if layer.name == "block":
            for one, other in ((layer.forward, same.forward), (layer.backward, same.backward)):
                assert vector_work(one) == {
                    function: 8 * cp * elements for function, elements in vector_work(other).items()
                }
    assert part.total_parameter_count == whole.total_parameter_count


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_divided_along_both_axes_and_the_rest_along_one(family, extracted):
    whole, part = of(extracted, family), of(extracted, family, **GRID)
    for layer, same in zip(whole.layers, part.layers, strict=True):
        table = 512 * 160 if layer.name == "embedding" else 0
        assert 8 * same.twice_divided_count == layer.matmul_parameter_count + table
        assert (
            2 * (same.parameter_count - same.twice_divided_count)
            == layer.parameter_count - layer.matmul_parameter_count - table
        )
        assert 8 * same.matmul_parameter_count == layer.matmul_parameter_count
        assert layer.twice_divided_count == 0
        assert 8 * same.tied_count == layer.tied_count


LISTED = (
    "gpt3-125m",
    "llama3-8b",
    "qwen3-0.6b",
    "qwen3-8b",
    "opt-125m",
    "opt",
    "bloom-560m",
    "mpt-1b",
    "vit-era5",
)


@pytest.mark.some(2)
@pytest.mark.parametrize("model", LISTED)
def test_listed_models_of_all_families_fit_on_grids(model, extracted):
    whole, part = extracted(model), extracted(model, tp=2, tp2=4, **TWO_D)
    assert check_structure(part) == check_invariants(part) == []
    assert part.total_parameter_count == whole.total_parameter_count
    assert 8 * part.layers[1].forward.flops == whole.layers[1].forward.flops
    assert 8 * part.layers[1].twice_divided_count == whole.layers[1].matmul_parameter_count


def test_every_family_that_is_divided_twice_is_among_them():
    families = {
        type(family)
        for family in listed_models().values()
        if getattr(family, "divides_twice", False)
    }
    assert families == {type(find_model(model)) for model in LISTED}


@pytest.mark.parametrize("kind", [GRID, {"tp": 4, "tp2": 2, **TWO_D}])
def test_panels_are_those_of_the_closed_forms(kind, extracted):
    """Rows of Linear SUMMA in arXiv 2410.00273: b·l'·e over the columns and e·f' over the rows,
    forward and backward."""
    tp, tp2, batch = kind["tp"], kind["tp2"], 3
    block = of(extracted, "gpt", micro_batch_size=batch, **kind).layers[1]
    tokens, hidden = batch * SMALL_LENGTH // tp2, 160
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden)]

    def panel(kind, elements, group):
        return Collective(kind, 2 * elements, {COLUMNS: tp, ROWS: tp2}[group], group)

    forward, backward = products(block.forward), products(block.backward)
    assert [each.streamed for each in forward] == [
        (panel(BROADCAST, tokens * inner, COLUMNS), panel(BROADCAST, inner * outer // tp, ROWS))
        for inner, outer in shapes
    ]
    assert [(gemm.batch, gemm.m, gemm.k, gemm.n) for each in forward for gemm in each.gemms] == [
        (1, tokens, inner, outer // tp) for inner, outer in shapes
    ]
    for product, (inner, outer) in zip(forward, shapes, strict=True):
        gradients = {each.yields: each for each in backward if each.forward_id == product.id}
        of_input, of_weight = gradients[Yields.INPUT_GRADIENT], gradients[Yields.WEIGHT_GRADIENT]
        x, weight = tokens * inner, inner * outer // tp
        assert of_input.streamed == (panel(BROADCAST, weight, ROWS), panel(REDUCE, x, COLUMNS))
        assert of_weight.streamed == (panel(BROADCAST, x, COLUMNS), panel(REDUCE, weight, ROWS))
        assert {gemm.macs for each in gradients.values() for gemm in each.gemms} == {
            product.gemms[0].macs
        }
        assert product.parameter_bytes >= 2 * weight  # panels of other devices are read too
    assert len(backward) == 2 * len(forward)


@pytest.mark.some(2)
@pytest.mark.parametrize("model", LISTED)
def test_panels_that_fit_divide_what_all_products_are_summed_over(model, extracted):
    part, family = extracted(model, tp=2, tp2=4, **TWO_D), find_model(model)
    summed = {
        gemm.k
        for layer in part.layers
        for each in products(layer.forward)
        for gemm in each.gemms
        if not each.core_attention
    }
    gradients = [
        each
        for layer in part.layers
        for each in products(layer.backward)
        if each.kind is OperatorKind.GEMM
    ]
    assert {
        gemm.n for each in gradients for gemm in each.gemms
    } == summed  # the same columns backward
    for panels in (2, 3, 4, 5, 7, 8, 12, 16, 32, 64, 4096):
        assert panels_fit(panels, family) == all(size % panels == 0 for size in summed)


def test_a_product_reads_what_it_receives_and_buffers_two_panels(extracted):
    block = of(extracted, "llama", **GRID).layers[1]
    product = next(each for each in products(block.forward) if "down_proj" in each.name)
    tokens, ffn = SMALL_LENGTH // 4, find_model(name("llama")).ffn
    sizes = [tokens * ffn * 2, ffn * 80 * 2]
    assert [each.payload_bytes for each in product.streamed] == sizes
    reads = [(operand.role, operand.bytes) for operand in product.reads]
    x, weight = sizes
    assert {(OperandRole.PARAMETER, weight // 4), (OperandRole.PARAMETER, weight * 3 // 4)} < set(
        reads
    )
    assert (
        sum(size for _, size in reads) == x + weight + tokens * 80 * 2
    )  # and the residual that is added
    assert product.buffer_bytes(4) == 2 * sum(sizes) // 4
    assert block.buffer_bytes(16) == max(
        each.buffer_bytes(16) for each in (*products(block.forward), *products(block.backward))
    )
    # products in one panel would need room for whole operands, with no next one beside it
    assert 2 * block.buffer_bytes(1) == 16 * block.buffer_bytes(16)
    assert block.workspace_bytes < sum(sizes)


@pytest.mark.parametrize(("family", "numbers"), [("gpt", 2), ("llama", 1)])
def test_norms_add_up_their_sums_over_the_columns(family, numbers, extracted):
    graph = of(extracted, family, **GRID)
    payload = 4 * numbers * SMALL_LENGTH // 4
    reduced = Collective(CollectiveKind.ALL_REDUCE, payload, 2, COLUMNS)
    for one_pass in (graph.layers[1].forward, graph.layers[1].backward):
        assert [each.collective for each in one_pass.operators if "all_reduce" in each.name] == [
            reduced
        ] * 2
    one_column = of(extracted, family, tp=1, tp2=4, **TWO_D).layers[1]
    assert not [each for each in one_column.forward.operators if "all_reduce" in each.name]


@pytest.mark.parametrize(("family", "norm"), [("gpt", "layer_norm"), ("llama", "rms_norm")])
def test_kernels_of_a_divided_norm_together_are_the_norm(family, norm, extracted):
    """Both do as much to an element as the one kernel that has whole rows, forward and backward."""
    whole, part = of(extracted, family).layers[1], of(extracted, family, **GRID).layers[1]
    cycles = load_vector_functions("phaze").cycles_per_element

    def of_norms(operators):
        return [
            work
            for each in operators.operators
            for work in each.vector
            if work.function.startswith(norm)
        ]

    for one, other, function in (
        (whole.forward, part.forward, norm),
        (whole.backward, part.backward, f"{norm}_backward"),
    ):
        assert {work.function for work in of_norms(other)} == {
            f"{function}_sums",
            f"{function}_apply",
        }
        spent = [
            sum(work.elements * cycles[work.function] for work in of_norms(each))
            for each in (one, other)
        ]
        assert spent[0] == 8 * spent[1] > 0


def test_keys_and_values_meet_on_all_devices_of_a_column_that_share_a_sequence(extracted):
    block = of(extracted, "llama", cp=2, **GRID).layers[1]
    (gather,) = [
        each.collective
        for each in block.forward.operators
        if each.collective and "keys" in each.name
    ]
    payload = 2 * 1 * SMALL_LENGTH * 40 * 2  # a head of keys and of values on each column
    assert gather == Collective(CollectiveKind.ALL_GATHER, payload, 8, CollectiveGroup.CONTEXT)
    ring = of(extracted, "llama", cp=2, exchange=KeyExchange.RING, **GRID).layers[1]
    (attention,) = [each for each in ring.forward.operators if each.core_attention]
    assert attention.streamed == (
        Collective(CollectiveKind.PASS, payload, 8, CollectiveGroup.CONTEXT),
    )


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_the_table_is_looked_up_where_its_parts_are(family, extracted):
    embedding = of(extracted, family, **GRID).layers[0]
    scattered = 2 * SMALL_LENGTH * 160 // 4  # the tokens of all rows, a row's part of hidden
    columns = Collective(CollectiveKind.REDUCE_SCATTER, scattered, 2, COLUMNS)
    rows = Collective(CollectiveKind.ALL_TO_ALL, scattered // 2, 4, ROWS)
    assert [each.collective for each in embedding.forward.operators if each.collective] == [
        columns,
        rows,
    ]
    back = Collective(CollectiveKind.ALL_GATHER, scattered, 2, COLUMNS)
    assert [each.collective for each in embedding.backward.operators if each.collective] == [
        rows,
        back,
    ]


def test_losses_are_parallel_over_the_columns(extracted):
    head = of(extracted, "gpt", **GRID).layers[-1]
    tokens = SMALL_LENGTH // 4
    reduced = [
        each.collective
        for each in head.forward.operators
        if each.collective and "norm" not in each.name
    ]
    assert [each for each in reduced if each.payload_bytes == 4 * tokens] == [
        Collective(CollectiveKind.ALL_REDUCE, 4 * tokens, 2, COLUMNS)
    ] * 3


@pytest.mark.parametrize("layout", [{"tp": 8, "tp2": 16}, {"tp": 16, "tp2": 4, "cp": 2}])
def test_a_block_keeps_its_part_of_everything(layout, extracted):
    """34·s·b·h of Korthikanti et al. 2022, divided among all devices; the sums of norms and softmax
    are small besides."""
    devices = layout["tp"] * layout["tp2"] * layout.get("cp", 1)
    graph, family = extracted("megatron-1t", 2, **layout, **TWO_D), find_model("megatron-1t")
    everything = family.sequence_length * 2 * family.hidden
    assert kept_alone(graph, 1, Recompute.NONE) == pytest.approx(
        34 * everything / devices, rel=0.005
    )
    assert graph.layers[1].saved.full == 2 * everything // devices
    assert {tensor.bytes for tensor in graph.tensors} == {2 * everything // devices}
    weights, vectors = 12 * family.hidden**2, 13 * family.hidden
    assert (
        graph.layers[1].parameter_count
        == weights // (layout["tp"] * layout["tp2"]) + vectors // layout["tp"]
    )


def test_depths_share_a_trace(tmp_path, extracted):
    names = [canonical_name(SMALL["gpt"].format(layers)) for layers in (3, 7)]
    first, second = (
        load_or_extract(GraphKey(each, 1, SMALL_LENGTH, 2, tp2=2, **TWO_D), tmp_path)
        for each in names
    )
    assert first.layers == second.layers and len(second.sequence) == 9
    assert first.key.tp2 == 2


def test_a_grid_of_one_device_is_the_whole_model(extracted):
    assert (
        of(extracted, "gpt", **TWO_D).layers[1].forward.flops
        == of(extracted, "gpt").layers[1].forward.flops
    )
    assert not products(of(extracted, "gpt", **TWO_D).layers[1].forward)


def refused(model="gpt", **settings):
    return GraphKey(
        name(model) if model in SMALL else model,
        1,
        settings.pop("length", SMALL_LENGTH),
        **{"tp": 2, **settings},
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            refused(tp2=2),
            "second tensor axis has width 2, but a 1d layout has one axis; use width 1, or layout "
            "2d",
        ),
        (refused(tp2=0, **TWO_D), "width of the second tensor axis 0 is not possible"),
        (refused("bert", tp2=2, **TWO_D), "2d layout does not divide bert.*Llama.*use layout 1d"),
        (
            refused("mixtral-8x7b", tp2=2, **TWO_D),
            "2d layout does not divide mixtral-8x7b.*use layout 1d",
        ),
        (refused("vit-l-16", length=197, tp2=2, **TWO_D), "2d layout does not divide vit-l-16"),
        (
            refused(sequence_parallel=True, tp2=2, **TWO_D),
            "leave sequence parallelism out, or use layout 1d",
        ),
        (
            refused(tp=4, tp2=64, length=64 * 192, **TWO_D),
            "4 x 64 devices does not divide the 160 hidden columns.*divides 160",
        ),
        (
            refused(tp2=16, length=200, **TWO_D),
            "degree 1 on 16 rows of a 2d layout does not divide the 200 tokens",
        ),
        (refused(tp=3, tp2=1, **TWO_D), "tensor parallel width 3 does not divide"),
        (
            refused(tp2=4, exchange=KeyExchange.ULYSSES, **TWO_D),
            "the 2 attention heads .* among 4 devices .*one of 1, 2",
        ),
        (
            refused(tp2=4, attention=Attention.EAGER, exchange=KeyExchange.RING, **TWO_D),
            "use attention flash",
        ),
    ],
)
def test_grids_that_do_not_fit_are_refused(key, message):
    with pytest.raises(InputError, match=message):
        extract_graph(key)


def test_what_products_are_summed_over_is_divided_by_both_axes():
    family = Opt(
        layers=1,
        hidden=160,
        heads=4,
        ffn=320,
        vocabulary=512,
        sequence_length=64,
        word_embedding=40,
    )
    with pytest.raises(InputError, match="4 x 16 devices does not divide the 160 hidden columns"):
        extract_graph(GraphKey("opt", 1, 64, 4, tp2=16, **TWO_D), family)
    with pytest.raises(
        InputError, match="2 x 16 devices does not divide the 40 columns of the word embedding"
    ):
        extract_graph(GraphKey("opt", 1, 64, 2, tp2=16, **TWO_D), family)
