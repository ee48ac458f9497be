"""Records of a device (a chip that exists) and of the software that runs on it. Numbers come from
``hardware/devices``."""

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from Estimator.chips.technology import Quantity
from Estimator.devices.functions import WHOLE_FUNCTIONS
from Estimator.devices.recipes import unit_of
from phaze_common.choices import Precision
from phaze_common.errors import InputError

PRECISIONS = MappingProxyType({each.matrix_format: each.value for each in Precision})


class Evidence(StrEnum):
    """How a device is known: its constants fitted to operators measured on it, or taken from data
    sheets and its relatives."""

    MEASURED = "measured"
    DATA_SHEET = "data_sheet"


@dataclass(frozen=True)
class Tile:
    """An output tile that one processor computes: m x n elements, and its speed relative to the
    best tile."""

    m: int  # rows
    n: int  # columns
    efficiency: float  # relative to the best tile


@dataclass(frozen=True)
class Libraries:
    """Matrix libraries up to the year ``until``: what products reach of those that the device
    states, by format."""

    until: int
    products: Annotated[dict[str, Quantity], "fraction"]  # what they reach, by format


@dataclass(frozen=True)
class FormatProducts:
    """Products in one number format."""

    efficiency: Annotated[Quantity, "fraction"]  # what a large one alone reaches of its peak
    fill: Annotated[Quantity, "steps of k"]  # what a tile's start and end cost


@dataclass(frozen=True)
class AttentionShares:
    """What a kernel of fused attention reaches of a device's ``efficiency``."""

    forward: Annotated[Quantity, "fraction"]  # of the forward pass
    backward: Annotated[Quantity, "fraction"]  # of the backward pass


@dataclass(frozen=True)
class MatrixEngine:
    """Matrix units: ``peak`` is dense FLOP/s by number format, ``processors`` share the tiles of a
    product.

    ``efficiency`` is what a large product alone reaches of the peak, ``sustained`` what is left of
    that in training, where the chip runs at the clock its power limit allows. ``fill`` are the
    steps of k that a tile's start and end cost. ``operand_bandwidth`` is the fraction of the memory
    bandwidth at which a product reads its operands (None: as copies do), ``batched_bandwidth`` that
    which many small products reach (unfused attention). ``attention_forward`` and
    ``attention_backward`` are what fused attention reaches of ``efficiency``, ``attention_narrow``
    the part of it for heads of at most 64 columns (None: all of it). ``formats`` are what
    number formats reach of it that fall behind the others; ``products`` are formats whose products
    were measured, for which these three say nothing. ``variation`` is the standard deviation
    of the time of arithmetic among devices of the kind, part of the mean: no two chips need the
    same power for a clock. ``exposed`` is the part of the shorter of arithmetic and traffic that
    does not run beside the longer where experts with weights of their own are multiplied. ``sites``
    is the standard deviation of what is ``sustained``, part of it, among sites, whose power and
    cooling differ. ``unaligned`` is what products of heads reach whose rows do not start at
    multiples of 16 bytes: tensor cores load no others.
    """

    peak: Annotated[dict[str, Quantity], "FLOP/s"]
    processors: Annotated[Quantity, "count"]
    efficiency: Annotated[Quantity, "fraction"]
    sustained: Annotated[Quantity, "fraction"]
    fill: Annotated[Quantity, "steps of k"]
    tiles: tuple[Tile, ...]  # output tiles of the library's kernels
    batched_bandwidth: Annotated[Quantity, "fraction"]
    attention_forward: Annotated[Quantity, "fraction"]
    attention_backward: Annotated[Quantity, "fraction"]
    formats: Annotated[dict[str, Quantity], "fraction"] = field(default_factory=dict)
    products: dict[str, FormatProducts] = field(default_factory=dict)  # measured, by format
    libraries: tuple[Libraries, ...] = ()  # of before, the oldest first
    # others than FlashAttention-2, by name
    attention_kernels: dict[str, AttentionShares] = field(default_factory=dict)
    operand_bandwidth: Annotated[Quantity | None, "fraction"] = None
    variation: Annotated[Quantity | None, "fraction"] = None  # None: all devices are alike
    sites: Annotated[Quantity | None, "fraction"] = None  # None: as sites of published runs
    attention_narrow: Annotated[Quantity | None, "fraction"] = None
    # None: as its framework says (``GroupedProducts``)
    exposed: Annotated[Quantity | None, "fraction"] = None
    unaligned: Annotated[Quantity | None, "FLOP/s"] = None  # None: as all others

    def reached(self, number_format: str, sustained: bool, year: int | None = None) -> float:
        """Fraction of the peak that large products reach, alone or ``sustained`` in training, with
        libraries of a ``year``."""
        measured, unit = self.measured_products(number_format), unit_of(number_format)
        if measured is not None:
            share = measured.efficiency.value
        else:
            of_format = self.formats[unit].value if unit in self.formats else 1.0
            share = self.efficiency.value * of_format
        of_the_time = (
            [] if year is None else [each for each in self.libraries if year <= each.until]
        )
        if of_the_time and unit in of_the_time[0].products:
            share *= of_the_time[0].products[unit].value
        return share * (self.sustained.value if sustained else 1.0)

    def measured_products(self, number_format: str) -> FormatProducts | None:
        """What was measured of products in a format, or in that of its units; None: nothing."""
        return self.products.get(number_format, self.products.get(unit_of(number_format)))


@dataclass(frozen=True)
class Passes:
    """A function whose kernel reads its rows ``reads`` times, one processor working on ``rows``
    rows at once."""

    reads: Annotated[Quantity, "count"]
    rows: Annotated[Quantity, "count"]


@dataclass(frozen=True)
class Memory:
    """Device memory: ``efficiency`` is what copies and element-wise kernels reach of the bandwidth,
    ``functions`` the others.

    Functions listed in ``passes`` read their rows several times: again from the last-level
    ``cache`` as long as it holds the rows that all processors work on, from memory beyond.
    """

    capacity: Annotated[Quantity, "bytes"]  # that a framework can use
    bandwidth: Annotated[Quantity, "bytes/s"]  # peak
    efficiency: Annotated[Quantity, "fraction"]
    cache: Annotated[Quantity, "bytes"]
    functions: Annotated[dict[str, Quantity], "fraction"] = field(default_factory=dict)
    passes: dict[str, Passes] = field(default_factory=dict)

    def efficiency_of(self, functions: tuple[str, ...]) -> float:
        """Fraction of the bandwidth for a kernel that computes ``functions``: that of the slowest
        of them.

        Kernels that do a part of a function are as fast as the whole, unless they are listed
        themselves.
        """
        known = [
            self.functions[each].value
            for each in map(self._known_as, functions)
            if each in self.functions
        ]
        return min(known, default=self.efficiency.value)

    def _known_as(self, function: str) -> str:
        return function if function in self.functions else WHOLE_FUNCTIONS.get(function, function)

    def stream_bytes_per_s(self, functions: tuple[str, ...] = ()) -> float:
        """Bandwidth that a kernel which computes ``functions`` reaches; without any, that of copies
        and element-wise kernels."""
        return self.bandwidth.value * self.efficiency_of(functions)


@dataclass(frozen=True)
class Launch:
    """``gap`` passes between two kernels of a stream; ``alone`` is what a kernel timed by itself
    costs on top, by kind.

    ``floor`` is the least time such a measurement shows, by kind: that of the host.
    """

    gap: Annotated[Quantity, "s"]
    alone: Annotated[dict[str, Quantity], "s"]
    floor: Annotated[dict[str, Quantity], "s"]


@dataclass(frozen=True)
class Scans:
    """What recurrences over the tokens run on: ``peak`` of the lanes that are no matrix units, in
    fp32.

    ``step`` is the least that a step takes which waits for the one before in the same kernel.
    """

    peak: Annotated[Quantity, "FLOP/s"]
    step: Annotated[Quantity, "s"]


@dataclass(frozen=True)
class HostLink:
    """The link between a device and its host, one way: its peak, and what long copies from pinned
    memory reach of it."""

    bandwidth: Annotated[Quantity, "bytes/s"]  # peak
    efficiency: Annotated[Quantity, "fraction"]  # of it, that long copies reach

    @property
    def bytes_per_s(self) -> float:
        """What long copies reach, one device alone."""
        return self.bandwidth.value * self.efficiency.value


@dataclass(frozen=True)
class Calibration:
    """What a fit said about one group of constants."""

    table: str  # what was fitted to
    rows: int  # of the table
    mape: float  # mean absolute error, a fraction
    bias: float  # mean error, a fraction


@dataclass(frozen=True)
class ProfileSource:
    """The database of measured operators that a device is priced from: its folder, and the digest
    of what is in it."""

    folder: str  # of the database, as phaze profile wrote it
    digest: str  # of its content


@dataclass(frozen=True)
class Device:
    """A chip that exists. ``aliases`` are names under which published runs mention it, ``cluster``
    where it usually lives.

    ``evidence`` says whether its constants were fitted to measurements of it.

    ``board_power`` is the most that it draws for long: the thermal design power of the data sheet.
    One that was profiled is priced from what was measured (``profile``).
    """

    name: str
    title: str  # as people read it
    aliases: tuple[str, ...]
    evidence: Evidence
    cluster: str
    software: str  # the framework it usually runs
    matrix: MatrixEngine  # units for matrix products
    memory: Memory  # its own
    launch: Launch  # what kernels cost beside their work
    scans: Scans | None = None  # what recurrences run on; None: not known
    board_power: Annotated[Quantity | None, "W"] = None
    # how well its constants were fitted, by table; written by phaze calibrate
    calibration: tuple[Calibration, ...] = ()
    profile: ProfileSource | None = None  # None: priced by the constants alone
    host: HostLink | None = None  # None: not known
    # its family, which says what it can run (Estimator/devices/architectures.yaml); None: anything
    architecture: str | None = None

    @property
    def spread(self) -> float:
        """Standard deviation of what products sustain among sites; 0 where it is not known."""
        return 0.0 if self.matrix.sites is None else self.matrix.sites.value

    def peak_flops(self, number_format: str) -> float:
        """Dense matrix FLOP/s.

        Raises:
            InputError: the device does not compute in that format.
        """
        number_format = unit_of(number_format)
        if number_format not in self.matrix.peak and self.profile is not None:
            raise InputError(
                f"{self.profile.folder} has no operators measured in {number_format}, only in "
                f"{', '.join(self.matrix.peak)}; "
                f"give --precision {' or '.join(PRECISIONS[each] for each in self.matrix.peak)}, "
                "or profile it with --dtype"
            )
        if number_format not in self.matrix.peak:
            raise InputError(
                f"{self.title} has no matrix units for {number_format}; it has them for "
                f"{', '.join(self.matrix.peak)}"
            )
        return self.matrix.peak[number_format].value

    def reads_again(self, function: str, row_bytes: float) -> float:
        """How many times more than once ``function`` reads rows of ``row_bytes`` from memory.

        The part of the later readings that misses the cache grows from none, where the cache just
        holds the rows of all processors, to all where they are twice as large: layer norms measured
        on a V100 (Aceso) rise in this way.
        """
        if function not in self.memory.passes:
            return 0.0
        passes = self.memory.passes[function]
        held = (
            passes.rows.value * self.matrix.processors.value * row_bytes / self.memory.cache.value
        )
        return (passes.reads.value - 1) * min(max(held - 1, 0.0), 1.0)
