"""Models of runs by dimensions, and the FLOPs that papers count."""

from dataclasses import replace

import pytest
from complete_run import row_with, run_with
from hypothesis import given
from hypothesis import strategies as st

from Estimator.plans.flops import trained_flops
from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.graph import Recompute
from GraphExtractor.models.dimensions import Dimensions
from GraphExtractor.models.dimensions import dimensions_of as dimensions_named
from GraphExtractor.models.registry import find_model, listed_models
from phaze.validation.assumptions import Notes, first_found, load_assumptions
from phaze.validation.run_model import (
    counted_flops,
    dimensions_of,
    parameter_count,
    sequence_length_of,
)
from phaze.validation.translation import translated
from phaze.validation.typed_run import FlopsConvention
from phaze_common.errors import InputError

RULES = load_assumptions()


def found(**changes):
    """Of a typed run; a family that is not given is read from the model's name."""
    notes = Notes()
    if "model" in changes and "family" not in changes:
        row = row_with(
            **{key: value for key, value in changes.items() if key not in ("family", "kv_heads")}
        )
        changes["family"] = translated(row, RULES, Notes()).family
    run = run_with(**changes)
    return dimensions_of(run, run.sequence_length, RULES, notes), {
        each.rule: each.value for each in notes.made()
    }


def test_a_run_that_says_everything_needs_no_assumption():
    dimensions, notes = found()
    assert (dimensions.family, dimensions.layers, dimensions.heads, dimensions.ffn) == (
        "gpt",
        30,
        32,
        12288,
    )
    assert not notes


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("BLOOM-176B", "bloom"),
        ("MPT-7B", "mpt"),
        ("OPT-175B", "opt"),
        ("MT-NLG 530B", "gpt"),
        ("Megatron-BERT", "bert"),
        ("Llama-2-7B", "llama"),
    ],
)
def test_names_say_the_family(name, family):
    assert found(model=name, parameters=None)[0].family == family


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Mixtral-8x7B", "experts"),
        ("GPT-MoE 1.3B", "experts"),
        ("T5-11B", "encoder"),
        ("mT5 XXL", "encoder"),
        ("ViT-22B", "no language model"),
        ("Switch-C", "experts"),
    ],
)
def test_models_of_no_family_are_refused(name, words):
    with pytest.raises(InputError, match=words):
        found(model=name, parameters=None)


def test_expert_parallel_runs_are_refused():
    with pytest.raises(InputError, match="expert parallelism over 8"):
        found(ep=8)


@pytest.mark.parametrize("column", ["layers", "hidden"])
def test_a_model_needs_depth_and_width(column):
    with pytest.raises(InputError, match="it does not say"):
        found(**{column: None})


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "ffn", "vocabulary", "parameters", "kv_heads"),
    [
        ("Llama-2 7B", 32, 4096, 32, 11008, 32000, 6.7e9, 32),
        ("Llama-2 70B", 80, 8192, 64, 28672, 32000, 70e9, 8),
        ("Llama-3 8B", 32, 4096, 32, 14336, 128256, 8.0e9, 8),
        ("Llama-3.1 405B", 126, 16384, 128, 53248, 128256, 405e9, 8),
    ],
)
def test_kv_heads_follow_from_the_parameters(
    name, layers, hidden, heads, ffn, vocabulary, parameters, kv_heads
):
    dimensions, notes = found(
        model=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocabulary=vocabulary,
        parameters=parameters,
        sequence_length=4096,
    )
    assert dimensions.kv_heads == kv_heads
    assert ("kv_heads" in notes) == (kv_heads != heads)


def test_an_unknown_name_takes_the_family_whose_parameters_fit():
    gated, notes = found(
        model="Falcon",
        layers=80,
        hidden=8192,
        heads=64,
        ffn=28672,
        vocabulary=32000,
        parameters=69e9,
    )
    assert (gated.family, gated.kv_heads, notes["family"]) == ("llama", 8, "llama")
    plain, notes = found(model="Somebody's model", parameters=3.6e9)
    assert (plain.family, notes["family"]) == ("gpt", "gpt")


def test_dimensions_of_another_model_are_refused():
    with pytest.raises(InputError, match=r"make 3\.6B parameters, but it says 47\.0B"):
        found(parameters=47e9)


def test_what_is_missing_is_assumed_and_noted():
    dimensions, notes = found(heads=None, ffn=None, vocabulary=None)
    assert (dimensions.heads, dimensions.ffn, dimensions.vocabulary) == (24, 12288, 51200)
    assert notes == {"dimensions": "24 heads; ffn 12288; vocabulary 51200"}
    assert found(model="MPT-7B", parameters=None, vocabulary=None)[0].vocabulary == 50432
    with pytest.raises(InputError, match="how many heads"):
        found(heads=None, hidden=3000, ffn=12000)


@pytest.mark.parametrize(
    "name", ["gpt3-13b", "megatron-1t", "llama2-70b", "llama3-405b", "opt-30b", "bloom-560m"]
)
def test_parameters_are_those_of_the_published_models(name):
    model = listed_models()[name]
    family = type(model).__name__.lower()
    dimensions = Dimensions(
        family=family,
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        ffn=model.ffn,
        kv_heads=model.kv_heads,
        vocabulary=model.vocabulary,
        sequence_length=model.sequence_length,
    )
    assert parameter_count(dimensions) == pytest.approx(model.published_parameter_count, rel=0.02)


@given(
    layers=st.integers(1, 200),
    heads=st.integers(1, 200),
    samples=st.integers(1, 4096),
    sequence=st.integers(1, 65536),
    vocabulary=st.integers(1, 300_000),
)
def test_hardware_flops_are_equation_3_of_sc21_and_model_flops_those_of_korthikanti(
    layers, heads, samples, sequence, vocabulary
):
    hidden = 128 * heads
    dimensions = Dimensions(
        family="gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        kv_heads=heads,
        vocabulary=vocabulary,
        sequence_length=sequence,
    )
    common = samples * sequence * layers * hidden**2
    equation_3 = 96 * common * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden))
    model = 72 * common * (1 + sequence / (6 * hidden) + vocabulary / (12 * layers * hidden))
    hardware_flops = RULES.named_convention(FlopsConvention.HARDWARE)
    assert counted_flops(dimensions, samples, hardware_flops, "full") == pytest.approx(equation_3)
    assert counted_flops(dimensions, samples, hardware_flops, "none") == pytest.approx(model)
    assert counted_flops(
        dimensions, samples, RULES.named_convention(FlopsConvention.MODEL), "full"
    ) == pytest.approx(model)
    selective = counted_flops(dimensions, samples, hardware_flops, "selective")
    assert selective - model == pytest.approx(
        4 * layers * hidden * sequence * samples * sequence, rel=1e-6
    )


@pytest.mark.parametrize(
    "name",
    [
        "qwen3:layers=2,hidden=256,heads=8,kv_heads=4,head_width=64,vocabulary=1000",
        "llama:layers=2,hidden=256,heads=8,kv_heads=2,head_width=48,vocabulary=1000",
        "gpt:layers=2,hidden=256,heads=8,vocabulary=1000",
    ],
)
def test_what_a_paper_counts_is_what_a_trace_counts(name, extracted):
    """Also where heads are wider or narrower than hidden / heads, as those of Qwen3-0.6B."""
    graph = extracted(name, 1, 64, 2)
    dimensions = replace(dimensions_named(find_model(name)), sequence_length=64)
    sizes = layer_sizes(graph, Recompute.NONE)
    traced = trained_flops(sizes, sizes.sequence, graph.key.tp).all_scores
    counted = counted_flops(dimensions, 1, RULES.named_convention(FlopsConvention.MODEL), "none")
    assert counted == pytest.approx(traced, rel=1e-12)


def counted_exactly(model):
    """Whether it is of dimensions, and published with a count that nobody rounded."""
    return (
        not model.experts
        and model.published_parameter_count % 10**6
        and dimensions_named(model) is not None
    )


@pytest.mark.parametrize(
    "name", [name for name, model in listed_models().items() if counted_exactly(model)]
)
def test_listed_models_have_the_parameters_that_their_dimensions_make(name):
    """But for biases, norms and positions, which are 2 % of the smallest of them."""
    model = find_model(name)
    assert parameter_count(dimensions_named(model)) == pytest.approx(
        model.published_parameter_count, rel=0.02
    )


def test_flops_of_parameters_alone_are_6_per_parameter_and_token():
    dimensions, _ = found()
    flops = counted_flops(
        dimensions, 512, RULES.named_convention(FlopsConvention.PARAMETERS), "full"
    )
    assert flops == pytest.approx(6 * parameter_count(dimensions) * 512 * 2048)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("HFU-like (incl. recompute, eq.3)", FlopsConvention.HARDWARE),
        ("MFU (72BslH^2, derived)", FlopsConvention.MODEL),
        ("hardware FLOPs", FlopsConvention.HARDWARE),
        ("6ND", FlopsConvention.PARAMETERS),
        ("mfu* (6N, without attention)", FlopsConvention.PARAMETERS),
        ("model FLOPs, causal attention", FlopsConvention.MODEL_CAUSAL),
        ("PaLM MFU", FlopsConvention.MODEL),
    ],
)
def test_conventions_are_recognised(words, name):
    convention = first_found(RULES.conventions, words)
    assert convention is not None
    assert convention.name is name


def test_words_of_no_convention_name_none():
    assert first_found(RULES.conventions, "") is None
    assert first_found(RULES.conventions, "as logged") is None


@pytest.mark.parametrize(
    "name", ["llama2-70b", "bloom-176b", "megatron-1.7b", "bertlarge", "llama2-7b"]
)
def test_a_listed_model_needs_no_dimensions(rules, name):
    run = run_with(
        model=name,
        layers=None,
        hidden=None,
        heads=None,
        ffn=None,
        vocabulary=None,
        sequence_length=None,
    )
    notes = Notes()
    dimensions = dimensions_of(run, sequence_length_of(run), rules, notes)
    listed = find_model(name)
    made = dimensions.model()
    assert replace(made, published_parameter_count=listed.published_parameter_count) == listed
    assert [note.rule for note in notes.made()] == ["listed"]


def test_a_model_that_is_neither_listed_nor_described_is_refused_with_the_nearest(rules):
    nothing = {"layers": None, "hidden": None, "sequence_length": None}
    with pytest.raises(InputError, match="no model is listed as 'lama2'; did you mean 'llama2'"):
        sequence_length_of(run_with(model="lama2", **nothing))
    with pytest.raises(InputError, match="mixtral-8x7b is not of the families that are predicted"):
        dimensions_of(run_with(model="mixtral-8x7b", **nothing), 4096, rules, Notes())
