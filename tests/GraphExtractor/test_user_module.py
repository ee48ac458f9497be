"""Modules of users: models not written for this framework, from a file."""

import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from GraphExtractor.check import check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, OperatorKind
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.registry import find_model
from GraphExtractor.storage import load_or_extract
from phaze_common.errors import InputError

GALLERY = Path(__file__).parent / "user_models"
LAYERS = {  # file -> layers in the order they run, and the tensors that pass over a layer
    "nanogpt": (["embedding", *["block"] * 6, "head"], []),
    "encoder": (["embedding", *["block"] * 6, "head"], []),
    "unet": (
        ["inc", "down1", "down2", "down3", "up1", "up2", "up3", "head"],
        [(0, (1, 6)), (1, (2, 5)), (2, (3, 4))],
    ),
    "towers": (
        [
            "embedding",
            *["left"] * 6,
            "right.embedding",
            "left.out",
            *["right"] * 5,
            "right.out",
            "head",
        ],
        [(6, (8,)), (7, (9,)), (8, (15,))],
    ),
    "siamese": (
        [
            "embedding",
            *["block"] * 6,
            "left.embedding",
            "left.out",
            *["block"] * 6,
            "left.out",
            "head",
        ],
        [(6, (8,)), (7, (9,)), (8, (16,))],
    ),
    "perceptron": (["linear.0", "linear.2", "linear.4", "head"], []),
    "residual": (["embedding", *["layer1"] * 3, *["layer2"] * 7, "head"], []),
    "shared": (["embedding", *["block"] * 6, "head"], []),
    "hybrid": (["stem", "joint", *["blocks"] * 6, "head"], []),
    "tapped": (["embedding", *["block"] * 8, "head"], [(5, (9,))]),
    "rotary": (["embedding", *["block"] * 6, "head"], [(0, (1, 2, 3, 4, 5, 6))]),
}


def key(path, tp=1, **changes):
    return GraphKey(str(path), 2, find_model(str(path)).sequence_length, tp, **changes)


@pytest.fixture(scope="module")
def gallery(request, tmp_path_factory):
    """Graphs of the files, kept between test sessions: what other code made, or of another file, is
    traced again."""
    thorough = request.config.getoption("--thorough")
    folder = (
        tmp_path_factory.mktemp("gallery")
        if thorough
        else Path(request.config.cache.mkdir("user_graphs"))
    )

    def graph(name, tp=1):
        return load_or_extract(key(GALLERY / f"{name}.py", tp), folder)

    return graph


@pytest.mark.some(1)
@pytest.mark.parametrize("name", LAYERS)
def test_models_come_apart_into_sensible_layers(gallery, name):
    graph = gallery(name)
    names, over = LAYERS[name]
    assert [graph.layers[index].name for index in graph.sequence] == names
    assert (
        sorted(
            {(t.source, t.destinations) for t in graph.tensors if t.destinations != (t.source + 1,)}
        )
        == over
    )
    assert check_structure(graph) == []


@pytest.mark.some(1)
@pytest.mark.parametrize("name", LAYERS)
def test_every_parameter_is_owned_once_whoever_reads_it(gallery, name):
    graph = gallery(name)
    layers = [graph.layers[index] for index in graph.sequence]
    assert (
        sum(layer.parameter_count - layer.tied_count for layer in layers)
        == graph.total_parameter_count
    )
    shared = {"nanogpt": 256 * 64, "shared": 5 * 8544, "siamese": 209312}
    assert sum(layer.tied_count for layer in layers) == shared.get(name, 0)


@pytest.mark.thorough
def test_the_block_of_a_gpt_is_that_of_the_family(gallery):
    family = Gpt(layers=6, hidden=64, heads=4, ffn=256, vocabulary=256, sequence_length=64)
    ours, theirs = (
        extract_graph(GraphKey("gpt", 2, 64, 1), family).layers[1],
        gallery("nanogpt").layers[1],
    )
    for graph in ("forward", "backward"):
        products = [
            sorted(operator.flops for operator in getattr(block, graph).operators)
            for block in (ours, theirs)
        ]
        assert products[0] == products[1]
    assert ours.saved.none == theirs.saved.none


@pytest.mark.some(1)
@pytest.mark.parametrize(("name", "reductions"), [("nanogpt", 2), ("encoder", 2), ("rotary", 2)])
def test_linear_pairs_are_split_as_megatron_splits_them(gallery, name, reductions):
    whole, part = gallery(name).layers[1], gallery(name, 2).layers[1]
    for graph in (part.forward, part.backward):
        collectives = [operator.collective for operator in graph.operators if operator.collective]
        assert [each.kind for each in collectives] == [CollectiveKind.ALL_REDUCE] * reductions
    assert 2 * part.forward.flops == whole.forward.flops


@pytest.mark.thorough
def test_a_plan_in_the_file_splits_the_vocabulary_too(gallery):
    embedding, *_, head = gallery("rotary", 2).layers
    assert [o.collective.payload_bytes for o in embedding.forward.operators if o.collective] == [
        2 * 32 * 64 * 2
    ]
    assert (
        sum(o.collective is not None for o in head.forward.operators) == 3
    )  # the vocabulary-parallel loss
    assert 2 * head.matmul_parameter_count == gallery("rotary").layers[-1].matmul_parameter_count
    family = find_model(str(GALLERY / "rotary.py"))
    assert family.divided_sizes == {"key/value heads": 2, "ffn width": 96}
    with pytest.raises(InputError, match=r"width 4 does not divide .*rotary\.py.* use one of 1, 2"):
        extract_graph(key(GALLERY / "rotary.py", 4))


@pytest.mark.thorough
def test_eager_attention_is_that_of_the_framework(gallery):
    graph = extract_graph(key(GALLERY / "encoder.py", attention=Attention.EAGER))
    core = [operator for operator in graph.layers[1].forward.operators if operator.core_attention]
    assert [operator.kind for operator in core] == [
        OperatorKind.GEMM,
        OperatorKind.REDUCTION,
        OperatorKind.GEMM,
    ]
    assert graph.layers[1].saved.none > gallery("encoder").layers[1].saved.none


def write(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "any-model.md"
EXAMPLE = PAGE.read_text(encoding="utf-8").split('```python title="mine.py"\n')[1].split("```")[0]


def test_the_model_in_the_manual(tmp_path):
    assert sum(bool(line) for line in EXAMPLE.splitlines()) <= 10
    graph = extract_graph(key(write(tmp_path, EXAMPLE)))
    assert [graph.layers[index].name for index in graph.sequence] == [
        "embedding",
        *["block"] * 12,
        "head",
    ]
    tokens, parameters = 2 * 128, 12 * (4 * 256**2 + 2 * 256 * 1024) + 256 * 1000
    scores = 12 * 2 * 2 * tokens * 128 * 256
    assert (
        sum(graph.layers[index].forward.flops for index in graph.sequence)
        == 2 * parameters * tokens + scores
    )


def test_what_lies_beside_the_file_is_imported_and_nothing_of_it_stays(tmp_path):
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts", "", "__init__.py")
    write(
        tmp_path / "parts",
        "from torch import nn\ndef make(): return nn.Linear(8, 8)\n",
        "blocks.py",
    )
    write(tmp_path, "from .parts.blocks import make\n", "relative.py")
    text = (
        "import parts\nfrom .relative import make\ndef build():\n    from parts import "
        "blocks\n    return blocks.make()\n"
    )
    path = write(
        tmp_path,
        text + "import torch\ndef example_inputs(n): return torch.zeros(n, 8)\ndef loss(x): return "
        "x.sum()\n",
    )
    paths, modules = list(sys.path), set(sys.modules)
    assert extract_graph(key(path)).total_parameter_count == 72
    assert sys.path == paths
    assert not {
        name
        for name in set(sys.modules) - modules
        if "parts" in name or "relative" in name or "phaze_user" in name
    }


def test_a_graph_is_stale_when_the_file_or_what_it_imports_changes(tmp_path):
    helper = write(tmp_path, "WIDTH = 8\n", "sizes.py")
    text = "import torch\nfrom sizes import WIDTH\ndef build(): return torch.nn.Linear(8, WIDTH)\n"
    path = write(
        tmp_path,
        text + "def example_inputs(n): return torch.zeros(n, 8)\ndef loss(x): return x.sum()\n",
    )

    def parameters():
        return load_or_extract(key(path), tmp_path / "graphs").total_parameter_count

    assert parameters() == 72
    assert [file.name[:5] for file in (tmp_path / "graphs" / "User").iterdir()] == ["mine-"]
    helper.write_text("WIDTH = 16\n")
    assert parameters() == 144
    path.write_text(path.read_text().replace("8, WIDTH", "8, 2 * WIDTH"))
    assert parameters() == 288


def test_an_unchanged_file_is_not_run_again(tmp_path):
    path = write(tmp_path, EXAMPLE)
    first = load_or_extract(key(path), tmp_path)
    version = find_model(str(path)).version
    assert load_or_extract(key(path), tmp_path) == first
    assert find_model(str(path)).version == version


def test_a_file_that_is_edited_while_it_is_traced_leaves_no_graph(tmp_path):
    edits = (
        "from pathlib import Path\ndef build():\n    mine = Path(__file__)\n"
        "    mine.write_text(mine.read_text().replace('WIDTH = 8', 'WIDTH = 16'))\n"
        "    return nn.Linear(8, WIDTH)\nWIDTH = 8"
    )
    path = write(tmp_path, LINEAR.format(edits))
    with pytest.raises(InputError, match=r"changed while it was traced; give the command again$"):
        load_or_extract(key(path), tmp_path / "graphs")
    assert not list((tmp_path / "graphs").rglob("*.gz"))
    assert load_or_extract(key(path), tmp_path / "graphs").total_parameter_count == 144


LINEAR = (
    "import torch\nfrom torch import nn\n{}\ndef example_inputs(n): return torch.zeros(n, "
    "8)\ndef loss(x): return x.sum()\n"
)
PASSED_OVER = {
    "accelerators": "def build(): return nn.Linear(8, 8, device='cuda').to('cuda').cuda().half()",
    "weights": "def build():\n    m = nn.Linear(8, 8); nn.init.trunc_normal_(m.weight); return m",
    "values": "def build():\n    rates = [rate.item() for rate in torch.linspace(0, 1, 3)]\n"
    "    return nn.Linear(8, 8 if rates[-1] == 1 else 9)",
    "compilation": "@torch.compile\ndef f(x): return x * 2\ndef build(): return "
    "torch.compile(nn.Linear(8, 8))",
    "checkpoints": "from torch.utils.checkpoint import checkpoint\nclass M(nn.Linear):\n"
    "    def forward(self, x): return checkpoint(super().forward, x, use_reentrant=False)\ndef "
    "build(): return M(8, 8)",
}


@pytest.mark.parametrize("text", PASSED_OVER.values(), ids=PASSED_OVER)
def test_what_code_does_to_devices_weights_and_kernels_is_passed_over(tmp_path, text):
    assert extract_graph(key(write(tmp_path, LINEAR.format(text)))).total_parameter_count == 72


def test_inputs_come_in_the_precision_of_the_training_and_may_need_values(tmp_path):
    inputs = "def example_inputs(n):\n    rows = int(torch.ones(n).sum())\n"
    inputs += "    return {'input': torch.zeros(rows, 8, dtype=torch.float64)}\n"
    path = write(
        tmp_path,
        LINEAR.format("def build(): return nn.Linear(8, 8)").replace(
            "def example_inputs(n): return torch.zeros(n, 8)\n", inputs
        ),
    )
    (product,) = extract_graph(key(path)).layers[0].forward.operators[:1]
    assert {operand.dtype for operand in product.reads} == {"bfloat16"}


def test_the_mean_stands_for_a_missing_loss_and_that_is_said_once(tmp_path, caplog):
    text = LINEAR.format("def build(): return nn.Linear(8, 8)").replace(
        "def loss(x): return x.sum()\n", ""
    )
    with caplog.at_level(logging.WARNING, logger="GraphExtractor"):
        extract_graph(key(write(tmp_path, text)))
    assert caplog.text.count("the mean of the output stands for it") == 1


def test_frozen_parameters_have_no_gradient_and_are_named(tmp_path, caplog):
    build = (
        "def build():\n    m = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)); "
        "m[0].requires_grad_(False); return m"
    )
    with caplog.at_level(logging.WARNING, logger="GraphExtractor"):
        graph = extract_graph(key(write(tmp_path, LINEAR.format(build))))
    assert "72 frozen parameters" in caplog.text
    assert sum(layer.parameter_count for layer in graph.layers) == 36


def test_a_tower_that_is_not_trained_by_part_of_the_loss_is_refused_with_its_parameters(tmp_path):
    build = "class M(nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n"
    build += "        self.idle = nn.Linear(8, 8)\ndef build(): return M()"
    with pytest.raises(
        InputError,
        match=r"no gradient reaches the parameters idle\.weight, idle\.bias; "
        r".*requires_grad_\(False\)",
    ):
        extract_graph(key(write(tmp_path, LINEAR.format(build))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sequence_length": 64}, "takes no sequence length"),
        ({"cp": 2}, "context parallel degree 2"),
        ({"ep": 2}, "has no experts"),
    ],
)
def test_what_is_not_known_of_a_module_is_refused(tmp_path, changes, said):
    path = write(tmp_path, LINEAR.format("def build(): return nn.Linear(8, 8)"))
    with pytest.raises(InputError, match=said):
        extract_graph(replace(key(path), **changes))


def test_sequence_parallelism_needs_a_plan(gallery):
    with pytest.raises(
        InputError, match="no tensor_parallel plan, which sequence parallelism needs"
    ):
        extract_graph(key(GALLERY / "encoder.py", 2, sequence_parallel=True))
    block = extract_graph(key(GALLERY / "rotary.py", 2, sequence_parallel=True)).layers[1]
    kinds = [
        operator.collective.kind for operator in block.forward.operators if operator.collective
    ]
    assert kinds == [CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER] * 2


@pytest.mark.parametrize("score", ["F.normalize(x, dim=-1)", "x / x.norm(dim=-1, keepdim=True)"])
def test_vectors_may_be_normalised(tmp_path, score):
    text = f"""
import torch
from torch import nn
from torch.nn import functional as F

class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, x):
        x = self.project(x)
        return {score}

def build():
    return Tower()

def example_inputs(micro_batch_size, sequence_length=8):
    return torch.zeros(micro_batch_size, sequence_length, 4)

def loss(output):
    return output.float().sum()
"""
    path = tmp_path / "tower.py"
    path.write_text(text)
    graph = extract_graph(GraphKey(str(path), 2, 8, 1))
    functions = {
        work.function
        for layer in graph.layers
        for operator in layer.forward.operators
        for work in operator.vector
    }
    assert "mul" in functions and "div" in functions
