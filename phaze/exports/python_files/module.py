"""What a Python module would make of its configurations, by its syntax tree: nothing is run.

Its statements are followed in their order, and those of the functions that are called: names,
attributes of records, keys of dictionaries and parts of lists keep what is known of them. Of a
branch, a loop or a handler that may run or not each way is tried, and what the ways leave different
is an ``Expression`` behind them, as is all that the text does not say. The work is bounded,
whatever calls whatever.
"""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeVar

from phaze.exports.python_files.calls import Calls
from phaze.exports.python_files.changes import ABSENT, Outcome
from phaze.exports.python_files.expressions import (
    Ended,
    Function,
    Method,
    Returned,
    Scope,
    Setter,
    truth_of,
)
from phaze.exports.python_files.values import UNTOLD, Expression, Made, joined, possible, records_in
from phaze_common.errors import InputError

DEEPEST = 40  # functions that call each other
LONGEST_LOOP = 200  # rounds that are followed one by one
_T = TypeVar("_T")
Statements = list[ast.stmt]
LEAVES = (ast.Return, ast.Break, ast.Continue)
SCOPES = ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.AsyncFunctionDef
# what follows a statement in the function, in its block and in those around it
Rest = tuple[Statements, ...]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Way:
    """Statements that may be what is run, behind what ``before`` changes."""

    bodies: list[Statements]
    before: Callable[[], None] = _nothing


@dataclass(frozen=True)
class _Records:
    """Records that calls made, and those that are ``left``: nothing has them any more but a
    copy."""

    made: list[Made]
    left: list[Made]

    def of(self, names: Collection[str]) -> list[Made]:
        """Those of classes ``names``; what one call makes several times is one, with the values
        that are always the same."""
        left, found = {id(each) for each in self.left}, dict[int, Made]()
        for each in self.made:
            if each.name not in names or id(each) in left:
                continue
            before = found.setdefault(each.place, each)
            if before is not each:
                keys = {**before.values, **each.values}
                where = f"a call that is made several times, in line {each.line}"
                values = {
                    key: joined(before.values.get(key, ABSENT), each.values.get(key, ABSENT), where)
                    for key in keys
                }
                for made in (before, each):
                    if UNTOLD in made.values:
                        values[UNTOLD] = made.values[UNTOLD]
                found[each.place] = Made(each.name, values, each.positional, each.line, each.place)
        return list(found.values())


class Module(Calls):
    """The functions, names and records of a module, as far as its text says them.

    Args: tree: the module. main: whether it is run as a script, and not imported. methods: of
        records, by name, and what they set. parts: names of the parts of a record that are records
        themselves, with their defaults where they are not written out. setters: functions of other
        files, by name, and what they set.

    Raises:
        InputError: it cannot be followed within the bounds.
    """

    def __init__(
        self,
        tree: ast.Module,
        main: bool = False,
        methods: Mapping[str, Method] | None = None,
        parts: Collection[str] = (),
        setters: Mapping[str, Setter] | None = None,
    ) -> None:
        super().__init__(methods or {}, parts, setters or {})
        self._top = Scope({"__name__": "__main__" if main else "a module"})
        self._depth = 0
        self._kept = list[object]()  # names of functions that have ended
        self._followed = set[str]()  # functions that are called
        self._returns = dict[int, bool]()  # by statement, whether it holds a return
        for statement in tree.body:  # also behind what raises: nobody gives a file that does
            self._guarded("the file", partial(self._run, [statement], self._top))
        self._at_top = self._used(0)

    def functions(self, private: bool = False) -> tuple[str, ...]:
        """Names of functions that need no argument, without those that begin with an underscore
        unless ``private``."""
        return tuple(
            name
            for name, each in self._functions().items()
            if (private or not name.startswith("_"))
            and len(each.args.args) <= len(each.args.defaults)
            and not each.args.posonlyargs
            and None not in each.args.kw_defaults
        )

    def returned(self, name: str) -> object:
        """What the function ``name`` returns when it is called without arguments; those that it
        needs are not known.

        Raises:
            InputError: it cannot be followed within the bounds.
        """
        return self._alone(name, copy.deepcopy)

    def records(self, names: Collection[str]) -> list[Made]:
        """Records of classes ``names`` that the module makes as its statements are followed, each
        as it is at the end.

        A record of which a changed copy was made is none where nothing else got it. What one call
        makes several times, in a loop, is one record, of which only the values are known that are
        always the same.
        """
        return self._at_top.of(names)

    def records_of_functions(self, names: Collection[str]) -> list[Made]:
        """``records``, and those of functions that no other function of the module calls, which
        somebody else may call.

        Functions that need arguments are asked only where there are no others.

        Raises:
            InputError: they cannot be followed within the bounds.
        """
        called_at_top, found = set(self._followed), self.records(names)
        for candidates in (self.functions(private=True), tuple(self._functions())):
            records, called = dict[str, list[Made]](), set(called_at_top)
            for name in candidates:
                self._followed, start = set(), len(self.made)
                records[name] = self._alone(name, lambda _: self._used(start).of(names)) or []  # noqa: B023 run at once
                called |= self._followed - {name}
            ends = [each for name, some in records.items() if name not in called for each in some]
            found += _Records(ends, []).of(names)
            if found:
                break
        return found

    def constant(self, name: str) -> object:
        """A name at the top of the module at its end; an ``Expression`` where there is none that
        can be told."""
        return self._top.names.get(name, Expression(name))

    def has(self, name: str) -> bool:
        """Whether a name at the top of the module has a value of the module's, known or not."""
        return name in self._top.names

    def call(self, function: Function, given: list[object], named: Mapping[str, object]) -> object:
        """What a function of the module returns; an argument ``UNTOLD`` is any that is not given
        else."""
        self.step()
        self._followed.add(function.name)
        if self._depth >= DEEPEST:
            self.hand_over(function.name, function.node.lineno, given, named)
            return Expression(function.name)
        scope = Scope(outer=function.scope)
        self.changes.born(scope.names)
        scope.names |= self._parameters(function, given, named)
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        body = function.node.body
        lazy = _holds(body, (ast.Yield, ast.YieldFrom))
        self._depth += 1
        try:
            if lazy:
                where = f"{function.name}(...)"
                self._repeated(lambda: self._run(body, scope), broken=True, where=where)
                return Expression(f"what {where} yields")
            self._run(body, scope)
        except Returned as returned:
            return returned.value
        finally:
            self._depth -= 1
            self._kept.append(scope.names)
        return None

    def _functions(self) -> dict[str, ast.FunctionDef]:
        found = {
            name: each.node for name, each in self._top.names.items() if isinstance(each, Function)
        }
        return {
            name: node
            for name, node in found.items()
            if isinstance(node, ast.FunctionDef) and node.name == name
        }

    def _alone(self, name: str, take: Callable[[object], _T]) -> _T | None:
        """What ``take`` makes of what a function returns, which is called alone: what it changes is
        as before then."""
        function, found = self._top.names[name], list[_T]()
        if not isinstance(function, Function):
            return None
        self.changes.begin()
        self._kept = []
        self._guarded(
            f"the function {name}", lambda: found.append(take(self.call(function, [], {})))
        )
        self.changes.take_back()
        return found[0] if found else None

    def _used(self, start: int) -> _Records:
        """The records that calls made since ``start``, and those of them of which only a copy is
        used, at this point."""
        held = {id(each) for each in records_in([self._top.names, *self._kept], perhaps=True)}
        made, left = self.made[start:], list[Made]()
        given = {each.name for each in made if self.given.get(str(id(each))) is True}
        for each in made:
            copied = self.copied.get(str(id(each))) is True and str(id(each)) not in self.given
            if copied and (each.name in given or id(each) not in held):
                left.append(each)
        return _Records(made, left)

    def _guarded(self, what: str, run: Callable[[], None]) -> None:
        try:
            run()
        except Ended:
            return
        except RecursionError as error:
            raise InputError(
                f"{what} is nested too deeply to be followed; write its values out"
            ) from error

    def _parameters(
        self, function: Function, given: list[object], named: Mapping[str, object]
    ) -> dict[str, object]:
        arguments, home = function.node.args, function.scope
        places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        by_name = [each.arg for each in arguments.kwonlyargs]
        found: dict[str, object] = {name: Expression(name) for name in (*places, *by_name)}
        if UNTOLD not in named:
            defaults = zip(
                places[len(places) - len(arguments.defaults) :], arguments.defaults, strict=True
            )
            found |= {name: self.value(node, home) for name, node in defaults}
            keywords = zip(by_name, arguments.kw_defaults, strict=True)
            found |= {name: self.value(node, home) for name, node in keywords if node is not None}
        found |= dict(zip(places, given, strict=False)) | {
            name: value for name, value in named.items() if name in found
        }
        if arguments.vararg is not None:
            found[arguments.vararg.arg] = (
                Expression(arguments.vararg.arg) if UNTOLD in named else list(given[len(places) :])
            )
        if arguments.kwarg is not None:
            found[arguments.kwarg.arg] = {
                name: value for name, value in named.items() if name not in found
            }
        return found

    def _run(self, body: Statements, scope: Scope, after: Rest = ()) -> None:
        """Follow statements. ``after`` is what follows them in the function, for a way that may
        leave it early."""
        for index, statement in enumerate(body):
            self.step()
            self._statement(statement, scope, lambda: (body[index + 1 :], *after))  # noqa: B023 asked for at once

    def _statement(self, statement: ast.stmt, scope: Scope, rest: Callable[[], Rest]) -> None:
        match statement:
            case ast.Return(value=value):
                raise Returned(None if value is None else self.value(value, scope))
            case ast.Assign(targets=targets, value=value):
                made = self.value(value, scope)
                for target in targets:
                    self.assign(target, made, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.value(value, scope), scope)
            case ast.AugAssign():
                self.augment(statement, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.delete(target, scope)
            case ast.Expr(value=value) | ast.Assert(test=value):
                self.value(value, scope)
            case ast.Raise(exc=error):
                if error is not None:
                    self.value(error, scope)
                raise Ended
            case ast.FunctionDef(name=name):
                self.changes.put(scope.home(name), name, Function(statement, scope))
            case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                made = Expression(name, named=isinstance(statement, ast.ClassDef))
                self.changes.put(scope.home(name), name, made)
            case ast.Import() | ast.ImportFrom():
                self._import(statement, scope)
            case ast.Global(names=names):
                scope.elsewhere |= dict.fromkeys(names, scope.module)
            case ast.Nonlocal(names=names):
                scope.elsewhere |= {name: self._owner(name, scope) for name in names}
            case _:
                self._compound(statement, scope, rest)

    def _compound(self, statement: ast.stmt, scope: Scope, rest: Callable[[], Rest]) -> None:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                known = truth_of(self.value(test, scope))
                if known is None:
                    self._ways(statement, [_Way([then]), _Way([otherwise])], scope, rest)
                else:
                    after = rest() if self._may_return(statement) else ()
                    self._run(then if known else otherwise, scope, after)
            case ast.With(items=items, body=inner) | ast.AsyncWith(items=items, body=inner):
                stops = False
                for item in items:
                    value = self.value(item.context_expr, scope)
                    stops = stops or (isinstance(value, Made) and value.name == "suppress")
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, value, scope)
                self._try(statement, ([], []), [[]] if stops else [], scope, rest)
            case (
                ast.For(target=target, iter=parts, body=inner, orelse=last)
                | ast.AsyncFor(target=target, iter=parts, body=inner, orelse=last)
            ):
                self._for(statement, target, self.value(parts, scope), inner, scope, rest)
                self._run(last, scope)
            case ast.While(test=test, body=inner, orelse=last):
                if truth_of(self.value(test, scope)) is not False:

                    def again() -> None:
                        self._run(inner, scope)
                        self.value(test, scope)

                    self._loop(statement, again, scope, rest)
                self._run(last, scope)
            case (
                ast.Try(handlers=handlers, orelse=otherwise, finalbody=last)
                | ast.TryStar(handlers=handlers, orelse=otherwise, finalbody=last)
            ):
                for handler in handlers:
                    if name := handler.name:
                        self.changes.put(scope.home(name), name, Expression(name))
                bodies = [handler.body for handler in handlers]
                self._try(statement, (otherwise, last), bodies, scope, rest)
            case ast.Match(subject=subject, cases=cases):
                value = self.value(subject, scope)
                for name in _captured(cases):
                    self.changes.put(scope.home(name), name, Expression(name, possible(value)))
                ways = [*(_Way([case.body]) for case in cases), _Way([])]
                self._ways(statement, ways, scope, rest)
            case ast.Pass() | ast.Break() | ast.Continue() | ast.AnnAssign():
                pass
            case _:
                for each in ast.walk(statement):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        self.assign(each, Expression(each.id), scope)

    def _ways(
        self, statement: ast.stmt, ways: list[_Way], scope: Scope, rest: Callable[[], Rest]
    ) -> None:
        """Follow each of several ways of which one is taken; where one may leave the function, with
        all that follows."""
        leaves = self._may_return(statement)
        follow = rest() if leaves else ()
        outcomes, values = list[Outcome](), list[object]()
        for way in ways:
            start = len(self.made)
            self.changes.begin()
            try:
                way.before()
                self._run_all((*way.bodies, *follow), scope)
            except Returned as returned:
                values.append(returned.value)
            except Ended:
                self.changes.take_back()
                if way.before is not _nothing:
                    del self.made[start:]  # of a training that was broken off
                continue
            else:
                values.append(None)
            outcomes.append(self.changes.take_back())
        if not outcomes:
            raise Ended
        self.changes.settle(outcomes, _where(statement))
        if leaves:
            value = reduce(joined, values)
            if isinstance(value, Expression):
                value = Expression("a value that a branch returns", possible(value))
            raise Returned(value)

    def _run_all(self, bodies: Rest, scope: Scope) -> None:
        for index, body in enumerate(bodies):
            self._run(body, scope, bodies[index + 1 :])

    def _for(
        self,
        statement: ast.stmt,
        target: ast.expr,
        parts: object,
        body: Statements,
        scope: Scope,
        rest: Callable[[], Rest],
    ) -> None:
        plain = not _holds(body, LEAVES)
        if isinstance(parts, dict) and UNTOLD not in parts:
            parts = list(parts)
        if plain and isinstance(parts, list) and len(parts) <= LONGEST_LOOP:
            for part in list(parts):
                self.assign(target, part, scope)
                self._run(body, scope)
            return
        part = Expression(f"a value of {_where(statement)}", possible(*self.parts_of(parts)))

        def again() -> None:
            self.assign(target, part, scope)
            self._run(body, scope)

        self._loop(statement, again, scope, rest)

    def _loop(
        self, statement: ast.stmt, run: Callable[[], None], scope: Scope, rest: Callable[[], Rest]
    ) -> None:
        """Follow a loop of any number of rounds; where it may leave the function, what follows it
        may run or not."""
        broken = _holds([statement], LEAVES)
        self._repeated(run, broken, _where(statement))
        if self._may_return(statement):

            def leave() -> None:
                raise Returned(Expression("a value that a branch returns"))

            self._ways(statement, [_Way([]), _Way([], leave)], scope, rest)

    def _repeated(self, run: Callable[[], None], broken: bool, where: str) -> None:
        """Follow what runs any number of times, or ends anywhere: what it changes is not known, in
        its own next round neither."""
        for _ in range(2):
            self._tried(run, broken, where)

    def _tried(self, run: Callable[[], None], broken: bool, where: str) -> None:
        """Follow what may run or not; ``broken``, or only up to any point."""
        self.changes.begin(broken)
        with contextlib.suppress(Returned, Ended):
            run()
        outcome = self.changes.take_back()
        if broken:
            self.changes.blur(outcome, where)
        else:
            self.changes.settle([outcome, {}], where)

    def _try(
        self,
        statement: ast.Try | ast.TryStar | ast.With | ast.AsyncWith,
        behind: tuple[Statements, Statements],
        handlers: list[Statements],
        scope: Scope,
        rest: Callable[[], Rest],
    ) -> None:
        """Follow a body and what is ``behind`` it, without an exception and in any case; or a part
        of it and a handler."""
        whole, last = [statement.body, *behind], behind[1]
        if not handlers:
            leaves = self._may_return(statement)
            for index, body in enumerate(whole):
                self._run(body, scope, (*whole[index + 1 :], *rest()) if leaves else ())
            return

        def broken() -> None:
            self._tried(lambda: self._run(statement.body, scope), True, _where(statement))

        ways = [_Way(whole), *(_Way([handler, last], broken) for handler in handlers)]
        self._ways(statement, ways, scope, rest)

    def _import(self, statement: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in statement.names:
            if alias.name == "*":
                for name in list(scope.names):
                    self.changes.put(scope.names, name, ABSENT)  # another file may have the name
            else:
                name = alias.asname or alias.name.split(".")[0]
                text = alias.name if alias.asname or isinstance(statement, ast.ImportFrom) else name
                self.changes.put(scope.home(name), name, Expression(text, named=True))

    def _owner(self, name: str, scope: Scope) -> Scope:
        owner = scope.outer
        while owner is not None and owner.outer is not None and name not in owner.names:
            owner = owner.outer
        return owner or scope

    def _may_return(self, statement: ast.stmt) -> bool:
        if id(statement) not in self._returns:
            waiting, found = list[ast.AST]([statement]), False
            while waiting and not found:
                each = waiting.pop()
                found = isinstance(each, ast.Return)
                if each is statement or not isinstance(each, SCOPES):
                    waiting += ast.iter_child_nodes(each)
            self._returns[id(statement)] = found
        return self._returns[id(statement)]


def _holds(body: Statements, kinds: tuple[type[ast.AST], ...]) -> bool:
    """Whether there is a node of one of these kinds in statements."""
    return any(isinstance(each, kinds) for inner in body for each in ast.walk(inner))


def _where(statement: ast.stmt) -> str:
    kind = "loop" if isinstance(statement, ast.For | ast.AsyncFor | ast.While) else "branch"
    return f"a {kind} in line {statement.lineno}"


def _captured(cases: list[ast.match_case]) -> list[str]:
    found = list[str]()
    for case in cases:
        for each in ast.walk(case.pattern):
            if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
                found.append(each.name)
            elif isinstance(each, ast.MatchMapping) and each.rest:
                found.append(each.rest)
    return found
