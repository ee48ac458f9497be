"""What is known of a best design once constants are sampled, and the file of it in the folder of the run."""

from dataclasses import dataclass
from pathlib import Path

from Common.files import load_or_set_aside, write_atomically
from Common.records import from_json, to_json
from Estimator.chips.accelerator import Accelerator

FILE = "robust.json"


@dataclass(frozen=True)
class Contender:
    """A design under all samples: how often it is the best, and what choosing it costs, as a share of the best of each sample."""

    accelerator: Accelerator
    wins: float
    expected_regret: float
    worst_regret: float


@dataclass(frozen=True)
class Influence:
    """What one constant does between the ends of its range, all others as stated.

    ``value_low`` and ``value_high`` are of the chosen design over its value as stated, ``regret_low`` and ``regret_high`` what it
    loses to the best contender there. ``switches_at`` is the factor nearest to 1 at which another one is better, None if none is.
    """

    name: str
    low: float
    high: float
    value_low: float
    value_high: float
    regret_low: float
    regret_high: float
    switches_at: float | None
    source: str


@dataclass(frozen=True)
class Robustness:
    """The answer of ``phaze robust``: contenders by expected regret, constants by what they change.

    ``contenders`` are those of ``considered`` designs that could win; ``left_out`` of them were not evaluated because they came
    too far behind in the run, where each was at least ``behind`` (a share) worse.
    """

    run: str
    samples: int
    seed: int
    chosen: Contender
    least_regret: Contender
    contenders: tuple[Contender, ...]
    influences: tuple[Influence, ...]
    considered: int
    left_out: int
    behind: float


def keep_robustness(folder: Path, answer: Robustness) -> None:
    """Write the answer into the folder of its run."""
    write_atomically(folder / FILE, to_json(answer))


def kept_robustness(folder: Path) -> Robustness | None:
    """What was kept there, None where nothing is or what is there is no answer."""
    return load_or_set_aside(folder / FILE, lambda path: from_json(Robustness, path.read_bytes(), str(path)))
