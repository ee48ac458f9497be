"""Flags of a Megatron-LM command: what stands behind them, with variables put in and settings of
the command line over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from phaze.exports.bash.script import Script, script_of
from phaze.exports.megatron_lm.commands import (
    NOT_SET,
    Command,
    alike,
    check_one,
    check_values,
    check_whole,
    flag_meant,
    parsed,
    unquoted,
)
from phaze.exports.megatron_lm.known_arguments import known_arguments, values_of
from phaze_common.errors import InputError

SETTINGS = {  # of phaze evaluate that stand for a flag
    "tensor-model-parallel-size": "tp",
    "pipeline-model-parallel-size": "pp",
    "context-parallel-size": "cp",
    "expert-model-parallel-size": "ep",
    "micro-batch-size": "micro_batch_size",
    "global-batch-size": "global_batch_size",
    "seq-length": "sequence_length",
}
MODEL_FLAGS = (
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "kv-channels",
    "ffn-hidden-size",
    "max-position-embeddings",
    "num-query-groups",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
    "vocab-size",
)
LAUNCH_FLAGS = {"num-layers", "hidden-size", "micro-batch-size", "seq-length"}
LAUNCH_FLAGS |= {"hybrid-layer-pattern", "encoder-num-layers"}
_YAML_FLAG = re.compile(r"^[ \t]+['\"]?--[A-Za-z][\w-]*['\"]?[ \t]*:", re.MULTILINE)
_YAML_ENTRY = re.compile(r"[ \t]+['\"]?--([A-Za-z][\w-]*)['\"]?[ \t]*:(.*)")
_YAML_ITEM = re.compile(r"[ \t]+-[ \t]+(.*)")
_ON, _OFF = ("true", "yes", "on", ""), ("false", "no", "off", "null", "~")
_YAML_COMMENT = re.compile(r"(^|[ \t])#.*$")
_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(.*)")
_OF_SLURM = {  # variables that Slurm sets, by flags of its directives
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}


@dataclass(frozen=True)
class Flags:
    """Flags of a command by name without dashes, with what follows each; the last of several holds,
    as in Megatron-LM.

    They are those of ``command`` in a ``script`` of the text ``source``. ``given`` are settings of
    the command line, which count before flags. What is noted while they are read: names that were
    ``asked`` for, ``untold`` ones, of which no plan says what they change, and what is ``usual``
    and taken for some.
    """

    values: Mapping[str, tuple[str, ...]]
    command: Command
    script: Script = field(default_factory=Script)
    given: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    asked: set[str] = field(default_factory=set)
    untold: dict[str, str] = field(default_factory=dict)
    usual: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """The Python file that is started."""
        return self.command.program

    def check_spelling(self) -> None:
        """Refuse a flag that nothing is known of and whose name is nearly that of one that is read,
        and words behind others.

        Raises:
            InputError: says which it may have been, or the words.
        """
        known = known_arguments()
        for word in self.command.stray:
            if meant := flag_meant(word):
                raise InputError(
                    f"{word:.60} is no flag as it is written; write --{meant}, with two plain "
                    "dashes and no quotes"
                )
        for name in self.values:
            if near := known.near(name):
                raise InputError(
                    f"--{name} is no flag that is read; did you mean --{near}? Correct it or "
                    "leave it out"
                )
        check_values(self.command.excess)

    def has(self, *names: str) -> bool:
        """Whether one of them is given."""
        self.asked.update(names)
        return any(name in self.values or SETTINGS.get(name) in self.given for name in names)

    def named(self, *names: str) -> str:
        """The first of ``names`` that is given, else the first of all."""
        return next((name for name in names if self.has(name)), names[0])

    def words(self, name: str) -> tuple[str, ...]:
        """All that follows a flag."""
        self.asked.add(name)
        return self.values.get(name, ())

    def listed(self, name: str) -> tuple[str, ...]:
        """The names that follow a flag, one behind another or as a list in brackets."""
        return tuple(re.findall(r"[^\s\[\]()',\"]+", " ".join(self.words(name))))

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
            hidden = [word for word, why in self.command.stray.items() if why == NOT_SET]
            verb = "holds" if len(hidden) == 1 else "hold"
            perhaps = f" (what {' and '.join(hidden[:3])} {verb} is not known)" if hidden else ""
            raise InputError(
                f"the Megatron-LM command has no --{name}{perhaps}; add it{self.remedy(name)}"
            )
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < least:
            variable = ", or set the variable in it" if "$" in text else ""
            whole = f"a whole number of at least {least} in at most 12 digits"
            raise self.refused(name, text, f"{whole}{variable}{self.remedy(name)}")
        return int(text)

    def said(self, text: str) -> str:
        """A value as a refusal shows it, with what its variable may be."""
        variable = re.fullmatch(r"\$\{?(\w+)\}?", text)
        options = self.script.unsure.get(variable[1], ()) if variable is not None else ()
        listed = " or ".join(f"{each:.20}" for each in options)
        perhaps = f" ({listed}, by a branch or loop of the script)" if options else ""
        return f"{text!r:.60}{perhaps}"

    def refused(self, name: str, text: str, remedy: str) -> InputError:
        """The refusal of a value, with what is to be given instead."""
        return InputError(
            f"--{name} of the Megatron-LM command is {self.said(text)}; give {remedy}"
        )

    def remedy(self, name: str) -> str:
        """How the command line says what a flag would."""
        if name in SETTINGS:
            return f", or give --{SETTINGS[name].replace('_', '-')}"
        return ", or give --model" if name in MODEL_FLAGS else ""


def flags_of(text: str, given: Mapping[str, str], beside: Callable[[str], str | None]) -> Flags:
    """Flags of the command that ``text`` launches Megatron-LM by, or of a YAML file of its
    arguments.

    ``beside`` are texts of files that lie beside it, which a script may read.

    Raises:
        InputError: it holds several commands that differ, or a quote that never ends.
    """
    if _YAML_FLAG.search(text):
        found = _of_yaml(text)
        excess = {name: words for name, words in found.items() if words and values_of(name) == 0}
        return Flags(found, Command(excess=excess), given=given, source=text)
    directives = parsed(["sbatch", *_directives(text)]).sure
    slurm = {
        variable: words[0]
        for name, words in directives.items()
        if words
        for variable in _OF_SLURM.get(name, ())
    }
    for whole in (False, True):
        script = script_of(text, beside, slurm, whole)
        if text.startswith("#!") and script.unended:
            raise InputError(
                f"a quote or a bracket of the command in line {script.unended} never ends, which "
                "bash refuses; end it"
            )
        commands = [parsed(words) for words in script.commands]
        launches = [each for each in commands if len(LAUNCH_FLAGS & each.sure.keys()) > 1]
        if launches:
            break
    if any(each.program for each in commands):
        check_whole(script.commands, text)
    elif launches:  # flags alone, on several lines
        launches = [parsed([word for words in script.commands for word in words])]
    if not launches:
        launches = [_loose(script, commands)]
    else:
        check_one(launches)
        launches.append(alike(launches))
    chosen = launches[-1]
    return Flags({**directives, **chosen.sure}, chosen, script, given, text)


def _loose(script: Script, commands: list[Command]) -> Command:
    """The flags of a text in which no command has those of a launch."""
    loose = parsed(script.unused)
    words = [word for words in script.commands for word in words]
    found = [each for each in commands if each.sure.keys() & LAUNCH_FLAGS]
    if not found and not loose.sure:
        found = [each for each in commands if each.program or each.perhaps or each.stray][-1:]
    if loose.sure and found:
        return parsed([*words, *script.unused])
    if len(found) > 1:  # one on each of several lines
        return parsed(words)
    return found[0] if found else loose


def _directives(text: str) -> list[str]:
    """Words of the lines for Slurm, which reads them up to the first command of a script or of a
    text within it."""
    found, reads = list[str](), True
    for line in text.splitlines():
        directive = _DIRECTIVE.match(line)
        if reads and directive is not None:
            found += directive[1].partition(" #")[0].split()
        elif line.strip() and not line.lstrip().startswith("#"):
            reads = "<<" in line
    return found


def _of_yaml(text: str) -> dict[str, tuple[str, ...]]:
    """Arguments of a YAML file whose keys are flags, such as those of Megatron-LM's own tests and
    of its model zoo.

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
            if value.lower() not in _OFF:
                found[name] = () if value.lower() in _ON else _values(value)
        elif item is not None and last in found:
            found[last] = (*found[last], _bare(item[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            last = ""
    return found


def _bare(value: str) -> str:
    """A value of a line without the comment behind it and the quotes around it."""
    return unquoted(_YAML_COMMENT.sub("", value).strip())


def _values(value: str) -> tuple[str, ...]:
    return (value,) if value.startswith(("(", "[", "{")) else tuple(value.split())
