"""``phaze completion``: a script that completes modes, flags and names in a shell.

The script is made once from the flags themselves and holds every word, so that completing starts no
Python. zsh runs the script of bash (its ``bashcompinit``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.listed_kinds import LISTED
from phaze.cli.listing import names_of
from phaze.cli.parser import FlagWords
from phaze_common.echo import say
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest


@dataclass(frozen=True)
class ModeWords:
    """What can follow a mode: its flags, and the words that belong to no flag; flags too where it
    takes none, else files."""

    about: mode.Mode
    flags: tuple[FlagWords, ...]
    words: tuple[str, ...]
    takes_words: bool


@dataclass(frozen=True, kw_only=True)
class Completion(mode.Command):
    """Print a script that completes modes, flags and names in bash, zsh or fish."""

    shell: str = mode.word("bash", "bash, zsh or fish (default bash)", "SHELL")


def run(command: Completion) -> int:
    """Print the script for a shell."""
    from phaze.cli.arguments import mode_parsers
    from phaze.cli.modes import MODES

    shell = command.shell
    if shell not in SCRIPTS:
        shells = "the shells are " + ", ".join(SCRIPTS)
        raise InputError(f"nothing is completed in {shell!r}; {nearest(shell, SCRIPTS, shells)}")
    named = {flag: names_of(kind) for kind, listed in LISTED.items() for flag in listed.flags}
    named["--phaze_exec_type"] = tuple(MODES)
    words = {"list": (*LISTED,), "completion": (*SCRIPTS,), "models": names_of("models")}
    modes = []
    for name, parser in mode_parsers().items():
        flags = []
        for each in parser.flag_words():
            values = next((named[word] for word in each.names if word in named), each.values)
            flags.append(replace(each, values=values))
        modes.append(ModeWords(MODES[name], tuple(flags), words.get(name, ()), parser.takes_words))
    say(sys.stdout, SCRIPTS[shell](tuple(modes)))
    return DONE


def _bash(modes: tuple[ModeWords, ...]) -> Iterator[str]:
    yield from (
        "# Completes phaze in bash. Load it with: source <(phaze completion bash)",
        "# or keep it: phaze completion bash > ~/.local/share/bash-completion/completions/phaze",
        "_phaze() {",
        "    local current=${COMP_WORDS[COMP_CWORD]} mode= flag= since=0 words= values= many= "
        "plain= index word",
        "    [[ $current == = ]] && current=",
        "    for ((index = 1; index < COMP_CWORD; index++)); do",
        "        word=${COMP_WORDS[index]}",
        "        case $word in",
        "            =) ;;",
        "            -*) flag=$word since=0 ;;",
        "            *)",
        "                if [[ $flag == --phaze_exec_type || -z $flag$mode ]]; then mode=$word; fi",
        "                ((since += 1)) ;;",
        "        esac",
        "    done",
        "    case $flag in",
    )
    for flag in _distinct(modes):
        yield f"        {'|'.join(flag.names)}) many={flag.most} values={_quoted(flag.values)} ;;"
    from phaze.cli.modes import DEFAULT_MODE

    yield from ("    esac", "    case $mode in")
    for each in modes:
        names = " ".join(name for flag in each.flags for name in flag.names)
        pattern = f"{each.about.name}|''" if each.about.name == DEFAULT_MODE else each.about.name
        plain = _quoted(each.words) if each.takes_words else "$words"
        yield f"        {pattern}) words={_quoted((names,))} plain={plain} ;;"
    yield from (
        "    esac",
        f"    [[ -z $mode && -z $flag ]] && plain={_quoted(modes_of(modes))}",
        "    [[ -n $flag && $since -lt ${many:-0} ]] && plain=$values",
        "    [[ $current == -* ]] || words=$plain",
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _phaze phaze phaze.py",
    )


def _zsh(modes: tuple[ModeWords, ...]) -> Iterator[str]:
    yield "#compdef phaze"
    yield "# Completes phaze in zsh. Load it with: source <(phaze completion zsh)"
    yield "autoload -U +X compinit && compinit -u"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from list(_bash(modes))[2:]


def _fish(modes: tuple[ModeWords, ...]) -> Iterator[str]:
    yield (
        "# Completes phaze in fish. Keep it: phaze completion fish > "
        "~/.config/fish/completions/phaze.fish"
    )
    yield f"set -l modes {' '.join(modes_of(modes))}"
    for each in modes:
        none = "'not __fish_seen_subcommand_from $modes'"
        yield (
            f'complete -c phaze -n "{none[1:-1]}" -f -a {each.about.name} -d '
            f"{_quoted((each.about.purpose,))}"
        )
    for each in modes:
        seen = f"'__fish_seen_subcommand_from {each.about.name}'"
        if each.words:
            yield f"complete -c phaze -n {seen} -f -a {_quoted(each.words)}"
        for flag in each.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in flag.names
            )
            values = f" -x -a {_quoted(flag.values)}" if flag.values else " -r" if flag.most else ""
            yield f"complete -c phaze -n {seen} {names}{values} -d {_quoted((flag.help,))}"


def modes_of(modes: Iterable[ModeWords]) -> tuple[str, ...]:
    """Their names."""
    return tuple(each.about.name for each in modes)


def _distinct(modes: tuple[ModeWords, ...]) -> Iterator[FlagWords]:
    """Flags of all modes, each once with its values: those of most values."""
    by_names: dict[tuple[str, ...], FlagWords] = {}
    for each in modes:
        for flag in each.flags:
            known = by_names.get(flag.names)
            if flag.most and (known is None or known.most < flag.most):
                by_names[flag.names] = flag
    yield from by_names.values()


def _quoted(words: Iterable[str]) -> str:
    """Words in single quotes, of which none holds a quote."""
    return "'" + " ".join(words).replace("'", "") + "'"


SCRIPTS: Mapping[str, Callable[[tuple[ModeWords, ...]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}


MODE = mode.Mode("completion", mode.FIND_YOUR_WAY, Completion, run)
