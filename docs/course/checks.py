"""Checks the answers of the course: ``python -m docs.course.checks EXERCISE ANSWER``, from the root
of the repository.

Every reference answer is computed by the program when it is asked for, so that it changes with what
it computes.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docs.course import references
from docs.course.references import SCHEDULE, Folders, Reference
from Estimator.plans.results import Status
from phaze.settings.folders import folders_of
from phaze_common.errors import InputError, SolverError
from Solver.schedule.check import check_schedule
from Solver.schedule.problem import Assignment, CoreType, Mode, Schedule

RIGHT, WRONG, REFUSED = 0, 1, 2
_NUMBER = re.compile(r"[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_PLACED = re.compile(r"(\d+)=(single|all)@(\d+\.?\d*)")


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is said about it."""

    right: bool
    message: str


class Exercise(Protocol):
    """Something to be answered."""

    @property
    def name(self) -> str:
        """Its name, ``page.exercise``."""

    @property
    def asks(self) -> str:
        """What for, with the unit."""

    def judge(self, words: Sequence[str], folders: Folders) -> Verdict:
        """Judge an answer.

        Raises:
            InputError: it is no answer to such a question.
        """

    def solution(self, folders: Folders) -> str:
        """The reference answer, and how it was computed."""


@dataclass(frozen=True)
class NumberExercise:
    """A number is asked for, which may be off by a ``tolerance`` relative to the reference (0: not
    at all)."""

    name: str
    asks: str
    reference: Callable[[Folders], Reference]
    hint: str
    tolerance: float = 0.005

    def judge(self, words: Sequence[str], folders: Folders) -> Verdict:
        """Compare a number, a fraction (3/11) or a percentage with the reference."""
        given, wanted = number(" ".join(words)), self._value(folders)
        if math.isclose(given, wanted, rel_tol=max(self.tolerance, 1e-9)):
            return Verdict(True, f"right: {self.solution(folders)}")
        times = f", {given / wanted:.4g} times the reference" if wanted else ""
        return Verdict(False, f"not yet: {given:g} is off{times}. {self.hint}")

    def solution(self, folders: Folders) -> str:
        """The number, and how it was computed."""
        return f"{self._value(folders):,.10g} ({self.reference(folders).how})"

    def _value(self, folders: Folders) -> float:
        value = self.reference(folders).value
        if isinstance(value, frozenset):
            raise TypeError(f"the reference of {self.name} is no number")
        return value


@dataclass(frozen=True)
class NamesExercise:
    """Some of ``names``, single letters, are asked for."""

    name: str
    asks: str
    reference: Callable[[Folders], Reference]
    names: frozenset[str]
    hint: str

    def judge(self, words: Sequence[str], folders: Folders) -> Verdict:
        """Compare letters, in any order, with the reference."""
        given = frozenset("".join(words).upper().replace(",", ""))
        if not given <= self.names or not given:
            allowed = ", ".join(sorted(self.names))
            raise InputError(f"{''.join(words)!r} names something else; give some of {allowed}")
        wanted = self.reference(folders).value
        if given == wanted:
            return Verdict(True, f"right: {self.solution(folders)}")
        wrong = len(given ^ wanted) if isinstance(wanted, frozenset) else 0
        return Verdict(
            False, f"not yet: {wrong} of {len(self.names)} are on the wrong side. {self.hint}"
        )

    def solution(self, folders: Folders) -> str:
        """The letters, and how they were found."""
        found = self.reference(folders)
        value = found.value if isinstance(found.value, frozenset) else frozenset[str]()
        return f"{''.join(sorted(value))} ({found.how})"


@dataclass(frozen=True)
class ScheduleExercise:
    """A whole schedule is asked for: who runs how from when."""

    name: str
    asks: str
    hint: str

    def judge(self, words: Sequence[str], folders: Folders) -> Verdict:
        """Check a schedule with the checker of the tests, and its length against the shortest."""
        schedule = placed(words)
        try:
            check_schedule(SCHEDULE, schedule)
        except SolverError as error:
            said = str(error).partition(": ")[2].rpartition(";")[0]
            return Verdict(False, f"not yet: {said}. {self.hint}")
        best = references.makespan(folders)
        if isinstance(best.value, float) and schedule.makespan_s > best.value + 1e-6:
            return Verdict(
                False,
                f"not yet: it can be run, and ends at {schedule.makespan_s:g}; there are shorter "
                f"ones. {self.hint}",
            )
        return Verdict(
            True,
            f"right: it can be run, and ends at {schedule.makespan_s:g}, the optimum ({best.how})",
        )

    def solution(self, folders: Folders) -> str:
        """How long the shortest takes."""
        return f"one that ends at {references.makespan(folders).value}"


def number(text: str) -> float:
    """A number as people write it: 436,207,616, 4.4e8, 3/11 or 27.3%.

    Raises:
        InputError: it is none.
    """
    parts = text.removesuffix("%").split("/")
    if len(parts) > 2 or not all(_NUMBER.fullmatch(part.strip()) for part in parts):
        raise InputError(
            f"{text!r} is no number; give one such as 436,207,616, 4.4e8, 3/11 or 27.3%"
        )
    values = [float(part.replace(",", "")) for part in parts]
    if len(values) == 2 and values[1] == 0.0:
        raise InputError(f"{text!r} divides by 0; give another fraction")
    value = values[0] / values[1] if len(values) == 2 else values[0]
    return value / 100.0 if text.endswith("%") else value


def placed(words: Sequence[str]) -> Schedule:
    """The schedule that ``words`` say, such as ``0=all@0 2=single@2``, each operator on the first
    core that is free.

    Raises:
        InputError: a word is none of these, or names no operator.
    """
    found = dict[int, tuple[Mode, float]]()
    for word in words:
        match = _PLACED.fullmatch(word)
        if (
            match is None
            or int(match[1]) >= len(SCHEDULE.structure.core_types)
            or int(match[1]) in found
        ):
            last = len(SCHEDULE.structure.core_types) - 1
            raise InputError(
                f"{word!r} places no operator; give each of 0 to {last} once, such as 0=single@0 "
                "or 1=all@4"
            )
        found[int(match[1])] = Mode(match[2]), float(match[3])
    assignments, free = (
        list[Assignment](),
        {CoreType.TC: [0.0] * SCHEDULE.num_tc, CoreType.VC: [0.0] * SCHEDULE.num_vc},
    )
    busy = {CoreType.TC: 0.0, CoreType.VC: 0.0}
    for operator, (mode, start_s) in sorted(found.items(), key=lambda item: item[1][1]):
        kind = SCHEDULE.structure.core_types[operator]
        latency_s = float(
            (SCHEDULE.all_latency_s if mode is Mode.ALL else SCHEDULE.single_latency_s)[operator]
        )
        cores, core = free[kind], None
        if mode is Mode.SINGLE:
            core = next(
                (each for each, until in enumerate(cores) if until <= start_s), 0
            )  # shared where none is free
            cores[core] = start_s + latency_s
        busy[kind] += latency_s * (len(cores) if mode is Mode.ALL else 1)
        tc, vc = (core, None) if kind is CoreType.TC else (None, core)
        assignments.append(Assignment(operator, mode, tc, vc, start_s, start_s + latency_s))
    end_s = max((each.end_s for each in assignments), default=0.0)
    used = {kind: busy[kind] / (len(free[kind]) * end_s) if end_s else 0.0 for kind in busy}
    return Schedule(
        Status.FEASIBLE,
        "your schedule",
        end_s,
        0.0,
        tuple(assignments),
        used[CoreType.TC],
        used[CoreType.VC],
    )


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "graphs.parameters",
        "parameters of a block",
        references.parameters,
        "Count the biases and both layer norms, too.",
        0,
    ),
    NumberExercise(
        "graphs.flops",
        "FLOPs of the matrix products of a block, forward",
        references.forward_flops,
        "A multiply-accumulate is 2 FLOPs; attention has two products of its own, over all heads.",
        0,
    ),
    NumberExercise(
        "graphs.backward",
        "FLOPs of the matrix products of a block, backward, with fused attention",
        references.backward_flops,
        "Two products for each of the forward pass; fused attention runs one of its two again "
        "besides.",
        0,
    ),
    NumberExercise(
        "graphs.saved",
        "bytes that a block keeps for its backward pass, with eager attention",
        references.saved_bytes,
        "Korthikanti et al. 2022, equation 1: one micro-batch, no tensor parallelism.",
    ),
    NumberExercise(
        "latency.folds",
        "folds of the product on the array",
        references.folds,
        "The array holds a tile of the (k, n) operand: how many tiles are there?",
        0,
    ),
    NumberExercise(
        "latency.cycles",
        "cycles of the product on the array",
        references.cycles,
        "A fold streams m rows, the first one also waits for its weights, the last one for the "
        "skew of the array.",
        0,
    ),
    NumberExercise(
        "latency.utilization",
        "part of the array's peak",
        references.utilization,
        "Multiply-accumulates over cycles x cells.",
    ),
    NumberExercise(
        "latency.ridge",
        "FLOPs per byte from which an A100 is limited by arithmetic",
        references.ridge,
        "Peak over bandwidth.",
    ),
    NumberExercise(
        "latency.intensity",
        "FLOPs per byte of a 16 x 1024 by 1024 x 1024 product in bf16",
        references.intensity,
        "Two operands are read, a result is written, two bytes an element.",
    ),
    NumberExercise(
        "schedule.bound",
        "length of the longest path",
        references.critical_path,
        "Each operator at the faster of its two ways.",
        0,
    ),
    NumberExercise(
        "schedule.makespan",
        "length of the shortest schedule",
        references.makespan,
        "While an operator runs on all cores, nothing else does, also no operator of the vector "
        "core.",
        0,
    ),
    ScheduleExercise(
        "schedule.own",
        "a shortest schedule, as OPERATOR=single|all@START ...",
        "Begin with the longest chain, and keep it busy.",
    ),
    NumberExercise(
        "pipeline.bubble",
        "part of an iteration that a stage waits",
        references.bubble,
        "Four stages fill and empty once in an iteration.",
    ),
    NumberExercise(
        "pipeline.unequal",
        "milliseconds of the pipeline with a slow stage",
        references.unequal,
        "Draw the passes of the slow stage: when does its first one start, when does it wait, "
        "what comes behind its last one?",
        0,
    ),
    NumberExercise(
        "pipeline.in-flight",
        "micro-batches that the second of four stages holds",
        references.in_flight,
        "Forward passes of its warm-up, and the one that alternates.",
        0,
    ),
    NumberExercise(
        "pipeline.cut",
        "milliseconds of the largest stage of the best cut",
        references.cut,
        "Try a limit: can four stages keep it?",
        0,
    ),
    NumberExercise(
        "search.space",
        "design points of the search",
        references.space,
        "Accelerators x HBM sizes x shapes of plans.",
        0,
    ),
    NamesExercise(
        "search.front",
        "chips on the Pareto front, as letters",
        references.front,
        frozenset(each.name for each in references.CHIPS),
        "A chip is dominated where another is no worse in all three and better in one.",
    ),
    NumberExercise(
        "search.certificate",
        "samples/s that a pruned point could reach at most",
        references.certificate,
        "The largest bound among the rows of designs.parquet whose status is pruned.",
    ),
    NumberExercise(
        "predictions.mfu",
        "model FLOPs utilisation of the measured run",
        references.utilization_of_run,
        "Three forward passes of all samples, over seconds x devices x peak; count all scores of "
        "attention, and the head.",
        0.01,
    ),
    NumberExercise(
        "predictions.error",
        "error of the predicted time, as a part of the measured one",
        references.error,
        "Predicted over measured, less 1.",
        0.05,
    ),
    NumberExercise(
        "predictions.interval",
        "upper end of the 80% interval of a prediction of 10 s",
        references.upper_end,
        "Variance of the means of sources times 1 + 1/n, and the pooled one within; Student's t "
        "with n - 1 degrees of freedom.",
    ),
)


def exercise(name: str) -> Exercise:
    """The exercise called ``name``.

    Raises:
        InputError: there is none, with the names of those that there are.
    """
    for each in EXERCISES:
        if each.name == name:
            return each
    raise InputError(
        f"there is no exercise {name!r}; they are {', '.join(each.name for each in EXERCISES)}"
    )


def main(words: Sequence[str] | None = None, folders: Folders | None = None) -> int:
    """Check an answer, show a reference or list all exercises; returns 0 where an answer is right,
    1 where it is not, else 2."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.course.checks", description="check answers of the course"
    )
    parser.add_argument(
        "exercise", nargs="?", help="its name, as in graphs.flops (none: all are listed)"
    )
    parser.add_argument(
        "answer",
        nargs="*",
        help="a number (436,207,616, 4.4e8, 3/11, 27.3%%), letters, or a schedule",
    )
    parser.add_argument("--show", action="store_true", help="show the reference answer instead")
    given = parser.parse_args(words)
    at = folders or Folders(folders_of(None).graphs, Path("Solver/output/course"))
    try:
        if given.exercise is None:
            sys.stdout.writelines(f"{each.name:<20} {each.asks}\n" for each in EXERCISES)
            return RIGHT
        asked = exercise(given.exercise)
        if given.show:
            sys.stdout.write(f"{asked.solution(at)}\n")
            return RIGHT
        if not given.answer:
            raise InputError(f"{asked.name} has no answer; give it behind the name: {asked.asks}")
        verdict = asked.judge(given.answer, at)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    sys.stdout.write(f"{verdict.message}\n")
    return RIGHT if verdict.right else WRONG


if __name__ == "__main__":
    sys.exit(main())
