"""Findings gathered by family, and the table of how runs ended."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from scripts.fuzzing.inputs import Input
from scripts.fuzzing.judge import Problem
from scripts.fuzzing.server import Outcome

SHOWN = 3  # examples of a family


@dataclass(frozen=True)
class Example:
    """An input that shows a problem; ``words`` may be fewer than it had."""

    number: int
    words: tuple[str, ...]
    change: str
    detail: str
    where: str = ""


@dataclass
class Findings:
    """What was found so far, and how every run ended."""

    families: dict[str, list[Example]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    ends: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    slowest: list[tuple[float, int, str]] = field(default_factory=list)
    largest: tuple[int, int] = (0, 0)
    cpu_s: float = 0.0

    @property
    def ended(self) -> int:
        """Runs so far."""
        return sum(self.ends.values())

    def note(self, tried: Input, outcome: Outcome) -> None:
        """Count how a run ended."""
        end = outcome.limit or (
            f"exit {outcome.status}" if outcome.status >= 0 else f"signal {-outcome.status}"
        )
        self.ends[tried.mode, tried.kind, end] += 1
        self.slowest = sorted(
            [*self.slowest, (outcome.cpu_s, tried.number, shlex.join(tried.words)[:160])],
            reverse=True,
        )[:8]
        self.cpu_s += outcome.cpu_s
        self.largest = max(self.largest, (outcome.peak_bytes, tried.number))

    def add(self, problem: Problem, example: Example) -> None:
        """Count a problem and keep the first examples of its family."""
        self.counts[problem.family] += 1
        if len(self.families[problem.family]) < SHOWN:
            self.families[problem.family].append(example)

    def is_new(self, problem: Problem) -> bool:
        """Whether nothing like it was found before."""
        return problem.family not in self.families


def table(findings: Findings) -> list[str]:
    """Lines of how runs ended, by mode, and by what was mutated."""
    lines = []
    for title, position in (("mode", 0), ("mutated", 1)):
        ends = sorted({end for *_, end in findings.ends})
        rows: dict[str, Counter[str]] = defaultdict(Counter)
        for keys, count in findings.ends.items():
            rows[keys[position]][keys[2]] += count
        width = max(len(name) for name in (*rows, title))
        lines.append(f"{title:{width}}  " + "  ".join(f"{end:>8}" for end in ends))
        lines += [
            f"{name:{width}}  " + "  ".join(f"{row[end] or '-':>8}" for end in ends)
            for name, row in sorted(rows.items())
        ]
        lines.append("")
    return lines


def told(findings: Findings, command: str) -> list[str]:
    """Lines that tell every family with its first examples and the ``command`` that repeats
    them."""
    lines = []
    for family, count in findings.counts.most_common():
        lines.append(f"{count} x {family}")
        for example in findings.families[family]:
            lines.append(f"    {command} --only {example.number}    # {example.change}")
            lines.append(f"        {shlex.join(example.words)[:400]}")
            lines.append(f"        {example.detail[:400]!r} {example.where}")
    return lines
