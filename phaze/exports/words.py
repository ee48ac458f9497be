"""Words of others (names of models, devices, clusters and their tiers) in exported files: none says
more than a name there.

Every name that is not ours goes through one of these, or through ``repr`` in Python and
``json.dumps`` in JSON; a test reads the exporters for names that do not.
"""

import html
import re

_UNSAFE = re.compile(r"[^\x20-\x7e]|[\"\\]")
_MARKS = {ord(each): f"&#{ord(each)};" for each in "`|[]*"}


def commented(text: str) -> str:
    """A name in a comment of a script, YAML or Python, or in a docstring: on one line, whatever it
    holds, and ending none."""
    return _UNSAFE.sub("?", text)


def in_markdown(text: str) -> str:
    """A name in a page: no mark-up, no cell of its own."""
    return html.escape(commented(text), quote=False).translate(_MARKS)


def in_code_of_markdown(text: str) -> str:
    """A word between backticks in the cell of a table."""
    return (
        _UNSAFE.sub(lambda found: found[0] if found[0] in '"\\' else "?", text)
        .replace("`", "'")
        .replace("|", "\\|")
    )
