"""Traces of what ran on a device: of PyTorch's profiler (Chrome's JSON), and Chakra's execution
traces of a measured run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze.validation.traced_kernels import (
    MESSAGES,
    PRODUCTS,
    ProductShape,
    TracedIteration,
    TracedKernel,
    iteration_of,
    part_of,
    product_of,
)
from phaze_common.errors import InputError
from phaze_common.files import parse_json, read_packed

ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
STEP = "ProfilerStep#"
# of a trace, unpacked: an iteration of a hundred thousand kernels has some 60 MiB
MOST_BYTES = 256 * 2**20
CHAKRA = ".et"
WANTED = "a trace of torch.profiler (export_chrome_trace), or a Chakra execution trace (NAME.et)"
REMEDY = f"give {WANTED}"


def read_trace(path: Path, steps: int | None = None) -> TracedIteration:
    """The iteration in a trace of one rank; of so many ``steps`` where the trace does not mark
    them.

    Raises:
        InputError: the file cannot be read, is no trace, or has no kernels of a device.
    """
    content = read_packed(path, WANTED, MOST_BYTES, "JSON")
    if _is_chakra(path, content):
        from phaze.validation.chakra_trace import measured_kernels

        try:
            found = measured_kernels(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        return iteration_of(found.kernels, steps or found.steps or 1)
    return _of_profiler(path, content, steps)


def _is_chakra(path: Path, content: bytes) -> bool:
    """Whether it is one by its name, or where that says nothing by how it begins."""
    suffixes = [each.lower() for each in path.suffixes]
    return CHAKRA in suffixes or (
        ".json" not in suffixes and content.lstrip()[:1] not in (b"{", b"[")
    )


def _of_profiler(path: Path, content: bytes, steps: int | None) -> TracedIteration:
    try:
        whole = parse_json(content, "it")
    except InputError as error:
        raise InputError(f"{path} is no JSON that can be used ({error}); {REMEDY}") from error
    events = _events(path, whole)
    marked = {
        str(each["name"])
        for each in events
        if str(each.get("name", "")).startswith(STEP) and _is_number(each.get("dur"))
    }
    kernels = tuple(_kernels(events))
    if not kernels:
        raise InputError(
            f"{path} has no kernels of a device; give a trace of torch.profiler with "
            "ProfilerActivity.CUDA, of one rank"
        )
    if not any(each.end_us > each.begin_us for each in kernels):
        raise InputError(f"{path} says of no kernel that it took any time (dur above 0); {REMEDY}")
    stated = whole.get("distributedInfo") if isinstance(whole, dict) else None
    stated = stated if isinstance(stated, dict) else {}
    rank, ranks = (_whole_or_none(stated.get(each)) for each in ("rank", "world_size"))
    return iteration_of(kernels, steps or len(marked) or 1, rank, ranks)


def _kernels(events: Sequence[Mapping[str, Any]]) -> Iterator[TracedKernel]:
    products = _products(events)
    for each in events:
        if not _on_device(each) or not _is_number(each.get("dur")):
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
            product = product_of(
                str(each.get("name", "")), arguments.get("Input Dims", arguments.get("Input dims"))
            )
            number = arguments.get("External id")
            if product is not None and isinstance(number, int | str):
                found[number] = product
    return found


def _is_message(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether it goes from one rank to another. NCCL's all-to-all has kernels of that name too,
    told apart where it is named."""
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


def _events(path: Path, content: object) -> Sequence[Mapping[str, Any]]:
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise InputError(f"{path} has no traceEvents; {REMEDY}")
    return [
        each
        for each in events
        if isinstance(each, dict) and (not _on_device(each) or _is_number(each.get("ts")))
    ]


def _on_device(event: Mapping[str, Any]) -> bool:
    category = event.get("cat")
    return isinstance(category, str) and category in ON_DEVICE


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
