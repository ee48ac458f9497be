"""Prices of all distinct operators of model graphs on all distinct core configurations, and their lookup per accelerator."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.arrays import read_arrays, write_arrays
from Common.errors import ArtefactError, InputError
from Common.files import code_version, content_key, load_or_set_aside
from Common.records import to_json
from Estimator.chips.accelerator import AcceleratorSet, IntArray, Platform
from Estimator.chips.signatures import DistinctWork, distinct_work, operator_signature, sent_bytes
from Estimator.chips.signatures import occupies as occupies
from Estimator.chips.technology import FloatArray
from Estimator.chips.tensor_core import JOULES_PER_PJ, CoreEstimate, CorePrices, TensorCoreModel
from Estimator.chips.vector_core import VectorCoreModel
from Estimator.cost_model import OperatorCostModel, OperatorCosts, PricedOperators, collective_positions
from GraphExtractor.graph import DTYPE_BYTES, ModelGraph, OperatorGraph

logger = logging.getLogger(__name__)

PRICED_BY = (Path(__file__).parent,)  # whose code makes stored prices stale


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Seconds and joules of the operators of a graph, in its order, on one core and on all: shape (accelerators, operators)."""

    single_s: FloatArray
    all_s: FloatArray
    single_j: FloatArray
    all_j: FloatArray


@dataclass(frozen=True, eq=False)
class _Lookup:
    """Where a table has the prices of some operators, and of some accelerators; -1 where an operator has no such part."""

    tensor: IntArray
    element: IntArray
    tc_index: IntArray
    vc_index: IntArray
    recurrent: NDArray[np.bool_]  # (operators,): whose halves wait for each other in every step


@dataclass(frozen=True, eq=False)
class LatencyTable(OperatorCostModel):
    """Prices of ``work`` on the cores of ``accelerators``, of which each is a configuration; others are refused."""

    accelerators: AcceleratorSet
    platform: Platform
    work: DistinctWork
    tensor: CorePrices
    vector: CorePrices

    @property
    def configurations(self) -> int:
        """Number of accelerators."""
        return len(self.accelerators)

    @property
    def fingerprint(self) -> str:
        """Hash of the accelerators and of the platform they share."""
        return _fingerprint(self.accelerators, self.platform)

    @property
    def stream_bytes_per_s(self) -> float:
        """HBM bandwidth, the same of all accelerators."""
        return self.platform.hbm_bandwidth_bytes_per_s

    @property
    def accumulation_bytes(self) -> float:
        """None: the product that makes a weight gradient adds it to the buffer it writes."""
        return 0.0

    def peak_flops(self, number_format: str) -> FloatArray:
        """Two per multiply-accumulate of every processing element and cycle; shape (accelerators,).

        Raises:
            InputError: elements of that format are not as wide as the processing elements.
        """
        width = self.platform.bytes_per_element
        if DTYPE_BYTES.get(number_format) != width:
            known = ", ".join(name for name, size in DTYPE_BYTES.items() if size == width and "float" in name)
            raise InputError(f"designed chips have no matrix units for {number_format}; they compute on {width} bytes: {known}")
        chips = self.accelerators
        macs_per_cycle = (chips.num_tc * chips.width * chips.depth).astype(np.float64)
        return 2.0 * macs_per_cycle * self.platform.frequency_hz

    def price(self, graph: OperatorGraph, rows: IntArray | slice | None = None) -> PricedOperators:
        """See OperatorCostModel. Alone means spread over all cores of the operator's type; what an operator sends costs joules.

        A fused operator has the parts of the slower of its two halves, whose tiles are pipelined; a recurrence those of both.

        Raises:
            InputError: the table was made for other graphs.
        """
        lookup = self._lookup(graph, slice(None) if rows is None else rows)
        return PricedOperators(alone=self._costs(graph, lookup, "all"), on_one_core=self._costs(graph, lookup, "single"))

    def times(self, graph: OperatorGraph, rows: IntArray | slice, collective_s: FloatArray) -> OperatorTimes:
        """Price the operators of ``graph`` on the accelerators ``rows``; its collectives take ``collective_s``, (collectives,).

        A fused operator takes as long as the slower of its two parts, whose tiles are pipelined, a recurrence as long as both,
        which take turns; a collective takes its time on the network whatever the mode. What is streamed costs joules, and seconds
        beyond these that ``Solver.search.network_times`` adds.

        Raises:
            InputError: the table was made for other graphs.
            PhazeError: there are not as many seconds as collectives.
        """
        lookup = self._lookup(graph, rows)
        tensor, element = lookup.tensor, lookup.element
        collectives, network_j = collective_positions(graph, collective_s), self._network_j(graph)
        results = []
        for name, combine in (("single_s", np.maximum), ("all_s", np.maximum), ("single_j", np.add), ("all_j", np.add)):
            priced = np.zeros((len(graph.operators), len(lookup.tc_index)))
            priced[tensor >= 0] = getattr(self.tensor, name)[tensor[tensor >= 0]][:, lookup.tc_index]
            on_vector = getattr(self.vector, name)[element[element >= 0]][:, lookup.vc_index]
            both = lookup.recurrent[element >= 0][:, None]
            products = priced[element >= 0]
            priced[element >= 0] = np.where(both, products + on_vector, combine(products, on_vector))
            results.append(priced)
        for seconds in results[:2]:
            seconds[collectives] = collective_s[:, None]
        for joules in results[2:]:
            joules += network_j[:, None]
        return OperatorTimes(*(np.ascontiguousarray(priced.T) for priced in results))

    def _lookup(self, graph: OperatorGraph, rows: IntArray | slice) -> _Lookup:
        signatures = [operator_signature(operator) for operator in graph.operators]
        return _Lookup(
            _positions(self.work.tensor, [each.tensor for each in signatures]),
            _positions(self.work.element, [each.element for each in signatures]),
            self.accelerators.tc_index[rows],
            self.accelerators.vc_index[rows],
            np.array([any(gemm.dependent for gemm in operator.gemms) for operator in graph.operators], dtype=np.bool_),
        )

    def _costs(self, graph: OperatorGraph, lookup: _Lookup, mode: str) -> OperatorCosts:
        """Costs in one mode, ``single`` or ``all``."""
        shape = len(graph.operators), len(lookup.tc_index)
        seconds, arithmetic_s, launch_s, joules = (np.zeros(shape) for _ in range(4))
        on_tensor, on_vector = lookup.tensor >= 0, lookup.element >= 0
        products, elements = lookup.tensor[on_tensor], lookup.element[on_vector]
        for array, name in ((seconds, f"{mode}_s"), (arithmetic_s, f"{mode}_arithmetic_s"), (joules, f"{mode}_j")):
            array[on_tensor] = getattr(self.tensor, name)[products][:, lookup.tc_index]
        launch_s[on_tensor] = self.platform.startup_s
        vector_s = getattr(self.vector, f"{mode}_s")[elements][:, lookup.vc_index]
        vector_arithmetic_s = getattr(self.vector, f"{mode}_arithmetic_s")[elements][:, lookup.vc_index]
        vector_launch_s = np.array([self.platform.startup_s if self.work.element[each].starts else 0.0 for each in elements])
        both = lookup.recurrent[on_vector][:, None]
        slower = (vector_s > seconds[on_vector]) & ~both
        seconds[on_vector] = np.where(slower, vector_s, seconds[on_vector] + np.where(both, vector_s, 0.0))
        arithmetic_s[on_vector] = np.where(
            slower, vector_arithmetic_s, arithmetic_s[on_vector] + np.where(both, vector_arithmetic_s, 0.0)
        )
        launch_s[on_vector] = np.where(slower, vector_launch_s[:, None], launch_s[on_vector])
        joules[on_vector] += getattr(self.vector, f"{mode}_j")[elements][:, lookup.vc_index]
        joules += self._network_j(graph)[:, None]
        memory_s = np.maximum(seconds - arithmetic_s - launch_s, 0.0)  # rounding must not make it negative
        return OperatorCosts(arithmetic_s.T, memory_s.T, launch_s.T, np.zeros(shape).T, joules.T)

    def _network_j(self, graph: OperatorGraph) -> FloatArray:
        """Joules a device spends on what each operator sends, shape (operators,): it leaves one HBM for another."""
        technology = self.platform.technology
        pj_per_byte = technology.network_energy.value + 2 * technology.hbm_energy.value
        sent = [sent_bytes(operator) for operator in graph.operators]
        return np.array(sent, dtype=np.float64) * pj_per_byte * JOULES_PER_PJ


def _fingerprint(accelerators: AcceleratorSet, platform: Platform) -> str:
    return content_key(accelerators.fingerprint, to_json(platform).decode())


def _positions(known: Sequence[object], wanted: Sequence[object]) -> NDArray[np.int64]:
    """Index of each wanted work among the known, -1 for None."""
    index = {work: position for position, work in enumerate(known)}
    missing = next((work for work in wanted if work is not None and work not in index), None)
    if missing is not None:
        raise InputError(f"the latency table has no price for {missing}; populate it with the graph that is looked up")
    return np.array([-1 if work is None else index[work] for work in wanted], dtype=np.int64)


def populate_estimates(graphs: Sequence[ModelGraph], accelerators: AcceleratorSet, platform: Platform) -> LatencyTable:
    """Price all distinct operators of ``graphs`` on all distinct core configurations of ``accelerators``."""
    return _priced(distinct_work(graphs), accelerators, platform)


def load_or_populate(
    graphs: Sequence[ModelGraph], accelerators: AcceleratorSet, platform: Platform, folder: Path
) -> LatencyTable:
    """As ``populate_estimates``, kept under ``folder/<model>/``; a file is found again only by equal inputs and equal code.

    Raises:
        PhazeError: the estimates cannot be written.
    """
    work = distinct_work(graphs)
    key = content_key(code_version(*PRICED_BY), _fingerprint(accelerators, platform), to_json(work).decode())
    named = graphs[0].key
    name = f"{named.label}_mbs_{named.micro_batch_size}_sl_{named.sequence_length}_{key}.npz"
    path = folder / named.label / name

    def load(path: Path) -> LatencyTable:
        return _load(path, accelerators, platform, work)

    stored = load_or_set_aside(path, load)
    if stored is not None:
        return stored
    table = _priced(work, accelerators, platform)
    _store(path, table)
    return table


def _priced(work: DistinctWork, accelerators: AcceleratorSet, platform: Platform) -> LatencyTable:
    tensor_model = TensorCoreModel(accelerators.tensor_cores, platform)
    vector_model = VectorCoreModel(accelerators.vector_cores, platform)
    logger.debug("pricing %d products and %d vector works", len(work.tensor), len(work.element))
    return LatencyTable(
        accelerators,
        platform,
        work,
        _stacked([tensor_model.estimate(each) for each in work.tensor], len(accelerators.tensor_cores)),
        _stacked([vector_model.estimate(each) for each in work.element], len(accelerators.vector_cores)),
    )


def _stacked(estimates: Sequence[CoreEstimate], configurations: int) -> CorePrices:
    columns = ([getattr(estimate, field.name) for estimate in estimates] for field in fields(CorePrices))
    return CorePrices(*(np.array(column).reshape(len(estimates), configurations) for column in columns))


def _store(path: Path, table: LatencyTable) -> None:
    tensor = {f"tensor_{name}": array for name, array in vars(table.tensor).items()}
    vector = {f"vector_{name}": array for name, array in vars(table.vector).items()}
    write_arrays(path, {**tensor, **vector})


def _load(path: Path, accelerators: AcceleratorSet, platform: Platform, work: DistinctWork) -> LatencyTable:
    arrays = read_arrays(path)
    try:
        tensor = CorePrices(*(arrays[f"tensor_{field.name}"] for field in fields(CorePrices)))
        vector = CorePrices(*(arrays[f"vector_{field.name}"] for field in fields(CorePrices)))
        table = LatencyTable(accelerators, platform, work, tensor, vector)
    except KeyError as error:
        raise ArtefactError(f"{path} holds no {error}") from error
    shapes = {array.shape for array in vars(table.tensor).values()} | {array.shape for array in vars(table.vector).values()}
    wanted = {(len(work.tensor), len(accelerators.tensor_cores)), (len(work.element), len(accelerators.vector_cores))}
    if shapes != wanted:
        raise ArtefactError(f"{path} does not hold what its name says (shapes {sorted(shapes)}, expected {sorted(wanted)})")
    return table
