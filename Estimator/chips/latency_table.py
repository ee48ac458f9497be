"""Prices of all distinct operators of model graphs on all distinct core configurations, and their
lookup per accelerator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from Estimator.chips.accelerator import AcceleratorSet, Platform, TensorCores
from Estimator.chips.core_rates import CoreRates
from Estimator.chips.on_chip import OnChipMemo
from Estimator.chips.part_prices import Lookup, Parts, Priced, piece_times
from Estimator.chips.signatures import DistinctWork, distinct_work, sent_bytes
from Estimator.chips.signatures import occupies as occupies
from Estimator.chips.tensor_core import (
    JOULES_PER_PJ,
    CoreEstimate,
    CorePrices,
    TensorCoreModel,
    TensorWork,
)
from Estimator.chips.vector_core import VectorCoreModel
from Estimator.cost_model import (
    OperatorCostModel,
    OperatorCosts,
    PieceTimes,
    PricedOperators,
    collective_positions,
)
from GraphExtractor.graph import DTYPE_BYTES, GraphKey, ModelGraph, OperatorGraph
from phaze_common.array_types import FloatArray, IntArray, fieldwise
from phaze_common.arrays import read_arrays, write_arrays
from phaze_common.errors import ArtefactError, InputError
from phaze_common.files import code_version, content_key
from phaze_common.records import to_json
from phaze_common.user_cache import ESTIMATES, keep, load_or_bring

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]
# whose code makes stored prices stale
PRICED_BY = tuple(_ROOT / room for room in ("phaze_common", "GraphExtractor", "Estimator"))


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Seconds and joules of the operators of a graph, in its order, on one core and on all: shape
    (accelerators, operators)."""

    single_s: FloatArray
    all_s: FloatArray
    single_j: FloatArray
    all_j: FloatArray


@dataclass(frozen=True, eq=False)
class LatencyTable(OperatorCostModel):
    """Prices of ``work`` on the cores of ``accelerators``, of which each is a configuration; others
    are refused."""

    accelerators: AcceleratorSet
    platform: Platform
    work: DistinctWork
    tensor: CorePrices
    vector: CorePrices

    @property
    def configurations(self) -> int:
        """Number of accelerators."""
        return len(self.accelerators)

    def some(self, rows: IntArray) -> LatencyTable:
        """The same of the accelerators ``rows`` alone."""
        chips = self.accelerators
        # in the order of the cores that some of them have
        tensor, vector = (np.unique(index[rows]) for index in (chips.tc_index, chips.vc_index))
        return replace(
            self,
            accelerators=chips.some(rows),
            tensor=fieldwise(lambda prices: prices[:, tensor], self.tensor),
            vector=fieldwise(lambda prices: prices[:, vector], self.vector),
        )

    @property
    def fingerprint(self) -> str:
        """Hash of the accelerators and of the platform they share."""
        return _fingerprint(self.accelerators, self.platform)

    @property
    def stream_bytes_per_s(self) -> float:
        """HBM bandwidth, the least that one of the accelerators has."""
        return min(
            self.platform.at(variant).hbm_bandwidth_bytes_per_s
            for variant in self.accelerators.variants
        )

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
            known = ", ".join(
                name for name, size in DTYPE_BYTES.items() if size == width and "float" in name
            )
            raise InputError(
                f"designed chips have no matrix units for {number_format}; they compute on "
                f"{width} bytes: {known}"
            )
        chips = self.accelerators
        macs_per_cycle = (chips.num_tc * chips.width * chips.depth).astype(np.float64)
        frequencies = np.array(
            [self.platform.at(variant).frequency_hz for variant in chips.variants]
        )
        peaks: FloatArray = 2.0 * macs_per_cycle * frequencies[chips.variant]
        return peaks

    def price(
        self, graph: OperatorGraph, rows: IntArray | slice | None = None, panels: int = 1
    ) -> PricedOperators:
        """See OperatorCostModel. Alone means spread over all cores of the operator's type; what an
        operator sends costs joules.

        A fused operator has the parts of the slower of its two halves, whose tiles are pipelined; a
        recurrence those of both.

        Raises:
            InputError: the table was made for other graphs.
        """
        rows = slice(None) if rows is None else rows
        at = self._lookup(graph, rows)
        alone, on_one_core = (
            self._costs(graph, rows, at, mode, panels) for mode in ("all", "single")
        )
        return PricedOperators(alone=alone, on_one_core=on_one_core)

    def times(
        self,
        graph: OperatorGraph,
        rows: IntArray | slice,
        collective_s: FloatArray,
        panels: int = 1,
    ) -> OperatorTimes:
        """Price the operators of ``graph`` on the accelerators ``rows``; its collectives take
        ``collective_s``.

        These have shape (collectives,), or (collectives, rows) where accelerators have different
        links. Operators take what their parts do (``Estimator.chips.part_prices``), products of 2D
        layouts in so many ``panels``; a collective takes its time on the network whatever the mode.
        What is streamed costs joules, and seconds beyond these that
        ``Solver.designs.network_times`` adds.

        Raises:
            InputError: the table was made for other graphs.
            PhazeError: there are not as many seconds as collectives.
        """
        at, collectives = self._lookup(graph, rows), collective_positions(graph, collective_s)
        single_s, all_s = (self._seconds(at, mode, panels) for mode in ("single", "all"))
        single_j, all_j = (self._joules(graph, rows, at, mode) for mode in ("single", "all"))
        for seconds in (single_s, all_s):
            seconds[collectives] = collective_s[:, None] if collective_s.ndim == 1 else collective_s
        return OperatorTimes(
            *(np.ascontiguousarray(priced.T) for priced in (single_s, all_s, single_j, all_j))
        )

    def piece_times(
        self, graph: OperatorGraph, rows: IntArray | slice, panels: int
    ) -> tuple[PieceTimes[FloatArray], ...]:
        """Seconds of the pieces that operators run in beside what they stream, on one core and on
        all.

        Arrays of shape (accelerators, operators), which mean nothing where nothing streams.

        Raises:
            InputError: the table was made for other graphs.
        """
        at = self._lookup(graph, rows)
        return tuple(
            piece_times(self._priced(f"{mode}_s"), at, panels) for mode in ("single", "all")
        )

    def _lookup(self, graph: OperatorGraph, rows: IntArray | slice) -> Lookup:
        return Lookup.of(graph, self.work, self.accelerators, rows)

    def _priced(self, name: str) -> Priced:
        return Priced(getattr(self.tensor, name), getattr(self.vector, name))

    def _seconds(self, at: Lookup, mode: str, panels: int) -> FloatArray:
        return Parts.of(self._priced(f"{mode}_s"), at, panels).joined(at)

    def _joules(
        self, graph: OperatorGraph, rows: IntArray | slice, at: Lookup, mode: str
    ) -> FloatArray:
        """What an operator is made of costs joules however it is put together."""
        joules = Parts.of(self._priced(f"{mode}_j"), at, panels=1).summed()
        joules += self._network_j(graph, rows)
        return joules

    def _costs(
        self, graph: OperatorGraph, rows: IntArray | slice, at: Lookup, mode: str, panels: int
    ) -> OperatorCosts:
        """Costs in one mode, ``single`` or ``all``."""
        seconds = Parts.of(self._priced(f"{mode}_s"), at, panels)
        longer = seconds.vector > seconds.products
        whole_s = seconds.joined(at, longer)
        arithmetic_s = Parts.of(self._priced(f"{mode}_arithmetic_s"), at, panels).joined(at, longer)
        launch_s = Parts.of(self._starts_s(), at, panels).joined(at, longer)
        # rounding must not make it negative
        memory_s = np.maximum(whole_s - arithmetic_s - launch_s, 0.0)
        joules = self._joules(graph, rows, at, mode)
        return OperatorCosts(
            arithmetic_s.T, memory_s.T, launch_s.T, np.zeros_like(memory_s).T, joules.T
        )

    def _starts_s(self) -> Priced:
        """Seconds of starting the distinct work, however it is priced."""
        tensor = np.array([each.pieces for each in self.work.tensor], dtype=np.float64)
        vector = np.array([each.starts for each in self.work.element], dtype=np.float64)
        cores = len(self.accelerators.tensor_cores), len(self.accelerators.vector_cores)
        return Priced(
            *(
                self.platform.startup_s * np.broadcast_to(starts[:, None], (len(starts), count))
                for starts, count in zip((tensor, vector), cores, strict=True)
            )
        )

    @property
    def sent_j_per_byte(self) -> FloatArray:
        """Joules a device spends on a byte that it sends, which leaves one HBM for another; shape
        (variants,)."""
        technologies = [
            self.platform.at(variant).technology for variant in self.accelerators.variants
        ]
        pj = [each.network_energy.value + 2 * each.hbm_energy.value for each in technologies]
        return np.array(pj) * JOULES_PER_PJ

    def _network_j(self, graph: OperatorGraph, rows: IntArray | slice) -> FloatArray:
        """Joules a device spends on what operators send, (operators, 1 or accelerators)."""
        per_byte = self.sent_j_per_byte
        sent = np.array([sent_bytes(operator) for operator in graph.operators], dtype=np.float64)
        of_rows = per_byte if len(per_byte) == 1 else per_byte[self.accelerators.variant[rows]]
        joules: FloatArray = sent[:, None] * of_rows
        return joules


def _fingerprint(accelerators: AcceleratorSet, platform: Platform) -> str:
    # energies at the voltage of each clock
    used = [platform.at(variant) for variant in accelerators.variants]
    # else no operator needs a die
    alone = [replace(each, technology=replace(each.technology, die=None)) for each in used]
    return content_key(accelerators.fingerprint, *(to_json(each).decode() for each in alone))


def populate_estimates(
    graphs: Sequence[ModelGraph],
    accelerators: AcceleratorSet,
    platform: Platform,
    known: OnChipMemo | None = None,
) -> LatencyTable:
    """Price all distinct operators of ``graphs`` on all distinct core configurations of
    ``accelerators``; ``known`` are products that were priced before."""
    model = partial(TensorCoreModel, known=known)
    return priced_parts(distinct_work(graphs), accelerators, platform, model)


def load_or_populate(
    graphs: Sequence[ModelGraph],
    accelerators: AcceleratorSet,
    platform: Platform,
    folder: Path,
    known: OnChipMemo | None = None,
) -> LatencyTable:
    """As ``populate_estimates``, kept under ``folder/<model>/``; a file is found again only by
    equal inputs and equal code.

    Raises:
        PhazeError: the estimates cannot be written.
    """
    work = distinct_work(graphs)
    path = table_path(folder, graphs[0].key, work, _fingerprint(accelerators, platform))

    def load(path: Path) -> LatencyTable:
        return _load(path, accelerators, platform, work)

    stored = load_or_bring(path, ESTIMATES, path.stem, load)
    if stored is not None:
        return stored
    table = priced_parts(work, accelerators, platform, partial(TensorCoreModel, known=known))
    _store(path, table)
    keep(path, ESTIMATES, path.stem)
    return table


def table_path(folder: Path, named: GraphKey, work: DistinctWork, fingerprint: str) -> Path:
    """Where prices of ``work`` on chips with that ``fingerprint`` are kept: named by everything
    that decides them, so ``folder`` may be shared by all runs."""
    key = content_key(code_version(*PRICED_BY), fingerprint, to_json(work).decode())
    name = f"{named.label}_mbs_{named.micro_batch_size}_sl_{named.sequence_length}_{key}.npz"
    return folder / named.label / name


class TensorPrices(Protocol):
    """What prices products on tensor cores: ``TensorCoreModel``, or a bound of it."""

    def estimate(self, work: TensorWork) -> CoreEstimate:
        """Prices of one piece of work; arrays of shape (cores,)."""


def priced_parts(
    work: DistinctWork,
    accelerators: AcceleratorSet,
    platform: Platform,
    tensor_prices: Callable[[TensorCores, Platform, CoreRates], TensorPrices],
) -> LatencyTable:
    """Prices of ``work`` on all distinct cores of ``accelerators``, its products by
    ``tensor_prices``."""
    logger.debug("pricing %d products and %d vector works", len(work.tensor), len(work.element))
    tensor_cores = accelerators.tensor_cores
    vector_cores = accelerators.vector_cores
    variants = accelerators.variants
    of_tensor, of_vector = (
        CoreRates.of_variants(platform, variants, each.variant)
        for each in (tensor_cores, vector_cores)
    )
    tensor = tensor_prices(tensor_cores, platform, of_tensor)
    vector = VectorCoreModel(vector_cores, platform, of_vector)
    products = _stacked([tensor.estimate(each) for each in work.tensor], len(tensor_cores))
    lanes = _stacked([vector.estimate(each) for each in work.element], len(vector_cores))
    return LatencyTable(accelerators, platform, work, products, lanes)


def _stacked(estimates: Sequence[CoreEstimate], configurations: int) -> CorePrices:
    """``estimates`` of distinct work together."""
    none = np.zeros((0, configurations))
    every = (
        np.stack([getattr(each, column.name) for each in estimates]) if estimates else none
        for column in fields(CorePrices)
    )
    return CorePrices(*every)


def _store(path: Path, table: LatencyTable) -> None:
    tensor = {f"tensor_{name}": array for name, array in vars(table.tensor).items()}
    vector = {f"vector_{name}": array for name, array in vars(table.vector).items()}
    write_arrays(path, {**tensor, **vector})


def _load(
    path: Path, accelerators: AcceleratorSet, platform: Platform, work: DistinctWork
) -> LatencyTable:
    arrays = read_arrays(path)
    try:
        tensor = CorePrices(*(arrays[f"tensor_{field.name}"] for field in fields(CorePrices)))
        vector = CorePrices(*(arrays[f"vector_{field.name}"] for field in fields(CorePrices)))
        table = LatencyTable(accelerators, platform, work, tensor, vector)
    except KeyError as error:
        raise ArtefactError(f"{path} holds no {error}") from error
    shapes = {array.shape for array in (*vars(tensor).values(), *vars(vector).values())}
    wanted = {
        (len(work.tensor), len(accelerators.tensor_cores)),
        (len(work.element), len(accelerators.vector_cores)),
    }
    if shapes != wanted:
        raise ArtefactError(
            f"{path} does not hold what its name says (shapes {sorted(shapes)}, expected "
            f"{sorted(wanted)})"
        )
    return table
