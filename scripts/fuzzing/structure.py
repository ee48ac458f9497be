"""Mutations of parsed documents: keys, types, numbers, lists, depth."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from scripts.fuzzing import values

MANY = 300  # copies of an entry


def mutated(document: Any, random: Random) -> tuple[Any, str]:
    """A copy of ``document`` with one to three changes, and what they are."""
    told = []
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
        document, what = _once(document, random)
        told.append(what)
    return document, "; ".join(told)


def _once(document: Any, random: Random) -> tuple[Any, str]:
    places = list(_places(document))
    if not places:
        return values.anything(random), "all replaced"
    holder, key, path = random.choice(places)
    names = [name for name, (fits, _) in _CHANGES.items() if fits(holder, key)]
    name = random.choice(names)
    _CHANGES[name][1](holder, key, random)
    return document, f"{name} {'.'.join(map(str, path))[:80]}"


def _places(
    document: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Every entry as its holder, its key there and the way to it."""
    entries: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(document, dict):
        entries = iter(document.items())
    elif isinstance(document, list):
        entries = iter(enumerate(document))
    for key, value in entries:
        yield document, key, (*path, key)
        yield from _places(value, (*path, key))


def _is_number(holder: Any, key: Any) -> bool:
    return isinstance(holder[key], int | float) and not isinstance(holder[key], bool)


def _delete(holder: Any, key: Any, random: Random) -> None:
    del holder[key]


def _rename(holder: Any, key: Any, random: Random) -> None:
    name = random.choice(
        (
            str(key) + "s",
            str(key)[:-1],
            str(key).upper(),
            str(key).replace("_", "-"),
            values.text(random),
        )
    )
    holder[name] = holder.pop(key)


def _number(holder: Any, key: Any, random: Random) -> None:
    holder[key] = values.number(random, holder[key])


def _type(holder: Any, key: Any, random: Random) -> None:
    value = holder[key]
    holder[key] = random.choice(
        (
            str(value),
            [value],
            {"value": value},
            None,
            bool(value),
            [value, value],
            {str(value)[:50]: value},
        )
    )


def _replace(holder: Any, key: Any, random: Random) -> None:
    holder[key] = values.anything(random)


def _text(holder: Any, key: Any, random: Random) -> None:
    holder[key] = values.text(random)


def _copy(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, list):
        holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    else:
        holder[values.text(random)] = copy.deepcopy(holder[key])


def _many(holder: Any, key: Any, random: Random) -> None:
    holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(random.choice((2, MANY)))]


def _empty(holder: Any, key: Any, random: Random) -> None:
    holder[key] = type(holder[key])()


def _exchange(holder: Any, key: Any, random: Random) -> None:
    other = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _deepen(holder: Any, key: Any, random: Random) -> None:
    holder[key] = values.nested(random)


Fits = Callable[[Any, Any], bool]
Change = Callable[[Any, Any, Random], None]

_CHANGES: dict[str, tuple[Fits, Change]] = {
    "deleted": (lambda holder, key: True, _delete),
    "renamed": (lambda holder, key: isinstance(holder, dict), _rename),
    "number": (_is_number, _number),
    "another number": (_is_number, _number),
    "type of": (lambda holder, key: True, _type),
    "replaced": (lambda holder, key: True, _replace),
    "text": (lambda holder, key: isinstance(holder[key], str), _text),
    "copied": (lambda holder, key: True, _copy),
    "many of": (lambda holder, key: isinstance(holder, list), _many),
    "emptied": (lambda holder, key: isinstance(holder[key], dict | list | str), _empty),
    "exchanged": (lambda holder, key: True, _exchange),
    "deepened": (lambda holder, key: True, _deepen),
}
