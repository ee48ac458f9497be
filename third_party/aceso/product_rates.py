"""What a database tells of the device beyond its operators' times: memory bandwidth, and how power
holds products back.

Three things that the profiler did are seen in its own tables and told apart here:

- Where recent PyTorch ran it, backward passes lack the product of the weight gradient (they take as
  long as forward passes).
- It repeats a product without pause, which a device at its power limit slows. With tensor
  parallelism one of two equal products alternates with an all-reduce; less the all-reduce, it shows
  the rate with pauses.
- Forward products ran on random numbers, backward ones on gradients that are mostly 0, which take
  less power.
"""

from dataclasses import dataclass

import numpy as np

from phaze_common.units import MIB

from .collective_times import collective_us
from .corrections import Corrections
from .database import Database, Field

# Of a pass that must be left when its all-reduce is taken off, or the difference is noise.
LEAST_REMAINDER = 0.1


@dataclass(frozen=True)
class DeviceFacts:
    """What one database says of its device.

    Attributes:
        bytes_per_us: of the device's memory, achieved.
        weight_gradients_measured: whether backward passes have both of their products.
        pause_factor: how much faster products are that alternate with something else; at least 1.
        data_factor: how much faster products are on zeros than on random numbers; at least 1.
    """

    bytes_per_us: float
    weight_gradients_measured: bool
    pause_factor: float
    data_factor: float

    @property
    def continuous_factor(self) -> float:
        """How much faster than measured without pause on random numbers; one power limit causes
        both, so they do not multiply."""
        return max(self.pause_factor, self.data_factor)

    @property
    def paused_factor(self) -> float:
        """How much faster than measured with pauses on random numbers."""
        return self.continuous_factor / self.pause_factor


def device_facts(database: Database, rules: Corrections) -> DeviceFacts:
    """Read the facts from the tables of one model."""
    names = database.names
    products = [
        row
        for row, name in enumerate(names)
        if _counts(database, row, rules) and not rules.operators.is_head(name)
    ]
    both, data = True, 1.0
    if products:
        narrow = database.values[:, :, :, 0, 0][:, products]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = _median(narrow[Field.BACKWARD] / narrow[Field.FORWARD], 2.0)
        both = ratio >= rules.both_products_above
        data = (2.0 if both else 1.0) / ratio
    pause = _pause(database, rules)
    return DeviceFacts(_bandwidth(database, rules), both, max(1.0, pause), max(1.0, data))


def _counts(database: Database, row: int, rules: Corrections) -> bool:
    """Whether an operator is a product with weights; the first convolution has too few channels to
    be one of its size."""
    name = database.names[row]
    return (
        rules.operators.is_product(name)
        and name != "conv1"
        and bool(np.nanmax(database.values[Field.WEIGHTS, row]) > 0)
    )


def _pause(database: Database, rules: Corrections) -> float:
    names, operators = database.names, rules.operators
    wide = next((width for width in database.tensor_parallel if width > 1), None)
    if wide is None or operators.without_pause not in names or operators.with_pause not in names:
        return 1.0
    at = database.tensor_parallel.index(wide)
    without, alternating = (
        database.values[:, names.index(name), :, at, 0]
        for name in (operators.without_pause, operators.with_pause)
    )
    ratios = []
    for batch in range(len(database.micro_batch_sizes)):
        exchange = collective_us(database, "all_reduce", wide, float(hidden_mib(database, batch)))
        forward = alternating[Field.FORWARD, batch]
        if exchange is not None and forward - exchange > LEAST_REMAINDER * forward:
            ratios.append(without[Field.FORWARD, batch] / (forward - exchange))
    return _median(np.array(ratios), 1.0)


def hidden_mib(database: Database, batch: int) -> float:
    """MiB of the hidden state of the encoder, the input of its first layer norm, for the
    micro-batch size of this index."""
    row = database.names.index("enc-1st-layernorm") if "enc-1st-layernorm" in database.names else 0
    return float(database.values[Field.INPUT, row, batch, 0, 0])


def _bandwidth(database: Database, rules: Corrections) -> float:
    found: list[tuple[float, float]] = []
    for traffic in rules.traffic:
        for row, name in enumerate(database.names):
            if not (name.endswith(traffic.name) or (name[-1].isdigit() and traffic.name in name)):
                continue
            cells = database.values[:, row, :, 0, 0]
            size_mib = cells[Field.ACTIVATIONS] * traffic.activations
            us = cells[Field.BACKWARD if traffic.backward else Field.FORWARD]
            found += [
                (float(size), float(size * MIB / time))
                for size, time in zip(size_mib, us, strict=True)
                if time > 0
            ]
    large = [rate for size, rate in found if size >= rules.least_traffic_mib]
    if found:
        return _median(np.array(large or [rate for _, rate in found]), 1.0)
    # None of the known ones: all operators without weights, as what they read and leave.
    cells = database.values[:, :, :, 0, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (cells[Field.INPUT] + cells[Field.ACTIVATIONS]) * MIB / cells[Field.FORWARD]
    light = rates[cells[Field.WEIGHTS] == 0]
    return _median(light if light.size else rates, 1e5)


def _median(values: np.ndarray, otherwise: float) -> float:
    finite = values[np.isfinite(values) & (values > 0)]
    return float(np.median(finite)) if finite.size else otherwise
