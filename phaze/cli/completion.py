"""``phaze completion``: a script that completes modes, flags and names in a shell.

The script is made once from the flags themselves and holds every word, so that completing starts no
Python. zsh runs the script of bash (its ``bashcompinit``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from phaze.cli.arguments import DEFAULT_MODE, Command, mode_parsers
from phaze.cli.exit_status import DONE
from phaze.cli.listing import names_of
from phaze.cli.names import LISTED, MODES
from phaze.cli.parser import FlagWords
from phaze_common.echo import say
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest

_NAMED_MODELS = frozenset({"models"})  # modes whose words are names of models


@dataclass(frozen=True)
class ModeWords:
    """What can follow a mode: its flags, and the words that belong to no flag; flags too where it
    takes none, else files."""

    mode: str
    flags: tuple[FlagWords, ...]
    words: tuple[str, ...]
    takes_words: bool


def completion(command: Command) -> int:
    """Print the script for a shell."""
    shell = command.names[0] if command.names else "bash"
    if shell not in SCRIPTS:
        shells = "the shells are " + ", ".join(SCRIPTS)
        raise InputError(f"nothing is completed in {shell!r}; {nearest(shell, SCRIPTS, shells)}")
    say(sys.stdout, SCRIPTS[shell](_modes()))
    return DONE


def _modes() -> tuple[ModeWords, ...]:
    named = {flag: names_of(kind) for kind, listed in LISTED.items() for flag in listed.flags}
    modes = []
    for mode, parser in mode_parsers().items():
        flags = tuple(flag.with_values(_values(flag, named)) for flag in parser.flag_words())
        modes.append(ModeWords(mode, flags, _words(mode), parser.takes_words))
    return tuple(modes)


def _values(flag: FlagWords, named: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return next((named[name] for name in flag.names if name in named), flag.values)


def _words(mode: str) -> tuple[str, ...]:
    if mode == "list":
        return tuple(LISTED)
    if mode == "completion":
        return tuple(SCRIPTS)
    return names_of("models") if mode in _NAMED_MODELS else ()


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
    yield from ("    esac", "    case $mode in")
    for mode in modes:
        names = " ".join(name for flag in mode.flags for name in flag.names)
        pattern = f"{mode.mode}|''" if mode.mode == DEFAULT_MODE else mode.mode
        plain = _quoted(mode.words) if mode.takes_words else "$words"
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
    for mode in modes:
        none = "'not __fish_seen_subcommand_from $modes'"
        yield (
            f'complete -c phaze -n "{none[1:-1]}" -f -a {mode.mode} -d '
            f"{_quoted((MODES[mode.mode],))}"
        )
    for mode in modes:
        seen = f"'__fish_seen_subcommand_from {mode.mode}'"
        if mode.words:
            yield f"complete -c phaze -n {seen} -f -a {_quoted(mode.words)}"
        for flag in mode.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in flag.names
            )
            values = f" -x -a {_quoted(flag.values)}" if flag.values else " -r" if flag.most else ""
            yield f"complete -c phaze -n {seen} {names}{values} -d {_quoted((flag.help,))}"


def modes_of(modes: Iterable[ModeWords]) -> tuple[str, ...]:
    """Their names."""
    return tuple(mode.mode for mode in modes)


def _distinct(modes: tuple[ModeWords, ...]) -> Iterator[FlagWords]:
    """Flags of all modes with their values, each once: a flag takes the same in every mode, or
    files."""
    by_names: dict[tuple[str, ...], FlagWords] = {}
    for mode in modes:
        for flag in mode.flags:
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
