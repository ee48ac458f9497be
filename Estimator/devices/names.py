"""Names of devices as papers, logs and drivers write them, in the forms that are compared with
names and aliases that ship."""

import re

_REMARKS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_FIGURES = re.compile(r",?\s\d+(?:\.\d+)?\s?(?:[TG]B/s|W)\b", re.IGNORECASE)  # a bandwidth, a power
# 8x A100, 8 A100
_COUNT_BEFORE = re.compile(r"^\s*\d+\s*(?:[x×*]\s*|\s(?=\s*[a-z]))", re.IGNORECASE)
_COUNT_BEHIND = re.compile(r"\s[x×*]\s*\d+\s*$", re.IGNORECASE)  # A100 x8
_SEPARATORS = re.compile(r"[\s_\-,/]+")
_MAKERS = frozenset(
    {"nvidia", "amd", "intel", "google", "habana", "tesla", "geforce", "instinct", "cloud"}
    | {"dgx", "hgx", "gpu", "gpus", "card", "cards", "chip", "chips"}
    | {"accelerator", "accelerators", "tensor", "core"}
)
_BOARD = re.compile(r"sxm\d?|oam|hbm\d?e?|nvlink")  # forms that most names leave out


def forms_of(text: str) -> tuple[str, ...]:
    """What ``text`` may be known as, without case and punctuation, the most telling first.

    As it stands; without remarks in brackets, counts, bandwidths, powers, and the words of makers;
    without the form of the board as well. What is left must be a name or an alias as a whole:
    nothing else is dropped, so that ``A100 PCIe`` is no ``A100``.
    """
    bare = _COUNT_BEHIND.sub(
        "", _COUNT_BEFORE.sub("", _FIGURES.sub(" ", _REMARKS.sub(" ", text)))
    ).lower()
    words = [word for word in _SEPARATORS.split(bare) if word not in _MAKERS]
    boardless = [word for word in words if not _BOARD.fullmatch(word)]
    return tuple(
        dict.fromkeys((bare_name(text), bare_name("".join(words)), bare_name("".join(boardless))))
    )


def bare_name(text: str) -> str:
    """``text`` without case and punctuation."""
    return "".join(letter for letter in text.lower() if letter.isalnum())
