"""Model files that cannot be extracted: one sentence each, with the line and what to do."""

import re

import pytest

import phaze

HEAD = "import torch\nfrom torch import nn\n"
INPUTS = (
    "def example_inputs(micro_batch_size, sequence_length=8): return "
    "torch.zeros(micro_batch_size, sequence_length, 4)\n"
)
LOSS = "def loss(output): return output.float().sum()\n"
LINEAR = "def build(): return nn.Linear(4, 4)\n"
REST = HEAD + LINEAR + INPUTS


def module(forward, init="", before=""):
    lines = [
        "class M(nn.Module):",
        "    def __init__(self):",
        f"        super().__init__(); self.a = nn.Linear(4, 4); {init}",
    ]
    return (
        HEAD
        + before
        + "\n".join(
            [
                *lines,
                "    def forward(self, x):",
                f"        {forward}",
                "def build(): return M()",
                INPUTS,
            ]
        )
        + LOSS
    )


BACKWARD = """\
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): raise ValueError("no backward")
"""
BROKEN = {
    "syntax": ("def build(:\n", r"mine\.py:1 is not valid Python: invalid syntax"),
    "null bytes": ("\0", "is not valid Python: source code string cannot contain null bytes"),
    "nested": ("x = " + "(" * 5000, "is not valid Python"),
    "empty": ("", r"has no function build\(\); write one"),
    "no inputs": (HEAD + LINEAR, r"has no function example_inputs\(\)"),
    "arguments of build": (
        HEAD + "def build(config): return 1\n" + INPUTS,
        r":3: build\(\) must take no arguments",
    ),
    "arguments of inputs": (
        HEAD + LINEAR + "def example_inputs(a, b, c): return 1\n",
        r":4: example_inputs\(\) must take \(micro",
    ),
    "arguments of loss": (
        REST + "def loss(output, labels): return 1\n",
        r":5: loss\(\) must take one argument",
    ),
    "asynchronous": (HEAD + "async def build(): return 1\n" + INPUTS, "asynchronous"),
    "missing import": (
        "import surely_not_installed\n" + REST,
        r"fails at .*mine\.py:1 with ModuleNotFoundError: No module named",
    ),
    "fails when loaded": (
        REST + "1 / 0\n",
        r"loading the model file fails at .*:5 with ZeroDivisionError",
    ),
    "ends the process": (
        REST + "import sys; sys.exit(0)\n",
        r"ends the process at .*:5; keep what runs a script under",
    ),
    "fails when built": (
        HEAD + "def build(): raise KeyError('width')\n" + INPUTS,
        r"build\(\) fails at .*:3 with KeyError: 'width'",
    ),
    "no module": (
        HEAD + "def build(): return 3\n" + INPUTS,
        r"build\(\) in .* returns an object of type int; return the torch\.nn\.Module",
    ),
    "no function": (HEAD + "build = 3\n" + INPUTS, r"build in .* is int; make it a function"),
    "one size of batch": (
        HEAD
        + LINEAR
        + "def example_inputs(micro_batch_size, sequence_length=8): return torch.zeros(1, "
        "sequence_length, 4)\n" + LOSS,
        r"equal shapes for 1 and 2 samples; make an axis of the inputs micro_batch_size long",
    ),
    "dtype": (
        module("return self.a(x) + torch.dot(x.flatten().float(), x.flatten())"),
        r"RuntimeError: .*; models are traced in bfloat16: cast to the dtype of the weights",
    ),
    "no parameters": (HEAD + "def build(): return nn.ReLU()\n" + INPUTS, "has no parameters"),
    "all frozen": (
        HEAD + "def build(): return nn.Linear(4, 4).requires_grad_(False)\n" + INPUTS,
        "only frozen parameters",
    ),
    "inputs fail": (
        HEAD + LINEAR + "def example_inputs(a, b=8): return torch.zeros(width)\n",
        r":4 with NameError: name 'width'",
    ),
    "no tensors": (
        HEAD + LINEAR + "def example_inputs(a, b=8): return None\n",
        "returns NoneType; return a tensor",
    ),
    "no tensor": (
        HEAD + LINEAR + "def example_inputs(a, b=8): return torch.zeros(a, 4), 3\n",
        "input '1' .* is int; inputs are tensors",
    ),
    "no inputs at all": (
        HEAD + LINEAR + "def example_inputs(a, b=8): return ()\n",
        "returns an empty tuple",
    ),
    "no length": (
        HEAD + LINEAR + "def example_inputs(a, b): return torch.zeros(a, 4)\n",
        "give one with --sequence-length",
    ),
    "computed length": (
        HEAD + LINEAR + "def example_inputs(a, b=2 * 4): return torch.zeros(a, 4)\n",
        r":4: the default of b is read",
    ),
    "shapes": (
        module("return self.a(x[..., :3])"),
        r"the forward pass fails at .*mine\.py:7 with RuntimeError",
    ),
    "inputs that do not fit": (
        module("return self.a(x)").replace("def forward(self, x)", "def forward(self, x, y)"),
        "TypeError",
    ),
    "value": (
        module("return self.a(x) * x.sum().item()"),
        r"asks for the value of a tensor at .*mine\.py:7,",
    ),
    "branch": (
        module("return self.a(x) if x.sum() > 0 else x"),
        r"asks for the value of a tensor at .*mine\.py:7,",
    ),
    "nonzero": (
        module("return self.a(x)[x.sum(-1).nonzero()]"),
        r"nonzero.* at .*mine\.py:7 makes a tensor whose shape depends",
    ),
    "boolean index": (
        module("return self.a(x)[x[..., 0] > 0]"),
        r"at .*mine\.py:7 makes a tensor whose shape depends on values",
    ),
    "masked select": (
        module("return torch.masked_select(self.a(x), x > 0)"),
        r"masked_select.* at .*mine\.py:7",
    ),
    "unused": (
        module("return self.a(x)", "self.b = nn.Linear(4, 4)"),
        r"no gradient reaches the parameters b\.weight, b\.bias",
    ),
    "detached": (
        module("return self.a(x).detach()"),
        r"depends on no parameter; .* without detach\(\)",
    ),
    "integer loss": (
        REST + "def loss(output): return output.argmax()\n",
        r"is torch\.int64 of shape \(\); return",
    ),
    "several losses": (
        REST + "def loss(output): return output.sum(-1)\n",
        r"is torch\.bfloat16 of shape \(1, 8\)",
    ),
    "no loss": (REST + "def loss(output): pass\n", r"loss\(\) in .* returns NoneType"),
    "loss fails": (
        REST + "def loss(output): return output.logits\n",
        r"loss\(\) fails at .*:5 with AttributeError",
    ),
    "sparse": (
        module("return torch.sparse.mm(x[0].to_sparse(), self.a(x)[0, :4])"),
        r"_to_sparse at .*mine\.py:7 .* use dense",
    ),
    "recurrence": (
        module("return self.r(self.a(x))[0]", "self.r = nn.LSTM(4, 4, proj_size=2)"),
        r"LSTM with proj_size is not priced",
    ),
    "control flow": (
        module("return torch.cond(x.sum() > 0, torch.neg, torch.exp, (self.a(x),))"),
        r"at .*mine\.py:7 that cannot be",
    ),
    "backward fails": (
        module("return F.apply(self.a(x))", before=BACKWARD),
        r"fails at .*mine\.py:7 with ValueError: no backward",
    ),
    "partial write": (
        module(
            "y = torch.zeros_like(x); y.diagonal(0, 1, 2).copy_(self.a(x)[:, :4, 0]); return y * 2"
        ),
        r"copy_ at .*mine\.py:7 writes into a",
    ),
    "no output": (module("return {'a': 1}").replace(LOSS, ""), "holds no floating-point tensor"),
    "plan with a wrong key": (
        REST + "tensor_parallel = {'colum': []}\n",
        "no key 'colum'; the keys are column, row",
    ),
    "computed plan": (
        REST + "tensor_parallel = dict(column=['a'])\n",
        "write it out as a dictionary of literals",
    ),
    "plan that is a list": (REST + "tensor_parallel = ['a']\n", "is a list; write a dictionary"),
    "plan without sizes": (
        REST + "tensor_parallel = {'column': ['a'], 'row': ['b']}\n",
        "under 'sizes' what a width has to divide",
    ),
    "plan without pairs": (
        REST + "tensor_parallel = {'column': ['a'], 'sizes': {'a': 4}}\n",
        "split in pairs",
    ),
    "plan of numbers": (
        REST + "tensor_parallel = {'column': [1], 'row': ['b'], 'sizes': {'a': 4}}\n",
        "must list names in quotes",
    ),
    "plan for nobody": (
        REST + "tensor_parallel = {'column': ['fc'], 'row': ['b'], 'sizes': {'a': 4}}\n",
        "'fc' under 'column' matches no",
    ),
}


@pytest.mark.some(25)
@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_refused_with_one_sentence(tmp_path, capsys, text, said):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert (
        phaze.main(
            ["extract_graph", "--model", str(path), "--output", str(tmp_path / "out"), "--quiet"]
        )
        == 2
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [
        line
        for line in captured.err.splitlines()
        if "the mean of the output stands for it" not in line
    ]
    assert len(lines) == 1 and lines[0].startswith("phaze: "), captured.err
    assert re.search(said, lines[0]), lines[0]
    assert len(lines[0]) < 800


@pytest.mark.parametrize(
    ("tp", "plan", "said"),
    [
        (
            "3",
            "{'column': ['0'], 'row': ['1'], 'sizes': {'width': 6}}",
            "does not divide the 4 of '0' under 'column'",
        ),
        (
            "1",
            "{'column': ['2'], 'row': ['1'], 'sizes': {'width': 6}}",
            "'2' under 'column' is a LayerNorm; only linears",
        ),
        (
            "1",
            "{'column': ['0'], 'row': ['1'], 'divided': {'0': 'heads'}, 'sizes': {'width': 6}}",
            "'heads' of '0' .* NoneType; name widths",
        ),
        (
            "1",
            "{'column': ['0'], 'row': ['1'], 'head': '7', 'sizes': {'width': 6}}",
            "'7' under 'head' is no module",
        ),
    ],
)
def test_plans_that_do_not_fit_the_module_are_refused(tmp_path, capsys, tp, plan, said):
    path = tmp_path / "mine.py"
    build = "def build(): return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4))\n"
    path.write_text(HEAD + build + INPUTS + LOSS + f"tensor_parallel = {plan}\n")
    words = [
        "extract_graph",
        "--model",
        str(path),
        "--tp",
        tp,
        "--output",
        str(tmp_path),
        "--quiet",
    ]
    assert phaze.main(words) == 2
    assert re.search(said, capsys.readouterr().err)
