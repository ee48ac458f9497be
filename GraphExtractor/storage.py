"""Graphs on disk: versioned JSON with a digest, rebuilt when stale, damaged or edited.

Reading a good file needs neither torch nor transformers.
"""

import gc
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from GraphExtractor.check import check_structure, warn_of
from GraphExtractor.graph import (
    Attention,
    GraphKey,
    KeyExchange,
    ModelGraph,
    StageCuts,
    TensorLayout,
)
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.permission import CodePermission
from GraphExtractor.replication import with_layers
from GraphExtractor.widths import check_key
from phaze_common.choices import ExpertWidth
from phaze_common.errors import ArtefactError, InputError, StaleArtefactError
from phaze_common.file_formats import GRAPH, KEY, FormatError
from phaze_common.files import (
    code_version,
    content_key,
    library_version,
    load_or_set_aside,
    pack,
    parse_json,
    unpack,
    write_atomically,
)
from phaze_common.records import from_json, to_json
from phaze_common.sealed import sealed, unsealed
from phaze_common.user_cache import GRAPHS, keep, load_or_bring


@dataclass(frozen=True)
class StoredGraph:
    """A graph with the hash of everything it was made from."""

    made_from: str
    graph: ModelGraph


def graph_path(key: GraphKey, folder: Path, family: ModelFamily) -> Path:
    """``<folder>/<Family>/<model>_mbs_<b>_sl_<s>[_tmp_<t>][_2d_<t2>][_cp_<c>][_<exchange>][_ep_<e>][_etp_<e>][_load_<l>][_eager][_sp][_parts]_graph.json.gz``."""
    parts = {
        f"tmp_{key.tp}": key.tp > 1,
        f"{key.layout}_{key.tp2}": key.layout is not TensorLayout.ONE_D,
        f"cp_{key.cp}": key.cp > 1,
        f"{key.exchange}": key.exchange is not KeyExchange.GATHER,
        f"ep_{key.ep}": key.ep > 1,
        f"etp_{key.etp}": key.etp is not ExpertWidth.SAME,
        f"load_{key.expert_load:g}": key.expert_load != 1.0,
        "eager": key.attention is Attention.EAGER,
        "sp": key.sequence_parallel,
        "parts": key.cuts is StageCuts.INSIDE,
        key.dtype: key.dtype != "bfloat16",
    }
    name = f"{key.label}_mbs_{key.micro_batch_size}_sl_{key.sequence_length}"
    name += "".join(f"_{part}" for part, said in parts.items() if said)
    return folder / family.folder / f"{name}_graph.json.gz"


def graph_version(key: GraphKey, family: ModelFamily) -> str:
    """Hash of the request, the configuration and every piece of code that shapes the graph."""
    code = code_version(Path(__file__).parent, Path(inspect.getfile(type(family))).parent)
    libraries = {name: library_version(name) for name in ("torch", "transformers")}
    return content_key(asdict(key), type(family).__qualname__, asdict(family), code, libraries)


def store(graph: ModelGraph, made_from: str, path: Path) -> None:
    """Write a graph; an interrupted write leaves the old file.

    Raises: PhazeError: the file cannot be written.
    """
    write_atomically(path, pack(sealed(to_json(StoredGraph(made_from, graph)))), private=True)


def store_graph(graph: ModelGraph, folder: Path, family: ModelFamily) -> None:
    """Write a graph under ``folder``, as made of ``family`` by the code and libraries there are,
    and for other runs of the user.

    Raises: InputError: the model is another by now, and who knows of which the graph is.
        PhazeError: the file cannot be written.
    """
    key = graph.key
    if find_model(key.model) != family:
        raise InputError(f"{key.model} changed while it was traced; give the command again")
    made_from, path = graph_version(key, family), graph_path(key, folder, family)
    store(graph, made_from, path)
    if family.described:  # what else code of one's own reads is not known
        keep(path, GRAPHS, made_from)


def load(path: Path, made_from: str | None = None) -> ModelGraph:
    """Read a graph, checking schema and structure, and what it was ``made_from`` (None: anything).

    Raises: ArtefactError: damaged, edited, of another schema, or stale; says which.
    """
    text = unsealed(unpack(path), str(path))
    try:
        stored = from_json(StoredGraph, text, str(path))
    except InputError as error:
        _check_version(parse_json(text, str(path)), path)
        raise ArtefactError(str(error)) from error
    _check_version({"graph": {KEY: stored.graph.schema_version}}, path)
    if made_from is not None and stored.made_from != made_from:
        raise StaleArtefactError(f"{path} was made by other code, libraries or settings")
    broken = check_structure(stored.graph)
    if broken:
        raise ArtefactError(f"{path} is not a training graph: {'; '.join(broken)}")
    return stored.graph


def _check_version(document: Any, path: Path) -> None:
    """Refuse the graph of another version, which may have other fields."""
    graph = document.get("graph") if isinstance(document, dict) else None
    try:
        GRAPH.current(graph, str(path))
    except FormatError as error:
        raise ArtefactError(str(error)) from error


def _loaded_once(path: Path, made_from: str) -> ModelGraph:
    try:
        modified_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise ArtefactError(f"{path} is gone ({error})") from error
    return _unchanged(path, made_from, modified_ns)


@lru_cache(maxsize=256)  # a search and its limits ask for the same graphs again and again
def _unchanged(path: Path, made_from: str, modified_ns: int) -> ModelGraph:
    """``load`` of a file that was written at ``modified_ns``."""
    return load(path, made_from)


def load_or_extract(
    key: GraphKey,
    folder: Path,
    force: bool = False,
    code: CodePermission = CodePermission(),  # noqa: B008 - frozen
) -> ModelGraph:
    """The graph stored under ``folder``, extracted first if absent, damaged, stale or ``force``.

    Models named by dimensions that differ in depth only share one stored trace of a few blocks. A
    model file whose graph is stored is not run; one that ``code`` withholds never is.

    Raises: InputError: as ``extract_graph``, or the model's code may not be run. PhazeError:
        extraction fails or the file cannot be written.
    """
    graph = None if force else load_stored(key, folder)
    if graph is not None:
        return graph
    key = replace(key, model=canonical_name(key.model))
    family, traced = find_model(key.model), traced_key(key)
    check_key(key, family)
    code.check(traced.model)
    traced_family = find_model(traced.model)
    # imports torch, which a stored graph does not need
    from GraphExtractor.extract import extract_graph

    _freeze()
    graph = extract_graph(traced)
    store_graph(graph, folder, traced_family)
    graph = _of_depth(graph, key)
    warn_of(graph, family)
    return graph


@cache
def _freeze() -> None:
    """Spare the garbage collector what torch is made of, which takes it a fifth of many traces."""
    gc.freeze()


def load_stored(key: GraphKey, folder: Path) -> ModelGraph | None:
    """The graph stored under ``folder``, or made from one that is; None: absent, damaged or stale.

    Raises: InputError: there is no such model, or it has no such graph.
    """
    key = replace(key, model=canonical_name(key.model))
    family, traced = find_model(key.model), traced_key(key)
    check_key(key, family)
    graph = _on_disk(traced, folder, force=False)
    return None if graph is None else of_traced(key, {traced: graph})


def of_traced(key: GraphKey, known: Mapping[GraphKey, ModelGraph]) -> ModelGraph | None:
    """The graph of ``key`` from the ``known`` one that was traced for it; None: there is none."""
    key = replace(key, model=canonical_name(key.model))
    graph = known.get(traced_key(key))
    if graph is None or graph.key == key:
        return graph
    graph = _of_depth(graph, key)
    warn_of(graph, find_model(key.model))
    return graph


def _of_depth(graph: ModelGraph, key: GraphKey) -> ModelGraph:
    """That of ``key`` from the one that was traced for it."""
    dimensions = parse_dimensions(key.model)
    if graph.key == key or dimensions is None:
        return graph
    return replace(with_layers(graph, dimensions.layers), key=key)


def traced_key(key: GraphKey) -> GraphKey:
    """The graph that is traced for ``key``: of models named by dimensions that of a few blocks."""
    dimensions = parse_dimensions(key.model)
    if dimensions is None or key.cuts is StageCuts.INSIDE:
        return key
    shared = dimensions.shared_trace
    alone = dimensions.layers in (1, shared.layers)
    return key if alone else replace(key, model=shared.name)


def check_code(
    keys: Iterable[GraphKey], folder: Path, code: CodePermission, *, force: bool = False
) -> None:
    """Refuse graphs that are made by running what ``code`` withholds, before any is made.

    Raises: InputError: the code of a model may not be run; says who names it and how to allow it.
    """
    for key in keys if code.withheld else ():
        if _on_disk(key, folder, force) is None:
            code.check(key.model)


def _on_disk(key: GraphKey, folder: Path, force: bool) -> ModelGraph | None:
    """The graph stored under ``folder``; None where there is none, or it is not to be used."""
    family = find_model(key.model)
    check_key(key, family)
    if force:
        return None
    made_from = graph_version(key, family)
    path = graph_path(key, folder, family)

    def loaded(file: Path) -> ModelGraph:
        return _loaded_once(file, made_from)

    if family.described:
        return load_or_bring(path, GRAPHS, made_from, loaded)
    return load_or_set_aside(path, loaded)
