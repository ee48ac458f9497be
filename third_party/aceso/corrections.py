"""What Aceso's cost model leaves out of the iterations that its runtime runs: the stated rules of
``corrections.yaml``."""

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from phaze_common.records import read_yaml, to_record


@dataclass(frozen=True)
class Format:
    """Bytes of one parameter: of its weight, moved per micro-batch and at the step, and held before
    and at the step."""

    bytes: int
    accumulate_bytes: int
    step_bytes: int
    held_bytes: int
    step_held_bytes: int


@dataclass(frozen=True)
class FamilyRun:
    """How the runtime trains a family; ``embedding`` are the operators that share one."""

    format: str
    constant_data: bool
    embedding: tuple[str, ...]


@dataclass(frozen=True)
class OperatorNames:
    """Parts of the names of operators, by what holds of them."""

    products: tuple[str, ...]
    heads: tuple[str, ...]
    split_by_rows: tuple[str, ...]
    without_pause: str
    with_pause: str
    unread_outputs: tuple[str, ...]
    unread_stem: str
    masked: tuple[str, ...]
    branches: tuple[str, ...]
    additions: tuple[str, ...]
    workspaces: tuple[str, ...]

    def is_product(self, name: str) -> bool:
        """Whether the operator is one product with weights."""
        return any(part in name for part in self.products)

    def is_head(self, name: str) -> bool:
        """Whether the operator is the product of the output layer with the loss."""
        return any(part in name for part in self.heads)

    def reduces_forward(self, name: str, algorithm: int) -> bool:
        """Whether its all-reduce over tensor parallel devices belongs to the forward pass, not to
        the backward one."""
        return any(part in name for part in self.split_by_rows) == (algorithm == 0)

    def output_is_read(self, name: str) -> bool:
        """Whether a backward pass reads its output."""
        return name != self.unread_stem and not any(part in name for part in self.unread_outputs)

    def output_share(self, name: str) -> float:
        """Part of the measured activations that is the output; the rest is a mask."""
        return 2.0 / 3.0 if any(part in name for part in self.masked) else 1.0


@dataclass(frozen=True)
class Traffic:
    """A pass of an operator that moves so many times its activations."""

    name: str
    backward: bool
    activations: float


@dataclass(frozen=True)
class Mechanism:
    """What is corrected, and why."""

    name: str
    says: str
    reason: str


@dataclass(frozen=True)
class Mechanisms:
    """Which corrections are made."""

    weight_gradients: bool = True
    product_rates: bool = True
    accumulation: bool = True
    transfers: bool = True
    pipeline: bool = True
    synchronisation: bool = True
    embedding: bool = True
    optimizer: bool = True


NAMES = tuple(field.name for field in fields(Mechanisms))  # in the order in which they are added up


@dataclass(frozen=True)
class Corrections:
    """All rules."""

    formats: dict[str, Format]
    families: dict[str, FamilyRun]
    operators: OperatorNames
    both_products_above: float
    traffic: tuple[Traffic, ...]
    least_traffic_mib: float
    mechanisms: tuple[Mechanism, ...]

    def format_of(self, family: str) -> Format:
        """Bytes of a parameter of this family."""
        return self.formats[self.families[family].format]


@cache
def load_corrections() -> Corrections:
    """Read the rules that ship."""
    path = Path(__file__).with_name("corrections.yaml")
    return to_record(Corrections, read_yaml(path), str(path))
