"""What the calls of a Python module make and change; nothing is run.

Followed are functions of the module, and those that everybody knows: ``replace``, ``deepcopy``,
``setattr``, ``vars``, ``dict.update`` and the like. Any other call makes a record by its name;
where it is no class it may change the records that are given to it, and these are marked so.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from phaze.exports.python_files.changes import ABSENT
from phaze.exports.python_files.expressions import (
    LONGEST_RANGE,
    MOST_PARTS,
    Ended,
    Expressions,
    Function,
    Method,
    Scope,
)
from phaze.exports.python_files.values import (
    UNTOLD,
    Expression,
    Made,
    dotted,
    possible,
    records_in,
    unknown,
)

ENDS = ("exit", "sys.exit", "quit", "os._exit")
LOOKS: tuple[str, ...] = (
    "print",
    "pprint",
    "repr",
    "str",
    "len",
    "id",
    "type",
    "isinstance",
    "hasattr",
    "asdict",
    "dumps",
    "dump",
    "format",
    "bool",
)
# whose functions change nothing given
LOOKERS = ("logger", "logging", "log", "warnings", "wandb", "json", "yaml", "pprint")
# methods that give what they are of: a converter, the model of a bridge to a library
ITSELF = ("build", "to_megatron_provider")
# methods that change no record
OF_PARTS = ("items", "keys", "values", "copy", "get", "index", "count")  # of a dictionary or a list
READS = ("get_", "to_", "is_", "print_", "log_", "save", "train", "evaluate", "main_process_first")


class Calls(Expressions):
    """Evaluates calls, beside other expressions."""

    def _arguments(self, call: ast.Call, scope: Scope) -> tuple[list[object], dict[str, object]]:
        given, named = list[object](), dict[str, object]()
        untold = ".".join(_named(call.func))
        for each in call.args:
            if isinstance(each, ast.Starred):
                value = self.value(each.value, scope)
                if isinstance(value, list) and len(value) <= MOST_PARTS:
                    given += value
                else:
                    named[UNTOLD] = Expression(f"{untold}(*...) unpacks a value")
            else:
                given.append(self.value(each, scope))
        for keyword in call.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named |= value
            else:
                named[UNTOLD] = Expression(f"{untold}(**...) unpacks a value")
        return given, named

    def called(self, call: ast.Call, scope: Scope) -> object:
        """What a call gives, and what it changes."""
        if isinstance(call.func, ast.Attribute):
            home = self.value(call.func.value, scope)
            if not isinstance(home, Expression) or not home.named:
                given, named = self._arguments(call, scope)
                return self._method(call, home, call.func.attr, given, named)
            callee: object = Expression(f"{home.text}.{call.func.attr}", named=True)
        else:
            callee = self.value(call.func, scope)
        given, named = self._arguments(call, scope)
        if isinstance(callee, Function):
            return self.call(callee, given, named)
        if not isinstance(callee, Expression) or not callee.named:
            self.hand_over(".".join(_named(call.func)), call.lineno, given, named)
            return unknown(call, *given, *named.values())
        words = tuple(callee.text.split("."))
        first = given[0] if given else None
        if words[-1] in self._setters and isinstance(first, Made) and UNTOLD not in named:
            for key, value in self._setters[words[-1]](given[1:], named).items():
                self.changes.put(first.values, key, value)
            return None
        return self._known(call, words, given, named, scope)

    def _known(
        self,
        call: ast.Call,
        words: tuple[str, ...],
        given: list[object],
        named: dict[str, object],
        scope: Scope,
    ) -> object:
        """A call of a function or a class that is not the module's."""
        first = given[0] if given else None
        text, last = ".".join(words), words[-1]
        if text == "exec":
            self._hide(scope, f"exec(...) in line {call.lineno}", call.lineno)
            return None
        if text in ENDS:
            raise Ended
        if (text == "setattr" or last == "__setattr__") and len(given) == 3:
            self._set_by_name(call, first, given[1], given[2])
            return None
        if text == "delattr" and len(given) == 2:
            self._set_by_name(call, first, given[1], Expression(f"deleted in line {call.lineno}"))
            return None
        if text == "getattr" and len(given) >= 2 and isinstance(given[1], str):
            found = self._attribute(call, first, given[1])
            if isinstance(found, Expression):
                return Expression(f"an expression in line {call.lineno}", possible(found))
            return found
        if text == "vars" and given:
            return self._attribute(call, first, "__dict__")
        outermost = text == "globals" or (text == "locals" and scope.outer is None)
        if outermost and not given:
            return scope.module.names
        if text == "dict":
            return self._new_dictionary(call, given, named)
        ends = [each for each in given if isinstance(each, int)]
        if text == "range" and ends == given and 0 not in ends[2:]:
            rounds = range(*ends) if 1 <= len(ends) <= 3 else range(0)
            if 0 < len(rounds) <= LONGEST_RANGE:
                return self.bounded(call, list(rounds))
        if text in ("list", "tuple") and len(given) == 1 and isinstance(first, list):
            return self.bounded(call, list(first))
        if last in ("replace", "evolve", "__replace__") and isinstance(first, Made):
            values, positional = first.values | named, list(first.positional)
            return self._noted(Made(first.name, values, positional, call.lineno, id(call)), first)
        if last in ("deepcopy", "copy") and len(given) == 1 and not isinstance(first, Expression):
            return self._copy(call, first, deep=last == "deepcopy")
        name = words[-2] if last == "Config" and len(words) > 1 else last
        if last not in LOOKS and words[0] not in LOOKERS:
            self.hand_over(text, call.lineno, given, named, name.lstrip("_")[:1].isupper())
        return self._noted(Made(name, named, given, call.lineno, id(call)))

    def _hide(self, scope: Scope | None, who: str, line: int) -> None:
        while scope is not None:
            for name, value in list(scope.names.items()):
                if not isinstance(value, Function):
                    self.changes.put(scope.names, name, Expression(who, possible(value)))
                for each in [value, *records_in([value])]:
                    self.step()
                    self.touch(each, "exec(...)", line)
            scope = scope.outer

    def _copy(self, call: ast.Call, value: object, deep: bool) -> object:
        self.step(_weight(value))
        if isinstance(value, Made):
            inner = copy.deepcopy(value) if deep else value
            return self._noted(
                Made(value.name, dict(inner.values), list(inner.positional), call.lineno, id(call)),
                value,
            )
        if isinstance(value, list | dict):
            same = list(value) if isinstance(value, list) else dict(value)
            made = copy.deepcopy(value) if deep else same
            return self.bounded(call, made)
        return value

    def _noted(self, made: Made, original: Made | None = None) -> Made:
        self.changes.born(made.values)
        self.made.append(made)
        if original is not None:
            self._sized.append(original)
            self.changes.put(self.copied, str(id(original)), True)
        return made

    def hand_over(
        self,
        who: str,
        line: int,
        given: list[object],
        named: Mapping[str, object],
        keeps: bool = False,
    ) -> None:
        """Give a call its arguments, which may change them unless it ``keeps`` them, as a class
        does; functions may be called."""
        values = [*given, *named.values()]
        for each in possible(*values):
            self._sized.append(each)
            self.changes.put(self.given, str(id(each)), True)
        for value in values:
            if isinstance(value, Function):
                self.maybe(lambda: void(self.call(value, [], {})))  # noqa: B023 run at once
            elif not keeps:
                self.touch(value, f"{who}(...)", line)

    def _set_by_name(self, call: ast.Call, home: object, name: object, value: object) -> None:
        if isinstance(name, str):
            self._set_attribute(possible(home), not isinstance(home, Expression), name, value)
        else:
            self.touch(home, f"{'.'.join(_named(call.func))}(...)", call.lineno)

    def _new_dictionary(
        self, call: ast.Call, given: list[object], named: dict[str, object]
    ) -> object:
        made = dict[str, object]()
        if self.bounded(call, made) is made and given:
            self.update(made, given[0], call)
        return self.bounded(call, made | named)

    def _method(
        self, call: ast.Call, home: object, name: str, given: list[object], named: dict[str, object]
    ) -> object:
        """``converter.build()`` is the converter, a bridge's provider has its model, and
        ``converter.convert(model)`` is the model with it."""
        first = given[0] if given else None
        if isinstance(home, Made):
            if name in ITSELF:
                return home
            if name == "convert" and isinstance(first, Made):
                converted = copy.deepcopy(first)
                found = converted.values.get("converters")
                converted.values["converters"] = [*(found if isinstance(found, list) else []), home]
                return converted
            if name in self._methods and UNTOLD not in named:
                return self._set_by_method(home, self._methods[name], given, named)
            if name == "__setattr__" and len(given) == 2:
                self._set_by_name(call, home, first, given[1])
                return None
        if isinstance(home, dict):
            found = self._of_dictionary(call, home, name, given, named)
            if found is not ABSENT:
                return found
        grown = [first] if name == "append" else first if name == "extend" else None
        if isinstance(home, list) and len(given) == 1 and isinstance(grown, list):
            self.extend(home, grown)
            return None
        who = ".".join(_named(call.func))
        if not name.startswith(READS) and name not in OF_PARTS:
            self.touch(home, f"{who}(...)", call.lineno)
        if not name.startswith(READS) and not who.startswith(LOOKERS):
            self.hand_over(who, call.lineno, given, named)
        return unknown(call, home, *given, *named.values())

    def _set_by_method(
        self, home: Made, method: Method, given: list[object], named: Mapping[str, object]
    ) -> Made:
        order = list(dict.fromkeys(parameter for parameter, _, _ in method))
        values = {**dict(zip(order, given, strict=False)), **named}
        for parameter, argument, default in method:
            value = values.get(parameter, default)
            if value is not ABSENT:
                self.changes.put(home.values, argument, value)
        return home

    def _of_dictionary(
        self,
        call: ast.Call,
        home: dict[str, object],
        name: str,
        given: list[object],
        named: dict[str, object],
    ) -> object:
        """What a method of a dictionary returns; ``ABSENT`` where that is not known."""
        first = given[0] if given else None
        default = given[1] if len(given) > 1 else None
        told = UNTOLD not in home
        match name:
            case "update":
                for other in (*given, named):
                    self.update(home, other, call)
                return None
            case "copy" if not given:
                return self.bounded(call, dict(home))
            case "items" if told:
                pairs = [self.bounded(call, [key, value]) for key, value in home.items()]
                return self.bounded(call, list(pairs))
            case "keys" if told:
                return self.bounded(call, list(home))
            case "values" if told:
                return self.bounded(call, list(home.values()))
            case "get" if told and isinstance(first, str):
                return home.get(first, default)
            case "setdefault" if told and isinstance(first, str):
                if first not in home:
                    self.changes.put(home, first, self._fitting(home, default))
                return home[first]
            case "pop" if told and isinstance(first, str):
                found = home.get(first, default)
                self.changes.put(home, first, ABSENT)
                return found
            case "__setitem__" if len(given) == 2:
                self._set_part(home, first, given[1], call)
                return None
        return ABSENT


def _weight(value: object) -> int:
    """How many parts a value has, with those of what it holds."""
    waiting, seen, parts = [value], set[int](), 0
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and isinstance(each, Made | dict | list):
            seen.add(id(each))
            inner = each.values if isinstance(each, Made) else each
            parts += len(inner)
            waiting += inner.values() if isinstance(inner, dict) else inner
    return parts


def void(_value: object) -> None:
    """Leave a value."""


def _named(node: ast.expr) -> tuple[str, ...]:
    return dotted(node) or ("a function",)
