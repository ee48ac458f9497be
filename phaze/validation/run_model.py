"""The model of a published run, by its dimensions or as it is listed, and the operations that
published figures count."""

from __future__ import annotations

from dataclasses import dataclass, replace

from GraphExtractor.models.base import LanguageModelFamily
from GraphExtractor.models.decoder_parameters import DecoderMatrices
from GraphExtractor.models.dimensions import Dimensions, family_names, parse_dimensions
from GraphExtractor.models.dimensions import dimensions_of as model_dimensions
from GraphExtractor.models.registry import find_model, listed_aliases, listed_models
from phaze.validation.assumptions import Assumptions, Convention, Notes
from phaze.validation.typed_run import TypedRun
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest

# besides as many as heads: grouped queries of Llama 2 and 3, multi-query attention
KV_HEADS = (8, 1)
# families with three matrices in an MLP, and heads of their own as a rule
GATED = ("llama", "qwen3", "mixtral", "qwen3moe")
CLOSE = 0.05  # a family whose parameters are this near is taken before a nearer but less usual one


@dataclass(frozen=True)
class RunModel:
    """What is traced and priced for a run: the model by its ``name``, of which ``layers`` are
    repeated blocks.

    Models by ``dimensions`` share the trace of a shallow one; others are traced as they are listed.
    """

    name: str
    layers: int
    sequence_length: int
    experts: bool
    active_parameters: float  # that a token meets
    dimensions: Dimensions | None = None

    @property
    def traced(self) -> str:
        """The model whose trace is used."""
        return self.name if self.dimensions is None else self.dimensions.shared_trace.name


def model_of(run: TypedRun, sequence_length: int, rules: Assumptions, notes: Notes) -> RunModel:
    """The model of a run.

    Raises:
        InputError: the run does not say it, or it is of no family that can be traced.
    """
    listed = find_model(run.model) if _is_as_listed(run) else None
    if listed is not None and (listed.experts or model_dimensions(listed) is None):
        return _as_listed(run, sequence_length, notes)
    spelled = parse_dimensions(run.model)
    if spelled is not None and spelled.experts:
        return _mixture(run, spelled, sequence_length)
    if spelled is not None and run.hidden is None and spells_more(spelled):
        count = parameter_count(spelled)
        return RunModel(spelled.name, spelled.layers, sequence_length, False, count, spelled)
    found = dimensions_of(run, sequence_length, rules, notes)
    return RunModel(found.name, found.layers, sequence_length, False, parameter_count(found), found)


def spells_more(spelled: Dimensions) -> bool:
    """Whether a model has sizes for which tables have no columns: experts, or heads of a width of
    their own."""
    width = spelled.head_width
    return spelled.experts > 0 or (width > 0 and width * spelled.heads != spelled.hidden)


def _as_listed(run: TypedRun, sequence_length: int, notes: Notes) -> RunModel:
    """A listed model that dimensions cannot spell out, such as one with experts."""
    name = listed_aliases().get(run.model, run.model)
    listed = listed_models()[name]
    if not isinstance(listed, LanguageModelFamily):
        raise InputError(f"its model {run.model} is no decoder of text, which alone are predicted")
    for key in ("layers", "heads", "ffn", "vocabulary"):
        stated, own = getattr(run, key), getattr(listed, key, None)
        if stated is not None and stated != own:
            raise InputError(
                f"it says {key} {stated}, but {name} has {own}, and no other model of its family "
                "is named by sizes"
            )
    if listed.experts:
        _check_one_width(run)
    notes.assume("listed", name)
    active = listed.published_active_count or listed.published_parameter_count
    return RunModel(name, listed.layers, sequence_length, listed.experts > 0, float(active))


def _mixture(run: TypedRun, spelled: Dimensions, sequence_length: int) -> RunModel:
    """A mixture of experts by its dimensions."""
    _check_one_width(run)
    matrices = matrices_of(spelled)
    met = matrices.routed(spelled.chosen, spelled.ffn)
    active = matrices.total(spelled.layers, spelled.layers, met)
    return RunModel(spelled.name, spelled.layers, sequence_length, True, float(active))


def _check_one_width(run: TypedRun) -> None:
    """Refuse experts that are divided over some of the devices that divide what lies around
    them."""
    tp, etp = run.degrees.tp, run.degrees.etp
    if etp not in (None, 1, tp or 1):
        raise InputError(
            f"its experts are divided over {etp} devices where the rest is over tp {tp}, "
            "which no plan here expresses"
        )


def check_experts(
    listed: str, layers: int | None, experts: int | None, chosen: int | None, ffn: int | None
) -> None:
    """Refuse experts that are said and are not those of a model by its name.

    Raises:
        InputError: names both.
    """
    model = find_model(listed)
    if not model.experts:
        if experts:
            raise InputError(f"it says {experts} experts, but {listed} has none")
        return
    own_ffn = getattr(model, "expert_ffn", None) or getattr(model, "ffn", None)
    for key, stated, own in (
        ("layers", layers, getattr(model, "layers", None)),
        ("experts", experts, model.experts),
        ("experts a token meets", chosen, getattr(model, "chosen", None)),
        ("columns of an expert", ffn, own_ffn),
    ):
        if stated is not None and own is not None and stated != own:
            raise InputError(
                f"it says {stated} {key}, but {listed} has {own}, and no other mixture of experts "
                "is predicted"
            )


def dimensions_of(
    run: TypedRun, sequence_length: int, rules: Assumptions, notes: Notes
) -> Dimensions:
    """Dimensions of a model that they spell out.

    Raises:
        InputError: the run does not say them, or the model is of no family that can be traced.
    """
    if _is_as_listed(run):
        return _listed_dimensions(run, sequence_length, notes)
    if run.hidden is None and run.heads is None and run.model:
        raise _unknown(run.model)
    if run.layers is None or run.hidden is None:
        lacking = "how many layers" if run.layers is None else "how wide"
        raise InputError(f"it does not say {lacking} the model is")
    _check_no_experts(run, "no model that is named by dimensions has experts")
    heads = run.heads or _assumed_heads(run.hidden, rules, notes)
    families = ("gpt", "llama") if run.family is None else (run.family,)
    candidates = [_dimensions(each, run, heads, sequence_length, rules) for each in families]
    if candidates[-1].family == "llama":
        kv_heads = (each for each in KV_HEADS if heads % each == 0)
        candidates += [replace(candidates[-1], kv_heads=each) for each in kv_heads]
    if run.kv_heads is not None:
        candidates = [
            replace(each, kv_heads=run.kv_heads)
            for each in candidates
            if run.kv_heads == heads or each.family == "llama" or run.family == "gpt"
        ]
    chosen = _nearest(_distinct(candidates, run), run, rules)
    if run.family is None:
        notes.assume("family", chosen.family)
    if chosen.kv_heads != heads and run.kv_heads is None:
        notes.assume("kv_heads", str(chosen.kv_heads))
    if run.ffn is None:
        notes.assume("dimensions", f"ffn {chosen.ffn}")
    if run.vocabulary is None:
        notes.assume("dimensions", f"vocabulary {chosen.vocabulary}")
    return chosen


def is_listed(model: str) -> bool:
    """Whether a run names its model as ``phaze list models`` does."""
    return model in listed_models() or model in listed_aliases()


def sequence_length_of(run: TypedRun) -> int:
    """Tokens per sample of a run, or of its listed model.

    Raises:
        InputError: neither is said.
    """
    if run.sequence_length is not None:
        return run.sequence_length
    if is_listed(run.model) and find_model(run.model).sequence_length:
        return find_model(run.model).sequence_length
    if run.hidden is None and run.model:
        raise _unknown(run.model)
    raise InputError("it does not say its sequence length")


def _listed_dimensions(run: TypedRun, sequence_length: int, notes: Notes) -> Dimensions:
    found = model_dimensions(find_model(run.model))
    if found is None or found.experts:
        families = ", ".join(family_names(mixtures=False))
        raise InputError(
            f"its model {run.model} is not of the families that are predicted ({families})"
        )
    _check_no_experts(run, f"{run.model} has no experts")
    stated = {key: getattr(run, key) for key in ("layers", "heads", "ffn", "vocabulary")}
    changed = {key: value for key, value in stated.items() if value is not None}
    notes.assume("listed", run.model)
    return replace(found, sequence_length=sequence_length, **changed)


def _check_no_experts(run: TypedRun, why: str) -> None:
    if (run.degrees.ep or 1) > 1:
        raise InputError(f"expert parallelism over {run.degrees.ep}: {why}")


def _is_as_listed(run: TypedRun) -> bool:
    """Whether a run is of a listed model, maybe of another depth: it gives no other width, and does
    not spell all sizes out."""
    if not is_listed(run.model):
        return False
    return run.hidden is None or (
        run.heads is None and run.hidden == getattr(find_model(run.model), "hidden", None)
    )


def _unknown(model: str) -> InputError:
    hint = nearest(
        model, (*listed_models(), *listed_aliases()), "'phaze list models' shows those that are"
    )
    return InputError(
        f"it does not say how wide its model is, and no model is listed as {model!r:.200}; {hint}"
    )


def _assumed_heads(hidden: int, rules: Assumptions, notes: Notes) -> int:
    if hidden % rules.head_width:
        raise InputError(
            f"it does not say how many heads the model has, and {rules.head_width} does not "
            f"divide its width {hidden}"
        )
    notes.assume("dimensions", f"{hidden // rules.head_width} heads")
    return hidden // rules.head_width


def _dimensions(
    family: str, run: TypedRun, heads: int, sequence_length: int, rules: Assumptions
) -> Dimensions:
    vocabulary = run.vocabulary or (rules.vocabulary if family == "gpt" else None)
    given = {"ffn": run.ffn, "vocabulary": vocabulary, "sequence_length": sequence_length}
    words = [f"layers={run.layers}", f"hidden={run.hidden}", f"heads={heads}"]
    words += [f"{key}={value}" for key, value in given.items() if value is not None]
    found = parse_dimensions(f"{family}:{','.join(words)}")
    if found is None or found.experts:
        raise InputError(f"{family} is no family of one kind of blocks that is named by dimensions")
    return found


def _distinct(candidates: list[Dimensions], run: TypedRun) -> list[Dimensions]:
    if not candidates or (run.kv_heads is not None and candidates[0].heads % run.kv_heads):
        heads, family = run.kv_heads, run.family or "gpt"
        raise InputError(
            f"its {heads} heads of keys and values are none that a {family} model with its heads "
            "has"
        )
    return list(dict.fromkeys(candidates))


def _nearest(candidates: list[Dimensions], run: TypedRun, rules: Assumptions) -> Dimensions:
    """The first candidate with about as many parameters as the run says, or else the one that comes
    nearest."""
    if run.parameters is None:
        return candidates[0]

    def off(dimensions: Dimensions) -> float:
        ratio = parameter_count(dimensions) / (run.parameters or 1.0)
        return max(ratio, 1 / ratio) - 1

    close = [each for each in candidates if off(each) <= CLOSE]
    chosen = close[0] if close else min(candidates, key=off)
    if off(chosen) > rules.parameter_factor - 1:
        made = parameter_count(chosen) / 1e9
        raise InputError(
            f"as a {chosen.family} model its dimensions make {made:.1f}B parameters, but it says "
            f"{run.parameters / 1e9:.1f}B"
        )
    return chosen


def matrices_of(dimensions: Dimensions) -> DecoderMatrices:
    """The matrices of a model; the head of Llama is its own unless it says so, that of the others
    is tied."""
    of, gated = dimensions, dimensions.family in GATED
    sizes = (of.hidden, of.heads, of.kv_heads, of.head_width or of.hidden // of.heads)
    tied = not gated or bool(of.tied)
    return DecoderMatrices(*sizes, of.ffn, of.vocabulary, gated=gated, tied=tied)


def parameter_count(dimensions: Dimensions) -> float:
    """Parameters of a model but for biases, norms and positions."""
    return float(matrices_of(dimensions).total(dimensions.layers))


def counted_flops(
    dimensions: Dimensions, samples: float, convention: Convention, recompute: str
) -> float:
    """Floating-point operations of an iteration on ``samples`` sequences as ``convention`` counts
    them.

    2 per parameter of a matrix product and token, forward, and twice that backward; ``4 l h s`` per
    token, h the columns of all heads, for the scores and their product with the values (Narayanan
    et al. SC'21, appendix; Korthikanti et al. 2022, appendix A). Full recomputation repeats the
    blocks' forward pass, selective recomputation the attention.
    """
    tokens, matrices = samples * dimensions.sequence_length, matrices_of(dimensions)
    blocks = 2 * dimensions.layers * (matrices.attention + matrices.mlp) * tokens
    scored = dimensions.layers * matrices.heads * matrices.head_width * dimensions.sequence_length
    attention = 4 * scored * tokens * convention.attention
    head = 2 * dimensions.vocabulary * dimensions.hidden * tokens
    recomputed = recompute if convention.recomputed else "none"
    passes_of_blocks = 4 if recomputed == "full" else 3
    passes_of_attention = 4 if recomputed != "none" else 3
    return passes_of_blocks * blocks + passes_of_attention * attention + 3 * head
