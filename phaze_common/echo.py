"""What others wrote, shown again: without what a terminal would obey, and no name longer than a
line or two.

Whatever reaches standard output or standard error goes through ``say``
(``tests/phaze_common/test_echo.py`` reads that from the code), so that no file, folder or layer can
be named in a way that steers a terminal or looks like a line of ours.
"""

import re
from collections.abc import Iterable
from typing import TextIO

LONGEST_NAME = 200  # characters of a name, path or value that is echoed
LONGEST_MESSAGE = 6000  # of a whole sentence: lists of everything that is known are long, too
_QUOTED = re.compile(
    r"(?<![\w)])(?P<mark>['\"])(?P<inside>(?:\\.|(?!(?P=mark)).){200,}?)(?P=mark)(?!\w)", re.DOTALL
)
_WORD = re.compile(r"\S{%d,}" % (LONGEST_NAME + 1))  # noqa: UP031 - braces
_KEPT = frozenset("\n\t")
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def steers(text: str) -> bool:
    """Whether a text holds what a terminal obeys: control or reversing characters."""
    return _STEERING.search(text) is not None


def breaks_line(text: str) -> bool:
    """Whether a text holds what some reader takes for the end of a line."""
    return _LINE_ENDS.search(text) is not None


def shown(text: str) -> str:
    """``text`` with what does not print (escape sequences, stray bytes) as its escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _KEPT else _escaped(each) for each in text)


def on_one_line(text: str) -> str:
    """As ``shown``, line breaks and tabs too: a name stays within its line or cell."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def say(stream: TextIO, lines: Iterable[str]) -> None:
    """Write lines to a stream that may be a terminal, each ``on_one_line``."""
    stream.writelines(f"{on_one_line(line)}\n" for line in lines)


def as_given(value: object) -> str:
    """A value as a file writes it: ``true``, ``null``, text in quotes; ``clipped``."""
    try:
        return in_words_of_files(repr(value))
    except Exception:  # noqa: BLE001 - of whatever type from Python, or a number of more digits than are ever shown
        return f"a {type(value).__name__}"


def kind_of(value: object) -> str:
    """What a file holds, in its words: ``a list``, ``text``, ``nothing``."""
    known = {
        type(None): "nothing",
        dict: "a mapping",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return known.get(type(value), f"a {type(value).__name__}")


def in_words_of_files(representation: str) -> str:
    """Python's representation of a value, as ``as_given``."""
    return {"True": "true", "False": "false", "None": "null"}.get(
        representation, clipped(representation)
    )


def clipped(text: str, longest: int = LONGEST_NAME) -> str:
    """``shown`` text of at most ``longest`` characters; an ellipsis says it is cut."""
    safe = shown(text[: longest + 1])
    return safe if len(text) <= longest and len(safe) <= longest else safe[: longest - 1] + "…"


def tidy(message: str) -> str:
    """A sentence that names what was given, long names within it ``clipped``."""
    message = shown(message)
    if len(message) > LONGEST_NAME:
        message = _QUOTED.sub(
            lambda found: (
                found["mark"] + clipped(found["inside"], LONGEST_NAME - 10) + found["mark"]
            ),
            message,
        )
        message = _WORD.sub(lambda found: clipped(found[0]), message)
    return clipped(message, LONGEST_MESSAGE) if len(message) > LONGEST_MESSAGE else message


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()
