"""How FLOPs are counted, in words beside every utilisation that is shown."""


def mfu_text(all_scores: float, left_scores: float | None) -> str:
    """A utilisation that counts all scores and, where a mask leaves some out, the one that counts those that are left."""
    if left_scores is None or left_scores >= all_scores:
        return f"MFU {all_scores:.1%}"
    return f"MFU {all_scores:.1%} counting all scores, {left_scores:.1%} those a causal mask leaves"
