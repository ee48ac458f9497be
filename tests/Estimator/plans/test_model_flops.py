"""A model's FLOPs are its own: the same however it is divided, padded and computed."""

import itertools
from pathlib import Path

import pytest

from Estimator.plans.flops import trained_flops
from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.graph import Attention, KeyExchange, Recompute, TensorLayout
from GraphExtractor.models.registry import find_model

WORDS = 1000  # padded to 1024, and to more where more devices share them
DENSE = f"llama:layers=2,hidden=256,heads=8,vocabulary={WORDS}"
MIXTURE = (
    f"mixtral:layers=2,hidden=256,heads=8,kv_heads=8,experts=8,chosen=2,ffn=512,vocabulary={WORDS}"
)
LATENT = "deepseek-v3"
USERS = str(Path(__file__).parents[2] / "GraphExtractor" / "user_models" / "shared.py")
TOKENS = 72


def counted(graph):
    """FLOPs of an iteration on all devices that share a micro-batch, by sample."""
    sizes = layer_sizes(graph, Recompute.NONE)
    return trained_flops(
        sizes,
        sizes.sequence,
        graph.key.tp * graph.key.sequence_devices / graph.key.micro_batch_size,
    )


DIVIDED = [
    {"tp": 2},
    {"tp": 4},
    {"tp": 2, "sequence_parallel": True},
    {"tp": 4, "sequence_parallel": True},
    {"micro_batch_size": 3},
]
CASES = {
    **{
        f"{name[:8]}-{each}": (name, each)
        for name, each in itertools.product((DENSE, MIXTURE), DIVIDED)
    },
    **{f"latent-{each}": (LATENT, each) for each in DIVIDED[:3]},
    **{
        f"more-{name[-12:]}-{each}": (name, each)
        for name, each in (
            (f"gpt:layers=2,hidden=256,heads=8,vocabulary={WORDS}", {"tp": 8}),
            (
                f"gpt:layers=2,hidden=256,heads=8,vocabulary={WORDS}",
                {"tp": 2, "tp2": 2, "layout": TensorLayout.TWO_D},
            ),
            (DENSE, {"tp": 2, "cp": 2}),
            (DENSE, {"cp": 4, "exchange": KeyExchange.RING}),
            (MIXTURE, {"tp": 2, "ep": 4}),
            (MIXTURE, {"ep": 2}),
            ("bertbase", {"tp": 2}),
            ("bertbase", {"tp": 4, "sequence_parallel": True}),
            ("bloom-560m", {"tp": 4}),
            ("mpt-125m", {"tp": 4}),
            ("t5-small", {"tp": 2, "sequence_parallel": True}),
            (USERS, {"tp": 2}),  # a division that is derived from the trace
        )
    },
}
# what other cases of the same families say too
ALIKE = [(LATENT, {"tp": 4}), ("bertbase", {"tp": 2}), ("mpt-125m", {"tp": 4})]


@pytest.mark.some(10)
@pytest.mark.parametrize(
    "name, division",
    [
        pytest.param(*case, id=name, marks=[pytest.mark.thorough] if case in ALIKE else [])
        for name, case in CASES.items()
    ],
)
def test_model_flops_do_not_depend_on_how_it_is_divided_or_padded(name, division, extracted):
    whole = counted(extracted(name, 1, TOKENS))
    divided = counted(
        extracted(name, **{"micro_batch_size": 1, "sequence_length": TOKENS} | division)
    )
    assert divided.model == pytest.approx(whole.model, rel=1e-12)
    assert divided.all_scores == pytest.approx(whole.all_scores, rel=1e-12)
    assert divided.computed >= divided.model * (1 - 1e-12)


def test_what_is_computed_counts_what_devices_do_alike(extracted):
    alone, alike = (counted(extracted(LATENT, 1, TOKENS, tp)) for tp in (1, 2))
    assert alike.computed > 1.02 * alone.computed


@pytest.mark.parametrize("attention", Attention)
def test_forward_flops_are_two_per_parameter_and_word_that_the_model_has(attention, extracted):
    """A closed form: 24 h^2 of a block and 2 h of each word (Narayanan et al. 2021, appendix),
    scores that a mask leaves."""
    hidden, layers = 256, 2
    name = f"gpt:layers={layers},hidden={hidden},heads=8,vocabulary={WORDS}"
    blocks = layers * 24 * hidden**2 * TOKENS
    scores = layers * 4 * hidden * TOKENS**2
    left = layers * 4 * hidden * TOKENS * (TOKENS + 1) / 2
    words = 2 * hidden * WORDS * TOKENS
    flops = counted(extracted(name, 1, TOKENS, 2, attention=attention))
    assert flops.all_scores == pytest.approx(3 * (blocks + scores + words), rel=1e-12)
    assert flops.model == pytest.approx(3 * (blocks + left + words), rel=1e-12)
    assert find_model(name).padded_vocabulary(2) > WORDS


@pytest.mark.parametrize("name", [MIXTURE, LATENT])
def test_operations_that_published_figures_count_again_are_the_models_too(name, extracted):
    repeated = [
        float(sizes.repeated_flops[list(sizes.sequence)].sum()) * tp
        for tp in (1, 2)
        for sizes in (layer_sizes(extracted(name, 1, TOKENS, tp), Recompute.FULL),)
    ]
    assert repeated[0] > 0
    assert repeated[1] == pytest.approx(repeated[0], rel=1e-12)


def test_matrices_with_as_many_rows_as_padded_words_are_whole(extracted):
    """12 h^2 + 13 h of a block and 2 h of the norm behind (Narayanan et al. 2021, section 3), as
    wide as the padded words."""
    hidden, layers, name = 256, 2, f"gpt:layers=2,hidden=256,heads=8,vocabulary={WORDS}"
    family = find_model(name)
    assert family.padded_vocabulary(1) == 4 * hidden
    tables = (WORDS + family.positions(TOKENS)) * hidden
    assert (
        extracted(name, 1, TOKENS).total_parameter_count
        == layers * (12 * hidden**2 + 13 * hidden) + 2 * hidden + tables
    )
