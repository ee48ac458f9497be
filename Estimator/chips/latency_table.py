"""Prices of all distinct operators of model graphs on all distinct core configurations, and their lookup per accelerator."""

from __future__ import annotations

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
from Estimator.chips.signatures import DistinctWork, distinct_work, operator_signature
from Estimator.chips.signatures import occupies as occupies
from Estimator.chips.technology import FloatArray
from Estimator.chips.tensor_core import JOULES_PER_PJ, CoreEstimate, TensorCoreModel
from Estimator.chips.vector_core import VectorCoreModel
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s, wire_bytes
from GraphExtractor.graph import ModelGraph, OperatorGraph

logger = logging.getLogger(__name__)

TP_STRIDE = 1  # tensor-parallel groups sit innermost
ROOMS = (Path(__file__).parent, Path(__file__).parent.parent / "network")


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Seconds and joules of the operators of a graph, in its order, on one core and on all: shape (accelerators, operators)."""

    single_s: FloatArray
    all_s: FloatArray
    single_j: FloatArray
    all_j: FloatArray


@dataclass(frozen=True, eq=False)
class CorePrices:
    """Prices on one kind of core, on one core and on all: seconds and joules, shape (distinct work, core configurations)."""

    single_s: FloatArray
    all_s: FloatArray
    single_j: FloatArray
    all_j: FloatArray


@dataclass(frozen=True, eq=False)
class LatencyTable:
    """Prices of ``work`` on the cores of ``accelerators``; collectives have one price, shape (distinct collectives,)."""

    accelerators: AcceleratorSet
    work: DistinctWork
    tensor: CorePrices
    vector: CorePrices
    network_s: FloatArray
    network_j: FloatArray

    def times(self, graph: OperatorGraph, rows: IntArray | slice) -> OperatorTimes:
        """Price the operators of ``graph`` on the accelerators ``rows``.

        A fused operator takes as long as the slower of its two parts, whose tiles are pipelined; a collective takes its
        time on the network whatever the mode.

        Raises:
            InputError: the table was made for other graphs.
        """
        signatures = [operator_signature(operator) for operator in graph.operators]
        tensor = _positions(self.work.tensor, [each.tensor for each in signatures])
        element = _positions(self.work.element, [each.element for each in signatures])
        collective = _positions(self.work.collective, [each.collective for each in signatures])
        tc_index, vc_index = self.accelerators.tc_index[rows], self.accelerators.vc_index[rows]
        results = []
        for name, network, combine in (
            ("single_s", self.network_s, np.maximum),
            ("all_s", self.network_s, np.maximum),
            ("single_j", self.network_j, np.add),
            ("all_j", self.network_j, np.add),
        ):
            priced = np.zeros((len(signatures), len(tc_index)))
            priced[tensor >= 0] = getattr(self.tensor, name)[tensor[tensor >= 0]][:, tc_index]
            on_vector = getattr(self.vector, name)[element[element >= 0]][:, vc_index]
            priced[element >= 0] = combine(priced[element >= 0], on_vector)
            priced[collective >= 0] = network[collective[collective >= 0], None]
            results.append(np.ascontiguousarray(priced.T))
        return OperatorTimes(*results)


def _positions(known: Sequence[object], wanted: Sequence[object]) -> NDArray[np.int64]:
    """Index of each wanted work among the known, -1 for None."""
    index = {work: position for position, work in enumerate(known)}
    missing = next((work for work in wanted if work is not None and work not in index), None)
    if missing is not None:
        raise InputError(f"the latency table has no price for {missing}; populate it with the graph that is looked up")
    return np.array([-1 if work is None else index[work] for work in wanted], dtype=np.int64)


def populate_estimates(
    graphs: Sequence[ModelGraph], accelerators: AcceleratorSet, platform: Platform, cluster: Cluster
) -> LatencyTable:
    """Price all distinct operators of ``graphs`` on all distinct core configurations of ``accelerators``."""
    return _priced(distinct_work(graphs), accelerators, platform, cluster)


def load_or_populate(
    graphs: Sequence[ModelGraph], accelerators: AcceleratorSet, platform: Platform, cluster: Cluster, folder: Path
) -> LatencyTable:
    """As ``populate_estimates``, kept under ``folder/<model>/``; a file is found again only by equal inputs and equal code.

    Raises:
        PhazeError: the estimates cannot be written.
    """
    work = distinct_work(graphs)
    key = content_key(
        code_version(ROOMS), accelerators.fingerprint, *(to_json(part).decode() for part in (platform, cluster, work))
    )
    named = graphs[0].key
    name = f"{named.label}_mbs_{named.micro_batch_size}_sl_{named.sequence_length}_{key}.npz"
    path = folder / named.label / name

    def load(path: Path) -> LatencyTable:
        return _load(path, accelerators, work)

    stored = load_or_set_aside(path, load)
    if stored is not None:
        return stored
    table = _priced(work, accelerators, platform, cluster)
    _store(path, table)
    return table


def _priced(work: DistinctWork, accelerators: AcceleratorSet, platform: Platform, cluster: Cluster) -> LatencyTable:
    tensor_model = TensorCoreModel(accelerators.tensor_cores, platform)
    vector_model = VectorCoreModel(accelerators.vector_cores, platform)
    technology = platform.technology
    network_s, network_j = [], []
    for collective in work.collective:
        kind, payload, group = collective.kind, collective.payload_bytes, collective.group_size
        network_s.append(collective_s(kind, payload, group, TP_STRIDE, cluster))
        wire = wire_bytes(kind, payload, group)
        network_j.append(wire * (technology.network_energy.value + 2 * technology.hbm_energy.value) * JOULES_PER_PJ)
    logger.debug("priced %d products, %d vector works, %d collectives", *map(len, vars(work).values()))
    return LatencyTable(
        accelerators,
        work,
        _stacked([tensor_model.estimate(each) for each in work.tensor], len(accelerators.tensor_cores)),
        _stacked([vector_model.estimate(each) for each in work.element], len(accelerators.vector_cores)),
        np.array(network_s, dtype=np.float64),
        np.array(network_j, dtype=np.float64),
    )


def _stacked(estimates: Sequence[CoreEstimate], configurations: int) -> CorePrices:
    columns = ([getattr(estimate, field.name) for estimate in estimates] for field in fields(CorePrices))
    return CorePrices(*(np.array(column).reshape(len(estimates), configurations) for column in columns))


def _store(path: Path, table: LatencyTable) -> None:
    tensor = {f"tensor_{name}": array for name, array in vars(table.tensor).items()}
    vector = {f"vector_{name}": array for name, array in vars(table.vector).items()}
    write_arrays(path, {**tensor, **vector, "network_s": table.network_s, "network_j": table.network_j})


def _load(path: Path, accelerators: AcceleratorSet, work: DistinctWork) -> LatencyTable:
    arrays = read_arrays(path)
    try:
        tensor = CorePrices(*(arrays[f"tensor_{field.name}"] for field in fields(CorePrices)))
        vector = CorePrices(*(arrays[f"vector_{field.name}"] for field in fields(CorePrices)))
        table = LatencyTable(accelerators, work, tensor, vector, arrays["network_s"], arrays["network_j"])
    except KeyError as error:
        raise ArtefactError(f"{path} holds no {error}") from error
    shapes = {array.shape for array in vars(table.tensor).values()} | {array.shape for array in vars(table.vector).values()}
    wanted = {(len(work.tensor), len(accelerators.tensor_cores)), (len(work.element), len(accelerators.vector_cores))}
    if shapes != wanted:
        raise ArtefactError(f"{path} does not hold what its name says (shapes {sorted(shapes)}, expected {sorted(wanted)})")
    return table
