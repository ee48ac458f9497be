"""A session of fuzzing: builds the base files, runs the inputs of a seed, judges and gathers."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from phaze.cli.parser import Parser
from phaze_common.files import code_version
from scripts.fuzzing.base_files import write_base_files
from scripts.fuzzing.findings import Example, Findings, table, told
from scripts.fuzzing.flags import WRITTEN, Flags, parsers
from scripts.fuzzing.inputs import Input, input_of
from scripts.fuzzing.judge import Problem, contents, problems
from scripts.fuzzing.server import BUILT, POLL_S, Outcome, Running, Slot, prepare, warm
from scripts.fuzzing.targets import BUILD, EXTRACTING, SHARING, WARM

REPOSITORY = Path(__file__).resolve().parents[2]
# write files
ROOMS = ("phaze", "phaze_common", "GraphExtractor", "Estimator", "Solver", "scripts/fuzzing")
BYSTANDER = "bystander.txt"
TELL_EVERY = 200  # inputs
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')


@dataclass(frozen=True)
class Plan:
    """Which inputs are run. ``match`` limits them to modes and files that contain it, ``keep`` gets
    files of findings."""

    seed: int
    numbers: tuple[int, ...]
    jobs: int
    match: str = ""
    keep: Path | None = None


def fuzz(plan: Plan, folder: Path, *, loud: bool = False) -> int:
    """Run the inputs and tell what was found on standard output; returns the number of families."""
    started = time.monotonic()
    prepare()
    slots = [Slot(folder / f"slot{number}") for number in range(max(plan.jobs, 1))]
    _build(slots)
    modes, findings = parsers(), Findings()
    _say(f"ready after {time.monotonic() - started:.0f} s in {folder}; seed {plan.seed}")
    begun, cpu = time.monotonic(), time.process_time()
    stopped: list[
        int
    ] = []  # by a signal; an exception could come where the interpreter swallows it
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, frame: stopped.append(number))
    with closing(_ended(plan, slots, modes)) as runs:
        for tried, outcome, slot, lost in runs:
            found = [*problems(outcome, tried.mode), *lost]
            findings.note(tried, outcome)
            _gather(plan, findings, found, tried, slot, loud=loud)
            if loud:
                _say_all(tried, outcome, found)
            if findings.ended % TELL_EVERY == 0:
                _say(
                    f"{findings.ended} inputs in {time.monotonic() - begun:.0f} s, "
                    f"{len(findings.families)} families"
                )
            if stopped:
                _say("interrupted; what was found so far follows")
                break
    if not loud:
        _summarise(plan, findings, time.monotonic() - begun, time.process_time() - cpu)
    return len(findings.families)


def _gather(
    plan: Plan,
    findings: Findings,
    found: Sequence[Problem],
    tried: Input,
    slot: Slot,
    *,
    loud: bool,
) -> None:
    """Add what was found; the first input of every family is examined and kept."""
    for problem in found:
        example = Example(tried.number, tried.words, tried.change, problem.detail)
        if findings.is_new(problem) and not loud:
            example = _examined(tried, problem, slot)
            _keep(plan, tried, len(findings.families))
            _say(f"NEW {problem.family}  ({tried.number})")
        findings.add(problem, example)


def _summarise(plan: Plan, findings: Findings, wall_s: float, own_s: float) -> None:
    sys.stdout.writelines(
        f"{line}\n"
        for line in (*table(findings), *told(findings, f"scripts/fuzz.py --seed {plan.seed}"))
    )
    sys.stdout.writelines(
        f"slowest: {cpu_s:.1f} s  {number}  {words}\n" for cpu_s, number, words in findings.slowest
    )
    memory, number = findings.largest
    sys.stdout.write(
        f"largest: {memory / 2**20:.0f} MiB  {number}; {findings.cpu_s:.0f} s of a core, "
        f"{own_s:.0f} s of the fuzzer\n"
    )
    rate, families = findings.ended / max(wall_s, 1e-9), len(findings.families)
    sys.stdout.write(
        f"{findings.ended} inputs of seed {plan.seed} in {wall_s:.0f} s ({rate:.1f}/s): "
        f"{families} families of findings\n"
    )


def _ended(
    plan: Plan, slots: list[Slot], modes: dict[str, Parser]
) -> Generator[tuple[Input, Outcome, Slot, list[Problem]], None, None]:
    """Every input as it ends, in a slot that is its own until the next one is asked for."""
    waiting = iter(plan.numbers)
    free, busy = list(slots), dict[Slot, tuple[Input, Running, dict[str, str]]]()
    try:
        yield from _taken(plan, modes, waiting, free, busy)
    finally:
        for _, running, _ in busy.values():
            running.end()


def _taken(
    plan: Plan,
    modes: dict[str, Parser],
    waiting: Iterator[int],
    free: list[Slot],
    busy: dict[Slot, tuple[Input, Running, dict[str, str]]],
) -> Iterator[tuple[Input, Outcome, Slot, list[Problem]]]:
    """As ``_ended``, of the ``waiting`` numbers; what is ``busy`` may be left behind."""
    while True:
        while free:
            tried = next(
                (
                    each
                    for each in (_made(plan, number, free[0], modes) for number in waiting)
                    if each is not None
                ),
                None,
            )
            if tried is None:
                break
            slot = free.pop(0)
            before = _placed(tried, slot)
            busy[slot] = (tried, Running(slot, tried.words), before)
        if not busy:
            return
        for slot, (tried, running, before) in list(busy.items()):
            outcome = running.outcome()
            if outcome is not None:
                del busy[slot]
                yield tried, outcome, slot, _lost(tried, slot, before)
                free.append(slot)
                break
        else:
            time.sleep(POLL_S)


def _made(plan: Plan, number: int, slot: Slot, modes: dict[str, Parser]) -> Input | None:
    tried = input_of(plan.seed, number, slot.pristine / "work", modes)
    return tried if plan.match in tried.mode or plan.match in tried.kind else None


def _placed(tried: Input, slot: Slot) -> dict[str, str]:
    """Put the files of an input into its slot; what they are."""
    slot.restore()
    if tried.file is not None:
        (slot.work / tried.file).write_bytes(tried.content)
    return contents(slot.work) | contents(slot.live / "home")


def _lost(tried: Input, slot: Slot, before: dict[str, str]) -> list[Problem]:
    """Files that were there before and are not, or are others; those that the command is told to
    write do not count."""
    after = contents(slot.work) | contents(slot.live / "home")
    named = {word.partition("=")[2] or word for word in _written(tried.words)}
    lost = [
        name
        for name in before
        if after.get(name) != before[name] and not any(name.startswith(each) for each in named)
    ]
    found = [Problem(f"{tried.mode}: lost or changed {lost[0]}", ", ".join(lost))] if lost else []
    strange = [
        *slot.strange(),
        *(path.name for path in slot.live.iterdir() if path.name not in {"work", "home"}),
    ]
    if strange and not any(
        ".." in word for word in (*tried.words, tried.content.decode("latin-1"))
    ):
        found.append(
            Problem(f"{tried.mode}: written outside the working folder", ", ".join(strange))
        )
    return found


def _written(words: tuple[str, ...]) -> Iterator[str]:
    flags = tuple(f"--{name}" for name in WRITTEN)
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word in flags or word == "--force":
            yield following
        elif word.startswith((*(f"{flag}=" for flag in flags), "output=")):
            yield word


def _build(slots: Sequence[Slot]) -> None:
    """Give every slot the base files and all that the base commands make of them (which name their
    slot), and warm up before.

    Slots that an earlier session of the same code left in the folder are used as they are.
    """
    version = code_version(*(REPOSITORY / room for room in ROOMS))
    marks = [slot.root / f"{BUILT}{version}" for slot in slots]
    if all(mark.exists() for mark in marks):
        for slot in slots:
            slot.restore()
        warm(slots[0], WARM)
        return
    for slot in slots:
        shutil.rmtree(slot.root, ignore_errors=True)
        for folder in (slot.work, slot.live / "home"):
            folder.mkdir(parents=True)
        (slot.live / "home" / BYSTANDER).write_text("of somebody else")
        write_base_files(slot.work)
    for position, command in enumerate(BUILD):
        for running in [Running(slot, command.split()) for slot in slots]:
            outcome = running.wait()
            if outcome.status:
                raise RuntimeError(
                    f"{command} ended with {outcome.status}, {outcome.limit}: "
                    f"{outcome.stderr[-2000:]}"
                )
        for slot, room, place in product(slots, ("GraphExtractor", "Estimator"), SHARING):
            if (slot.work / "out" / room).exists():
                shutil.copytree(
                    slot.work / "out" / room, slot.work / place / room, dirs_exist_ok=True
                )
        if position + 1 == EXTRACTING:
            warm(slots[0], WARM)
    for slot, mark in zip(slots, marks, strict=True):
        slot.keep()
        mark.touch()


def _examined(tried: Input, problem: Problem, slot: Slot) -> Example:
    """An example of a new family: with as few flags as show it, and where an unexpected error came
    from."""
    words = tried.words
    if tried.flags is not None:
        for position in reversed(range(len(tried.flags.added))):
            fewer = Flags(
                tried.flags.base,
                (*tried.flags.added[:position], *tried.flags.added[position + 1 :]),
            )
            shorter = (*fewer.words, *words[len(tried.flags.words) :])
            if problem.family in {
                each.family for each in problems(_again(tried, slot, shorter), tried.mode)
            }:
                tried = Input(tried.number, tried.kind, shorter, tried.change, flags=fewer)
                words = shorter
    where = ""
    if "unexpected" in problem.detail:
        frames = _FRAME.finditer(_again(tried, slot, (*words, "--verbose")).stderr)
        ours = [
            each
            for each in frames
            if each["file"].startswith(str(REPOSITORY)) and ".venv" not in each["file"]
        ]
        places = (
            f"{Path(each['file']).relative_to(REPOSITORY)}:{each['line']} {each['name']}"
            for each in ours[-3:]
        )
        where = " <- ".join(reversed(list(places)))
    return Example(tried.number, words, tried.change, problem.detail, where)


def _again(tried: Input, slot: Slot, words: tuple[str, ...]) -> Outcome:
    _placed(tried, slot)
    return Running(slot, words).wait()


def _keep(plan: Plan, tried: Input, position: int) -> None:
    if plan.keep is not None and tried.file is not None:
        plan.keep.mkdir(parents=True, exist_ok=True)
        (plan.keep / f"{position:03}-{tried.number}-{Path(tried.file).name}").write_bytes(
            tried.content
        )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _say_all(tried: Input, outcome: Outcome, found: list[Problem]) -> None:
    sys.stdout.write(f"{shlex.join(tried.words)}\n{tried.file or ''}: {tried.change}\n")
    if tried.file is not None:
        sys.stdout.write(f"{tried.content[:3000].decode('utf-8', 'replace')}\n")
    sys.stdout.write(f"stdout: {outcome.stdout[:3000]}\nstderr: {outcome.stderr[-6000:]}\n")
    sys.stdout.write(
        f"status {outcome.status}, limit {outcome.limit}, {outcome.cpu_s:.2f} s, "
        f"{outcome.peak_bytes / 2**20:.0f} MiB\n"
    )
    sys.stdout.writelines(f"FOUND {problem.family}: {problem.detail}\n" for problem in found)
