"""Systems: the GPU and the two tiers of its network, as transformer-perf-estimates describes
them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from phaze_common.echo import as_given
from phaze_common.errors import InputError

from .values import (
    mapping_of,
    positive,
    published_one,
    published_records,
    refuse_unknown,
    whole,
)

_UNUSED = ("vector_flops_fp32", "summa_nb")  # of its files; panels are searched
MOST_IN_DOMAIN = 2**16


@dataclass(frozen=True)
class System:
    """One GPU of many; GB are 1e9 bytes, TFLOP 1e12 operations, as published."""

    matrix_tflop_per_s: float
    vector_tflop_per_s: float
    hbm_gb_per_s: float
    hbm_capacity_gb: float
    nvlink_gb_per_s: float
    nvlink_efficiency: float
    nvlink_latency_s: float
    ib_gb_per_s: float  # of a network card
    ib_efficiency: float
    ib_latency_s: float
    nvlink_size: int | None  # GPUs of a fast domain, where the question does not say otherwise
    nics_per_gpu: float = 1.0
    element_gb: float = 2e-9  # of a number
    mask_gb: float = 1e-9  # of an element of a dropout mask
    tflop: float = 1e-12  # of one operation

    @property
    def nvlink_reached_gb_per_s(self) -> float:
        """Bandwidth within a fast domain."""
        return self.nvlink_gb_per_s * self.nvlink_efficiency

    @property
    def ib_reached_gb_per_s(self) -> float:
        """Bandwidth of a network card."""
        return self.ib_gb_per_s * self.ib_efficiency


_KEYS = {  # of its JSON -> field
    "matrix_flops_fp16": "matrix_tflop_per_s",
    "vector_flops_fp16": "vector_tflop_per_s",
    "hbm_bandwidth": "hbm_gb_per_s",
    "hbm_capacity": "hbm_capacity_gb",
    "nvlink_bandwidth": "nvlink_gb_per_s",
    "nvlink_eff": "nvlink_efficiency",
    "nvlink_latency": "nvlink_latency_s",
    "ib_bandwidth": "ib_gb_per_s",
    "ib_eff": "ib_efficiency",
    "ib_latency": "ib_latency_s",
    "nic_factor": "nics_per_gpu",
    "element_size": "element_gb",
    "mask_element_size": "mask_gb",
    "flops_units": "tflop",
}
_OPTIONAL = ("nic_factor", "element_size", "mask_element_size", "flops_units")
_MAY_BE_ZERO = ("nvlink_latency", "ib_latency")
_SHARES = ("nvlink_eff", "ib_eff")


def read_system(document: Any, source: str) -> System:
    """A system from the keys of its JSON files. Raises InputError: a key is missing, unknown or
    wrong; names ``source``."""
    given = mapping_of(document, source, "matrix_flops_fp16, hbm_bandwidth, nvlink_bandwidth")
    refuse_unknown(given, (*_KEYS, *_UNUSED, "nvlink_size", "empirical"), source)
    if given.get("empirical", False) is not False:
        raise InputError(
            f"{source}: empirical is {as_given(given['empirical'])}; it must be false, its "
            "measurements are not published"
        )
    fields: dict[str, Any] = {}
    for key, field in _KEYS.items():
        if key in _OPTIONAL and key not in given:
            continue
        value = positive(given.get(key), f"{source}: {key}", zero=key in _MAY_BE_ZERO)
        if key in _SHARES and value > 1.0:
            raise InputError(
                f"{source}: {key} is {value:g}; it must be a share of the bandwidth, at most 1"
            )
        fields[field] = value
    size = given.get("nvlink_size")
    if size is not None:
        size = whole(size, f"{source}: nvlink_size", 1, MOST_IN_DOMAIN)
    return System(nvlink_size=size, **fields)


@cache
def published_systems() -> dict[str, System]:
    """The published systems by name."""
    return published_records("systems.yaml", read_system)


def published_system(name: str) -> System:
    """A published system. Raises InputError: there is none of that name; says which there are."""
    return published_one(published_systems(), "system", name)
