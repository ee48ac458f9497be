"""Flags of a Megatron-LM command: what stands behind them, with variables put in and settings of the command line over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby, pairwise

from Common.errors import InputError
from third_party.exports.megatron_arguments import known_arguments
from third_party.exports.shell_script import script_of
from third_party.exports.shell_variables import MAYBE, SURE

NEARLY = 0.93  # of the letters of two names are the same, where one is the other misspelt
MOST_ENTRIES = 3  # of differing flags that a refusal names
SETTINGS = {  # of phaze evaluate that stand for a flag
    "tensor-model-parallel-size": "tp",
    "pipeline-model-parallel-size": "pp",
    "context-parallel-size": "cp",
    "expert-model-parallel-size": "ep",
    "micro-batch-size": "micro_batch_size",
    "global-batch-size": "global_batch_size",
    "seq-length": "sequence_length",
}
MODEL_FLAGS = frozenset(
    {
        *("num-layers", "hidden-size", "num-attention-heads", "kv-channels", "ffn-hidden-size", "max-position-embeddings"),
        *("num-query-groups", "num-experts", "moe-router-topk", "moe-ffn-hidden-size", "vocab-size"),
    }
)
LAUNCH_FLAGS = frozenset(
    {"num-layers", "hidden-size", "micro-batch-size", "seq-length", "hybrid-layer-pattern", "encoder-num-layers"}
)
PROCESSES = frozenset(
    {"nproc-per-node", "nnodes", "nodes", "ntasks-per-node", "gpus-per-node", "ntasks", "num-gpus", "num-nodes"}
)
_YAML_FLAG = re.compile(r"^[ \t]+['\"]?--[A-Za-z][\w-]*['\"]?[ \t]*:", re.MULTILINE)
_YAML_ENTRY = re.compile(r"[ \t]+['\"]?--([A-Za-z][\w-]*)['\"]?[ \t]*:(.*)")
_YAML_ITEM = re.compile(r"[ \t]+-[ \t]+(.*)")
_YAML_COMMENT = re.compile(r"(^|[ \t])#.*$")
_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_PROGRAM = re.compile(r"(?:.*/)?([A-Za-z_]\w*\.py)")
_FLAG = re.compile(r"--[A-Za-z][\w.-]*(=.*)?", re.DOTALL)


@dataclass(frozen=True)
class Flags:
    """Flags of a command by name without dashes, with what follows each; the last of several holds, as in Megatron-LM.

    ``perhaps`` are those of a branch that may not run. ``unsure`` are variables with values that they may have. ``unread`` are
    files that a script reads and that are not there. ``given`` are
    settings of the command line, which count before flags. ``program`` is the Python file that is started, ``source`` the
    whole text.
    """

    values: Mapping[str, tuple[str, ...]]
    perhaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unsure: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    assumed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    source: str = ""
    asked: set[str] = field(default_factory=set)

    def check_spelling(self) -> None:
        """Refuse a flag that nothing is known of and whose name is nearly that of one that is read.

        Raises:
            InputError: says which it may have been.
        """
        known = known_arguments()
        for name in self.values:
            plain = name.replace("_", "-")
            if known.is_known(name):
                continue
            near = get_close_matches(plain, known.read - self.values.keys(), 1, NEARLY)
            if near:
                raise InputError(f"--{name} is no flag that is read; did you mean --{near[0]}? Correct it or leave it out")

    def has(self, *names: str) -> bool:
        """Whether one of them is given."""
        self.asked.update(names)
        return any(name in self.values or SETTINGS.get(name) in self.given for name in names)

    def words(self, name: str) -> tuple[str, ...]:
        """All that follows a flag."""
        self.asked.add(name)
        return self.values.get(name, ())

    def text(self, name: str, default: str = "") -> str:
        """What follows a flag; the first word of several.

        Raises:
            InputError: nothing follows it.
        """
        self.asked.add(name)
        setting = SETTINGS.get(name, "")
        if setting in self.given:
            return self.given[setting]
        if name not in self.values:
            return default
        if not self.values[name]:
            raise InputError(f"--{name} of the Megatron-LM command has no value; give one")
        return self.values[name][0]

    def number(self, name: str, default: int | None = None, least: int = 1) -> int:
        """The whole number behind a flag.

        Raises:
            InputError: it is missing and has no default, or is no whole number from ``least`` on.
        """
        text = self.text(name)
        if not text and default is not None:
            return default
        if not text:
            raise InputError(f"the Megatron-LM command has no --{name}; add it{self.remedy(name)}")
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < least:
            raise InputError(
                f"--{name} of the Megatron-LM command is {self.said(text)}; give a positive whole number, or set the variable in "
                f"it{self.remedy(name)}"
            )
        return int(text)

    def said(self, text: str) -> str:
        """A value as a refusal shows it, with what its variable may be."""
        variable = re.fullmatch(r"\$\{?(\w+)\}?", text)
        options = self.unsure.get(variable[1], ()) if variable is not None else ()
        perhaps = f" ({' or '.join(f'{each:.20}' for each in options)}, by a branch or loop of the script)" if options else ""
        return f"{text!r:.60}{perhaps}"

    def remedy(self, name: str) -> str:
        """How the command line says what a flag would."""
        if name in SETTINGS:
            return f", or give --{SETTINGS[name].replace('_', '-')}"
        return ", or give --model" if name in MODEL_FLAGS else ""


def flags_of(text: str, given: Mapping[str, str], beside: Callable[[str], str | None]) -> Flags:
    """Flags of the command that ``text`` launches Megatron-LM by, or of a YAML file of its arguments.

    ``beside`` are texts of files that lie beside it, which a script may read.

    Raises:
        InputError: it holds several commands that differ.
    """
    if _YAML_FLAG.search(text):
        return Flags(_of_yaml(text), given=given, source=text)
    script = script_of(text, beside)
    commands = [_parsed(words) for words in script.commands]
    launches = [each for each in commands if len(LAUNCH_FLAGS & each.sure.keys()) > 1]
    if not launches:
        loose = _parsed([*script.unused])
        launches = [each for each in commands if each.sure.keys() & LAUNCH_FLAGS] or [loose]
        if loose.sure and launches[0] is not loose:
            launches = [_parsed([*(word for words in script.commands for word in words), *script.unused])]
        elif len(launches) > 1:  # one on each of several lines
            launches = [_parsed([word for words in script.commands for word in words])]
    else:
        _check_one(launches)
        launches.append(_alike(launches))
    directives = _parsed([word for line in _DIRECTIVE.findall(text) for word in line.split()])
    chosen = launches[-1]
    return Flags(
        {**directives.sure, **chosen.sure},
        chosen.perhaps,
        script.unsure,
        script.variables,
        given,
        chosen.program,
        script.assumed,
        script.unread,
        text,
    )


@dataclass(frozen=True)
class _Command:
    """Flags that are given and those that perhaps are; the Python program."""

    sure: Mapping[str, tuple[str, ...]]
    perhaps: Mapping[str, tuple[str, ...]]
    program: str


def _parsed(words: Sequence[str]) -> _Command:
    sure: dict[str, tuple[str, ...]] = {}
    perhaps: dict[str, tuple[str, ...]] = {}
    programs: list[str] = []
    level = 0
    plain: list[tuple[str, bool]] = []
    for word in _apart(words):
        level += word.count(MAYBE)
        bare = word.replace(MAYBE, "").replace(SURE, "")
        if bare or not word:
            plain.append((bare, level > 0))
        level = max(0, level - word.count(SURE))
    bare_words = [word for word, _ in plain]
    for is_flag, run in groupby(plain, key=lambda each: _FLAG.fullmatch(each[0]) is not None):
        following = list(run)
        if is_flag:
            for word, unsure in following:
                name, equals, value = word[2:].partition("=")
                name = name.replace("_", "-") if known_arguments().is_known(name.replace("_", "-")) else name
                target = perhaps if unsure else sure
                target[name] = (_unquoted(value),) if equals else ()
                last, open_one = (name, target), not equals
        else:
            programs += [found[1] for word, _ in following if (found := _PROGRAM.fullmatch(word))]
            if (sure or perhaps) and open_one:
                target = last[1]
                target[last[0]] = tuple(word for word, _ in following)
    if bare_words[:1] and bare_words[0] in ("mpirun", "mpiexec"):  # mpirun -np 16 python ...
        counts = [after for word, after in pairwise(bare_words) if word in ("-np", "-n")]
        sure |= {"ntasks": (counts[0],)} if counts else {}
    known = [name for name in programs if re.match(r"(pre)?train|finetune", name)]
    return _Command(sure, perhaps, (known or programs or [""])[-1])


def _apart(words: Iterable[str]) -> list[str]:
    """Words, those that hold several flags taken apart."""
    found: list[str] = []
    for word in words:
        several = MAYBE in word or SURE in word or ("--" in word and len(word.split()) > 1)
        found += [_unquoted(each) for each in word.split()] if several else [word]
    return found


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _check_one(launches: Sequence[_Command]) -> None:
    """Refuse several commands that say different things.

    Raises:
        InputError: names some of the flags in which they differ.
    """
    read = known_arguments().read - PROCESSES
    first = launches[0].sure
    for other in launches[1:]:
        names = [name for name in {**first, **other.sure} if name in read and first.get(name) != other.sure.get(name)]
        if names:
            shown = ", ".join(
                f"--{name} {' '.join(first.get(name, ('not given',)))} and {' '.join(other.sure.get(name, ('not given',)))}"
                for name in names[:MOST_ENTRIES]
            )
            raise InputError(
                f"the file holds {len(launches)} Megatron-LM commands that differ ({shown}); keep one of them in a file"
            )


def _alike(launches: Sequence[_Command]) -> _Command:
    """The last of several commands, without processes in whose numbers they differ, as in those of a debugger and of a queue."""
    last = launches[-1]
    differing = {name for name in PROCESSES if len({each.sure.get(name) for each in launches}) > 1}
    return replace(last, sure={name: words for name, words in last.sure.items() if name not in differing})


def _of_yaml(text: str) -> dict[str, tuple[str, ...]]:
    """Arguments of a YAML file whose keys are flags, such as those of Megatron-LM's own tests and of its model zoo.

    Read line by line, since some of these files give a flag twice; the last one holds.
    """
    found: dict[str, tuple[str, ...]] = {}
    last = ""
    for line in text.splitlines():
        entry, item = _YAML_ENTRY.match(line), _YAML_ITEM.match(line)
        if entry is not None:
            name, value = entry[1], _bare(entry[2])
            last = name
            found.pop(name, None)
            if value not in ("false", "null", "~"):
                found[name] = () if value in ("true", "") else _values(value)
        elif item is not None and last in found:
            found[last] = (*found[last], _bare(item[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            last = ""
    return found


def _bare(value: str) -> str:
    """A value of a line without the comment behind it and the quotes around it."""
    return _unquoted(_YAML_COMMENT.sub("", value).strip())


def _values(value: str) -> tuple[str, ...]:
    return (value,) if value.startswith(("(", "[", "{")) else tuple(value.split())
