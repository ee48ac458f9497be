"""Iterations of transformer-perf-estimates, one configuration at a time in plain numbers: formulas
as its paper lists them.

Nothing here is shared with ``third_party.transformer_perf_estimates``, neither code nor arrays.
``fixed`` names corrections.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

Shares = tuple[int, int]  # devices of a group, and those of them in a fast domain


@dataclass(frozen=True)
class Priced:
    """Seconds and GB of an iteration; of the operators of a layer their exposed messages forward
    and backward."""

    seconds: float
    memory_gb: float
    messages: dict[str, tuple[float, float]]


def collective(
    system: dict[str, Any], kind: str, gb: float, group: Shares, fixed: Collection[str]
) -> float:
    devices, inside = group
    if devices == 1:
        return 0.0
    slow, fast = (
        system["ib_bandwidth"] * system["ib_eff"],
        system["nvlink_bandwidth"] * system["nvlink_eff"],
    )
    domains = devices // inside
    moved = gb if kind == "broadcast" else gb * (devices - 1) / devices
    latency = system["ib_latency"] * (domains - 1) + system["nvlink_latency"] * (devices - domains)
    if inside == 1:
        seconds = moved / slow
    elif domains == 1:
        seconds = moved / fast
    else:
        seconds = max(moved / (system["nic_factor"] * inside * slow), moved / fast)
        if kind == "allreduce" and "all-reduce" not in fixed:
            return 2 * seconds + latency
    return (
        2 * (seconds + latency)
        if kind == "allreduce" and "all-reduce" in fixed
        else seconds + latency
    )


class Layer:
    """Adds up the operators of a layer."""

    def __init__(
        self, system: dict[str, Any], panels: int, groups: dict[int, Shares], fixed: Collection[str]
    ) -> None:
        self.system, self.panels, self.groups, self.fixed = system, panels, groups, fixed
        self.forward = self.backward = self.weights_gb = self.kept_gb = 0.0
        self.messages: dict[str, tuple[float, float]] = {}

    def add(
        self,
        name,
        flops,
        elements,
        sent=((), ()),
        weights=0,
        kept=0,
        matrix=False,
        summa=False,
        masks=0,
        kept_masks=0,
    ):
        exposed = []
        for way in (0, 1):
            peak = self.system["matrix_flops_fp16" if matrix else "vector_flops_fp16"]
            work = 20e-6 + flops[way] * 1e-12 / (0.8 * peak)
            work = max(work, (elements[way] * 2e-9 + masks * 1e-9) / self.system["hbm_bandwidth"])
            if summa:
                one = sum(
                    self._message(kind, axis, size / self.panels) for kind, axis, size in sent[way]
                )
                exposed.append(one + max(one * self.panels - work, 0))
            else:
                exposed.append(sum(self._message(*each) for each in sent[way]))
            if way == 0:
                self.forward += work + exposed[way]
            else:
                self.backward += work + exposed[way]
        self.messages[name] = (exposed[0], exposed[1])
        self.weights_gb += weights * 2e-9
        self.kept_gb += kept * 2e-9 + kept_masks * 1e-9

    def _message(self, kind: str, axis: int, size: float) -> float:
        return collective(self.system, kind, size * 2e-9, self.groups[axis], self.fixed)


def price(
    case: dict[str, Any], model: dict[str, int], system: dict[str, Any], fixed: Collection[str] = ()
) -> Priced:
    """The configuration of a case; ``model`` and ``system`` with the keys of their files."""
    config, nv, strategy = case["config"], case["nv"], case["strategy"]
    m1, m2 = config.get("tp1", config["tp"]), config.get("tp2", 1)
    t1, t2 = nv.get("nv_tp1", nv.get("nv_tp")), nv.get("nv_tp2", 1)
    layer = Layer(system, config.get("nb", 1), {1: (m1, t1), 2: (m2, t2)}, fixed)
    build = _two_d if strategy == "2d" else _one_d
    input_gb = build(layer, strategy, model, config["mbs"], m1, m2, fixed)
    pp, dp, depth = config["pp"], config["dp"], model["depth"] // config["pp"]
    batches = case["global_batch_size"] // dp // config["mbs"]

    group = (dp * m2, nv["nv_dp"] * t2) if strategy == "seqp" else (dp, nv["nv_dp"])
    sync = 0.0
    for one_pass in (layer.forward, layer.backward):
        once = collective(system, "gather", layer.weights_gb, group, fixed)
        sync += once + max(once - one_pass, 0) * (depth - 1)
    seconds = (layer.forward + layer.backward) * batches * depth
    if pp > 1:
        fast = system["nvlink_latency"] + input_gb / (
            system["nvlink_bandwidth"] * system["nvlink_eff"]
        )
        slow = system["ib_latency"] + input_gb / (system["ib_bandwidth"] * system["ib_eff"])
        outside = pp // nv["nv_pp"] - 1
        free = nv["nv_pp"] > 1 and "pipeline-links" not in fixed
        seconds += (
            2 * batches * ((pp - 1 - outside) * fast + outside * (0.0 if free else slow)) / (pp - 1)
        )
    seconds += (pp - 1) * seconds / batches
    weights = layer.weights_gb * depth
    memory = 2 * weights + 6 * weights / group[0] + layer.kept_gb * depth * min(pp, batches)
    return Priced(seconds + sync, memory, layer.messages)


def _norm_work(rows: float, width: float) -> tuple[tuple[float, float], tuple[float, float]]:
    flops = (9 * rows * width, 8 * rows * width + 4 * rows * (width - 1))
    return flops, (2 * rows * width + 2 * rows + 2 * width, 5 * rows * width + 2 * width)


def _flash(layer: Layer, model: dict[str, int], b: int, heads: int, own: float) -> None:
    """Attention of ``own`` tokens of each sequence on all of them."""
    length, q = model["l"], model["e"] // model["h"]
    kappa = layer.system["matrix_flops_fp16"] / layer.system["vector_flops_fp16"]
    n = b * heads
    qk, softmax, drop = (
        n * own * length * (2 * q - 1),
        kappa * n * own * (3 * length - 1),
        kappa * n * own * length,
    )
    av = n * own * q * (2 * length - 1)
    backward = av + n * length * q * (2 * own - 1)  # gradients of queries and keys
    backward += kappa * n * own * (4 * length - 1) + drop
    backward += qk + n * length * q * (2 * own - 1)  # gradients of probabilities and values
    backward += qk + softmax + drop  # once more
    kept = 4 * n * own * q + 2 * n * own
    exchange = ("gather", 2, 2 * n * length * q)
    layer.add(
        "fusedla",
        (qk + softmax + drop + av, backward),
        (
            2 * n * own * q + 2 * n * length * q + n * own,
            2 * n * own * q + 2 * n * length * q + kept,
        ),
        ((exchange,), (exchange, exchange)),
        kept=kept,
        matrix=True,
    )


def _pointwise(layer: Layer, name: str, size: float, forward: int, backward: int) -> None:
    layer.add(name, (forward * size, backward * size), (2 * size, 3 * size), kept=size)


def _dropout(layer: Layer, name: str, size: float) -> None:
    layer.add(name, (size, size), (2 * size, 2 * size), masks=size, kept_masks=size)


def _bias(layer: Layer, name: str, rows: float, width: float) -> None:
    layer.add(name, (rows * width,) * 2, (rows * width + width,) * 2, weights=width)


def _one_d(layer, strategy, model, b, m1, m2, fixed) -> float:
    length, e, f, h = (model[key] for key in "lefh")
    exact = "exact-shards" in fixed
    rows = b * (length / m2 if exact else length // m2)
    own = b * (length / (m1 * m2) if exact else length // (m1 * m2))

    def product(name: str, inputs: int, outputs: int, out: bool) -> None:
        """Row parallel products scatter what goes out, column parallel ones the gradient of what
        came in."""
        scatter = (("gather", 1, rows * e),)
        layer.add(
            name,
            (
                rows * outputs * (2 * inputs - 1),
                rows * inputs * (2 * outputs - 1) + inputs * outputs * (2 * rows - 1),
            ),
            (
                rows * inputs + rows * outputs + inputs * outputs,
                2 * (rows * inputs + rows * outputs + inputs * outputs),
            ),
            (scatter, ()) if out else ((), scatter),
            weights=inputs * outputs,
            kept=rows * inputs,
            matrix=True,
        )

    def norm(name: str) -> None:
        gather = (("gather", 1, rows * e),)
        layer.add(name, *_norm_work(own, e), (gather, gather), weights=2 * e, kept=own * e)

    def bias(name: str) -> None:
        if "bias-shards" in fixed or (strategy == "seqp" and name == "fc2-bias"):
            _bias(layer, name, own, e)
        else:
            _bias(layer, name, rows, e if strategy == "1d" else e // m1)

    product("fc1", e, f // m1, out=False)
    _bias(layer, "fc1-bias", rows, f // m1)
    _pointwise(layer, "act1", rows * (f // m1), 8, 13)
    _dropout(layer, "dpr1", rows * (f // m1))
    product("fc2", f // m1, e, out=True)
    bias("fc2-bias")
    _dropout(layer, "dpr2", own * e)
    norm("ln1")
    product("qkv", e, 3 * e // m1, out=False)
    _flash(layer, model, b, h // m1, length / m2 if exact else length // m2)
    product("vproj", e // m1, e, out=True)
    bias("vproj-bias")
    _dropout(layer, "dpr_v", own * e)
    norm("ln2")
    return own * e * 2e-9


def _two_d(layer, strategy, model, b, m1, m2, fixed) -> float:
    length, e, f, h = (model[key] for key in "lefh")
    tokens = length / m2 if "exact-shards" in fixed else length // m2
    rows, width = b * tokens, (e if "norm-width" in fixed else length) / m1
    width = width if "norm-width" in fixed else length // m1

    def product(name: str, inputs: int, outputs: int) -> None:
        columns, panels = outputs // m1, layer.panels
        x, w = ("broadcast", 1, rows * inputs), ("broadcast", 2, inputs * columns)
        traffic = rows * inputs + inputs * columns + panels * rows * columns
        layer.add(
            name,
            (
                2 * rows * columns * inputs,
                rows * inputs * (2 * columns - 1) + inputs * columns * (2 * rows - 1),
            ),
            (traffic, 2 * traffic),
            ((x, w), (w, x, x, w)),
            weights=inputs // m2 * columns,
            kept=rows * (inputs // m1),
            matrix=True,
            summa=True,
        )

    def norm(name: str) -> None:
        sent = (
            (("allreduce", 1, 2 * rows),),
            (("allreduce", 1, 2 * e / m1 + 2 * b * length / m2),),
        )
        layer.add(name, *_norm_work(rows, width), sent, weights=2 * width, kept=rows * width)

    product("fc1", e, f)
    _bias(layer, "fc1-bias", rows, f // m1)
    _pointwise(layer, "act1", rows * (f // m1), 8, 13)
    _dropout(layer, "dpr1", rows * (f // m1))
    product("fc2", f, e)
    _bias(layer, "fc2-bias", rows, e // m1)
    _dropout(layer, "dpr2", rows * (e // m1))
    norm("ln1")
    product("qkv", e, 3 * e)
    _flash(layer, model, b, h // m1, tokens)
    product("vproj", e, e)
    _bias(layer, "vproj-bias", rows, e // m1)
    _dropout(layer, "dpr_v", rows * (e // m1))
    norm("ln2")
    return rows * width * 2e-9
