"""How FLOPs are counted, beside every utilisation; ``mfu_share`` is the one way to show any."""

from phaze_common.errors import DefectError
from phaze_common.numbers import number, share

MFU_MEANING = (
    "model FLOPs (three times those of a forward pass, nothing recomputed{scores}) over "
    "the peak of the devices in use"
)
_LEFT = ", without scores of attention that a causal mask leaves out"
MFU_OF_ANY = MFU_MEANING.format(scores=f"{_LEFT} where there is any")


def mfu_share(utilization: float) -> str:
    """A utilisation as it is shown.

    Raises:
        DefectError: it is above one.
    """
    if not utilization <= 1.0:
        raise DefectError(
            f"a utilisation of {utilization:.4%} of the peak was to be shown, which nothing can "
            "reach"
        )
    return share(utilization)


def mfu_meaning(sequence_length: int) -> str:
    """What MFU means of a model; one whose samples are no sequences has no attention."""
    return MFU_MEANING.format(scores=_LEFT if sequence_length > 1 else "")


def mfu_text(left_scores: float, all_scores: float | None, all_tflops: float | None = None) -> str:
    """A utilisation, and that which counts scores that a mask leaves out, as papers often do.

    ``all_tflops`` are the TFLOP/s per device of that convention.
    """
    return f"MFU {mfu_share(left_scores)}{_of_all_scores(left_scores, all_scores, all_tflops)}"


def mfu_note(left_scores: float, all_scores: float | None, sequence_length: int) -> str:
    """The meaning of a utilisation, and the other convention as in ``mfu_text``."""
    return mfu_meaning(sequence_length) + _of_all_scores(left_scores, all_scores)


def _of_all_scores(
    left_scores: float, all_scores: float | None, all_tflops: float | None = None
) -> str:
    """Nothing where no mask leaves any out."""
    if all_scores is None or all_scores <= left_scores:
        return ""
    if all_scores > 1.0:
        return "; counting all scores, also those that are skipped, it would be more than the peak"
    rate = "" if all_tflops is None else f"{number(all_tflops)} or "
    return f"; {rate}{share(all_scores)} counting all scores, as many papers do"
