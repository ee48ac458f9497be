"""Digests of what was written, so that a file that was altered since is not taken for an answer.

Artefacts that are only read by the tool (graphs, finished points, limits) are set aside and made
again where they disagree with their digest. What a run found is told as it was written or refused;
a plan that is priced anew anyway and settings that people may edit (a study, a calibrated device)
are said to be edited, and read as they are. Arrays and compiled code keep a ``digest`` in files of
their own kind. A digest guards against damage and changes that nobody remembers; whoever forges a
file can forge it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from phaze_common.errors import ArtefactError

KEY = "digest"
DIGEST_BYTES = 16
_HEAD = re.compile(rb'\{"digest":"(?P<digest>[0-9a-f]{32})","content":')
_LAST_LINE = re.compile(r"^# digest of what is above: (?P<digest>[0-9a-f]{32})\n?\Z", re.MULTILINE)


def digest(*parts: bytes) -> bytes:
    """Hash of content, ``DIGEST_BYTES`` long: that of all parts one behind the other."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        state.update(part)
    return state.digest()


def digest_of(content: bytes) -> str:
    """``digest`` as hexadecimal digits."""
    return digest(content).hex()


def sealed(content: bytes) -> bytes:
    """JSON text as the ``content`` of an object that has its digest before it."""
    return b'{"digest":"%s","content":%s}' % (digest_of(content).encode(), content)


def unsealed(text: bytes, source: str) -> bytes:
    """The content of what ``sealed`` wrote.

    Raises:
        ArtefactError: it has no digest, or is not what was written.
    """
    head = _HEAD.match(text)
    if head is None or not text.endswith(b"}"):
        raise ArtefactError(
            f"{source} has no digest of its content: it is damaged, or of another version"
        )
    content = text[head.end() : -1]
    if digest_of(content) != head["digest"].decode():
        raise ArtefactError(
            f"{source} does not hold what was written: its content disagrees with its digest"
        )
    return content


def with_digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document with a digest of its content, however it is laid out, under ``digest``."""
    return {**document, KEY: _digest_of_document(document)}


def is_as_written(document: Mapping[str, Any]) -> bool:
    """Whether a document of ``with_digest`` still has the content of then."""
    return document.get(KEY) == _digest_of_document(
        {key: value for key, value in document.items() if key != KEY}
    )


def text_with_digest(text: str) -> str:
    """Lines of a file (YAML, which knows such comments) with one more that holds their digest."""
    return f"{text}# digest of what is above: {digest_of(text.encode())}\n"


def text_is_as_written(text: str) -> bool:
    """Whether a text either has no digest, or is what ``text_with_digest`` made."""
    last = _LAST_LINE.search(text)
    return last is None or digest_of(text[: last.start()].encode()) == last["digest"]


def _digest_of_document(document: Mapping[str, Any]) -> str:
    return digest_of(
        json.dumps(document, sort_keys=True, separators=(",", ":"), default=str).encode()
    )
