"""Products beside which collectives run piece by piece: what of these no product hides.

With ``t`` seconds of product, ``a`` of receiving and ``r`` of reducing one of ``n`` panels, which share the links, panels make a
pipeline of ``a + t/n + r + (n - 1) max(a + r, t/n)`` seconds: the first to come and the last to go are exposed. Around a ring of
``n`` devices keys and values make n - 1 steps, each beside one n-th of attention; backward their gradients travel with them and
have one more step home behind it. More panels cost more starts; what smaller products cost more is left out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from GraphExtractor.graph import Collective, CollectiveKind, Operator, Phase

PANELS = 4  # of every product, as in arXiv 2410.00273, where nobody chooses


Seconds = TypeVar("Seconds", float, NDArray[np.float64])


def exposed_s(operator: Operator, product_s: Seconds, seconds: Callable[[Collective], float], panels: int = PANELS) -> Seconds:
    """Seconds that what ``operator`` streams adds to the ``product_s`` that it takes by itself; one number, or an array.

    ``seconds`` prices a collective by itself; passing around a ring is all its steps but the one home.
    """
    if not operator.streamed:
        return product_s * 0.0
    first = operator.streamed[0]
    if first.kind is CollectiveKind.PASS:
        steps = first.group_size - 1
        step_s = [seconds(each) / steps for each in operator.streamed]
        home_s = step_s[-1] if operator.phase is Phase.BACKWARD else 0.0
        behind_s: Seconds = steps * np.maximum(sum(step_s) - product_s / first.group_size, 0.0) + home_s
        return behind_s
    panel_s = sum(seconds(replace(each, payload_bytes=-(-each.payload_bytes // panels))) for each in operator.streamed)
    exposed: Seconds = panel_s + (panels - 1) * np.maximum(panel_s - product_s / panels, 0.0)
    return exposed
