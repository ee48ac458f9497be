"""Values of the expressions of a Python module, and what its statements assign; nothing is run.

Followed are constants, arithmetic, comparisons, attributes, keys and parts; calls are those of
``python_calls``.
"""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from phaze.exports.python_files.changes import ABSENT, Changes, Home, Outcome
from phaze.exports.python_files.values import (
    LONGEST_TEXT,
    UNTOLD,
    Expression,
    Made,
    joined,
    possible,
    records_in,
    unknown,
)
from phaze_common.errors import InputError

MOST_STEPS = 200_000  # expressions and statements that are followed in one file
MOST_NUMBER = 2**62
MOST_PARTS = 10_000  # of a list or a dictionary with those inside it, written out
FREE_PARTS = 4  # of a list or a dictionary that are made in one step
LONGEST_INSIDE = 100  # parts of a list that stands in others and grows
LONGEST_RANGE = 200
MOST_CHARACTERS = 10_000  # of a text that is put together
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,  # type: ignore[dict-item]
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
    ast.In: lambda part, home: part in home,  # type: ignore[operator]
    ast.NotIn: lambda part, home: part not in home,  # type: ignore[operator]
}
WORDS = ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop  # without parts
# parameters of a method in their order, what each sets, and to what if left out
Method = tuple[tuple[str, str, object], ...]
# what a function of another file sets on the record that it is given first, by its other arguments
Setter = Callable[[list[object], Mapping[str, object]], Mapping[str, object]]


class Returned(Exception):  # noqa: N818 it ends a function, and is no error
    """A function of the module ends here, with a value."""

    def __init__(self, value: object) -> None:
        self.value = value


class Ended(Exception):  # noqa: N818 it is no error of this program
    """The module raises an exception of its own here, or ends its process."""


@dataclass
class Scope:
    """The names of a module or of a function, and where those are that it has not itself."""

    names: dict[str, object] = field(default_factory=dict)
    outer: Scope | None = None
    # names that are declared global or nonlocal
    elsewhere: dict[str, Scope] = field(default_factory=dict)

    def find(self, name: str) -> object:
        """The value of a name; absent where it has none here."""
        scope: Scope | None = self.elsewhere.get(name, self)
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return ABSENT

    def home(self, name: str) -> dict[str, object]:
        """The names among which a name is set."""
        return self.elsewhere.get(name, self).names

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self if self.outer is None else self.outer.module


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the module, with the scope it stands in."""

    node: ast.FunctionDef | ast.Lambda
    scope: Scope

    @property
    def name(self) -> str:
        """Its name; of several lambdas all have one."""
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "lambda"


def truth_of(value: object) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    if value is None or isinstance(value, str | int | float):
        return bool(value)
    if isinstance(value, list) or (isinstance(value, dict) and UNTOLD not in value):
        return bool(value)
    return True if isinstance(value, Function) else None


class Expressions(ABC):
    """Evaluates expressions in a scope, and makes the changes that their calls make."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        parts: Collection[str],
        setters: Mapping[str, Setter],
    ) -> None:
        self.changes = Changes()
        self.made = list[Made]()  # in the order in which calls make them
        # by identity, records of which another is made, surely where it is true
        self.copied: dict[str, object] = {}
        self.given: dict[str, object] = {}  # records that are given to a call
        self._methods = methods
        self._setters = setters
        self._parts = parts
        self._steps = 0
        self._sizes = dict[int, int]()  # of lists and dictionaries by identity, written out
        self._sized = list[object]()  # they live as long as their sizes
        self._inside = set[int]()  # lists and dictionaries that stand in others

    @abstractmethod
    def call(self, function: Function, given: list[object], named: Mapping[str, object]) -> object:
        """What a function of the module returns; an argument ``UNTOLD`` is any that is not given
        else."""

    @abstractmethod
    def called(self, call: ast.Call, scope: Scope) -> object:
        """What a call gives, and what it changes."""

    def step(self, count: int = 1) -> None:
        """Count what is followed.

        Raises:
            InputError: it is too much.
        """
        self._steps += count
        if self._steps > MOST_STEPS:
            raise InputError(
                f"following it takes more than {MOST_STEPS:,} steps; write the values of one "
                "configuration out"
            )

    def maybe(self, run: Callable[[], None]) -> None:
        """Follow what may run or not."""
        self.changes.begin()
        outcomes = list[Outcome]([{}])
        try:
            run()
        except Ended:
            self.changes.take_back()
        else:
            outcomes.append(self.changes.take_back())
        self.changes.settle(outcomes)

    def value(self, node: ast.expr, scope: Scope) -> object:
        """What an expression is, as far as the text says it."""
        self.step()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                found = scope.find(name)
                return Expression(name, named=True) if found is ABSENT else found
            case ast.NamedExpr(target=target, value=inner):
                value = self.value(inner, scope)
                self.assign(target, value, scope)
                return value
            case ast.UnaryOp(op=op, operand=inner):
                return self._unary(node, op, self.value(inner, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return self.computed(node, op, self.value(left, scope), self.value(right, scope))
            case ast.BoolOp(op=op, values=parts):
                return self._either(isinstance(op, ast.Or), parts, scope)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return self._chosen(test, then, otherwise, scope)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(node, op, self.value(left, scope), self.value(right, scope))
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return self._listed(node, parts, scope)
            case ast.Dict(keys=keys, values=values):
                return self._dictionary(node, keys, values, scope)
            case ast.Attribute(value=home, attr=name):
                return self._attribute(node, self.value(home, scope), name)
            case ast.Subscript(value=home, slice=place):
                return self._part(node, self.value(home, scope), self.value(place, scope))
            case ast.Lambda():
                return Function(node, scope)
            case ast.Call():
                return self.called(node, scope)
        return self._other(node, scope)

    def assign(self, target: ast.expr, value: object, scope: Scope) -> None:
        """Give a name, an attribute, a key or a part a value; several where a value may stand in
        several records."""
        match target:
            case ast.Name(id=name):
                self.changes.put(scope.home(name), name, value)
            case ast.Attribute(value=place, attr=name):
                homes, sure = self._homes(place, scope)
                self._set_attribute(homes, sure, name, value)
            case ast.Subscript(value=place, slice=key):
                homes, sure = self._homes(place, scope)
                found = self.value(key, scope)
                for home in homes:
                    self._set_part(home, found if sure else Expression("a key"), value, target)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                known = isinstance(value, list) and len(value) == len(parts)
                starred = any(isinstance(part, ast.Starred) for part in parts)
                other = Expression("a part of a value", possible(*self.parts_of(value)))
                for index, part in enumerate(parts):
                    inner: object = other
                    if isinstance(value, list) and known and not starred:
                        inner = value[index]
                    self.assign(part, inner, scope)
            case ast.Starred(value=inner):
                self.assign(inner, value, scope)

    def augment(self, node: ast.AugAssign, scope: Scope) -> None:
        """``x *= 2``; a dictionary and a list are changed where they stand."""
        old, value = self.value(node.target, scope), self.value(node.value, scope)
        if isinstance(old, dict) and isinstance(node.op, ast.BitOr):
            self.update(old, value, node)
        elif isinstance(old, list) and isinstance(node.op, ast.Add) and isinstance(value, list):
            self.extend(old, value)
        else:
            self.touch(old if isinstance(old, list | dict) else None, "an operator", node.lineno)
            place = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
            self.assign(node.target, self.computed(place, node.op, old, value), scope)

    def delete(self, target: ast.expr, scope: Scope) -> None:
        """``del``; the value of a record's attribute is that of its class then."""
        match target:
            case ast.Name(id=name):
                self.changes.put(scope.home(name), name, ABSENT)
            case ast.Subscript(value=place, slice=key):
                homes, sure = self._homes(place, scope)
                found = self.value(key, scope)
                for home in homes:
                    if sure and isinstance(home, dict) and isinstance(found, str):
                        self.changes.put(home, found, ABSENT)
                    else:
                        self.touch(home, "del", target.lineno)
            case ast.Attribute(value=place, attr=name):
                homes, sure = self._homes(place, scope)
                deleted = Expression(f"deleted in line {target.lineno}")
                self._set_attribute(homes, sure, name, deleted)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.delete(part, scope)

    def touch(self, value: object, who: str, line: int) -> None:
        """Mark records, dictionaries and lists that ``who`` may change in a way that nobody
        knows."""
        for each in possible(value):
            if isinstance(each, Made | dict):
                values = each.values if isinstance(each, Made) else each
                what = each.name if isinstance(each, Made) else "what is unpacked"
                untold = Expression(f"{who} in line {line} may change {what} in a way")
                self.changes.put(values, UNTOLD, untold)
            elif isinstance(each, list):
                for part in each:
                    if isinstance(part, Made):
                        self.touch(part, who, line)
                if not any(isinstance(part, Expression) and part.text == who for part in each):
                    self.changes.put_parts(each, [*each, Expression(who)])

    def parts_of(self, value: object) -> Iterator[object]:
        """What may be got out of a value by going through it."""
        for each in possible(value):
            if isinstance(each, list):
                yield from each
            elif isinstance(each, dict):
                yield from records_in([each])

    def update(self, home: dict[str, object], other: object, node: ast.expr | ast.stmt) -> None:
        """Change a dictionary as its method of this name does."""
        if isinstance(other, list):
            pairs = [pair for pair in other if isinstance(pair, list) and len(pair) == 2]
            if len(pairs) == len(other) and all(isinstance(pair[0], str) for pair in pairs):
                other = {pair[0]: pair[1] for pair in pairs}
        if not isinstance(other, dict):
            self.touch(home, "an update", node.lineno)
            return
        for key, value in other.items():
            self.changes.put(home, key, self._fitting(home, value))

    def extend(self, home: list[object], parts: list[object]) -> None:
        """Put parts behind those of a list."""
        for part in list(parts):
            self.step()
            value = self._fitting(home, part)
            if len(home) < MOST_PARTS:
                self.changes.put_parts(home, [*home, value])

    def bounded(self, node: ast.expr, made: Home) -> object:
        """A list or a dictionary that was made, unless lists in lists make it too long to write
        out."""
        parts = made if isinstance(made, list) else list(made.values())
        self.step(len(parts) // FREE_PARTS)
        inner = [each for each in parts if isinstance(each, list | dict)]
        own = sum(self._sizes.get(id(each), 1 + len(each)) for each in inner)
        size = 1 + len(parts) - len(inner) + own
        if size > MOST_PARTS or any(id(each) not in self._sizes for each in inner):
            return unknown(node, *parts)
        self._inside |= set(map(id, inner))
        self._sizes[id(made)] = size
        self._sized.append(made)
        self.changes.born(made)
        return made

    def _fitting(self, home: Home, value: object) -> object:
        """A value that is put into a list or a dictionary, unless that grows too long where it
        stands."""
        grown = self._sizes.get(id(value), MOST_PARTS) if isinstance(value, list | dict) else 1
        size = self._sizes.get(id(home), len(home)) + grown
        long = id(home) in self._inside and (grown > 1 or len(home) > LONGEST_INSIDE)
        if long or size > MOST_PARTS:
            return Expression("a long value", possible(value))
        if id(home) in self._sizes:
            self._sizes[id(home)] = size
        if grown > 1:
            self._inside.add(id(value))
        return value

    def _homes(self, place: ast.expr, scope: Scope) -> tuple[tuple[object, ...], bool]:
        """Records, dictionaries and lists at ``place``, and whether it is surely that one.

        A part of a record that was not written out is one with its defaults.
        """
        if not isinstance(place, ast.Attribute) or place.attr == "__dict__":
            value = self.value(place, scope)
            return possible(value), not isinstance(value, Expression)
        homes, sure = self._homes(place.value, scope)
        found = [self._made_part(home, place.attr) for home in homes if isinstance(home, Made)]
        return possible(*found), sure and not any(isinstance(each, Expression) for each in found)

    def _made_part(self, home: Made, name: str) -> object:
        """A part of a record; one that was not written out is made as if it had always been
        there."""
        if name not in home.values or home.values[name] is None:
            part = home.values[name] = Made(name)
            self.changes.born_in(home.values, part.values)
        return home.values[name]

    def _set_attribute(
        self, homes: tuple[object, ...], sure: bool, name: str, value: object
    ) -> None:
        for home in homes:
            if isinstance(home, Made):
                perhaps = value if sure else joined(home.values.get(name, ABSENT), value)
                self.changes.put(home.values, name, perhaps)

    def _set_part(self, home: object, key: object, value: object, node: ast.expr) -> None:
        if isinstance(home, dict) and isinstance(key, str):
            self.changes.put(home, key, self._fitting(home, value))
        elif isinstance(home, list) and isinstance(key, int) and -len(home) <= key < len(home):
            parts = list(home)
            parts[key] = self._fitting(home, value)
            self.changes.put_parts(home, parts)
        else:
            self.touch(home, "an assignment", node.lineno)

    def _unary(self, node: ast.expr, op: ast.unaryop, value: object) -> object:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(op, ast.USub) and number and isinstance(value, int | float):
            return -value
        truth = truth_of(value)
        return not truth if isinstance(op, ast.Not) and truth is not None else unknown(node)

    def computed(self, node: ast.expr, op: ast.operator, left: object, right: object) -> object:
        """What an operator makes of two values."""
        if isinstance(op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
            return self.bounded(node, left | right)
        if isinstance(op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return self.bounded(node, left + right)
        if isinstance(op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return left + right if len(left) + len(right) <= MOST_CHARACTERS else unknown(node)
        if isinstance(op, ast.Div) and isinstance(right, str):  # a path below another
            return Expression(f".../{right}"[:LONGEST_TEXT], possible(left))
        work = ARITHMETIC.get(type(op))
        for each in (left, right):
            if work is None or not isinstance(each, int | float) or abs(each) >= MOST_NUMBER:
                return unknown(node, left, right)
        try:
            return work(left, right)  # type: ignore[arg-type, misc]
        except ArithmeticError:
            return unknown(node)

    def _compared(self, node: ast.expr, op: ast.cmpop, left: object, right: object) -> object:
        hidden = Expression | Made | Function
        if any(isinstance(each, hidden) or possible(each) for each in (left, right)):
            within = isinstance(op, ast.In | ast.NotIn) and isinstance(left, str | int | float)
            if not within or not isinstance(right, list | dict) or UNTOLD in right:
                return unknown(node)
            if isinstance(right, list) and any(isinstance(part, hidden) for part in right):
                return unknown(node)
        try:
            return bool(COMPARISONS[type(op)](left, right))
        except TypeError:
            return unknown(node)

    def _either(self, either: bool, parts: list[ast.expr], scope: Scope) -> object:
        """``a or b`` where ``either``, else ``a and b``: behind a part that may end it, the others
        may run or not."""
        value: object = None
        for index, part in enumerate(parts):
            value = self.value(part, scope)
            truth = truth_of(value)
            if truth is either:
                return value
            if truth is None and index + 1 < len(parts):
                rest, found = parts[index + 1 :], list[object]()
                self.maybe(lambda: found.append(self._either(either, rest, scope)))  # noqa: B023 run at once
                return reduce(joined, found, value)
        return value

    def _chosen(self, test: ast.expr, then: ast.expr, otherwise: ast.expr, scope: Scope) -> object:
        known = truth_of(self.value(test, scope))
        if known is not None:
            return self.value(then if known else otherwise, scope)
        found, outcomes = list[object](), list[Outcome]()
        for way in (then, otherwise):
            self.changes.begin()
            try:
                found.append(self.value(way, scope))
            except Ended:
                self.changes.take_back()
            else:
                outcomes.append(self.changes.take_back())
        if not found:
            raise Ended
        self.changes.settle(outcomes)
        return reduce(joined, found)

    def _listed(self, node: ast.expr, parts: list[ast.expr], scope: Scope) -> object:
        made = list[object]()
        for part in parts:
            if not isinstance(part, ast.Starred):
                made.append(self.value(part, scope))
                continue
            inner = self.value(part.value, scope)
            hidden = unknown(part.value, *self.parts_of(inner))
            made += inner if isinstance(inner, list) else [hidden]
            if len(made) > MOST_PARTS:
                return unknown(node)
        return self.bounded(node, made)

    def _dictionary(
        self, node: ast.expr, keys: list[ast.expr | None], values: list[ast.expr], scope: Scope
    ) -> object:
        found = dict[str, object]()
        for key, value in zip(keys, values, strict=True):
            name = None if key is None else self.value(key, scope)
            inner = self.value(value, scope)
            if key is None and isinstance(inner, dict):
                found |= inner
            elif isinstance(name, str):
                found[name] = inner
            else:
                found[UNTOLD] = Expression(f"a dictionary in line {node.lineno} has values")
        return self.bounded(node, found)

    def _attribute(self, node: ast.expr, home: object, name: str) -> object:
        if isinstance(home, Expression) and home.named:
            return Expression(f"{home.text}.{name}"[:LONGEST_TEXT], named=True)
        records = [each for each in possible(home) if isinstance(each, Made)]
        if isinstance(home, Made):
            if name == "__dict__":
                return home.values
            if name in self._parts and name not in home.values:
                return self._made_part(home, name)
            if name in home.values and UNTOLD not in home.values:
                return home.values[name]
            return unknown(node)
        whole = name == "__dict__"
        return unknown(node, *(each.values if whole else each.values.get(name) for each in records))

    def _part(self, node: ast.expr, home: object, key: object) -> object:
        if isinstance(home, dict) and isinstance(key, str) and key in home and UNTOLD not in home:
            return home[key]
        known = isinstance(home, list) and not any(isinstance(part, Expression) for part in home)
        places = range(-len(home), len(home)) if isinstance(home, list) and known else ()
        if isinstance(home, list) and isinstance(key, int) and key in places:
            return home[key]
        return unknown(node, *self.parts_of(home))

    def _other(self, node: ast.expr, scope: Scope) -> object:
        """An expression that is not followed; what is called within may be called or not, any
        number of times."""
        inner, found = Scope(outer=scope), list[object]()
        for each in ast.walk(node):
            self.step()
            if isinstance(each, ast.comprehension):
                for name in ast.walk(each.target):
                    if isinstance(name, ast.Name):
                        parts = possible(*self.parts_of(self.value(each.iter, inner)))
                        inner.names[name.id] = Expression(name.id, parts)
            elif isinstance(each, ast.NamedExpr):
                self.assign(each.target, Expression("a value of an expression"), scope)

        def run() -> None:
            for each in _inside(node):
                found.append(self.value(each, inner))

        self.maybe(run)
        return unknown(node, *found)


def _inside(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif not isinstance(child, WORDS):
            yield from _inside(child)
