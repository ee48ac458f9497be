"""What is known of a best design once constants are sampled, as a file of its run."""

from dataclasses import dataclass
from pathlib import Path

from Estimator.chips.accelerator import Accelerator
from phaze_common.file_formats import ROBUST
from phaze_common.files import artefact_bytes, load_or_set_aside, write_atomically
from phaze_common.records import from_json, to_json

FILE = "robust.json"


@dataclass(frozen=True)
class Contender:
    """A design under all samples in which any works; regrets are shares of the best there.

    ``wins`` are the samples in which no design is better, as a share; equally good ones all win. In
    a share ``fails`` of them it exceeds what a chip of the space may take, or no plan fits;
    choosing it costs all there is then.
    """

    accelerator: Accelerator  # the chip
    wins: float
    fails: float
    expected_regret: float  # mean of what choosing it costs
    worst_regret: float  # the most that choosing it costs


@dataclass(frozen=True)
class Influence:
    """What one constant does between the ends of its range, all others as stated.

    ``value_low`` and ``value_high`` are of the chosen design over its value as stated,
    ``regret_low`` and ``regret_high`` what it loses to the best contender there. ``switches_at`` is
    the factor nearest to 1 at which another one is better, None if none is.
    """

    name: str
    low: float  # factor at the lower end of its range
    high: float  # factor at the upper end of its range
    value_low: float
    value_high: float
    regret_low: float
    regret_high: float
    switches_at: float | None
    source: str


@dataclass(frozen=True)
class Searched:
    """How the space was searched: ``designs`` were bounded under each sample.

    Per sample ``scheduled`` designs were priced and scheduled and ``evaluated`` ones had their best
    plans found, contenders not counted. In ``proven`` samples no design of the space is better than
    the best contender. Of designs that are no contenders none has less regret at worst than
    ``least_regret_bound``, a share; ``undecided`` of them might have less than the least contender.
    """

    designs: int
    scheduled: float
    evaluated: float
    proven: int
    least_regret_bound: float
    undecided: int


@dataclass(frozen=True)
class Robustness:
    """The answer of ``phaze robust``: contenders by expected regret, constants by what they change.

    ``contenders`` are the chosen design, those nearest to it with the constants as stated, whatever
    is the best under a sample, and what might have the least regret at worst. Their shares are of
    the samples in which some design of the space works, all but ``samples_without_any``.
    """

    run: str  # its folder
    samples: int  # of the constants
    samples_without_any: int
    seed: int  # by which it repeats
    chosen: Contender  # the best design of the run
    least_regret: Contender  # the contender that costs least at worst
    contenders: tuple[Contender, ...]
    influences: tuple[Influence, ...]  # constants by what they change
    searched: Searched  # how the space was searched under samples


def keep_robustness(folder: Path, answer: Robustness) -> None:
    """Write the answer into the folder of its run."""
    write_atomically(folder / FILE, ROBUST.stamped_json(to_json(answer)))


def kept_robustness(folder: Path) -> Robustness | None:
    """What was kept there, None where nothing is or what is there is no answer."""
    return load_or_set_aside(folder / FILE, _read)


def _read(path: Path) -> Robustness:
    return from_json(Robustness, ROBUST.current_json(artefact_bytes(path), str(path)), str(path))
