"""Student's distribution of whole degrees of freedom, without a library that takes longer to load
than a plan to price."""

import math


def student_half_width(probability: float, degrees: int) -> float:
    """Where a variable of so many degrees of freedom lies with this probability on both sides of 0.

    ``within`` is inverted by bisection, to the last bit.
    """
    low, high = 0.0, math.pi / 2.0
    while True:
        middle = (low + high) / 2.0
        if middle in (low, high):
            return math.sqrt(degrees) * math.tan(middle)
        low, high = (low, middle) if within(middle, degrees) > probability else (middle, high)


def within(angle: float, degrees: int) -> float:
    """Probability that a variable is at most ``sqrt(degrees) tan(angle)`` from 0.

    A finite sum (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
    """
    cosine, odd = math.cos(angle), degrees % 2
    term = cosine if odd else 1.0
    total = 0.0 if degrees == 1 else term
    for power in range(2 + odd, degrees, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return 2.0 / math.pi * (angle + total) if odd else total
