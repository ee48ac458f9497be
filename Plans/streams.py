"""Products beside which collectives run piece by piece: what of these no product hides.

With ``t`` seconds of product, ``a`` of receiving and ``r`` of reducing one of ``n`` panels, which share the links, panels make a
pipeline of ``a + t/n + r + (n - 1) max(a + r, t/n)`` seconds: the first to come and the last to go are exposed. ``t`` is that of
the n smaller products, one launch each (``DeviceModel.operator_time``), and every panel pays for the start of its broadcasts and
reductions, so that more panels hide more and cost more. All products of a plan have as many: those of a linear layer, forward
and backward, are cut along the same columns, and a number for each would win less than 1 % of their time on the models looked at
(GPT-3 175B on 16 and 32 devices). Around a ring of ``n`` devices keys and values make n - 1 steps, each beside one n-th of
attention; backward their gradients travel with them and have one more step home behind it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from GraphExtractor.graph import Collective, CollectiveKind, Operator, Phase

Seconds = TypeVar("Seconds", float, NDArray[np.float64])


def exposed_s(
    operator: Operator, product_s: Seconds, seconds: Callable[[Collective], Seconds | float], panels: int = 1
) -> Seconds:
    """Seconds that what ``operator`` streams adds to the ``product_s`` that it takes by itself in ``panels`` panels.

    One number, or an array of them.

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
    panel_s = sum(_panel_s(each, seconds, panels) for each in operator.streamed)
    exposed: Seconds = panel_s + (panels - 1) * np.maximum(panel_s - product_s / panels, 0.0)
    return exposed


def _panel_s(collective: Collective, seconds: Callable[[Collective], Seconds | float], panels: int) -> Seconds | float:
    """Seconds of the messages of one panel, on average."""
    messages = collective.messages(panels)
    return messages / panels * seconds(replace(collective, payload_bytes=-(-collective.payload_bytes // messages)))
