"""The fastest plan under Aceso's cost model, with a bound that proves how far from the best it can
be.

Space: everything that a plan file can say. Micro-batches are the profiled ones that divide the
global batch; a stage has 1, 2, 4 ... devices of one node; operators of a stage may differ in tensor
and data parallel degree, algorithm and recomputation.

For every micro-batch all stages get a lower bound (``relaxed_stages``); the best partition under
these bounds (``partitions``) is a bound on all plans. Its stages are then priced exactly
(``exact_stages``), which raises their bounds and gives stages to build plans of, until the bound
meets the best plan, time is up, or another micro-batch has the lowest bound. Plans are priced by
``evaluation``.
"""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze_common.compile_time import CompileTime
from phaze_common.errors import InfeasibleError

from .baselines import megatron_grid
from .chains import Chain
from .compiled import Floats
from .evaluation import US, evaluate
from .least_limits import least_limit_us
from .partitions import Cut, Partition, best_partitions
from .plans import Plan, plan_document
from .pricing import THREADS, Pricing, tried_multipliers
from .questions import Question
from .reaches import choices_of
from .spaces import NEVER, StageArrays, StageSpace, stage_spaces

logger = logging.getLogger(__name__)

FIRST_SLACK = 1.2  # how much slower than the least limit stages in the first tables may be
GROWTH = 1.03  # of the limit on the slowest stage, until there is a partition
NEAR = 1.004  # stages this much slower than the limit are still found
MULTIPLIERS = 2  # every so manieth multiplier is used for the least limits
STEPS = 24  # raises of the limit before they become larger
WINDOW = 1.03  # slowest stages above the limit that are looked at at once
FURTHER = 1.03  # how far one micro-batch size is followed beyond the next
SLOWER = 1.05  # stages above the limit that are still priced exactly
ROUND = 24  # stages priced before the partitions are looked at again
CLOSE = 1e-6  # relative tolerance on the limit while prices still change
OPTIMAL = 1e-9  # relative gap up to which a plan counts as the best


@dataclass(frozen=True)
class Found:
    """The best plan, what it takes, and what no plan of the space is faster than.

    ``stages``: how many were priced beyond their first bounds.
    """

    plan: Plan
    iteration_s: float
    bound_s: float
    seconds: float
    stages: int

    @property
    def status(self) -> str:
        """``optimal`` where bound and plan meet, else ``feasible``."""
        closed = self.iteration_s - self.bound_s <= OPTIMAL * self.iteration_s
        return "optimal" if closed else "feasible"

    def document(self) -> dict[str, Any]:
        """As the command line prints it."""
        return {
            "iteration_s": self.iteration_s,
            "bound_s": self.bound_s,
            "status": self.status,
            "gap": 1.0 - self.bound_s / self.iteration_s,
            "search_s": self.seconds,
            "plan": plan_document(self.plan),
        }


@dataclass
class Branch:
    """The plans of one micro-batch size: none takes less than ``bound_us``.

    ``limit_us``: no plan has all its stages at most this slow; ``most_us``: no stage is slower.
    """

    question: Question
    chain: Chain
    micro_batch: int
    spaces: tuple[StageSpace, ...]
    limit_us: float
    bound_us: float
    most_us: float
    pricing: Pricing | None = None
    steps: int = 0
    window: float = WINDOW
    stuck: bool = False

    def growth(self) -> float:
        """Factor by which the limit is raised next: larger where many raises found nothing."""
        return GROWTH if self.steps < STEPS else GROWTH**4 if self.steps < 2 * STEPS else GROWTH**16

    @property
    def micro_batches(self) -> int:
        """Of one iteration."""
        return self.question.global_batch // self.micro_batch

    def prices(self, most_us: float, best_us: float) -> Pricing:
        """Prices of stages up to ``most_us``, kept from before where they reach so far; no stage of
        a better plan is left out."""
        if self.pricing is None or self.pricing.most_us < most_us:
            further_us = min(self.limit_us * FIRST_SLACK, best_us / self.micro_batches)
            reach_us = max(most_us, further_us)
            self.pricing = Pricing(self.question, self.chain, self.spaces, reach_us)
        return self.pricing

    def raise_limit(self, best_us: float) -> None:
        """Raise limit and bound to what no plan is below, stages of ``best_us`` per iteration and
        slower left out."""
        question = self.question
        high = min(best_us / self.micro_batches, self.most_us)
        if self.limit_us < high:
            densities = tried_multipliers(self.spaces)[::MULTIPLIERS]
            choices = choices_of(self.spaces, self.chain, question.memory_limit_mib, densities)
            between = self.limit_us, high
            self.limit_us = least_limit_us(choices, question.machine, question.most_stages, between)
        self.bound_us = max(self.bound_us, self.micro_batches * self.limit_us)
        if self.limit_us >= self.most_us:  # slower than any stage
            self.bound_us = NEVER


def branches(question: Question, chain: Chain) -> list[Branch]:
    """The micro-batch sizes that divide the batch, each with the bound that its devices at their
    best give."""
    found = []
    for micro_batch in question.micro_batch_sizes:
        spaces = tuple(stage_spaces(question, chain, micro_batch))
        if spaces:
            own = [space.devices * space.arrays.base_us.min(axis=1) for space in spaces]
            whole = float(np.min(own, axis=0)[chain.row_array].sum())
            limit = whole / question.devices * (1.0 - 1e-12)
            bound, most = question.global_batch // micro_batch * limit, slowest_us(chain, spaces)
            found.append(Branch(question, chain, micro_batch, spaces, limit, bound, most))
    return found


def slowest_us(chain: Chain, spaces: tuple[StageSpace, ...]) -> float:
    """More than any stage takes, with every change that was measured before every operator."""
    return max(_slowest_us(chain, space.arrays) for space in spaces)


def _slowest_us(chain: Chain, arrays: StageArrays) -> float:
    def known(times: Floats) -> Floats:
        return np.where(times < NEVER, times, 0.0)

    times = known(arrays.base_us + arrays.recompute_us).max(axis=1)[chain.row_array].sum()
    changes = chain.length * known(arrays.resharding_us).max(initial=0.0)
    return float(times + changes + arrays.receive_us.max() + known(arrays.send_us).max())


@dataclass
class Search:
    """A search at work."""

    question: Question
    started: float
    compiling: CompileTime
    best: Plan | None = None
    best_us: float = NEVER

    def out_of_time(self) -> bool:
        """Whether the time that was given is spent."""
        return self.seconds > self.question.time_limit_s

    @property
    def seconds(self) -> float:
        """Since the start; what is compiled once per machine does not count."""
        return time.monotonic() - self.started - self.compiling.seconds

    def grow(self, branch: Branch, until_us: float) -> bool:
        """Raise the limit until there is a partition (returns True), or the bound is above
        ``until_us``."""
        while True:
            most = self.best_us / branch.micro_batches
            limit = min(branch.limit_us * branch.growth(), most)
            partition = branch.prices(limit, self.best_us).tighten(limit)
            if partition is not None:
                return True
            branch.steps += 1
            branch.limit_us = limit
            branch.bound_us = max(branch.bound_us, branch.micro_batches * limit)
            if limit > branch.most_us:  # slower than any stage
                branch.bound_us = NEVER
            if limit >= most:  # whatever else there is is slower than the best plan
                branch.bound_us = max(branch.bound_us, self.best_us)
                return False
            if branch.bound_us > until_us or self.out_of_time():
                return False

    def refine(self, branch: Branch) -> None:
        """Price the stages of the best partitions once more, which raises the bound or finds a
        better plan."""
        number = branch.micro_batches
        high = branch.limit_us * branch.growth()
        if self.best_us < NEVER:
            high = min(max(high, branch.limit_us * branch.window), self.best_us / number)
        pricing = branch.prices(high, self.best_us)
        pricing.tighten(high)
        windows, limits = pricing.windows(high), (branch.limit_us, high)
        prices = pricing.lower, pricing.layout, pricing.machine, windows
        found = best_partitions(*prices, number, limits, self.best_us, CLOSE)
        branch.bound_us = max(branch.bound_us, found.bound_us)
        branch.limit_us = max(branch.limit_us, found.least_limit_us)
        if found.bound_us >= number * high * (1.0 - CLOSE):  # it rests on slower stages
            branch.window *= branch.window
        if branch.bound_us >= self.best_us:
            return
        cuts: dict[int, Cut] = {}
        for partition in found.met:
            if partition.us(number) < self.best_us:
                for cut in partition.cuts:
                    if pricing.wanted(cut) and (pricing.untried(cut) or len(cuts) < ROUND):
                        fresh = [cut, *pricing.nearby_cuts(cut)] if pricing.untried(cut) else [cut]
                        cuts |= {pricing.number(each): each for each in fresh}
        branch.stuck = not cuts and high * number >= self.best_us * (1.0 - CLOSE)
        most = min(self.best_us / number, high * SLOWER)
        pricing.price(list(cuts.values()), most, self.out_of_time)
        for partition in found.met:
            self.consider(branch, pricing, partition)
        fastest = found.met[0].slowest_us if found.met else high
        for slack in (1.0, NEAR):
            of_found = pricing.best_found(min(fastest * slack, most))
            if of_found is not None:
                self.consider(branch, pricing, of_found)

    def consider(self, branch: Branch, pricing: Pricing, partition: Partition) -> None:
        """Take the plan of a partition if it is better than the best, at the price of the exact
        cost model."""
        if pricing.found_us(partition, branch.micro_batches) >= self.best_us:
            return
        question = self.question
        plan = question.plan(branch.micro_batch, pricing.stages(partition))
        priced = evaluate(plan, question.database, question.devices_per_node)
        fits = priced.memory_mib <= self.question.memory_limit_mib
        if fits and priced.iteration_s / US < self.best_us:
            self.best, self.best_us = plan, priced.iteration_s / US
            message = "micro-batch %d: %d stages, %.6g s"
            logger.info(message, branch.micro_batch, len(plan.stages), priced.iteration_s)


def search(question: Question) -> Found:
    """The best plan that is found in the time given, with a bound on all plans. Raises
    InfeasibleError: no plan fits the memory."""
    with CompileTime.counted() as compiling:
        return _search(question, compiling)


def _search(question: Question, compiling: CompileTime) -> Found:
    started = time.monotonic()
    open_branches = branches(question, question.chain())
    simple = megatron_grid(question)  # whatever the time, there is a plan
    simple_us = NEVER if simple.iteration_s is None else simple.iteration_s / US
    at_work = Search(question, started, compiling, simple.plan, simple_us)
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(branch.raise_limit, at_work.best_us) for branch in open_branches]:
            done.result()
    logger.info("bounds of %d micro-batch sizes in %.1f s", len(open_branches), at_work.seconds)
    while not at_work.out_of_time():
        open_branches.sort(key=lambda each: each.bound_us)
        branch = open_branches[0]
        enough_us = at_work.best_us * (1.0 - max(question.gap, OPTIMAL))
        if branch.bound_us >= min(NEVER, enough_us) or branch.stuck:
            break
        others = min((each.bound_us for each in open_branches[1:]), default=NEVER)
        if at_work.grow(branch, others * FURTHER):
            at_work.refine(branch)
        priced = len(branch.pricing.tries) if branch.pricing else 0
        times = (branch.bound_us * US, at_work.best_us * US, priced, at_work.seconds)
        message = "micro-batch %d: bound %.6g s, best %.6g s, %d stages priced, %.1f s"
        logger.info(message, branch.micro_batch, *times)
    bound = min((each.bound_us for each in open_branches), default=NEVER)
    if at_work.best is None:
        unproven = f"no plan was found in {question.time_limit_s:g} s"
        proven = "there is no plan" if bound >= NEVER else unproven
        raise InfeasibleError(
            f"{proven} of up to {question.most_stages} stages within {question.memory_limit_mib:g} "
            "MB per GPU; give more memory, GPUs, stages or time"
        )
    stages = sum(len(each.pricing.tries) for each in open_branches if each.pricing is not None)
    best_s, bound_s = at_work.best_us * US, min(bound, at_work.best_us) * US
    return Found(at_work.best, best_s, bound_s, at_work.seconds, stages)
