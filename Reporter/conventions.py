"""How FLOPs are counted, in words beside every utilisation that is shown."""

from Common.numbers import share

MFU_MEANING = (
    "model FLOPs (three times those of a forward pass, all scores of attention counted, nothing recomputed) over the peak of the "
    "devices in use"
)


def mfu_text(all_scores: float, left_scores: float | None) -> str:
    """A utilisation that counts all scores and, where a mask leaves some out, the one that counts those that are left."""
    left = _of_scores_left(all_scores, left_scores)
    return f"MFU {share(all_scores)}" + (f" counting all scores, {left}" if left else "")


def mfu_note(all_scores: float, left_scores: float | None) -> str:
    """What stands beside a utilisation that counts all scores: its meaning, and the other convention as in ``mfu_text``."""
    left = _of_scores_left(all_scores, left_scores)
    return MFU_MEANING + (f"; {left}" if left else "")


def _of_scores_left(all_scores: float, left_scores: float | None) -> str:
    return "" if left_scores is None or left_scores >= all_scores else f"{share(left_scores)} those a causal mask leaves"
