"""Whole-number arithmetic of bash, ``$((A * B))``, computed from assigned variables; nothing is
run."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

LONGEST = 200  # characters of an expression
LARGEST = 2**63
MOST_POWER = 63


def _quotient(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda left, right: left - right * _quotient(left, right),
}
_COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_OCTAL = re.compile(r"(?<![\w.])0+([0-9]+)(?!\w)")  # bash's numbers that begin with 0
_CHOICE = re.compile(r"([^?:]+)\?([^?:]+):(.+)", re.DOTALL)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


def value_of(text: str, variable: Callable[[str], str | None]) -> int | None:
    """The value of an expression of whole numbers, + - * / % **, comparisons and brackets; None of
    any other or unknown one."""
    plain = _OCTAL.sub(r"0o\1", _NAME.sub(r"\1", text.strip()))
    if len(plain) > LONGEST:
        return None
    chosen = _CHOICE.fullmatch(plain)
    if chosen is not None:
        met = value_of(chosen[1], variable)
        return None if met is None else value_of(chosen[2 if met else 3], variable)
    try:
        return _value(ast.parse(plain, mode="eval").body, variable)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, variable: Callable[[str], str | None]) -> int | None:
    found: int | None = None
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            found = number
        case ast.Name(id=name):
            text = (variable(name) or "").strip()
            if (octal := re.fullmatch(r"0+([0-7]{1,18})", text)) is not None:
                found = int(octal[1], 8)
            elif _WHOLE.fullmatch(text):
                found = int(text)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _value(operand, variable)
            found = None if inner is None else -inner
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if (
            type(compared) in _COMPARED
        ):
            first, second = _value(left, variable), _value(right, variable)
            if first is not None and second is not None:
                found = int(_COMPARED[type(compared)](first, second))
        case ast.BinOp(left=left, op=operation, right=right):
            first, second = _value(left, variable), _value(right, variable)
            if first is None or second is None:
                return None
            if type(operation) in _OPERATIONS:
                found = _OPERATIONS[type(operation)](first, second)
            elif isinstance(operation, ast.Pow) and 0 <= second <= MOST_POWER:
                found = first**second if abs(first) < LARGEST else None
    return found if found is not None and abs(found) < LARGEST else None
