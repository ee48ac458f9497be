"""Commands that launch Megatron-LM: their words as flags with values, and what of them is
neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from phaze.exports.bash.variables import MAYBE, SURE
from phaze.exports.megatron_lm.known_arguments import known_arguments, values_of
from phaze.settings.launched import KeyKind
from phaze_common.errors import InputError

MOST_ENTRIES = 3  # of differing flags that a refusal names
PROCESSES = {"nproc-per-node", "nnodes", "nodes", "ntasks-per-node", "gpus-per-node", "ntasks"}
PROCESSES |= {"num-gpus", "num-nodes"}
# flags whose words say such a number
COUNTED_BY = ("gres", "gpus", "include", "np", "npernode", "ppn")
QUEUES = ("srun", "sbatch", "salloc", "mpirun", "mpiexec")
NOT_SET = "not known from the file; what it holds was not read"
_PROGRAM = re.compile(r"(?:.*/)?([A-Za-z_]\w*\.py)")
_FLAG = re.compile(r"--[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
# all of the word, whose value is not known
_PUT_IN = re.compile(r"\$(\{.*\}|\w+)|\$\(.*\)|`.*`", re.DOTALL)
_ARGUMENTS = re.compile(r"\$[{]?[@*][}]?")  # of the script, which is read as started with none
_LIST = re.compile(
    r"\$\{!?\w+\[[@*]\]\}|\$\{?\w*(args?|opt(ion)?s|flags|params)\w*\}?", re.IGNORECASE
)  # holds several words
_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u00b4`"
_STARTS = re.compile(
    r"(?:.*/)?(?:python[0-9.]*|torchrun|deepspeed|accelerate|bash|sh|[A-Za-z_]\w*\.py)"
)  # another program
_OF_SLURM = {"-N": "nodes", "-n": "ntasks"}
_PER_NODE = dict.fromkeys(
    ("-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost"), "ntasks-per-node"
)
_OF_MPI = {**dict.fromkeys(("-n", "-np", "--np"), "ntasks"), **_PER_NODE}
_SHORT = re.compile(r"(-[Nn])([0-9]+)")
_OF_A_NODE = re.compile(r"(?:.*,)?gpu(?::\w+)?:([0-9]+)(?:\(.*\))?(?:,.*)?")  # --gres=gpu:h100:8
_INCLUDED = re.compile(r"[\w.-]+(?::([0-9,]+))?")  # host:0,1,2 of deepspeed --include
# a word of a text of several
_PIECE = re.compile(r"(?:\$\([^()]*\)|`[^`]*`|<[A-Za-z_][^<>\n]*>|\S)+")
_LINE_ENDS = ("\\", "\\\\")  # of a text that is shown, not of words
_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212"
# a continued line that is none
_CUT = re.compile(r"\\[ \t]+\r?$|\\\r?\n[ \t]*(#.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """Flags that are given and those that perhaps are, and the Python program.

    ``repeated`` has earlier values of flags that are given again with others; ``stray`` are words
    that are no flag and no value of one, with why they were not read; ``excess`` are words behind
    flags that are read and take fewer of them, by those flags.
    """

    sure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    perhaps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)
    stray: dict[str, str] = field(default_factory=dict)
    excess: dict[str, tuple[str, ...]] = field(default_factory=dict)
    program: str = ""


def parsed(words: Sequence[str]) -> Command:
    """The flags of a command's words, marked ones (``MAYBE``) apart."""
    found = Command()
    programs: list[str] = []
    level, run = 0, _Run(found)
    bare_words: list[str] = []
    for word in _apart(words):
        level += word.count(MAYBE)
        bare = word.replace(MAYBE, "").replace(SURE, "")
        if bare or not word:
            bare_words.append(bare)
            if _FLAG.fullmatch(bare):
                run = run.next(bare, level > 0)
            else:
                programs += [program[1]] if (program := _PROGRAM.fullmatch(bare)) else []
                run.words.append(bare)
        level = max(0, level - word.count(SURE))
    run.end()
    for name, count in (*_processes(bare_words), *_of_other_flags(found.sure)):
        found.sure.setdefault(name, (count,))
    known = [name for name in programs if re.match(r"(pre)?train|finetune", name)]
    return replace(found, program=(known or programs or [""])[-1])


def _processes(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Numbers of processes by flags of a queue's program, ``srun -N 4 -n32`` or ``mpirun -np 16``,
    and words of directives."""
    place = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in QUEUES), None)
    by_mpi = place is not None and words[place].rpartition("/")[2].startswith("mpi")
    meant = _OF_MPI if by_mpi else _OF_SLURM
    for word, after in pairwise([*words[place:], ""]) if place is not None else ():
        joined = _SHORT.fullmatch(word)
        if joined is not None and joined[1] in meant:
            yield meant[joined[1]], joined[2]
        elif word in meant:
            yield meant[word], after
        elif _STARTS.fullmatch(word):
            return


def _of_other_flags(given: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Numbers of processes that flags say in words of their own: Slurm's ``--gres=gpu:8``,
    DeepSpeed's ``--include``."""
    resources = _OF_A_NODE.fullmatch((given.get("gres") or ("",))[0])
    if resources is not None:
        yield "gpus-per-node", resources[1]
    whole = re.fullmatch(r"(?:\w+:)?([0-9]+)", (given.get("gpus") or ("",))[0])
    if whole is not None:
        yield "ntasks", whole[1]
    hosts = [_INCLUDED.fullmatch(each) for each in (given.get("include") or ("",))[0].split("@")]
    counts = {each[1].count(",") + 1 for each in hosts if each is not None and each[1]}
    if len(counts) == 1 and all(each is not None and each[1] for each in hosts):
        yield "num-nodes", str(len(hosts))
        yield "num-gpus", str(counts.pop())


@dataclass
class _Run:
    """A flag of a command and the words that follow it; before the first flag, words of the program
    that is started."""

    command: Command
    name: str = ""
    unsure: bool = False
    equals: bool = False
    words: list[str] = field(default_factory=list)

    def next(self, word: str, unsure: bool) -> _Run:
        """End this one and begin that of another flag."""
        self.end()
        name, equals, value = word[2:].partition("=")
        plain = name.replace("_", "-")
        name = plain if known_arguments().is_known(plain) else name
        return _Run(self.command, name, unsure, bool(equals), [unquoted(value)] if equals else [])

    def end(self) -> None:
        """Give the flag those of the words that are its values; of others say that they were not
        read."""
        words, takes = self.words, values_of(self.name)
        most = 1 if self.equals else takes
        if not self.name:
            self._tell([word for word in words if word == "xargs" or _LIST.fullmatch(word)])
            return
        starts = (at for at, word in enumerate(words) if at and _STARTS.fullmatch(word))
        kept = words[: next(starts, None) if most is None else most]
        self._tell(words[len(kept) :])
        behind = [] if takes is None else words[takes:]
        literal = [word for word in behind if not _PUT_IN.search(word) and word not in _LINE_ENDS]
        kind = known_arguments().meaning(self.name).kind
        if literal and kind in (KeyKind.READ, KeyKind.NOT_EXPRESSIBLE):
            self.command.excess[self.name] = tuple(literal)
        if most is None:  # of torchrun before the program, say
            self._tell([word for word in kept[:1] if _LIST.fullmatch(word)])
            self._tell([word for word in kept[1:] if _PUT_IN.fullmatch(word)])
        elif most > 1:
            self._tell([word for word in kept if _LIST.fullmatch(word)])
        target = self.command.perhaps if self.unsure else self.command.sure
        earlier = target.get(self.name)
        if earlier is not None and earlier != tuple(kept):
            self.command.repeated.setdefault(self.name, []).append(" ".join(earlier))
        target[self.name] = tuple(kept)

    def _tell(self, words: Iterable[str]) -> None:
        for word in words:
            if word == "xargs":
                self.command.stray[word] = "adds words from its input, which were not read"
            elif _PUT_IN.fullmatch(word) and not _ARGUMENTS.fullmatch(word):
                self.command.stray[word] = NOT_SET
            elif flag_meant(word):
                self.command.stray[word] = f"stands behind --{self.name} as no value of it"


def flag_meant(word: str) -> str:
    """The flag that is read whose name a word has behind other dashes or quotes of a text; empty
    for other words."""
    name = word.strip(_DASHES + _QUOTES).partition("=")[0]
    return name if name in known_arguments().read else ""


def _apart(words: Iterable[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        several = MAYBE in word or SURE in word or ("--" in word and len(word.split()) > 1)
        found += [unquoted(each) for each in _PIECE.findall(word)] if several else [word]
    return found


def unquoted(word: str) -> str:
    """A word without the quotes around it."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def check_whole(commands: Sequence[Sequence[str]], text: str) -> None:
    """Refuse a command that ends in the midst of its flags, so that those behind would be lost.

    Raises:
        InputError: names the lines between which it is cut.
    """
    begins = re.compile(r"--[A-Za-z]|[0-9.]+$")
    cut = next((words for words in commands if words and begins.match(words[0])), None)
    if cut is None:
        return
    place = _CUT.search(text)
    behind = re.search(rf"^[ \t]*{re.escape(cut[0])}(?![\w-]).*$", text, re.MULTILINE)
    found = place or behind
    line = text.count("\n", 0, found.start()) + 1 if found is not None else 0
    where = "the words before it are a command of their own"
    if place is not None:
        why = "a comment or an empty line behind it"
        if place[0].startswith(("\\ ", "\\\t")):
            why = "a blank behind its backslash"
        where = f"line {line} is to be continued and is not, for {why}"
    elif behind is not None:
        end = "the line before has no backslash at its end"
        where = f"line {line} continues none, since {end}"
    raise InputError(
        f"the Megatron-LM command is cut before {' '.join(cut):.60}: {where}; join the lines"
    )


def check_one(launches: Sequence[Command]) -> None:
    """Refuse several commands that say different things.

    Raises:
        InputError: names some of the flags in which they differ.
    """
    read = known_arguments().read - PROCESSES
    first = launches[0].sure
    for other in launches[1:]:
        names = [
            name
            for name in {**first, **other.sure}
            if name in read and first.get(name) != other.sure.get(name)
        ]
        if names:
            shown = ", ".join(
                f"--{name} {_told(first.get(name))} and {_told(other.sure.get(name))}"
                for name in names[:MOST_ENTRIES]
            )
            raise InputError(
                f"the file holds {len(launches)} Megatron-LM commands that differ ({shown}); keep "
                "one of them in a file"
            )


def _told(words: Sequence[str] | None) -> str:
    return "not given" if words is None else " ".join(words) or "given"


def check_values(excess: Mapping[str, Sequence[str]]) -> None:
    """Refuse words behind flags that take fewer values.

    Raises:
        InputError: names the flag and the words.
    """
    for name, words in excess.items():
        takes = values_of(name)
        what, remedy = f"takes {takes} value{'s' * (takes != 1)}", "leave it out or correct it"
        if takes == 0:
            what, remedy = "is a switch, without a value", "leave the flag out or the word"
        raise InputError(
            f"--{name} of the Megatron-LM command {what}, and {' '.join(words)!r:.60} stands "
            f"behind it, which Megatron-LM refuses; {remedy}"
        )


def alike(launches: Sequence[Command]) -> Command:
    """The last of several commands, without processes in whose numbers they differ, as in those of
    a debugger and of a queue."""
    last = launches[-1]
    differing = {name for name in PROCESSES if len({each.sure.get(name) for each in launches}) > 1}
    return replace(
        last, sure={name: words for name, words in last.sure.items() if name not in differing}
    )
