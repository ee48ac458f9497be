"""What a Python module would make of its configurations, by its syntax tree: nothing is run.

Followed are constants, arithmetic of numbers, calls of classes with arguments that are written out or unpacked from a dictionary
that is (``ParallelismConfig(**{...})``), functions of the module that return such records and change them behind it
(``config = base(); config.training.seq_len = 8192``), ``replace`` and ``deepcopy``. All else is ``Expression``: only running the
module would tell. The work is bounded, whatever calls whatever.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from Common.errors import InputError

MOST_STEPS = 200_000  # expressions and statements that are followed in one file
DEEPEST = 40  # functions that call each other
MOST_NUMBER = 2**62
LONGEST_TEXT = 80
MOST_PARTS = 10_000  # of a list or a dictionary with those inside it, written out
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Expression:
    """In place of a value that only running the file would tell."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class Made:
    """A record that a call makes: the class, of ``FullAC.Config(...)`` its owner, and its arguments, which may be set later."""

    name: str
    values: dict[str, object] = field(default_factory=dict)
    positional: list[object] = field(default_factory=list)

    def __str__(self) -> str:
        words = [repr(each)[:LONGEST_TEXT] for each in self.positional if isinstance(each, str | int | float)]
        return f"{self.name}({', '.join(words)}{'...' if self.values else ''})"

    __repr__ = __str__  # whatever it holds, and itself among it, is written once

    def all(self) -> list[Made]:
        """Itself and the records inside it, at any depth."""
        found, waiting, seen = list[Made](), list[object]([self]), set[int]()
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
        return found


class _Returned(Exception):  # noqa: N818 it ends a function, and is no error
    def __init__(self, value: object) -> None:
        self.value = value


def parsed(text: str) -> ast.Module:
    """The syntax tree of a module.

    Raises:
        InputError: it is no Python.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the configuration is no Python file ({error}); give one that its program loads") from error


class Module:
    """The functions and constants of a module, evaluated as far as its text says them."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        self._constants = dict[str, ast.expr]()
        self._values = dict[str, object]()
        self._top = [each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)]
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self._constants[target.id] = statement.value
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
                self._constants[statement.target.id] = statement.value
        self._steps = 0
        self._depth = 0
        self._sizes = dict[int, int]()  # of lists and dictionaries by identity, written out
        self._sized = list[object]()  # they live as long as their sizes

    def functions(self, private: bool = False) -> tuple[str, ...]:
        """Names of functions that need no argument, without those that begin with an underscore unless ``private``."""
        return tuple(
            name
            for name, each in self._functions.items()
            if (private or not name.startswith("_"))
            and len(each.args.args) <= len(each.args.defaults)
            and not each.args.posonlyargs
        )

    def all_functions(self) -> tuple[str, ...]:
        """Names of all functions; an argument without a default is an ``Expression`` in each."""
        return tuple(self._functions)

    def returned(self, name: str) -> object:
        """What the function ``name`` returns when it is called without arguments; those that it needs are not known.

        Raises:
            InputError: it cannot be followed within the bounds.
        """
        try:
            return self._call(self._functions[name], [], {})
        except RecursionError as error:
            raise InputError(f"the function {name} is nested too deeply to be followed; write its values out") from error

    def top_level(self) -> list[Made]:
        """Records that calls at the top of the module make, outside of functions and classes."""
        found = list[Made]()
        try:
            for statement in self._top:
                for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
                    value = self._value(call, {})
                    if isinstance(value, Made):
                        found.append(value)
        except RecursionError as error:
            raise InputError("the file is nested too deeply to be followed; write its values out") from error
        return found

    def constant(self, name: str) -> object:
        """A constant at the top of the module; an ``Expression`` where there is none that can be told."""
        if name not in self._values:
            self._values[name] = Expression(name)  # while it is looked for: it may name itself
            if name in self._constants:
                self._values[name] = self._value(self._constants[name], {})
        value = self._values[name]
        return copy.deepcopy(value) if isinstance(value, Made) else value  # functions change their own

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise InputError(f"following it takes more than {MOST_STEPS:,} steps; write the values of one configuration out")

    def _call(self, function: ast.FunctionDef, given: list[object], named: Mapping[str, object]) -> object:
        if self._depth >= DEEPEST:
            return Expression(function.name)
        names, defaults = [each.arg for each in function.args.args], function.args.defaults
        local: dict[str, object] = {each.arg: Expression(each.arg) for each in (*function.args.args, *function.args.kwonlyargs)}
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            local[name] = self._value(default, {})
        for each, keyword in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if keyword is not None:
                local[each.arg] = self._value(keyword, {})
        local |= dict(zip(names, given, strict=False)) | {name: value for name, value in named.items() if name in local}
        self._depth += 1
        try:
            self._run(function.body, local)
        except _Returned as returned:
            return returned.value
        finally:
            self._depth -= 1
        return None

    def _run(self, body: list[ast.stmt], local: dict[str, object]) -> None:
        for statement in body:
            self._step()
            match statement:
                case ast.Return(value=value):
                    raise _Returned(None if value is None else self._value(value, local))
                case ast.Assign(targets=targets, value=value):
                    made = self._value(value, local)
                    for target in targets:
                        self._assign(target, made, local)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, self._value(value, local), local)
                case ast.AugAssign(target=target, op=op, value=value):
                    place = ast.copy_location(ast.BinOp(target, op, value), statement)
                    self._assign(target, self._value(place, local), local)
                case ast.Expr(value=ast.Call() as call):
                    self._value(call, local)
                case ast.With(body=inner):
                    self._run(inner, local)
                case ast.If(test=test, body=then, orelse=otherwise):
                    known = self._value(test, local)
                    if isinstance(known, bool):
                        self._run(then if known else otherwise, local)
                    else:
                        self._forget([*then, *otherwise], local)
                case ast.For() | ast.While() | ast.Try() | ast.Match():
                    self._forget([statement], local)
                case _:
                    pass

    def _forget(self, body: list[ast.stmt], local: dict[str, object]) -> None:
        """Whatever a branch or a loop assigns is not known behind it; where it may return, nothing is."""
        for statement in body:
            for each in ast.walk(statement):
                self._step()
                if isinstance(each, ast.Return):
                    raise _Returned(Expression("a value that a branch returns"))
                if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign):
                    for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                        self._assign(target, Expression("a value of a branch"), local)

    def _assign(self, target: ast.expr, value: object, local: dict[str, object]) -> None:
        match target:
            case ast.Name(id=name):
                local[name] = value
            case ast.Attribute(value=home, attr=name):
                record = self._record(home, local)
                if record is not None:
                    record.values[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._assign(part, Expression("a part of a value"), local)
            case _:
                pass

    def _record(self, place: ast.expr, local: dict[str, object]) -> Made | None:
        """The record at ``place``; a part of a record that was not written out is one with its defaults."""
        if isinstance(place, ast.Attribute):
            home = self._record(place.value, local)
            if home is None:
                return None
            found = home.values.get(place.attr)
            if found is None:
                found = home.values[place.attr] = Made(place.attr)
            return found if isinstance(found, Made) else None
        value = self._value(place, local)
        return value if isinstance(value, Made) else None

    def _value(self, node: ast.expr, local: dict[str, object]) -> object:
        self._step()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                return local[name] if name in local else self.constant(name)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self._value(inner, local)
                return -value if isinstance(value, int | float) and not isinstance(value, bool) else _expression(node)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                value = self._value(inner, local)
                return not value if isinstance(value, bool) else _expression(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._computed(node, op, self._value(left, local), self._value(right, local))
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                made = [self._value(part, local) for part in parts]
                return self._bounded(node, made, made)
            case ast.Dict(keys=keys, values=values):
                return self._dictionary(node, keys, values, local)
            case ast.Attribute(value=home, attr=name):
                record = self._value(home, local)
                return record.values.get(name, _expression(node)) if isinstance(record, Made) else _expression(node)
            case ast.Call():
                return self._called(node, local)
        return _expression(node)

    def _computed(self, node: ast.expr, op: ast.operator, left: object, right: object) -> object:
        work = ARITHMETIC.get(type(op))
        numbers = all(isinstance(each, int | float) and abs(each) < MOST_NUMBER for each in (left, right))
        if work is None or not numbers:
            return _expression(node)
        try:
            return work(left, right)  # type: ignore[arg-type]
        except ArithmeticError:
            return _expression(node)

    def _dictionary(
        self, node: ast.expr, keys: list[ast.expr | None], values: list[ast.expr], local: dict[str, object]
    ) -> object:
        found = dict[str, object]()
        for key, value in zip(keys, values, strict=True):
            inner = self._value(value, local)
            name = None if key is None else self._value(key, local)
            if key is None and isinstance(inner, dict):
                found |= inner
            elif isinstance(name, str):
                found[name] = inner
            else:
                return _expression(node)
        return self._bounded(node, found, list(found.values()))

    def _bounded(self, node: ast.expr, made: list[object] | dict[str, object], parts: list[object]) -> object:
        """``made``, unless lists in lists make it too long to write out."""
        size = 1 + sum(self._sizes.get(id(each), 1) for each in parts)
        if size > MOST_PARTS:
            return _expression(node)
        self._sizes[id(made)] = size
        self._sized.append(made)
        return made

    def _called(self, call: ast.Call, local: dict[str, object]) -> object:
        given, named = [self._value(each, local) for each in call.args], dict[str, object]()
        for keyword in call.keywords:
            value = self._value(keyword.value, local)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named |= value
            else:
                named["**"] = value  # arguments of any name, which only running the file would tell
        words = _dotted(call.func)
        if not words:
            return _expression(call)
        if words[0] in local or words[0] in self._constants:
            return self._method(call, words, given, local)
        if len(words) == 1 and words[0] in self._functions:
            return self._call(self._functions[words[0]], given, named)
        if words[-1] == "replace" and given and isinstance(given[0], Made):
            changed = copy.deepcopy(given[0])
            changed.values |= named
            return changed
        if words[-1] in ("deepcopy", "copy") and len(given) == 1:
            return copy.deepcopy(given[0])
        if words == ("dict",):
            return named
        name = words[-2] if words[-1] == "Config" and len(words) > 1 else words[-1]
        return Made(name, named, given)

    def _method(self, call: ast.Call, words: tuple[str, ...], given: list[object], local: dict[str, object]) -> object:
        """``converter.build()`` is the converter, and ``converter.convert(model)`` the model with it."""
        home = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        record = self._value(home, local)
        if isinstance(record, Made) and words[-1] == "build":
            return record
        if isinstance(record, Made) and words[-1] == "convert" and given and isinstance(given[0], Made):
            converted = copy.deepcopy(given[0])
            converted.values["converters"] = [*_listed(converted.values.get("converters")), record]
            return converted
        return _expression(call)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """``a.b.c`` as words; of a method behind a call, such as ``a().b``, the words behind it; empty where it is neither."""
    words = list[str]()
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        words.append(node.id)
    elif isinstance(node, ast.Call) and words:
        return (*_dotted(node.func), *reversed(words))
    else:
        return ()
    return tuple(reversed(words))


def _expression(node: ast.expr) -> Expression:
    words = _dotted(node)
    if words:
        return Expression(".".join(words)[:LONGEST_TEXT])
    return Expression(f"an expression in line {node.lineno}")
