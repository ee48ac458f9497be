"""The graphs that a search needs: read from disk, made one by one, or many in processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from pathlib import Path

from GraphExtractor.check import warn_of
from GraphExtractor.followed_graphs import all_traces, kinds_of_division, next_traces
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.registry import find_model
from GraphExtractor.permission import CodePermission
from GraphExtractor.storage import load_or_extract, load_stored, of_traced
from phaze_common.errors import PhazeError
from phaze_common.processes import in_processes
from phaze_common.progress import Advance

logger = logging.getLogger(__name__)

MANY = 24  # that are left to be made: processes of their own start torch
LONG_S = 12.0  # CPU-seconds of making some here first, about what starting a few processes takes


def load_or_extract_all(
    keys: Sequence[GraphKey], folder: Path, force: bool, code: CodePermission, advance: Advance
) -> dict[GraphKey, ModelGraph]:
    """``load_or_extract`` of all ``keys``, of which those that follow from others are not traced;
    ``advance`` gets how many more graphs are there.

    Raises: InputError, PhazeError: as ``load_or_extract``.
    """
    graphs: dict[GraphKey, ModelGraph] = {}
    for key in () if force else keys:
        graph = load_stored(key, folder)
        if graph is not None:
            graphs[key] = graph
            advance(1)
    missing = [key for key in keys if key not in graphs]
    if not missing:
        return graphs
    kinds, there = kinds_of_division(keys, graphs, folder), len(graphs)

    def ready(count: int) -> None:
        nonlocal there
        there += count
        advance(count)

    traces, made = all_traces(kinds), None
    while traced := next_traces(traces, made):
        made = _make(traced, folder, force, code, ready)
    advance(len(keys) - there)  # those that follow from them
    known = {key: graph for kind in kinds if kind.described for key, graph in kind.known.items()}
    for key in missing:
        graph = of_traced(key, known)
        graphs[key] = load_or_extract(key, folder, code=code) if graph is None else graph
    return graphs


def _make(
    keys: Sequence[GraphKey], folder: Path, force: bool, code: CodePermission, advance: Advance
) -> dict[GraphKey, ModelGraph]:
    # a worker of somebody's has but its share of the cores
    several = (os.cpu_count() or 1) > 1 and multiprocessing.parent_process() is None
    begun_s, made = time.process_time(), set[GraphKey]()
    graphs = {}
    for place, key in enumerate(keys):
        left = keys[place:]
        if several and len(left) >= MANY and time.process_time() - begun_s >= LONG_S:
            made.update(_made_apart(left, folder, force, code, advance))
            several = False
        graph = graphs[key] = load_or_extract(key, folder, force and key not in made, code)
        if key in made:
            warn_of(graph, find_model(key.model))
        else:
            advance(1)
    return graphs


def _made_apart(
    keys: Sequence[GraphKey], folder: Path, force: bool, code: CodePermission, advance: Advance
) -> list[GraphKey]:
    """Those of ``keys`` that processes have made; what fails there fails again, here."""
    made = []
    try:
        for key in in_processes(partial(_made, folder, force, code), keys, os.cpu_count() or 1):
            if key is not None:
                made.append(key)
                advance(1)
    except BrokenExecutor:
        logger.warning(
            "a process that extracts graphs has died; the graphs left are extracted here"
        )
    return made


def _made(folder: Path, force: bool, code: CodePermission, key: GraphKey) -> GraphKey | None:
    logging.disable()  # the caller says what there is to say
    try:
        load_or_extract(key, folder, force, code)
    except PhazeError:
        return None
    return key
