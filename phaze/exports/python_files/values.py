"""Values that a Python module makes, as far as its text says them: plain ones, records that calls
make, and what is not known."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from phaze_common.errors import InputError

LONGEST_TEXT = 80
MOST_RECORDS = 300  # that one name may stand for
UNTOLD = "**"  # the key, in a record or a dictionary, of what gives it values of any name


@dataclass(frozen=True, repr=False)
class Expression:
    """In place of a value that only running the file would tell."""

    text: str
    # records, dictionaries and lists that it may be
    perhaps: tuple[object, ...] = field(default=(), compare=False)
    # it is what another file has by this name, or a class
    named: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass
class Made:
    """A record that a call makes: the class, of ``FullAC.Config(...)`` its owner, and its
    arguments, which may be set later."""

    name: str
    values: dict[str, object] = field(default_factory=dict)
    positional: list[object] = field(default_factory=list)
    line: int = 0
    place: int = 0  # of the call: what a loop makes again and again has one

    def __str__(self) -> str:
        shown = str | int | float | Expression
        words = [repr(each)[:LONGEST_TEXT] for each in self.positional if isinstance(each, shown)]
        return f"{self.name}({', '.join(words)}{'...' if self.values else ''})"

    __repr__ = __str__  # whatever it holds, and itself among it, is written once

    def all(self) -> list[Made]:
        """Itself and the records inside it, at any depth."""
        return records_in([self])

    def check_told(self, unnamed: int = 0) -> None:
        """Refuse a record of which only running the file would tell what it holds.

        ``unnamed`` are the arguments that it may have without a name.

        Raises:
            InputError: says what gives it other values.
        """
        if UNTOLD in self.values:
            raise InputError(
                f"{self.values[UNTOLD]} that only running the file would tell; write its "
                "arguments out"
            )
        if len(self.positional) > unnamed:
            raise InputError(
                f"{self.name}(...) in line {self.line} has arguments without a name, of which "
                f"{unnamed or 'none'} can be read; write NAME=VALUE"
            )


def records_in(values: list[object], perhaps: bool = False) -> list[Made]:
    """The records among ``values`` and inside them, at any depth; ``perhaps`` also those that a
    value may be."""
    found, waiting, seen = list[Made](), list(values), set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Made):
            found.append(value)
            waiting += [*value.values.values(), *value.positional]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, Expression) and perhaps:
            waiting += value.perhaps
    return found


def parsed(text: str) -> ast.Module:
    """The syntax tree of a module.

    Raises:
        InputError: it is no Python.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            f"the configuration is no Python file ({error}); give one that its program loads"
        ) from error


def dotted(node: ast.expr) -> tuple[str, ...]:
    """``a.b.c`` as words; of a method behind a call, such as ``a().b``, the words behind it; empty
    where it is neither."""
    words = list[str]()
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        words.append(node.id)
    elif isinstance(node, ast.Call) and words:
        return (*dotted(node.func), *reversed(words))
    else:
        return ()
    return tuple(reversed(words))


def unknown(node: ast.expr, *perhaps: object) -> Expression:
    """What only running the file would tell of ``node``, which may be one of the records,
    dictionaries and lists ``perhaps``."""
    words = dotted(node)
    text = ".".join(words)[:LONGEST_TEXT] if words else f"an expression in line {node.lineno}"
    return Expression(text, possible(*perhaps))


def possible(*values: object) -> tuple[object, ...]:
    """Records, dictionaries and lists that ``values`` are or may be."""
    found = dict[int, object]()
    for value in values:
        for each in value.perhaps if isinstance(value, Expression) else (value,):
            if isinstance(each, Made | dict | list):
                found[id(each)] = each
    if len(found) > MOST_RECORDS:
        raise InputError(
            f"a name in it may stand for more than {MOST_RECORDS} records; write the values of "
            "one configuration out"
        )
    return tuple(found.values())


def same(value: object, other: object) -> bool:
    """Whether two values are one for whoever reads them; what can be changed is only where it is
    the same thing."""
    return value is other or (
        type(value) is type(other) and not isinstance(value, Made | dict | list) and value == other
    )


def joined(value: object, other: object, where: str = "a branch") -> object:
    """A value that is one of two, by what happens ``where``."""
    return (
        value if same(value, other) else Expression(f"a value of {where}", possible(value, other))
    )
