"""Parts that a model's own code checkpoints run again in the backward pass, and keep their inputs
alone."""

import random
from pathlib import Path

import pytest

from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.check import product_flops
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, Recompute, Yields
from scripts.gauntlet import run_case
from scripts.gauntlet_cases import Case

HEAD = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.norm, self.up, self.down, self.side = nn.LayerNorm(32), nn.Linear(32, inner), nn.Linear(inner, 32), nn.Linear(32, 32)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x)))) + self.side(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block(inner) for inner in {widths}), nn.Linear(32, 8)

    def forward(self, x):
        b = self.blocks
{code}
        return self.head(x).square().mean()


def build():
    return Model()


def example_inputs(micro_batch_size):
    return torch.zeros(micro_batch_size, 16, 32)
"""


def written(folder, code, widths=(64, 64, 64, 64)):
    path = folder / "mine.py"
    lines = "\n".join(f"        {line}" for line in code.splitlines())
    path.write_text(
        HEAD.replace("{widths}", str(list(widths))).replace("{code}", lines), encoding="utf-8"
    )
    return path


def graph_of(path):
    return extract_graph(GraphKey(str(path), 2, 1, 1))


def flops(graph):
    found = [product_flops(graph.layers[index]) for index in graph.sequence]
    return sum(each.forward + each.score_forward for each in found), sum(
        each.backward + each.score_backward for each in found
    )


def saved(graph, mode=Recompute.NONE):
    return layer_sizes(graph, mode).all_saved_bytes


WAYS = {
    "blocks": "for each in b: x = checkpoint(each, x, use_reentrant=False)",
    "all of it": "for each in b: x = checkpoint(each, x, use_reentrant=False, early_stop=False)",
    "some": "x = b[0](x)\nx = checkpoint(b[1], x, use_reentrant=False)\nx = b[3](b[2](x))",
    "segments": "x = checkpoint_sequential(nn.Sequential(*b), 2, x, use_reentrant=False)",
    "a function": "x = checkpoint(lambda y: b[1](torch.tanh(b[0](y))), x, use_reentrant=False)\nx "
    "= b[3](b[2](x))",
    "within": "x = checkpoint(lambda y: checkpoint(b[1], b[0](y), use_reentrant=False), x, "
    "use_reentrant=False)\n"
    "x = b[3](b[2](x))",
    "head": "for each in b: x = each(x)\nreturn checkpoint(lambda y: "
    "self.head(y).square().mean(), x, use_reentrant=False)",
}


@pytest.mark.parametrize("code", WAYS.values(), ids=WAYS)
def test_what_runs_again_is_counted_as_torch_counts_it(tmp_path, code):
    outcome = run_case(Case("mine", file=written(tmp_path, code)), tmp_path)
    assert outcome.status == "priced", outcome
    assert outcome.forward_difference == 0 and outcome.backward_difference == 0


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_checkpointed_stack_is_the_plain_one_and_its_forward_pass_again(tmp_path, seed):
    draw = random.Random(seed)
    widths = [draw.choice((16, 32, 64, 96)) for _ in range(draw.randint(2, 5))]
    chosen = [draw.random() < 0.6 for _ in widths]
    chosen[draw.randrange(len(widths))] = True
    loop = (
        "for each, again in zip(b, {}): x = checkpoint(each, x, use_reentrant=True) if again "
        "else each(x)"
    )
    plain, again = (
        graph_of(written(tmp_path, loop.format(each), widths))
        for each in ([False] * len(widths), chosen)
    )
    forward = sum(
        2 * 2 * 16 * 32 * (2 * width + 32)
        for width, twice in zip(widths, chosen, strict=True)
        if twice
    )
    assert flops(again) == (flops(plain)[0], flops(plain)[1] + forward)
    assert saved(again) < saved(plain)


def test_a_checkpointed_block_keeps_its_input_alone(tmp_path):
    graph = graph_of(written(tmp_path, WAYS["blocks"]))
    blocks = [graph.layers[index] for index in graph.sequence][:4]
    assert {block.saved.none for block in blocks} == {2 * 16 * 32 * 2}  # bf16
    products = [each.id for each in blocks[0].forward.operators if each.gemms]
    again = [
        each.forward_id
        for each in blocks[0].backward.operators
        if each.yields is Yields.OUTPUT and each.gemms
    ]
    assert (
        len(products) == 3 and again == products[:2]
    )  # what the last one reads is there before it runs


def test_recomputation_of_a_study_comes_on_top(tmp_path):
    graph = graph_of(written(tmp_path, WAYS["blocks"]))
    block = graph.layers[graph.sequence[1]]
    again = sum(each.flops for each in block.backward.operators if each.yields is Yields.OUTPUT)
    assert 0 < again < block.forward.flops
    assert max(layer_sizes(graph, Recompute.NONE).recomputed_flops) == again
    assert max(layer_sizes(graph, Recompute.FULL).recomputed_flops) == again + block.forward.flops


def test_attention_that_a_checkpoint_runs_again_is_not_run_a_third_time(shared_data):
    folder = shared_data / "cases_2026" / "model_own_checkpoint"
    if not folder.is_dir():
        pytest.skip("cases_2026/model_own_checkpoint is not among the shared data")
    graph = extract_graph(GraphKey(str(folder / "model.py"), 2, 64, 1))
    assert flops(graph) == (67_108_864, 176_160_768)
    for layer in graph.layers:
        assert layer.backward_selective.flops == layer.backward.flops
    assert saved(graph, Recompute.SELECTIVE) == saved(graph)


def test_that_layers_checkpoint_themselves_is_said(tmp_path, caplog):
    from GraphExtractor.check import warn_of
    from GraphExtractor.models.registry import find_model

    path = written(tmp_path, WAYS["blocks"])
    warn_of(graph_of(path), find_model(str(path)))
    assert "its code checkpoints 4 of" in caplog.text and "recomputation full" in caplog.text
    assert Path(path).name in caplog.text
