"""YAML files: read by the C parser where it is there, within bounds on size, depth, and what
aliases expand to."""

from __future__ import annotations

import logging
import math
import re
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from phaze_common.echo import clipped, steers
from phaze_common.errors import InputError
from phaze_common.files import LONGEST_INTEGER, read_text
from phaze_common.sealed import text_is_as_written

if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

logger = logging.getLogger(__name__)

# the largest that ships has 10 KiB, a sweep of 100,000 points lists some hundred values
MAX_YAML_BYTES = 2 * 2**20
DEEPEST = 50  # mappings and lists in each other
TOO_DEEP = f"it is nested too deeply, more than {DEEPEST} levels"
# values, lists and mappings, with what aliases stand for counted wherever they stand
MOST_NODES = 100_000
_FLOAT = "tag:yaml.org,2002:float"
_MAY_BE_INFINITE = re.compile(
    r"\.(inf|nan)|e[+-]?[0-9]{3}|[0-9_]{300}|!!float|:float", re.IGNORECASE
)
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_INTEGER = re.compile(r"[-+]?[0-9][0-9a-fxo_:]*", re.IGNORECASE)  # in any notation of YAML 1.1


class _Loader(_Base):
    """Refuses a mapping that gives a key twice, of which plain YAML would silently take the last.

    Reads 160e9 as the number it is in YAML 1.2 and JSON; PyYAML, which follows YAML 1.1, would take
    it for a text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+0123456789"))


def read_yaml(path: Path) -> Any:
    """Parse a YAML file; that one written with a digest was edited since is said in the log.

    Raises:
        InputError: the file is missing, not readable, not YAML, too large, or gives a key twice.
    """
    text = read_text(path, "a YAML file")
    parsed = parse_yaml(text, str(path))
    if not text_is_as_written(text):
        logger.warning("%s was edited since it was written; it is read as it is now", path)
    return parsed


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text.

    Raises: InputError: it is not YAML, gives a key twice, holds a value that cannot be what it says
        it is, or is larger, deeper or
            (with its aliases written out) longer than any file of ours: names the bound.
    """
    if len(text) > MAX_YAML_BYTES:
        raise InputError(
            f"{source} has more than {MAX_YAML_BYTES // 2**20} MiB, which is too large for YAML; "
            "give a smaller file"
        )
    try:
        return deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # of the text's own
        where = (
            f" at line {min(mark.line, text.count(chr(10), 0, len(text) - 1)) + 1}" if mark else ""
        )
        problem = str(getattr(error, "problem", error))
        # of libyaml itself, which reads ahead of what it tells and stops at 1000 in some builds
        if "nesting depth" in problem:
            problem = TOO_DEEP
        raise InputError(f"{source} is not valid YAML{where}: {problem}; correct it") from error
    except (
        ValueError,
        TypeError,
        AttributeError,
    ) as error:  # the date 2001-99-99; a key that is a list; a binary in no base 64
        raise InputError(f"{source} is not valid YAML: {error}; correct it") from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply; correct it") from error


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Content of YAML text; cached, since studies read hardware files again and again."""
    _check_events(text)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_expansion(node)
        if _MAY_BE_INFINITE.search(text):
            _check_finite(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_events(text: str) -> None:
    """Refuse what is nested too deeply for the composer, and values nobody can show."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            _check_scalar(event)
        if depth > DEEPEST:
            raise _refused(TOO_DEEP, event.start_mark)
        if count > 2 * MOST_NODES:
            raise _refused(f"it has more than {MOST_NODES:,} values", event.start_mark)


def _check_scalar(event: yaml.ScalarEvent) -> None:
    text = event.value
    if steers(text):
        raise _refused(f"it holds control characters, in '{clipped(text, 60)}'", event.start_mark)
    if len(text) > LONGEST_INTEGER and not event.style and _INTEGER.fullmatch(text):
        raise _refused(
            f"it holds a number of {len(text)} digits, at most {LONGEST_INTEGER} are possible",
            event.start_mark,
        )


def _check_expansion(node: yaml.Node) -> None:
    """Refuse too many values with aliases written out, or one within itself."""
    sizes: dict[int, int] = {}

    def size(each: yaml.Node) -> int:
        known = sizes.get(id(each))
        if known == 0:
            raise _refused("a value contains itself", each.start_mark)
        if known is not None:
            return known
        sizes[id(each)] = 0  # until it is known
        children: list[yaml.Node] = []
        if isinstance(each, yaml.MappingNode):
            children = [part for pair in each.value for part in pair]
        elif isinstance(each, yaml.SequenceNode):
            children = each.value
        total = 1 + sum(map(size, children))
        if total > MOST_NODES:
            raise _refused(
                f"with its aliases written out it has more than {MOST_NODES:,} values",
                each.start_mark,
            )
        sizes[id(each)] = total
        return total

    size(node)


def _check_finite(document: yaml.Node) -> None:
    """Refuse numbers that are none, or beyond what can be held: each by its key."""
    pending, seen = [("", document)], set[int]()
    while pending:
        key, node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            named = [(getattr(name, "value", ""), value) for name, value in node.value]
            pending += [
                (f"{key}.{name}" if key else str(name), value) for name, value in reversed(named)
            ]
        elif isinstance(node, yaml.SequenceNode):
            pending += [
                (f"{key}.{place}" if key else str(place), value)
                for place, value in reversed([*enumerate(node.value)])
            ]
        elif node.tag == _FLOAT and not _is_finite(node.value):
            given = f"{clipped(key, 60) or 'it'} is {clipped(str(node.value), 60)}"
            raise _refused(f"{given}, which is not finite", node.start_mark)


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text.replace("_", "")))
    except ValueError:  # .nan, .inf; minutes and seconds, 1:30.5, are finite
        return ":" in text


def _refused(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
