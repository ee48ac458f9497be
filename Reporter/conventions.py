"""How FLOPs are counted, in words beside every utilisation that is shown."""

from Common.numbers import share


def mfu_text(all_scores: float, left_scores: float | None) -> str:
    """A utilisation that counts all scores and, where a mask leaves some out, the one that counts those that are left."""
    if left_scores is None or left_scores >= all_scores:
        return f"MFU {share(all_scores)}"
    return f"MFU {share(all_scores)} counting all scores, {share(left_scores)} those a causal mask leaves"
