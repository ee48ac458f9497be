"""Products beside which collectives run piece by piece: what of these no product hides.

With ``a`` seconds of receiving and ``r`` of reducing one of ``n`` panels, which share the links,
and ``t1`` of the first one's product and ``t`` of each other's, panels make a pipeline of ``a + r +
max(a + r, t1) + (n - 2) max(a + r, t) + t`` seconds: the first to come and the last to go are
exposed. ``t`` is that of the smaller products alone, one launch each
(``Estimator.cost_model.PieceTimes``), since what follows a product waits for its last panel; and
every panel pays for the start of its broadcasts and reductions, so that more panels hide more and
cost more. All products of a plan have as many: those of a linear layer, forward and backward, are
cut along the same columns, and a number for each would win less than 1 % of their time on the
models looked at (GPT-3 175B on 16 and 32 devices). Around a ring of ``n`` devices keys and values
make n - 1 steps, beside all pieces of attention but the last (``Estimator.ring_attention``), of
which the first has nothing to be merged with; backward their gradients travel with them and have
one more step home behind it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from Estimator.cost_model import PieceTimes, Seconds
from GraphExtractor.graph import Collective, Operator, Phase


def exposed_s(
    operator: Operator,
    pieces: PieceTimes[Seconds],
    seconds: Callable[[Collective], Seconds | float],
    panels: int = 1,
) -> Seconds:
    """Seconds that what ``operator`` streams adds to those that it takes by itself, in ``panels``
    panels or around its ring.

    One number, or an array of them, as the times of its ``pieces`` are.

    ``seconds`` prices a collective by itself; passing around a ring is all its steps but the one
    home.
    """
    if not operator.streamed:
        return pieces.first_s * 0.0
    if operator.ring > 1:
        step_s = [seconds(each) / (operator.ring - 1) for each in operator.streamed]
        home_s = step_s[-1] if operator.phase is Phase.BACKWARD else 0.0
        return _waiting_s(sum(step_s), pieces, operator.ring) + home_s
    panel_s = sum(_panel_s(each, seconds, panels) for each in operator.streamed)
    return _waiting_s(panel_s, pieces, panels) + panel_s


def _waiting_s(each_s: Seconds | float, pieces: PieceTimes[Seconds], count: int) -> Seconds:
    """What messages of ``each_s`` exceed the pieces by, all of ``count`` but the last."""
    if count == 1:
        return pieces.first_s * 0.0
    waiting: Seconds = np.maximum(each_s - pieces.first_s, 0.0) + (count - 2) * np.maximum(
        each_s - pieces.other_s, 0.0
    )
    return waiting


def _panel_s(
    collective: Collective, seconds: Callable[[Collective], Seconds | float], panels: int
) -> Seconds | float:
    """Seconds of the messages of one panel, on average."""
    messages = collective.messages(panels)
    message = replace(collective, payload_bytes=-(-collective.payload_bytes // messages))
    return messages / panels * seconds(message)
