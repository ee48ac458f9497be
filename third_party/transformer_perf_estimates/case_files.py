"""Case files: which training, and for ``evaluate`` which configuration; everything that cannot be
is refused with one sentence.

``{"cases": [{strategy, model_name, system_name, nvlink_size, n_gpus, global_batch_size, config,
nv}]}``, a list of cases or one. Models and systems by their published names; ``model`` and
``system`` instead hold an object with the keys of its files, a name, or the path of such a file,
taken from the folder of the case file. Keys of answers, as in golden files, may be there too.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.files import read_json
from phaze_common.ranges import check_ranges
from phaze_common.suggestions import nearest
from third_party.cases import cases_in

from .configurations import Configuration, Strategy, Training
from .models import TransformerModel, published_model, read_model
from .systems import MOST_IN_DOMAIN, System, published_system, read_system
from .values import mapping_of, refuse_unknown, whole

MOST_GPUS, MOST_BATCH = 2**24, 2**24
QUESTION = (
    *("strategy", "model_name", "model", "system_name", "system"),
    *("nvlink_size", "n_gpus", "global_batch_size"),
)
ANSWER = (
    *("config", "nv", "t", "mem", "stats", "layers"),
    *("candidates", "feasible_candidates", "best", "as_published"),
)
KNOWN = frozenset((*QUESTION, *ANSWER))
Found = TypeVar("Found", TransformerModel, System)


def read_case_file(path: Path) -> list[dict[str, Any]]:
    """The cases of a file. Raises InputError: the file is missing, not JSON, or holds no cases."""
    document = read_json(path, "a JSON file")
    if isinstance(document, dict) and "cases" in document:
        document = document["cases"]
    wanted = 'cases; give {"cases": [...]} with an object for each'
    cases = cases_in(document, path, wanted)
    if any(case.keys().isdisjoint(KNOWN) for case in cases):
        raise InputError(f"{path} does not hold {wanted}")
    return cases


def read_training(case: Mapping[str, Any], folder: Path) -> Training:
    """The question of a case. Raises InputError: a key is missing or wrong, or a name unknown."""
    for key in case.keys() - KNOWN:
        if suggestion := nearest(key, QUESTION, ""):  # others are notes of whoever wrote the file
            raise InputError(f"a case has no key {as_given(key)}; {suggestion}")
    given = case.get("strategy")
    if given not in tuple(Strategy):
        known = "', '".join(Strategy)
        instead = f"give '{known}'"
        if isinstance(given, str):
            instead = nearest(given, Strategy, instead)
        raise InputError(f"strategy is {as_given(given)}; {instead}")
    system = _named(case, "system", folder, published_system, read_system)
    return Training(
        strategy=Strategy(given),
        model=_named(case, "model", folder, published_model, read_model),
        system=system,
        nvlink_size=whole(
            case.get("nvlink_size", system.nvlink_size), "nvlink_size", 1, MOST_IN_DOMAIN
        ),
        gpus=whole(case.get("n_gpus"), "n_gpus", 1, MOST_GPUS),
        global_batch=whole(case.get("global_batch_size"), "global_batch_size", 1, MOST_BATCH),
    )


def _named(
    case: Mapping[str, Any],
    key: str,
    folder: Path,
    published: Callable[[str], Found],
    read: Callable[[Any, str], Found],
) -> Found:
    given = case.get(key, case.get(f"{key}_name"))
    if given is None:
        raise InputError(f"{key}_name is missing; add it, or give '{key}' as an object")
    if not isinstance(given, str):
        return read(given, key)
    if given.endswith(".json"):
        path = folder / given
        document = read_json(path, f"a {key} as a JSON file")
        check_ranges(document, str(path))
        return read(document, str(path))
    return published(given)


def read_configuration(case: Mapping[str, Any], training: Training) -> Configuration:
    """The configuration of a case. Raises InputError: a key is missing or wrong, degrees do not
    divide what they split or do not multiply to the GPUs, panels do not divide, or shares of the
    fast domain do not fill it."""
    one_d, two_d = (training.strategy is each for each in (Strategy.ONE_D, Strategy.TWO_D))
    degrees = mapping_of(case.get("config"), "config", "dp, pp, mbs")
    domain = mapping_of(case.get("nv"), "nv", "nv_dp, nv_pp")
    axes = ("tp",) if one_d else ("tp1", "tp2")
    refuse_unknown(degrees, ("dp", "tp", *axes, "pp", "mbs", *(("nb",) if two_d else ())), "config")
    refuse_unknown(domain, (*(f"nv_{axis}" for axis in axes), "nv_dp", "nv_pp"), "nv")

    def degree(key: str, most: int = MOST_GPUS) -> int:
        return whole(degrees.get(key), f"config: {key}", 1, most)

    def share(key: str) -> int:
        return whole(domain.get(key), f"nv: {key}", 1, MOST_IN_DOMAIN)

    configuration = Configuration(
        tp1=degree(axes[0]),
        tp2=1 if one_d else degree("tp2"),
        pp=degree("pp"),
        dp=degree("dp"),
        micro_batch=degree("mbs", MOST_BATCH),
        panels=degree("nb") if two_d else 1,
        nv_tp1=share(f"nv_{axes[0]}"),
        nv_tp2=1 if one_d else share("nv_tp2"),
        nv_pp=share("nv_pp"),
        nv_dp=share("nv_dp"),
    )
    if degrees.get("tp", configuration.tp) != configuration.tp:
        raise InputError(
            f"config: tp is {as_given(degrees['tp'])}, but tp1 x tp2 is {configuration.tp}; give "
            "one of them right"
        )
    _check_degrees(training, configuration)
    _check_shares(training, configuration)
    return configuration


def _check_degrees(training: Training, configuration: Configuration) -> None:
    model, one_d = training.model, training.strategy is Strategy.ONE_D
    two_d = training.strategy is Strategy.TWO_D
    each, batch = configuration, training.global_batch
    first, both = ("tp", "tp") if one_d else ("tp1", "tp1 x tp2")
    product = each.tp * each.pp * each.dp
    if product != training.gpus:
        raise InputError(
            f"config: {both} x pp x dp is {product}, but n_gpus is {training.gpus}; give "
            "degrees that multiply to it"
        )
    token_parts = ("tp2", each.tp2) if two_d else (both, each.tp)
    divided = [
        (first, each.tp1, model.heads, "the heads"),
        (first, each.tp1, model.hidden, "the width e"),
        ("pp", each.pp, model.layers, "the layers"),
        ("dp", each.dp, batch, "global_batch_size"),
        ("mbs", each.micro_batch, batch // each.dp, "the batch of a replica"),
        (*token_parts, each.micro_batch * model.sequence_length, "the tokens of a micro-batch"),
    ]
    if two_d:
        divided.append(("tp2", each.tp2, model.hidden, "the width e"))
        divided.append(("nb", each.panels, model.hidden, "the width e"))
    for name, degree, size, what in divided:
        if size % degree:
            raise InputError(f"config: {name} is {degree}; it must divide {what}, {size}")
    least = max(each.tp1, each.tp2)
    if two_d and each.panels < least:
        raise InputError(
            f"config: nb is {each.panels}; give at least {least}, so that a panel lies on one "
            "row and column"
        )


def _check_shares(training: Training, configuration: Configuration) -> None:
    first = "tp" if training.strategy is Strategy.ONE_D else "tp1"
    shares = {
        first: (configuration.nv_tp1, configuration.tp1),
        "tp2": (configuration.nv_tp2, configuration.tp2),
        "dp": (configuration.nv_dp, configuration.dp),
        "pp": (configuration.nv_pp, configuration.pp),
    }
    product = 1
    for name, (share, degree) in shares.items():
        if degree % share:
            raise InputError(f"nv: nv_{name} is {share}; it must divide {name}, {degree}")
        product *= share
    wanted = min(training.gpus, training.nvlink_size)
    if product != wanted:
        raise InputError(
            f"nv: the shares multiply to {product}, which "
            f"{'overfills' if product > wanted else 'does not fill'} "
            f"the fast domain; give shares that multiply to {wanted}"
        )
