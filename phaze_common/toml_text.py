"""TOML text: read as it is, but for numbers that are none, which TOML has words for and nobody
means."""

import re
import tomllib
from typing import Any

from phaze_common.errors import InputError
from phaze_common.ranges import check_finite

_NOT_FINITE = re.compile(r"^\s*(?P<key>[^#=]+?)\s*=.*?[\s=\[,][+-]?(inf|nan)\b", re.MULTILINE)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Content of TOML text.

    Raises: InputError: it is not TOML (which gives no key twice), or holds a number that is not
        finite; names the key and the line.
    """
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(
            f"{source} is not valid TOML: {error or 'it is nested too deeply'}; correct it"
        ) from error
    try:
        check_finite(parsed, source)
    except InputError as error:
        found = _NOT_FINITE.search(text)
        where = "" if found is None else f" (line {text.count(chr(10), 0, found.end()) + 1})"
        raise InputError(f"{error}{where}") from error
    return parsed
