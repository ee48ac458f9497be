"""How FLOPs are counted, in words beside every utilisation that is shown."""

from Common.numbers import share

_MEANING = "model FLOPs (three times those of a forward pass, {scores}nothing recomputed) over the peak of the devices in use"
MFU_MEANING = _MEANING.format(scores="all scores of attention counted, ")
MFU_WITHOUT_SCORES = _MEANING.format(scores="")  # of models without attention
MFU_OF_ANY = _MEANING.format(scores="all scores of attention counted where there is any, ")


def mfu_meaning(sequence_length: int) -> str:
    """What MFU means of a model; one whose samples are no sequences has no attention."""
    return MFU_MEANING if sequence_length > 1 else MFU_WITHOUT_SCORES


def mfu_text(all_scores: float, left_scores: float | None) -> str:
    """A utilisation that counts all scores and, where a mask leaves some out, the one that counts those that are left."""
    left = _of_scores_left(all_scores, left_scores)
    return f"MFU {share(all_scores)}" + (f" counting all scores, {left}" if left else "")


def mfu_note(all_scores: float, left_scores: float | None, sequence_length: int) -> str:
    """What stands beside a utilisation that counts all scores: its meaning, and the other convention as in ``mfu_text``."""
    left = _of_scores_left(all_scores, left_scores)
    return mfu_meaning(sequence_length) + (f"; {left}" if left else "")


def _of_scores_left(all_scores: float, left_scores: float | None) -> str:
    return "" if left_scores is None or left_scores >= all_scores else f"{share(left_scores)} those a causal mask leaves"
