"""Several things that are wrong with what was given, said at once."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from phaze_common.errors import InputError

MOST_LISTED = 50  # a file of another kind can be wrong in every line
Made = TypeVar("Made")
Instead = TypeVar("Instead")


class SeveralProblemsError(InputError):
    """Two or more refusals, each a sentence by itself: ``problems``."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        self.listed = self.problems[:MOST_LISTED]
        if len(self.problems) > MOST_LISTED:
            self.listed += (f"and {len(self.problems) - MOST_LISTED:,} more",)
        sentences = "; ".join(
            f"({number}) {problem}" for number, problem in enumerate(self.listed, start=1)
        )
        super().__init__(f"{self.heading} {sentences}")

    @property
    def heading(self) -> str:
        """What stands before the list."""
        return f"{len(self.problems):,} problems:"

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class Refusals:
    """Gathers refusals until all of them are known."""

    def __init__(self) -> None:
        self._found: dict[str, InputError] = {}

    def __bool__(self) -> bool:
        """Whether anything was refused."""
        return bool(self._found)

    def add(self, refusal: InputError) -> None:
        """Keep a refusal, or each of several."""
        if isinstance(refusal, SeveralProblemsError):
            for each in refusal.problems:
                self.add(InputError(each))
        else:
            self._found.setdefault(str(refusal), refusal)

    def attempt(self, make: Callable[[], Made], instead: Instead) -> Made | Instead:
        """``make()``, or ``instead`` where that refuses."""
        try:
            return make()
        except InputError as error:
            self.add(error)
            return instead

    def finish(self, make: Callable[[], Made]) -> Made:
        """``make()``; where that or anything before it was refused, the end.

        Raises:
            InputError: the only refusal, or all of them.
        """
        try:
            made = make()
        except InputError as error:
            self.add(error)
            self.raise_any()
            raise
        self.raise_any()
        return made

    def raise_any(self) -> None:
        """End with what was gathered, if anything was.

        Raises:
            InputError: the only refusal, or all of them.
        """
        if len(self._found) == 1:
            raise next(iter(self._found.values()))
        if self._found:
            raise SeveralProblemsError(self._found)


class FileRefusals(Refusals):
    """What is wrong with the values in a file, or with a change of one."""

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self._path = path

    def require(self, condition: bool, key: str, given: object, allowed: str) -> bool:
        """Refuse a value that parses but makes no sense; returns ``condition``."""
        if not condition:
            self.add(InputError(f"{self._path}: {key} is {given}; it must be {allowed}"))
        return condition
