"""A device with other sizes: what is asked for changes, all else stays, and the title says so."""

import pytest

from Estimator.devices.changed import DeviceSizes, with_sizes
from Estimator.devices.files import device_names, load_device
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.units import GIB

MODEL = {
    "model": "gpt:layers=6,hidden=256,heads=4",
    "device": "h100",
    "devices": 16,
    "global_batch_size": 16,
}


@pytest.mark.parametrize("name", device_names())
def test_each_size_replaces_its_own_and_nothing_else(name: str) -> None:
    device = load_device(name)
    assert with_sizes(device, DeviceSizes()) is device
    changed = with_sizes(device, DeviceSizes(memory_size=12, memory_bandwidth=345, peak_flops=67))
    assert changed.memory.capacity.value == 12 * GIB
    assert changed.memory.bandwidth.value == 345e9
    assert changed.memory.efficiency == device.memory.efficiency
    assert 67e12 in [peak.value for peak in changed.matrix.peak.values()]
    ratios = {
        round(changed.matrix.peak[key].value / device.matrix.peak[key].value, 9)
        for key in device.matrix.peak
    }
    assert len(ratios) == 1
    assert changed.title == f"{device.title} with 12 GiB, 345 GB/s, 67 TFLOP/s"
    assert (changed.launch, changed.matrix.efficiency, changed.name) == (
        device.launch,
        device.matrix.efficiency,
        device.name,
    )


def test_a_request_s_device_and_cluster_are_as_asked() -> None:
    request = resolve({}, MODEL | {"memory_size": 40, "peak_flops": 500, "fast_domain": 4})
    assert request.records.device is not None
    assert request.records.device.memory.capacity.value == 40 * GIB
    assert request.records.device.matrix.peak["bfloat16"].value == 500e12
    assert request.records.cluster.tiers[0].group_size == 4
    plain = resolve({}, MODEL)
    assert plain.records.cluster.tiers[0].group_size == 8
    assert resolve(request.as_mapping(), {}).records == request.records
    assert "fast_domain" not in plain.as_mapping()


def test_sizes_have_units_where_they_are_given() -> None:
    asked = resolve(
        {},
        MODEL
        | {"memory_size": "40 GB", "memory_bandwidth": "3.35 TB/s", "peak_flops": "1 PFLOP/s"},
    )
    device = asked.records.device
    assert device is not None
    assert (device.memory.capacity.value, device.memory.bandwidth.value) == (40e9, 3.35e12)
    assert device.matrix.peak["bfloat16"].value == 1e15
    assert resolve(asked.as_mapping(), {}).records == asked.records


REFUSED = {
    "more than there are": ({"fast_domain": 65_536}, "has 32768 devices"),
    "not a whole number": ({"fast_domain": 6}, "not a whole number of such domains"),
    "one tier": (
        {"cluster": "phaze_icml24", "fast_domain": 4},
        "has one tier, and so no fast domain",
    ),
    "not a switch": (
        {"cluster": "v100_4x8", "fast_domain": 4},
        "is a hypercube, whose speed depends on its size",
    ),
    "one device": ({"fast_domain": 1}, "fast-domain is 1, but must be a whole number from 2"),
    "no size": (
        {"memory_size": "80 GB/s"},
        "is '80 GB/s'; it is a size: give GiB, or a number with B",
    ),
    "no bandwidth": (
        {"memory_bandwidth": "3 TB"},
        "is '3 TB'; it is a bandwidth: give GB/s, or a number with B/s",
    ),
    "no arithmetic": ({"peak_flops": "1 W"}, "is '1 W'; it is a speed of arithmetic: give TFLOP/s"),
    "no memory": ({"memory_size": 0}, "memory-size"),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_sizes_that_cannot_be_are_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve({}, MODEL | asked)
