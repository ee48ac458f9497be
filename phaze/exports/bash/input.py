"""What bash's ``read`` and ``mapfile`` give variables of a text that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze.exports.bash.variables import Value
from phaze.exports.bash.words import NAME_ALONE

_BLANKS = " \t\n"
_WITH_WORD = "adinNptu"  # flags of read and mapfile behind which a word stands


def assigned_by(
    words: Sequence[str], text: str | None, separators: str | None
) -> Mapping[str, Value | None]:
    """Values of the variables that a ``read``, ``mapfile`` or ``readarray`` names, None where it is
    not known.

    ``text`` is its input (None: unknown), ``separators`` the IFS that it is given (None: blanks).
    """
    flags, names = dict[str, str](), list[str]()
    left = list(words[1:])
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in _WITH_WORD and (words[0] == "read" or letter in "dnu"):
                flags[letter] = word[place + 1 :] or (left.pop(0) if left else "")
                break
            flags[letter] = ""
    if words[0] != "read":
        names = names or ["MAPFILE"]
        lines = None if text is None or flags.keys() - {"t"} else text.splitlines()
        return dict.fromkeys(names[-1:], lines)
    listed = flags.get("a")
    names = [
        name for name in ([listed] if listed else names or ["REPLY"]) if NAME_ALONE.fullmatch(name)
    ]
    if text is None or flags.keys() & set("nNu") or flags.get("d", "") != "":
        return dict.fromkeys(names)
    held = text if "d" in flags else text.partition("\n")[0]
    between = _BLANKS if separators is None else separators
    if between and not between.strip(_BLANKS):
        held = held.strip(between)
    if listed:
        return {listed: _fields(held, between, -1)}
    found = _fields(held, between, len(names) - 1)
    return {name: found[place] if place < len(found) else "" for place, name in enumerate(names)}


def _fields(text: str, between: str, most: int) -> list[str]:
    """The words of a text, parted at most so many times (-1: always)."""
    if not between or most == 0:
        return [text]
    if not between.strip(_BLANKS):
        return text.split(None, most)
    for other in between[1:]:
        text = text.replace(other, between[0])
    return text.split(between[0], most)
