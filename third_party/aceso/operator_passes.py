"""Microseconds of an operator's passes in training: what the database measured, with what the
profiler left out or distorted."""

from dataclasses import dataclass, replace

from phaze_common.errors import InputError

from .collective_times import collective_us
from .corrections import Corrections, Mechanisms
from .database import Database, Field, Values
from .evaluation import Evaluation
from .plans import Plan
from .product_rates import DeviceFacts
from .resharding import Choice


@dataclass(frozen=True)
class Passes:
    """Microseconds of one operator for one micro-batch; ``exchange_us`` of both is the all-reduce
    that they contain."""

    forward_us: float
    backward_us: float
    exchange_us: float


@dataclass(frozen=True)
class StageWork:
    """A plan with all that its stages are priced from.

    Attributes:
        published: Aceso's own price of the plan, which checks it.
        rows: of the database, for the operators of each stage.
    """

    plan: Plan
    database: Database
    published: Evaluation
    rules: Corrections
    facts: DeviceFacts
    which: Mechanisms
    rows: tuple[tuple[int, ...], ...]
    per_node: int

    @property
    def micro_batches(self) -> int:
        """Per iteration."""
        return self.plan.global_batch // self.plan.micro_batch

    def values(self, row: int, choice: Choice) -> Values:
        """The eight values of an operator."""
        samples = self.plan.micro_batch // choice.dp
        return self.database.of(samples, choice.tp, choice.algorithm)[:, row]


def passes(work: StageWork, row: int, choice: Choice) -> Passes:
    """Passes of an operator for a micro-batch."""
    name, values = work.database.names[row], work.values(row, choice)
    facts, rules, which = work.facts, work.rules, work.which
    forward, backward = float(values[Field.FORWARD]), float(values[Field.BACKWARD])
    operators = rules.operators
    if operators.is_head(name):
        missing = 0.0
        if which.weight_gradients and not facts.weight_gradients_measured:
            missing = _head_gradient_us(work, float(values[Field.WEIGHTS]), choice)
        return Passes(forward, backward + missing, 0.0)
    if not operators.is_product(name) or values[Field.WEIGHTS] <= 0:
        return Passes(forward, backward, 0.0)
    in_forward = operators.reduces_forward(name, choice.algorithm)
    exchange = _exchange_us(work.database, values, choice, in_forward=in_forward)
    if exchange is None:  # not known, so its pass stays as it was measured
        return Passes(forward, backward, 0.0)
    exchange = min(exchange, forward if in_forward else backward)
    product = forward - exchange if in_forward else forward
    own_backward = backward if in_forward else backward - exchange
    if which.product_rates:
        if rules.families[work.plan.model.family.name].constant_data:
            paused = in_forward and exchange > 0
            product /= facts.paused_factor if paused else facts.continuous_factor
        elif facts.weight_gradients_measured:
            own_backward *= facts.data_factor
    if which.weight_gradients and not facts.weight_gradients_measured:
        own_backward = 2.0 * product
    if in_forward:
        return Passes(product + exchange, own_backward, exchange)
    return Passes(product, own_backward + exchange, exchange)


def _exchange_us(
    database: Database, values: Values, choice: Choice, *, in_forward: bool
) -> float | None:
    """The all-reduce in the profiled pass: of the output in forward passes, of the input's gradient
    in backward ones.

    The measured input of a product that reads the hidden state has the residual stream beside it,
    of the same size.
    """
    if choice.tp == 1 or database.model.family.name == "resnet":
        return 0.0
    size_mib = float(values[Field.ACTIVATIONS] if in_forward else values[Field.INPUT] / 2.0)
    return collective_us(database, "all_reduce", choice.tp, size_mib)


def _head_gradient_us(work: StageWork, weights_mib: float, choice: Choice) -> float:
    """The weight gradient of the output layer: the time of the largest product of a layer, in
    proportion to its weights."""
    name, names = work.rules.operators.without_pause, work.database.names
    if name not in names:
        return 0.0
    values = work.values(names.index(name), replace(choice, algorithm=0))
    slowed = work.facts.continuous_factor if work.which.product_rates else 1.0
    own = float(values[Field.FORWARD]) / slowed
    if not own > 0 or not values[Field.WEIGHTS] > 0:  # not a number where it failed
        raise InputError(
            f"{work.database.folder} has no measurement of {name} for "
            f"{work.plan.micro_batch // choice.dp} samples and tensor parallel width {choice.tp}, "
            "from which the gradient of the output layer is priced; profile it"
        )
    return own * weights_mib / float(values[Field.WEIGHTS])
