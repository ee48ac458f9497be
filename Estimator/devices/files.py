"""Devices and software from YAML: by name from ``Estimator/hardware``, or by path from anywhere.

Unknown names, unreadable files, bad keys, units and values are refused with an ``InputError``.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from Estimator.chips.technology import Quantity, units_of
from Estimator.devices.architectures import architectures
from Estimator.devices.device import (
    Calibration,
    Device,
)
from Estimator.devices.functions import TENSORS_MOVED
from Estimator.devices.names import bare_name, forms_of
from Estimator.devices.recipes import REDUCED
from Estimator.devices.software import AttentionKernel, Software
from Estimator.hardware_files import HARDWARE, hardware_names, hardware_path
from Estimator.network.contention import ACTIVITIES, Contention
from Estimator.profiled.device import profiled_device
from Estimator.profiled.machine import profile_folder
from GraphExtractor.graph import Phase
from phaze_common.errors import InputError
from phaze_common.file_formats import ATTENTION, CONTENTION, DEVICE, SOFTWARE
from phaze_common.files import beside
from phaze_common.records import read_yaml, to_record
from phaze_common.refusals import FileRefusals

# of matrix products
FORMATS = ("float16", "bfloat16", "float8", "float32", "float4")
ROUNDED = 1e-4  # to which errors of fits are written
USUAL_ATTENTION = "flash_2"  # that devices are described with
MAY_BE_ZERO = frozenset(
    {"gap", "alone", "floor", "host_issue", "between_iterations"}
    | {"fill", "variation", "reserved_memory", "accumulation", "exposed", "hidden"}
)


def load_device(name_or_path: str) -> Device:
    """Read a device, or make one of a database of measured operators."""
    if profile_folder(name_or_path) is not None and name_or_path not in device_names():
        return profiled_device(name_or_path)
    path = hardware_path("devices", _name_of_alias(name_or_path))
    device = to_record(Device, DEVICE.current(read_yaml(path), str(path)), str(path))
    folder = path.parent.absolute()
    device = replace(
        device,
        cluster=str(beside(folder, device.cluster)),
        software=str(beside(folder, device.software)),
    )
    check_device(device, path)
    return device


def check_device(device: Device, source: Path | str) -> None:
    """Refuse devices that cannot be.

    Raises:
        InputError: names ``source`` and the field.
    """
    file = FileRefusals(source)
    for key in ("matrix", "memory", "launch", "scans", "host"):
        _check_quantities(getattr(device, key), file, f"{key}.")
    right = device.architecture is None or device.architecture in architectures()
    names = f"one of {', '.join(architectures())}"
    file.require(right, "architecture", repr(device.architecture), names)
    if device.host is not None:
        efficiency = device.host.efficiency.value
        file.require(efficiency <= 1, "host.efficiency.value", efficiency, "at most 1")
    if device.board_power is not None:
        stated, unit = device.board_power, units_of(Device)["board_power"]
        file.require(stated.unit == unit, "board_power.unit", repr(stated.unit), repr(unit))
        file.require(stated.value > 0, "board_power.value", stated.value, "positive")
    _check_functions(device.memory.functions, file, "memory.functions")
    _check_functions(device.memory.passes, file, "memory.passes")
    for function, passes in device.memory.passes.items():
        _check_quantities(passes, file, f"memory.passes.{function}.")
    for key, given in (
        ("matrix.peak", device.matrix.peak),
        ("matrix.formats", device.matrix.formats),
    ):
        for number_format in given:
            known = number_format in FORMATS
            file.require(known, key, f"given {number_format!r}", f"of {', '.join(FORMATS)}")
    peaks, tiles = device.matrix.peak, device.matrix.tiles
    file.require(bool(peaks), "matrix.peak", "empty", "a mapping of number formats to FLOP/s")
    file.require(bool(tiles), "matrix.tiles", "empty", "a list of tiles {m, n, efficiency}")
    for tile in tiles:
        possible = min(tile.m, tile.n) > 0 and 0 < tile.efficiency <= 1
        file.require(possible, "matrix.tiles", tile, "positive, efficiency at most 1")
    for key, shares in device.matrix.attention_kernels.items():
        _check_quantities(shares, file, f"matrix.attention_kernels.{key}.")
    for key, products in device.matrix.products.items():
        known, formats = key in FORMATS or key in REDUCED, ", ".join(sorted({*FORMATS, *REDUCED}))
        file.require(known, "matrix.products", f"given {key!r}", f"of {formats}")
        _check_quantities(products, file, f"matrix.products.{key}.")
    for place, libraries in enumerate(device.matrix.libraries):
        _check_quantities(libraries, file, f"matrix.libraries.{place}.")
    for place, each in enumerate(device.calibration):
        _check_calibration(each, file, f"calibration.{place}")
    years = [each.until for each in device.matrix.libraries]
    ascending = years == sorted(set(years))
    file.require(ascending, "matrix.libraries", years, "with years until, ascending")
    file.raise_any()


def load_software(name_or_path: str) -> Software:
    """Read the description of a training framework."""
    path = hardware_path("software", name_or_path)
    stated, named = SOFTWARE.current(read_yaml(path), str(path)), dict[str, Any]()
    if isinstance(stated, dict):
        contention, kernel = stated.get("contention"), stated.get("attention", USUAL_ATTENTION)
        if isinstance(contention, str):
            named["contention"] = load_contention(contention, path.parent)
        if isinstance(kernel, str):
            named["attention"] = load_attention(kernel, path.parent)
        stated = stated | dict.fromkeys(named)
    software = replace(to_record(Software, stated, str(path)), **named)
    check_software(software, path)
    return software


def check_software(software: Software, source: Path | str) -> None:
    """Refuse descriptions of a framework that cannot be.

    Raises:
        InputError: names ``source`` and the field.
    """
    file = FileRefusals(source)
    if software.contention is not None:
        check_contention(software.contention, source)
    _check_quantities(software, file, "")
    for key in ("attention", "sharding", "grouped"):
        _check_quantities(getattr(software, key), file, f"{key}.")
    _check_functions(software.fused_tails, file, "fused_tails")
    _check_functions(software.composed, file, "composed")
    for function, composed in software.composed.items():
        _check_quantities(composed, file, f"composed.{function}.")
    passes = {phase.value for phase in Phase}
    given = f"given for {', '.join(sorted(software.unfused_softmax_bytes)) or 'nothing'}"
    both, wanted = passes == set(software.unfused_softmax_bytes), " and ".join(sorted(passes))
    file.require(both, "unfused_softmax_bytes", given, f"given for {wanted}")
    file.raise_any()


def load_attention(name_or_path: str, relative_to: Path | None = None) -> AttentionKernel:
    """Read what a kernel of fused attention reaches."""
    path = hardware_path("attention", name_or_path, relative_to)
    kernel = to_record(AttentionKernel, ATTENTION.current(read_yaml(path), str(path)), str(path))
    file = FileRefusals(path)
    _check_quantities(kernel, file, "")
    file.raise_any()
    return kernel


def load_contention(name_or_path: str, relative_to: Path | None = None) -> Contention:
    """Read what activities that run at once cost each other."""
    path = hardware_path("contention", name_or_path, relative_to)
    contention = to_record(Contention, CONTENTION.current(read_yaml(path), str(path)), str(path))
    check_contention(contention, path)
    return contention


def check_contention(contention: Contention, source: Path | str) -> None:
    """Refuse slow-downs that cannot be.

    Raises:
        InputError: names ``source`` and the key.
    """
    file, known = FileRefusals(source), f"of {', '.join(ACTIVITIES)}"
    unit, share = contention.link_share.unit, contention.link_share.value
    file.require(unit == "fraction", "link_share.unit", repr(unit), "'fraction'")
    file.require(0 < share <= 1, "link_share.value", share, "a fraction above 0, at most 1")
    for slowed, by in contention.slowdown.items():
        file.require(slowed in ACTIVITIES, "slowdown", f"given for {slowed!r}", known)
        for other, value in by.items():
            file.require(other in ACTIVITIES, f"slowdown.{slowed}", f"given by {other!r}", known)
            file.require(value >= 0, f"slowdown.{slowed}.{other}", value, "zero or positive")
    file.raise_any()


def device_names() -> tuple[str, ...]:
    """Names of the devices that ship."""
    return hardware_names("devices")


def _name_of_alias(text: str) -> str:
    """The device's own name for ``text``, in any of its forms; unknown text as it is."""
    if text in device_names() or text.endswith((".yaml", ".yml")):
        return text
    names = _shipped_names()
    return next((names[form] for form in forms_of(text) if form in names), text)


@cache  # published runs are looked up one by one, and YAML is slow
def _shipped_names() -> dict[str, str]:
    """Names and aliases of the devices that ship, without case and punctuation, and whose they
    are."""
    names: dict[str, str] = {}
    for name in device_names():
        stated = read_yaml(HARDWARE / "devices" / f"{name}.yaml")
        aliases = stated.get("aliases", []) if isinstance(stated, dict) else []
        names |= {bare_name(alias): name for alias in (name, *aliases)}
    return names


def _check_quantities(part: Any, file: FileRefusals, prefix: str) -> None:
    """Refuse quantities of a record, or of mappings in it, by unit and sign; None has none."""
    for field, unit in ({} if part is None else units_of(type(part))).items():
        value = getattr(part, field)
        named = {"": value} if isinstance(value, Quantity) else value or {}
        for name, quantity in named.items():
            key = f"{prefix}{field}.{name}" if name else f"{prefix}{field}"
            file.require(quantity.unit == unit, f"{key}.unit", repr(quantity.unit), repr(unit))
            least_ok = quantity.value >= 0 if field in MAY_BE_ZERO else quantity.value > 0
            file.require(least_ok, f"{key}.value", quantity.value, "positive")
            if unit == "fraction":
                share = quantity.value
                file.require(share <= 1, f"{key}.value", share, "a fraction, at most 1")
            if unit == "count" and quantity.value > 0:
                whole = quantity.value >= 1 and quantity.value == int(quantity.value)
                file.require(whole, f"{key}.value", quantity.value, "a whole number")


def _check_calibration(stated: Calibration, file: FileRefusals, key: str) -> None:
    """Errors of a fit: a mean of absolute values is never negative, and never below the mean of the
    values."""
    file.require(stated.rows > 0, f"{key}.rows", stated.rows, "a whole number above 0")
    mape, bias = stated.mape, stated.bias
    positive = "zero or positive, as a mean of absolute errors is"
    if file.require(mape >= 0, f"{key}.mape", mape, positive):
        within = abs(bias) <= mape + ROUNDED and bias > -1
        file.require(within, f"{key}.bias", bias, f"between -1 and 1 times the mape, {mape}")


def _check_functions(given: Iterable[str], file: FileRefusals, key: str) -> None:
    """A misspelt function would silently be priced as any other."""
    known = f"of {', '.join(sorted(TENSORS_MOVED))}"
    for function in given:
        file.require(function in TENSORS_MOVED, key, f"given {function!r}", known)


def device_of_run(text: str) -> Device:
    """The device that a published run names, such as "A100-80GB-SXM" or "8x NVIDIA A100 (Ampere)".

    Raises:
        InputError: no device has that name or alias; lists the known ones.
    """
    name = _name_of_alias(text)
    if name not in device_names():
        raise InputError(
            f"no device is known as {text!r}; known are {', '.join(device_names())}, or give a "
            "YAML file"
        )
    return _shipped(name)


_shipped = cache(load_device)  # published runs name the same few
