"""What every model of operator costs must do, designed chips and devices alike."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import Estimator
from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.latency_table import LatencyTable, populate_estimates
from Estimator.cost_model import OperatorCostModel, OperatorCosts
from Estimator.devices.device import Device
from Estimator.devices.files import device_names, load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Software
from Estimator.profiled.cost_model import ProfiledModel
from Estimator.profiled.device import profiled_device
from GraphExtractor.graph import (
    Gemm,
    GraphKey,
    ModelGraph,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    VectorWork,
)
from phaze_common.errors import InputError
from tests.builders.operators_by_hand import (
    attention_operator,
    collective_operator,
    gemm_operator,
    recurrent_operator,
    scan_operator,
    transformer_layer,
    vector_operator,
)
from tests.builders.profiles_by_hand import PASSES as FRAMEWORK_PASSES
from tests.builders.profiles_by_hand import product, row, stream, written

pytestmark = pytest.mark.some(12)

ROUNDING = 1e-12
LAYER = transformer_layer(1, 512, 1024, 16, tp=4)
PASSES = (LAYER.forward, LAYER.backward)


@dataclass(frozen=True)
class Case:
    """A cost model for some graphs, a number format it computes in, and seconds by another way than
    ``price``."""

    make: Callable[..., OperatorCostModel]
    number_format: str
    totals_s: Callable[[OperatorCostModel, OperatorGraph], np.ndarray]


@cache
def hardware(space: str, step: int) -> tuple[AcceleratorSet, Platform]:
    loaded = load_design_space(space)
    everyone = loaded.generate()
    chips = [everyone.accelerator(row) for row in range(11, len(everyone), step)]
    return AcceleratorSet.of(chips), loaded.platform


def some_chips(*graphs: OperatorGraph, step: int = 4_000) -> LatencyTable:
    return chips_on(*hardware("phaze_icml24", step), *graphs)


def chips_on(
    accelerators: AcceleratorSet, platform: Platform, *graphs: OperatorGraph
) -> LatencyTable:
    layers = tuple(
        replace(LAYER, forward=graph, backward=graph, backward_selective=graph) for graph in graphs
    )
    model = ModelGraph(GraphKey("by_hand", 1, 1, 1), layers, tuple(range(len(layers))), (), 1)
    return populate_estimates([model], accelerators, platform)


def chip_totals_s(model: LatencyTable, graph: OperatorGraph) -> np.ndarray:
    collectives = sum(operator.collective is not None for operator in graph.operators)
    return model.times(graph, slice(None), np.zeros(collectives)).all_s


def device(name: str) -> DeviceModel:
    found, software = read_device(name)
    return DeviceModel(found, software, next(iter(found.matrix.peak)))


@cache
def read_device(name: str) -> tuple[Device, Software]:
    found = load_device(name)
    return found, load_software(found.software)


def device_totals_s(model: DeviceModel, graph: OperatorGraph) -> np.ndarray:
    return np.array([[model.operator_time(operator).device_s for operator in graph.operators]])


def device_case(name: str) -> Case:
    return Case(lambda *_: device(name), device(name).number_format, device_totals_s)


def reduction(id: int, *shape: int) -> Operator:
    return replace(vector_operator(id, "layer_norm", *shape), kind=OperatorKind.REDUCTION)


@cache
def profiled() -> DeviceModel:
    """A machine of which some products, streams, norms and attention were measured, in the format
    of the operators here."""
    operators = [
        product(size, 64, 128, phase, "bfloat16") for size in (16, 64, 1024) for phase in Phase
    ]
    operators += [
        stream(function, size, "bfloat16")
        for function in ("add", "gelu")
        for size in (2**10, 2**22)
    ]
    operators += [reduction(0, rows, 1024) for rows in (16, 1024)]
    operators += [
        attention_operator(0, 2, 16, size, 64, backward)
        for size in (64, 512)
        for backward in (False, True)
    ]
    with TemporaryDirectory() as folder:
        found = written(Path(folder), list(map(row, operators)), passes=FRAMEWORK_PASSES)
        machine = profiled_device(folder)
    return ProfiledModel(machine, load_software(machine.software), "bfloat16", found)


CASES = {
    "phaze_icml24": Case(some_chips, "bfloat16", chip_totals_s),
    "profiled": Case(lambda *_: profiled(), "bfloat16", device_totals_s),
    **{name: device_case(name) for name in device_names()},
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


SIZES = st.integers(1, 3_000)
GEMMS = st.builds(Gemm, st.sampled_from([1, 1, 8]), SIZES, SIZES, SIZES)
TAILS = st.lists(
    st.builds(VectorWork, st.sampled_from(["add", "gelu", "dropout"]), st.integers(1, 10**7)),
    max_size=2,
).map(tuple)
OPERATORS = st.one_of(
    st.builds(gemm_operator, st.just(0), GEMMS, TAILS, st.sampled_from(Phase)),
    st.builds(
        vector_operator, st.just(0), st.sampled_from(["add", "gelu", "unheard_of"]), SIZES, SIZES
    ),
    st.builds(reduction, st.just(0), SIZES, SIZES),
    st.builds(
        attention_operator,
        st.just(0),
        st.just(2),
        st.sampled_from([1, 16]),
        SIZES,
        st.just(64),
        st.booleans(),
    ),
    st.builds(collective_operator, st.just(0), st.integers(2, 10**8), st.sampled_from([2, 8])),
    st.builds(
        scan_operator,
        st.just(0),
        st.sampled_from(["selective_scan", "wkv"]),
        st.just(2),
        SIZES,
        SIZES,
        st.just(16),
    ),
    st.builds(recurrent_operator, st.just(0), st.just(3), SIZES, SIZES, st.sampled_from(Phase)),
)
GRAPHS = st.lists(OPERATORS, max_size=6).map(
    lambda found: OperatorGraph(
        tuple(replace(each, id=index) for index, each in enumerate(found)), ()
    )
)


def modes(priced) -> list[OperatorCosts]:
    return [priced.alone] if priced.on_one_core is None else [priced.alone, priced.on_one_core]


def same(some: OperatorCosts, other: OperatorCosts) -> None:
    for name, array in vars(some).items():
        expected = getattr(other, name)
        assert (array is None) == (expected is None)
        assert array is None or np.array_equal(array, expected), name


def test_every_cost_model_is_tested_here() -> None:
    for module in pkgutil.walk_packages(Estimator.__path__, "Estimator."):
        importlib.import_module(module.name)
    assert {
        model
        for each in OperatorCostModel.__subclasses__()
        for model in (each, *each.__subclasses__())
    } == {type(case.make(*PASSES)) for case in CASES.values()}


@settings(max_examples=25)
@given(graph=GRAPHS)
def test_costs_are_finite_parts_of_the_seconds(case: Case, graph: OperatorGraph) -> None:
    model = case.make(graph)
    priced = model.price(graph)
    works = [operator.collective is None for operator in graph.operators]
    for costs in modes(priced):
        for array in vars(costs).values():
            if array is not None:
                assert (
                    array.shape == (model.configurations, len(graph.operators))
                    and array.dtype == np.float64
                )
                assert np.isfinite(array).all() and (array >= 0).all()
        assert (costs.seconds[:, works] > 0).all()
    assert priced.alone.seconds == pytest.approx(case.totals_s(model, graph), rel=ROUNDING)


@settings(max_examples=25)
@given(graph=GRAPHS)
def test_one_core_is_never_faster_than_all(case: Case, graph: OperatorGraph) -> None:
    priced = case.make(graph).price(graph)
    if priced.on_one_core is not None:
        assert (priced.alone.seconds <= priced.on_one_core.seconds * (1 + ROUNDING)).all()


@settings(max_examples=25)
@given(gemm=GEMMS, axis=st.sampled_from(["batch", "m", "k", "n"]), tail=TAILS)
def test_a_product_twice_as_large_is_never_cheaper(
    case: Case, gemm: Gemm, axis: str, tail: tuple[VectorWork, ...]
) -> None:
    larger = replace(gemm, **{axis: 2 * getattr(gemm, axis)})
    never_cheaper(case, gemm_operator(0, gemm, tail), gemm_operator(1, larger, tail))


@settings(max_examples=25)
@given(
    rows=SIZES,
    length=SIZES,
    make=st.sampled_from([partial(vector_operator, 0, "gelu"), partial(reduction, 0)]),
)
def test_twice_the_elements_are_never_cheaper(
    case: Case, rows: int, length: int, make: Callable[..., Operator]
) -> None:
    never_cheaper(case, make(rows, length), make(2 * rows, length))
    never_cheaper(case, make(rows, length), make(rows, 2 * length))


@settings(max_examples=25)
@given(
    tokens=SIZES,
    width=SIZES,
    function=st.sampled_from(["selective_scan", "selective_scan_backward", "wkv"]),
)
def test_longer_and_wider_recurrences_are_never_cheaper(
    case: Case, tokens: int, width: int, function: str
) -> None:
    for larger in ({"tokens": 2 * tokens, "width": width}, {"tokens": tokens, "width": 2 * width}):
        never_cheaper(
            case, recurrent_operator(0, 2, tokens, width), recurrent_operator(1, 2, **larger)
        )
        wide = scan_operator(1, function, 2, larger["tokens"], larger["width"], 16)
        never_cheaper(case, scan_operator(0, function, 2, tokens, width, 16), wide)


@settings(max_examples=25)
@given(batch=st.integers(1, 64), tokens=SIZES, width=SIZES)
def test_no_recurrence_computes_faster_than_the_peak(
    case: Case, batch: int, tokens: int, width: int
) -> None:
    graph = OperatorGraph((recurrent_operator(0, batch, tokens, width),), ())
    model = case.make(graph)
    peak = model.peak_flops(case.number_format)
    assert (
        model.price(graph).alone.arithmetic_s[:, 0] >= graph.flops / peak * (1 - ROUNDING)
    ).all()


def test_the_steps_of_a_recurrence_take_their_time_however_large_the_device(case: Case) -> None:
    graph = OperatorGraph((recurrent_operator(0, 1, 1, 8), recurrent_operator(1, 1, 1_000, 8)), ())
    for costs in modes(case.make(graph).price(graph)):
        assert (costs.arithmetic_s[:, 1] >= 1_000 * costs.arithmetic_s[:, 0] * (1 - 1e-9)).all()


def never_cheaper(case: Case, small: Operator, large: Operator) -> None:
    both = OperatorGraph((small, large), ())
    for costs in modes(case.make(both).price(both)):
        for array in (costs.seconds, costs.host_s, costs.joules):
            assert array is None or (array[:, 1] >= array[:, 0] * (1 - ROUNDING)).all()


@settings(max_examples=25)
@given(gemm=GEMMS)
def test_no_product_computes_faster_than_the_peak(case: Case, gemm: Gemm) -> None:
    graph = OperatorGraph((gemm_operator(0, gemm),), ())
    model = case.make(graph)
    peak = model.peak_flops(case.number_format)
    assert peak.shape == (model.configurations,) and (peak > 0).all()
    assert (
        model.price(graph).alone.arithmetic_s[:, 0] >= graph.flops / peak * (1 - ROUNDING)
    ).all()


def test_a_format_the_device_does_not_compute_in_is_refused(case: Case) -> None:
    with pytest.raises(InputError, match=r"no (matrix units for|operators measured in) complex128"):
        case.make(*PASSES).peak_flops("complex128")


@settings(max_examples=25)
@given(graph=GRAPHS, data=st.data())
def test_an_operator_costs_the_same_wherever_it_stands(
    case: Case, graph: OperatorGraph, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(graph.operators))))
    kept = order[: data.draw(st.integers(0, len(order)))]
    some = OperatorGraph(tuple(graph.operators[index] for index in kept), ())
    everything = modes(case.make(graph).price(graph))
    for model in (case.make(graph, some), case.make(some)):
        for whole, part in zip(everything, modes(model.price(some)), strict=True):
            same(
                part,
                OperatorCosts(
                    *(None if array is None else array[:, kept] for array in vars(whole).values())
                ),
            )


@pytest.mark.parametrize("graph", PASSES)
def test_a_configuration_costs_the_same_whoever_is_priced_beside_it(
    case: Case, graph: OperatorGraph
) -> None:
    model = case.make(graph)
    everyone = modes(model.price(graph))
    last = model.configurations - 1
    for rows in (
        slice(None),
        slice(0, 0),
        slice(last, None),
        np.array([last]),
        np.array([last, 0, last]),
    ):
        for whole, part in zip(everyone, modes(model.price(graph, rows)), strict=True):
            same(
                part,
                OperatorCosts(
                    *(None if array is None else array[rows] for array in vars(whole).values())
                ),
            )


def test_collectives_are_priced_by_the_network(case: Case) -> None:
    sent = OperatorGraph((collective_operator(0, 10**6, 8), collective_operator(1, 10**9, 64)), ())
    for costs in modes(case.make(sent).price(sent)):
        assert not costs.seconds.any()
        assert costs.joules is None or (costs.joules[:, 1] > costs.joules[:, 0]).all()
        assert (costs.host_s[:, 0] == costs.host_s[:, 1]).all()


@pytest.mark.parametrize("graph", PASSES)
def test_the_same_question_has_the_same_answer(case: Case, graph: OperatorGraph) -> None:
    model, again = case.make(graph), case.make(*PASSES)
    assert again.fingerprint == model.fingerprint
    first = modes(model.price(graph))
    for other in (model, again):
        for costs, repeated in zip(first, modes(other.price(graph)), strict=True):
            same(costs, repeated)


def test_models_that_differ_have_other_fingerprints() -> None:
    accelerators, platform = hardware("phaze_icml24", 4_000)
    chips = [some_chips(*PASSES), some_chips(*PASSES, step=4_001)]
    chips.append(chips_on(accelerators, replace(platform, startup_s=1e-9), *PASSES))
    a100, fsdp = load_device("a100_80gb"), load_software("pytorch_fsdp")
    formats = [DeviceModel(a100, fsdp, number_format) for number_format in ("bfloat16", "float16")]
    models = [*chips, *formats, *(device(name) for name in device_names())]
    assert len({each.fingerprint for each in models}) == len(models)


def test_a_long_copy_streams(case: Case) -> None:
    elements = 2**28
    copy = replace(vector_operator(0, "copy", elements), kind=OperatorKind.MOVE)
    graph = OperatorGraph((copy,), ())
    model = case.make(graph)
    assert model.accumulation_bytes >= 0
    costs = model.price(graph).alone
    streamed = (costs.memory_s + costs.arithmetic_s)[:, 0] * model.stream_bytes_per_s
    assert (streamed >= 4.0 * elements * (1 - ROUNDING)).all()
