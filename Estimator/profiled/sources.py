"""Where prices are from: what was measured, what is interpolated between measurements, and what is
fitted to others."""

from dataclasses import dataclass
from enum import StrEnum


class PriceSource(StrEnum):
    """Where the seconds of an operator are from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"  # between measured sizes of the same kind, pass and functions
    FITTED = "fitted"  # beyond them, or by what other operators take


@dataclass(frozen=True)
class SourceCounts:
    """How much of a training step was measured: distinct operators, and the part of all their
    seconds, by ``PriceSource``."""

    database: str  # folder of the profiled database
    operators: dict[str, int]  # distinct operators, by what priced them
    share_of_seconds: dict[str, float]  # of all operators, by what priced them

    @property
    def words(self) -> str:
        """As a sentence."""
        whole = sum(self.operators.values())
        parts = [
            f"{count} {name} ({self.share_of_seconds[name]:.1%} of their seconds)"
            for name, count in self.operators.items()
            if count
        ]
        counts = f"of {whole} distinct operators {', '.join(parts)}"
        if self.operators[PriceSource.MEASURED.value]:
            return counts
        return f"{counts}: none of this model was measured"
