"""Models that people bring, against torch's own count of FLOPs and the module's own parameters.

A usual session takes one of each kind, a thorough one all of them. ``scripts/gauntlet.py`` prints
the whole table.
"""

import pytest

from scripts.gauntlet import TOLERANCE, run_case
from scripts.gauntlet_cases import all_cases

CASES = {case.name: case for case in all_cases()}
# one of every path through inputs, experts, towers, stages and own modules; test_scans.py has that
# through scans
USUAL = {
    "bert",
    "electra",
    "gpt-oss",
    "whisper",
    "segformer",
    "detr",
    "clip",
    "qwen2-vl",
    "wav2vec2",
    "two_tower",
    "dlrm",
    "graph_network",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("configurations")


@pytest.mark.some(4)
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_counted_as_torch_counts_it_or_refused_with_the_expected_sentence(
    request, folder, name
):
    if name not in USUAL and not request.config.getoption("--thorough"):
        pytest.skip("all models of the gauntlet are taken with --thorough")
    case = CASES[name]
    outcome = run_case(case, folder)
    if case.refused:
        assert outcome.status == "refused" and case.refused in outcome.said, outcome
        return
    assert outcome.status == "priced", outcome
    assert outcome.parameter_difference == 0
    assert abs(outcome.forward_difference) <= TOLERANCE
    assert abs(outcome.backward_difference) <= TOLERANCE


def test_the_gauntlet_has_enough_models_and_almost_all_are_priced():
    configurations = [case for case in CASES.values() if case.file is None]
    assert len(configurations) >= 45 and len(CASES) - len(configurations) >= 12
    assert sum(not case.refused for case in CASES.values()) >= 50
