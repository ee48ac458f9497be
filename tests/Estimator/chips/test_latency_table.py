"""Prices of whole graphs on all accelerators, and their file."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
from Estimator.chips.latency_table import LatencyTable, load_or_populate, populate_estimates
from Estimator.chips.signatures import Occupies, distinct_work, occupies, operator_signature
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import Gemm, ModelGraph, OperatorGraph, VectorWork
from phaze_common.errors import InputError, PhazeError
from phaze_common.user_cache import SETTING
from tests.builders.operators_by_hand import (
    collective_operator,
    gemm_operator,
    innermost_network,
    model_graph,
    vector_operator,
)

GRAPH = model_graph()
NO_COLLECTIVES = np.zeros(0)
Load = Callable[..., LatencyTable]


@pytest.fixture(scope="module")
def few(accelerators: AcceleratorSet) -> AcceleratorSet:
    """Sixty accelerators from all over the space."""
    return AcceleratorSet.of([accelerators.accelerator(index) for index in range(17, 29_360, 497)])


@pytest.fixture(scope="module")
def table(few: AcceleratorSet, platform: Platform) -> LatencyTable:
    return populate_estimates([GRAPH], few, platform)


def test_every_operator_costs_time_and_energy_on_every_accelerator(
    table: LatencyTable, few: AcceleratorSet
) -> None:
    for graph in (GRAPH.layers[0].forward, GRAPH.layers[0].backward):
        busy = [operator.collective is None for operator in graph.operators]
        times = table.times(graph, slice(None), np.zeros(busy.count(False)))
        for array in vars(times).values():
            assert array.shape == (len(few), len(graph.operators))
            assert np.isfinite(array).all() and (array[:, busy] > 0).all()
        assert (times.all_s <= times.single_s * (1 + 1e-9)).all()


def test_rows_select_accelerators(table: LatencyTable) -> None:
    graph = GRAPH.layers[0].forward
    everyone, some = (
        table.times(graph, rows, np.ones(1)) for rows in (slice(None), np.array([5, 0, 30]))
    )
    for name, array in vars(some).items():
        assert (array == getattr(everyone, name)[[5, 0, 30]]).all()


def test_price_in_seconds_by_hand(platform: Platform) -> None:
    """BERT-large's first feed-forward product with its GELU: bound by HBM, in seconds (the original
    mistook 1.05 GHz)."""
    product = Gemm(1, 512, 1024, 4096)
    operator = gemm_operator(0, product, (VectorWork("gelu", 512 * 4096),))
    chip = AcceleratorSet.of([Accelerator(32, 256, 64, 128, 64, 4 << 20, 0.0)])
    layer = replace(GRAPH.layers[0], forward=OperatorGraph((operator,), ()))
    graph = replace(GRAPH, layers=(layer,))
    times = populate_estimates([graph], chip, platform).times(
        layer.forward, slice(None), NO_COLLECTIVES
    )
    operands = 2 * (512 * 1024 + 1024 * 4096 + 512 * 4096)
    skew_cycles = 128 + 64 - 2  # outputs stay in place: no weights to load
    assert times.all_s[0, 0] == pytest.approx(
        operands / 1.2e12 + skew_cycles / 1.05e9 + 2e-7, rel=1e-12
    )


@pytest.mark.parametrize("kind", ["tensor", "vector"])
def test_more_cores_or_buffer_never_slow_any_accelerator_down(
    kind: str, accelerators: AcceleratorSet, platform: Platform
) -> None:
    """Every operator of a layer of BERT-large's size, on the whole space, in both directions of an
    axis."""
    table = populate_estimates([model_graph(1, 512, 1024, 16)], accelerators, platform)
    cores = vars(accelerators.tensor_cores if kind == "tensor" else accelerators.vector_cores)
    seconds = getattr(table, kind).all_s
    for axis in ("num", "glb_bytes"):
        others = [values for name, values in cores.items() if name != axis]
        order = np.lexsort((cores[axis], *others))
        neighbours = np.all([np.diff(values[order]) == 0 for values in others], axis=0)
        assert neighbours.sum() > 500
        slower = np.diff(seconds[:, order], axis=1)[:, neighbours]
        assert (slower <= 1e-12 * seconds.min()).all()


def test_equal_operators_are_priced_once() -> None:
    work = distinct_work([GRAPH, GRAPH])
    operators = GRAPH.layers[0].forward.operators + GRAPH.layers[0].backward.operators
    assert len(work.tensor) == len(
        {operator_signature(each).tensor for each in operators if each.gemms}
    )
    renamed = replace(operators[1], id=99, name="other")
    assert operator_signature(renamed) == operator_signature(operators[1])


def test_fused_operator_takes_as_long_as_its_slower_part(
    few: AcceleratorSet, platform: Platform
) -> None:
    gemm = Gemm(1, 256, 256, 256)
    plain = gemm_operator(0, gemm)
    light = gemm_operator(1, gemm, (VectorWork("add", 1),))
    heavy = gemm_operator(2, gemm, (VectorWork("tanh", 10**10),))
    graph = OperatorGraph((plain, light, heavy), ())
    layer = replace(GRAPH.layers[0], forward=graph)
    table = populate_estimates([replace(GRAPH, layers=(layer,))], few, platform)
    times = table.times(graph, slice(None), NO_COLLECTIVES)
    assert (times.all_s[:, 1] == times.all_s[:, 0]).all()
    lanes = few.num_vc * few.width_vc
    assert times.all_s[:, 2] == pytest.approx(np.ceil(1e10 / lanes) * 27 / platform.frequency_hz)
    assert (times.all_j[:, 2] > times.all_j[:, 1]).all()


def test_collective_takes_its_network_time_in_both_modes(
    few: AcceleratorSet, platform: Platform, flat_cluster: Cluster
) -> None:
    graph = model_graph(tp=4)
    forward = graph.layers[0].forward
    collective_s = innermost_network(flat_cluster).collectives_s(forward)
    times = populate_estimates([graph], few, platform).times(forward, slice(None), collective_s)
    payload = 128 * 256 * 2
    assert times.single_s[:, 4] == pytest.approx(2 * 3 / 4 * payload / 4 / 2**30)
    assert (times.single_s[:, 4] == times.all_s[:, 4]).all()
    assert (times.single_j[:, 4] > 0).all()


def test_cores_an_operator_occupies() -> None:
    gemm = Gemm(1, 8, 8, 8)
    assert occupies(gemm_operator(0, gemm)) == Occupies(tensor_core=True, vector_core=False)
    assert occupies(gemm_operator(0, gemm, (VectorWork("add", 64),))) == Occupies(
        tensor_core=True, vector_core=True
    )
    assert occupies(vector_operator(0, "add", 64)) == Occupies(tensor_core=False, vector_core=True)
    assert occupies(collective_operator(0, 64, 2)) == Occupies(tensor_core=False, vector_core=True)


def test_unpriced_operator_is_refused(table: LatencyTable) -> None:
    stranger = OperatorGraph((gemm_operator(0, Gemm(1, 7, 7, 7)),), ())
    with pytest.raises(InputError, match="no price for TensorWork"):
        table.times(stranger, slice(None), NO_COLLECTIVES)
    with pytest.raises(InputError, match="no price for TensorWork"):
        table.price(stranger)


def test_every_collective_needs_its_seconds(table: LatencyTable) -> None:
    with pytest.raises(PhazeError, match="1 collectives was given seconds of shape"):
        table.times(GRAPH.layers[0].forward, slice(None), NO_COLLECTIVES)


class TestFile:
    """The estimates on disk."""

    @pytest.fixture
    def load(self, few: AcceleratorSet, platform: Platform, tmp_path: Path) -> Load:
        def load(graph: ModelGraph = GRAPH, platform: Platform = platform) -> LatencyTable:
            return load_or_populate([graph], few, platform, tmp_path)

        return load

    def files(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("by_hand/by_hand_mbs_*.npz"))

    def test_second_time_comes_from_the_file(
        self, load: Load, tmp_path: Path, table: LatencyTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load()
        assert len(self.files(tmp_path)) == 1
        monkeypatch.setattr("Estimator.chips.latency_table.TensorCoreModel", None)
        again = load()
        graph = GRAPH.layers[0].backward
        for name, array in vars(again.times(graph, slice(None), NO_COLLECTIVES)).items():
            assert (array == getattr(table.times(graph, slice(None), NO_COLLECTIVES), name)).all()

    def test_what_another_run_of_the_user_priced_is_read(
        self,
        few: AcceleratorSet,
        platform: Platform,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv(SETTING, str(tmp_path / "cache"))
        load_or_populate([GRAPH], few, platform, tmp_path / "first")
        monkeypatch.setattr("Estimator.chips.latency_table.TensorCoreModel", None)
        load_or_populate([GRAPH], few, platform, tmp_path / "second")
        first, second = (self.files(tmp_path / each) for each in ("first", "second"))
        assert [each.read_bytes() for each in first] == [each.read_bytes() for each in second]
        assert len(first) == 1

    def test_other_inputs_are_another_file(
        self, load: Load, platform: Platform, tmp_path: Path
    ) -> None:
        load()
        load(model_graph(batch=2))
        load(platform=replace(platform, hbm_bandwidth_bytes_per_s=2e12))
        functions = replace(platform.vector_functions, cycles_per_element={"add": 1.0})
        load(platform=replace(platform, vector_functions=functions))
        assert len(self.files(tmp_path)) == 4

    @pytest.mark.parametrize(
        "damage",
        [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"not a zip" * 99],
    )
    def test_damaged_file_is_set_aside_and_rebuilt(
        self,
        load: Load,
        tmp_path: Path,
        damage: Callable[[bytes], bytes],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        before = load()
        (path,) = self.files(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        with caplog.at_level(logging.WARNING):
            after = load()
        assert path.name in caplog.text and path.with_name(path.name + ".damaged").exists()
        assert path.read_bytes() == whole
        assert (after.tensor.all_s == before.tensor.all_s).all()
