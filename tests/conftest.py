"""What every test may use: graphs and data that tests share, and how many examples they try."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from GraphExtractor.graph import Attention, GraphKey, ModelGraph
from GraphExtractor.models.registry import find_model
from phaze_common import user_cache
from phaze_common.compiled_code import find_place
from phaze_common.logs import PACKAGES
from tests.builders.traces import TraceStore

pytest_plugins = ["tests.builders.distribution", "tests.builders.processes"]

find_place()  # before anything is compiled, and for the processes that tests start
# Python keeps its bytecode too, whatever the environment says: a hundred processes would each
# compile every source again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

REPOSITORY = Path(__file__).resolve().parent.parent
THOROUGH = "PHAZE_THOROUGH"  # environment variable that stands for --thorough
# folders and files whose tests trace models, and so need torch in any case
TRACING = {
    "docs",
    "phaze",
    "GraphExtractor",
    "designs",
    "plans",
    "test_reference_pages.py",
    "test_traces.py",
    "test_transformer_perf_estimates_compare.py",
}
# folders whose tests search designs
SEARCHING = {"designs", "docs", "phaze"}

Extract = Callable[..., ModelGraph]

# How long one example takes is the machine's business. The default examples are the same in every
# run; thorough ones are new each time, and a failure prints what repeats it.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
# where Hypothesis keeps those of a test; it has no public name
SETTINGS = "_hypothesis_internal_use_settings"
SCALED = "phaze_tries_more_examples"
MORE_EXAMPLES = 10  # that a thorough session tries of tests with a number of their own
FEWER_EXAMPLES = 2  # a usual session tries one in so many, but not fewer than
LEAST_EXAMPLES = 20
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        default=os.environ.get(THOROUGH, "") not in ("", "0"),
        help="every listed model at every width, graphs traced anew, ten times the examples and "
        f"new ones (or {THOROUGH}=1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.getoption("--thorough") else "default")
    os.environ[user_cache.SETTING] = ""  # no test gets from others what it is to make
    if config.getoption("numprocesses", None):
        # Before workers start, which share the cores: threads of a product that is small wait for
        # each other longer than they compute.
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Scale the number of examples that a test of properties asks for itself; the profile has that
    of all others."""
    test = getattr(item, "obj", None)
    own: settings | None = getattr(test, SETTINGS, None)
    if own is None or hasattr(test, SCALED) or own.max_examples == settings.default.max_examples:
        return
    setattr(test, SCALED, True)  # the items of a parametrised test share it
    examples = own.max_examples * MORE_EXAMPLES
    if not item.config.getoption("--thorough"):
        examples = min(own.max_examples, max(LEAST_EXAMPLES, own.max_examples // FEWER_EXAMPLES))
    setattr(test, SETTINGS, settings(own, max_examples=examples))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked so to thorough sessions, unless it is asked for by its identifier."""
    if config.getoption("--thorough"):
        return
    marked = {item for item in items if item.get_closest_marker("thorough")} | set(
        _beyond_some(items)
    )
    left_out = {
        item
        for item in marked
        if not any(argument.endswith(item.nodeid) for argument in config.args)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _beyond_some(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Of tests that only need ``some`` of their many similar cases in a usual session, the others;
    those taken lie evenly."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some") and not item.get_closest_marker("thorough"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for mine in cases.values():
        marker = mine[0].get_closest_marker("some")
        assert marker is not None
        taken = {
            (2 * number + 1) * len(mine) // (2 * marker.args[0]) for number in range(marker.args[0])
        }
        yield from (item for place, item in enumerate(mine) if place not in taken)


def pytest_collection_finish() -> None:
    """Look less often for garbage, and never among the hundreds of thousands of objects that
    imports made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference measurements kept beside the repository; tests that need it skip
    where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared reference data (../shared/data) is not on this machine")
    return folder


@pytest.fixture(scope="session")
def traces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TraceStore:
    """Graphs of models, each traced once whichever test and worker asks: ``traces.graph(key,
    family=None)``.

    They lie in pytest's cache, for the next session with the same code; a thorough one traces
    everything anew.
    """
    from GraphExtractor.extract import extract_graph

    own = tmp_path_factory.getbasetemp()
    fresh = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    cached = (
        request.config.cache.mkdir("traces")
        if request.config.cache and not request.config.getoption("--thorough")
        else fresh
    )
    return TraceStore(cached, extract_graph)


@pytest.fixture(scope="session", autouse=True)
def _traced_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the code under test the shared graphs too, wherever it would trace a model itself in
    this process."""
    places = {
        part for item in request.session.items for part in item.path.relative_to(REPOSITORY).parts
    }
    if places.isdisjoint(TRACING):
        yield
        return
    store = request.getfixturevalue("traces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("GraphExtractor.extract.extract_graph", store.graph)
        patch.setattr(
            "GraphExtractor.many.MANY", sys.maxsize
        )  # processes of their own would share nothing
        yield


@pytest.fixture(scope="session", autouse=True)
def _confirmed_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Confirm the same schedule of the same problem once in this process, however many searches of
    a test or of several choose it."""
    if not any(SEARCHING & {*item.path.parts} for item in request.session.items):
        yield
        return
    from Solver.schedule import confirm_with_ilp
    from tests.builders.confirmations import ConfirmedOnce

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "Solver.designs.confirmed_schedules.confirm_with_ilp", ConfirmedOnce(confirm_with_ilp)
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def _priced_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Price the same product on the same cores once in this process, as ``_confirmed_once``."""
    if not any(SEARCHING & {*item.path.parts} for item in request.session.items):
        yield
        return
    from Estimator.chips.tensor_core import TensorCoreModel
    from tests.builders.prices import PricedOnce

    priced = PricedOnce(TensorCoreModel.estimate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TensorCoreModel, "estimate", lambda model, work: priced(model, work))
        yield


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What a test, or a fixture of many tests, has the front door log must not decide what the next
    test sees."""
    root, packages = logging.getLogger(), [logging.getLogger(name) for name in PACKAGES]
    level, handlers = root.level, list(root.handlers)
    for each in packages:
        each.setLevel(logging.NOTSET)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    for each in packages:
        each.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def extracted(traces: TraceStore) -> Extract:
    """``extracted(model, micro_batch_size=1, sequence_length=None, tp=1, attention=FLASH,
    sequence_parallel=False, cp=1)``.

    ``others`` are further fields of the key.
    """
    graphs: dict[GraphKey, ModelGraph] = {}

    def extract(
        model: str,
        micro_batch_size: int = 1,
        sequence_length: int | None = None,
        tp: int = 1,
        attention: Attention = Attention.FLASH,
        sequence_parallel: bool = False,
        cp: int = 1,
        **others: Any,
    ) -> ModelGraph:
        length = sequence_length or find_model(model).sequence_length
        key = GraphKey(
            model, micro_batch_size, length, tp, attention, sequence_parallel, cp=cp, **others
        )
        if key not in graphs:
            graphs[key] = traces.graph(key)
        return graphs[key]

    return extract
