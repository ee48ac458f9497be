"""Names of torch and transformers that the next release may not have are in one module: read from
the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_layering import FOLDERS

REPOSITORY = Path(__file__).resolve().parent.parent
HOME = Path("GraphExtractor/torch_internals.py")
UNSTABLE = (  # public names whose documentation promises nothing
    "torch.fx.experimental",
    "torch.fx.traceback",
    "torch.utils.weak",
    "transformers.initialization",
    "transformers.models",
    "transformers.utils",
)
ALLOWED = {  # tests, each with its reason
    "tests/phaze/exports/megatron_target.py": {
        "torch.testing._internal.distributed.fake_pg.FakeStore"
    },  # runs where Megatron-LM does
    # the public switch of oneDNN touches TF32 too, of which builds with CUDA warn
    "tests/GraphExtractor/test_scans.py": {
        *("torch._C", "torch._C._get_mkldnn_enabled", "torch._C._set_mkldnn_enabled"),
    },
    "tests/GraphExtractor/test_attention.py": {  # compares with what transformers computes there
        f"transformers.models.{model}.modeling_{model}.eager_attention_forward"
        for model in ("gemma2", "gpt_oss")
    },
}
OPERATORS = "torch.ops."  # names of operators are what graphs consist of, underscores or not


def unstable_names(source: str) -> set[str]:
    """Dotted names of torch and transformers without a promise, that are imported, used or loaded
    by their text."""
    return {name for name in _dotted(ast.parse(source)) if _is_unstable(name)}


def _dotted(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module"
        ):
            yield from (
                text.value
                for text in ast.walk(node)
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            )


def _is_unstable(name: str) -> bool:
    outermost, *inner = name.split(".")
    if outermost not in {"torch", "transformers"} or name.startswith(OPERATORS):
        return False
    private = any(part.startswith("_") and not part.startswith("__") for part in inner)
    return private or any(f"{name}.".startswith(f"{each}.") for each in UNSTABLE)


def test_only_one_module_names_what_the_next_release_may_not_have() -> None:
    folders = (REPOSITORY / folder for folder in (*FOLDERS, "tests"))
    paths = (path.relative_to(REPOSITORY) for folder in folders for path in folder.rglob("*.py"))
    files = [path for path in paths if path != HOME]
    found = {
        path.as_posix(): unstable_names((REPOSITORY / path).read_text(encoding="utf-8"))
        for path in files
    }
    assert {path: names for path, names in found.items() if names} == ALLOWED
    assert unstable_names((REPOSITORY / HOME).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from torch._ops import OpOverload", {"torch._ops.OpOverload"}),
        ("from torch.fx import Node, traceback", {"torch.fx.traceback"}),
        ("def f():\n    import torch._dynamo", {"torch._dynamo"}),
        (
            "from torch.fx.experimental.proxy_tensor import make_fx",
            {"torch.fx.experimental.proxy_tensor.make_fx"},
        ),
        ("x = torch._C._get_mkldnn_enabled()", {"torch._C", "torch._C._get_mkldnn_enabled"}),
        ("import_module(f'transformers.models.{name}')", {"transformers.models."}),
        (
            "from transformers.models.bert.modeling_bert import BertLayer",
            {"transformers.models.bert.modeling_bert.BertLayer"},
        ),
        (
            "from torch.nn.modules.batchnorm import _BatchNorm",
            {"torch.nn.modules.batchnorm._BatchNorm"},
        ),
        ("from torch.fx import Graph, Node\nfrom torch.overrides import TorchFunctionMode", set()),
        ("torch.ops.aten._unsafe_view.default, torch.__file__, torch.fx.Node", set()),
        ("from transformers import BertConfig", set()),
        ("self.model.torch._x", set()),
    ],
)
def test_what_counts_as_such_a_name(source: str, found: set[str]) -> None:
    assert unstable_names(source) == found
