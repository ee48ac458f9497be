"""Traces of what ran on a device: of PyTorch's profiler (Chrome's JSON), and Chakra's execution traces of a measured run."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Validation.traced_kernels import (
    MESSAGES,
    PRODUCTS,
    ProductShape,
    TracedIteration,
    TracedKernel,
    iteration_of,
    part_of,
    product_of,
)

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
STEP = "ProfilerStep#"
GZIP = b"\x1f\x8b"
CHAKRA = ".et"
WANTED = "give a trace of torch.profiler (export_chrome_trace), or a Chakra execution trace (NAME.et)"


def read_trace(path: Path, steps: int | None = None) -> TracedIteration:
    """The iteration in a trace of one rank; of so many ``steps`` where the trace does not mark them.

    Raises:
        InputError: the file cannot be read, is no trace, or has no kernels of a device.
    """
    content = _content(path)
    if _is_chakra(path, content):
        from third_party.exports.chakra.measured import measured_kernels

        try:
            found = measured_kernels(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        return iteration_of(found.kernels, steps or found.steps or 1)
    return _of_profiler(path, content, steps)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {WANTED}") from error
    try:
        return gzip.decompress(raw) if raw.startswith(GZIP) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no JSON that was zipped, or is cut off; {WANTED}") from error


def _is_chakra(path: Path, content: bytes) -> bool:
    """Whether it is one by its name, or where that says nothing by how it begins."""
    suffixes = [each.lower() for each in path.suffixes]
    return CHAKRA in suffixes or (".json" not in suffixes and content.lstrip()[:1] not in (b"{", b"["))


def _of_profiler(path: Path, content: bytes, steps: int | None) -> TracedIteration:
    whole = _read_json(path, content)
    events = _events(path, whole)
    marked = {str(each["name"]) for each in events if str(each.get("name", "")).startswith(STEP) and _is_number(each.get("dur"))}
    kernels = tuple(_kernels(events))
    if not kernels:
        raise InputError(
            f"{path} has no kernels of a device; give a trace of torch.profiler with ProfilerActivity.CUDA, of one rank"
        )
    told = whole.get("distributedInfo") if isinstance(whole, dict) else None
    rank, ranks = (told.get(each) if isinstance(told, dict) else None for each in ("rank", "world_size"))
    return iteration_of(kernels, steps or len(marked) or 1, _whole_or_none(rank), _whole_or_none(ranks))


def _kernels(events: Sequence[Mapping[str, Any]]) -> Iterator[TracedKernel]:
    products = _products(events)
    for each in events:
        if each.get("cat") not in ON_DEVICE or not _is_number(each.get("dur")):
            continue
        name, begin, arguments = str(each.get("name", "")), float(each["ts"]), _arguments(each)
        part = MESSAGES if _is_message(name, arguments) else part_of(name)
        product = products.get(arguments.get("External id")) if part == PRODUCTS else None
        yield TracedKernel(name, part, begin, begin + float(each["dur"]), product)


def _products(events: Sequence[Mapping[str, Any]]) -> dict[object, ProductShape]:
    """Matrix products by the number that their kernels have too, where shapes were recorded."""
    found = dict[object, ProductShape]()
    for each in events:
        if each.get("cat") == "cpu_op":
            arguments = _arguments(each)
            product = product_of(str(each.get("name", "")), arguments.get("Input Dims", arguments.get("Input dims")))
            number = arguments.get("External id")
            if product is not None and isinstance(number, int | str):
                found[number] = product
    return found


def _is_message(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether it goes from one rank to another. NCCL's all-to-all has kernels of that name too, told apart where it is named."""
    collective = arguments.get("Collective name")
    if isinstance(collective, str):
        return collective.lower() in {"send", "recv"}
    return "sendrecv" in name.lower()


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("args")
    if not isinstance(found, dict):
        return {}
    number = found.get("External id", found.get("external id"))
    return found | {"External id": number if isinstance(number, int | str) else None}


def _read_json(path: Path, content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON; {WANTED}") from error


def _events(path: Path, content: object) -> Sequence[Mapping[str, Any]]:
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise InputError(f"{path} has no traceEvents; {WANTED}")
    return [
        each for each in events if isinstance(each, dict) and (each.get("cat") not in ON_DEVICE or _is_number(each.get("ts")))
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
