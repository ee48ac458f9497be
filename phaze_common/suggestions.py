"""What somebody who typed an unknown name may have meant: a known name that differs by a slip, or
nothing."""

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile

MOST = 4  # names in a refusal; beyond that a list says more
# letters and digits: between shorter names every slip is another name (--pp, --tp)
SHORTEST_TYPO = 4
SHORTEST_TWO_TYPOS = 8
SHORTEST_BEGINNING = 3
_COMPARED = re.compile(r"[a-z0-9.]")  # opt-1.3b is not opt-13b
_WORD = re.compile(r"[a-z]+|[0-9]+")


def suggested(given: str, known: Iterable[str]) -> tuple[str, ...]:
    """Those ``known`` names that ``given`` may have meant, the likeliest first.

    Compared are letters, digits and decimal points, without case. Either the same ones; or names
    whose first words were given; or names that begin with what was given, the shortest first, and
    those within one slip of it (a letter too many, too few, another one, two exchanged), or two in
    a long name that begins alike; or else those that have all its words in their order, whole or
    abbreviated behind the first (``vit-l-16`` for ``vit-large``, ``micro-batch-size`` for
    ``batch-size``).
    """
    names: dict[str, str] = {}
    for name in known:
        names.setdefault(_plain(name), name)  # of names that differ in punctuation the first
    plain = _plain(given)
    if plain in names:
        return (names[plain],)
    whole = tuple(
        name
        for name in names.values()
        if name.lower().startswith((f"{given.lower()}-", f"{given.lower()}_"))
    )
    if len(plain) >= SHORTEST_BEGINNING and whole:
        return whole[:MOST]
    close = [*_begun(plain, names), *_mistyped(given, names)] or _of_same_words(given, names)
    return tuple(dict.fromkeys(close))[:MOST]


def nearest(given: str, known: Iterable[str], otherwise: str) -> str:
    """End of a refusal: the known names that ``given`` may have meant, or ``otherwise``."""
    close = suggested(given, known)
    return f"did you mean {either(close)}?" if close else otherwise


def either(names: Iterable[str]) -> str:
    """Names as a choice: 'a', 'b' or 'c'."""
    return choice(repr(str(name)) for name in names)


def choice(words: Iterable[str]) -> str:
    """Words as a choice: a, b or c."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _plain(name: str) -> str:
    return "".join(_COMPARED.findall(name.lower()))


def _begun(plain: str, names: Mapping[str, str]) -> list[str]:
    if len(plain) < SHORTEST_BEGINNING:
        return []
    return [names[other] for other in sorted(names, key=len) if other.startswith(plain)]


def _mistyped(given: str, names: Mapping[str, str]) -> list[str]:
    """Known names within the fewest slips that any of them is, if those are few enough."""
    plain, slips = _plain(given), {}
    for other, name in names.items():
        longest = max(len(plain), len(other))
        allowed = (longest >= SHORTEST_TYPO) + (longest >= SHORTEST_TWO_TYPOS)
        count = (
            slips_between(plain, other) if abs(len(plain) - len(other)) <= allowed else allowed + 1
        )
        begun_alike = (
            _words(given)[:1] == _words(name)[:1] or _begin_alike(plain, other) >= SHORTEST_TYPO
        )
        if count <= allowed and (count == 1 or begun_alike):
            slips[name] = count
    fewest = min(slips.values(), default=0)
    alike = [name for name, count in slips.items() if count == fewest]
    return sorted(alike, key=lambda name: -_begin_alike(plain, _plain(name)))


def _begin_alike(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _words(name: str) -> list[str]:
    return _WORD.findall(name.lower())


def _of_same_words(given: str, names: Mapping[str, str]) -> list[str]:
    words = _words(given)
    return [name for name in names.values() if _has(_words(name), words)] if len(words) > 1 else []


def _has(own: list[str], words: list[str]) -> bool:
    """Whether ``words``, or abbreviations behind the first, are in a name's ``own``."""
    place = -1
    for word in words:
        found = (
            index
            for index, each in enumerate(own)
            if index > place
            and (each == word or (place >= 0 and each.isalpha() and word.startswith(each)))
        )
        place = next(found, len(own))
    return place < len(own)


def slips_between(one: str, other: str) -> int:
    """Edits and transpositions (optimal string alignment; Damerau 1964)."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before, last, row = row, before, [i]
        for j, theirs in enumerate(other, start=1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]
