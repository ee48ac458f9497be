"""The model of a published run, by its dimensions, and the floating-point operations that published figures count."""

from dataclasses import replace

from Common.errors import InputError
from Common.suggestions import nearest
from GraphExtractor.models.dimensions import Dimensions, family_names, parse_dimensions
from GraphExtractor.models.dimensions import dimensions_of as model_dimensions
from GraphExtractor.models.registry import find_model, listed_aliases, listed_models
from Validation.assumptions import Assumptions, Convention, Notes
from Validation.typed_run import TypedRun

KV_HEADS = (8, 1)  # besides as many as heads: grouped queries of Llama 2 and 3, multi-query attention
CLOSE = 0.05  # a family whose parameters are this near is taken before a nearer but less usual one


def dimensions_of(run: TypedRun, sequence_length: int, rules: Assumptions, notes: Notes) -> Dimensions:
    """Dimensions of the run's model.

    Raises:
        InputError: the run does not say them, or the model is of no family that can be traced.
    """
    if run.layers is None and run.hidden is None and is_listed(run.model):
        return _listed_dimensions(run, sequence_length, notes)
    if run.layers is None or run.hidden is None:
        raise InputError(f"it does not say {'how many layers' if run.layers is None else 'how wide'} the model is")
    if (run.ep or 1) > 1:
        raise InputError(f"expert parallelism over {run.ep}: no family here has experts")
    heads = run.heads or _assumed_heads(run.hidden, rules, notes)
    if run.family is not None:
        candidates = [_dimensions(run.family, run, heads, sequence_length, rules)]
        if run.family == "llama":
            candidates += _grouped(candidates[0])
    else:
        candidates = [_dimensions(family, run, heads, sequence_length, rules) for family in ("gpt", "llama")]
        candidates += _grouped(candidates[-1])
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
    if run.layers is None and run.hidden is None and run.model:
        hint = nearest(run.model, (*listed_models(), *listed_aliases()), "'phaze list models' shows those that are")
        raise InputError(f"it gives no dimensions of its model, and no model is listed as {run.model!r:.200}; {hint}")
    raise InputError("it does not say its sequence length")


def _listed_dimensions(run: TypedRun, sequence_length: int, notes: Notes) -> Dimensions:
    found = model_dimensions(find_model(run.model))
    if found is None:
        families = ", ".join(family_names())
        raise InputError(f"its model {run.model} is not of the families that are predicted ({families})")
    changed = {key: getattr(run, key) for key in ("heads", "ffn", "vocabulary") if getattr(run, key) is not None}
    notes.assume("listed", run.model)
    return replace(found, sequence_length=sequence_length, **changed)


def _assumed_heads(hidden: int, rules: Assumptions, notes: Notes) -> int:
    if hidden % rules.head_width:
        raise InputError(
            f"it does not say how many heads the model has, and {rules.head_width} does not divide its width {hidden}"
        )
    notes.assume("dimensions", f"{hidden // rules.head_width} heads")
    return hidden // rules.head_width


def _dimensions(family: str, run: TypedRun, heads: int, sequence_length: int, rules: Assumptions) -> Dimensions:
    vocabulary = run.vocabulary or (rules.vocabulary if family == "gpt" else None)
    given = {"ffn": run.ffn, "vocabulary": vocabulary, "sequence_length": sequence_length}
    words = [f"layers={run.layers}", f"hidden={run.hidden}", f"heads={heads}"]
    found = parse_dimensions(
        f"{family}:{','.join(words + [f'{key}={value}' for key, value in given.items() if value is not None])}"
    )
    if found is None:
        raise InputError(f"{family} is no family that is named by dimensions")
    return found


def _grouped(dimensions: Dimensions) -> list[Dimensions]:
    return [replace(dimensions, kv_heads=kv_heads) for kv_heads in KV_HEADS if dimensions.heads % kv_heads == 0]


def _distinct(candidates: list[Dimensions], run: TypedRun) -> list[Dimensions]:
    if not candidates or (run.kv_heads is not None and candidates[0].heads % run.kv_heads):
        heads, family = run.kv_heads, run.family or "gpt"
        raise InputError(f"its {heads} heads of keys and values are none that a {family} model with its heads has")
    return list(dict.fromkeys(candidates))


def _nearest(candidates: list[Dimensions], run: TypedRun, rules: Assumptions) -> Dimensions:
    """The first candidate with about as many parameters as the run says, or else the one that comes nearest."""
    if run.parameters is None:
        return candidates[0]

    def off(dimensions: Dimensions) -> float:
        ratio = parameter_count(dimensions) / (run.parameters or 1.0)
        return max(ratio, 1 / ratio) - 1

    chosen = next((each for each in candidates if off(each) <= CLOSE), min(candidates, key=off))
    if off(chosen) > rules.parameter_factor - 1:
        made = parameter_count(chosen) / 1e9
        raise InputError(
            f"as a {chosen.family} model its dimensions make {made:.1f}B parameters, but it says {run.parameters / 1e9:.1f}B"
        )
    return chosen


def block_parameters(dimensions: Dimensions) -> float:
    """Parameters of a block in matrix products: the projections of attention, and two matrices of the MLP (three if gated)."""
    hidden, group = dimensions.hidden, dimensions.kv_heads / dimensions.heads
    return hidden * (2 * hidden + 2 * hidden * group + (3 if dimensions.family == "llama" else 2) * dimensions.ffn)


def parameter_count(dimensions: Dimensions) -> float:
    """Parameters of a model but for biases, norms and positions; the head of Llama is its own, that of the others is tied."""
    tables = 2 if dimensions.family == "llama" else 1
    return dimensions.layers * block_parameters(dimensions) + tables * dimensions.vocabulary * dimensions.hidden


def counted_flops(dimensions: Dimensions, samples: float, convention: Convention, recompute: str) -> float:
    """Floating-point operations of an iteration on ``samples`` sequences as ``convention`` counts them.

    2 per parameter of a matrix product and token, forward, and twice that backward; ``4 l h s`` per token for the scores and
    their product with the values (Narayanan et al. SC'21, appendix; Korthikanti et al. 2022, appendix A). Full recomputation
    repeats the blocks' forward pass, selective recomputation the attention.
    """
    tokens = samples * dimensions.sequence_length
    blocks = 2 * dimensions.layers * block_parameters(dimensions) * tokens
    attention = 4 * dimensions.layers * dimensions.hidden * dimensions.sequence_length * tokens * convention.attention
    head = 2 * dimensions.vocabulary * dimensions.hidden * tokens
    again = convention.recomputed
    return (
        (4 if again and recompute == "full" else 3) * blocks + (4 if again and recompute != "none" else 3) * attention + 3 * head
    )
