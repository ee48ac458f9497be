"""Whatever operator of torch a model uses is priced: by a formula, or by its bytes, which is then
said."""

import math
from textwrap import dedent

import numpy as np
import pytest
import torch
from torch.fx import Graph

from Estimator.coverage import priced_by_bytes, times_by_bytes
from Estimator.devices.files import load_device, load_software
from Estimator.devices.functions import SCAN_OPERATIONS, TENSORS_MOVED
from Estimator.devices.operator_cost import DeviceModel
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperatorKind, Recompute
from GraphExtractor.linear_algebra import algebra_work

_ATEN = torch.ops.aten
KNOWN = TENSORS_MOVED | SCAN_OPERATIONS
# x is (2, 8, 8), y (2, 8, 6), both made by linear layers
OPERATORS = """
torch.atan(y)
torch.asinh(y)
torch.erfinv(y)
torch.atan2(y, y)
torch.fmod(y, 2.0)
torch.hypot(y, y)
torch.polygamma(1, y)
torch.special.i0(y)
torch.xlogy(y, y)
torch.nan_to_num(y)
torch.cummax(y, -1).values
torch.logcumsumexp(y, -1)
torch.cumprod(y, -1)
torch.kthvalue(y, 2, -1).values
torch.median(y, -1).values
torch.mode(y, -1).values
torch.renorm(y, 2, 0, 1.0)
torch.take_along_dim(y, y.argsort(-1), -1)
torch.nn.functional.grid_sample(y[:, None], torch.zeros(y.shape[0], 4, 4, 2))
torch.nn.functional.interpolate(y[:, None], scale_factor=2, mode="bicubic")
torch.nn.functional.max_pool3d(y[:, None, None], 1)
torch.nn.functional.adaptive_max_pool2d(y[:, None], 2)
torch.nn.functional.local_response_norm(y[:, None], 2)
torch.nn.functional.fold(torch.nn.functional.unfold(y[:, None], 2), y.shape[-2:], 2)
torch.nn.functional.multi_margin_loss(y.flatten(1), torch.zeros(y.shape[0], dtype=torch.long))
torch.nn.functional.pad(y, (1, 1), mode="circular")
torch.cdist(y, y)
torch.bilinear(y.flatten(0, 1), y.flatten(0, 1), torch.ones(3, 6, 6), None)
torch.fft.rfft(y).abs()
torch.fft.irfft(torch.fft.rfft(y))
torch.fft.fft2(y).real
torch.stft(y.flatten(1), 8, return_complex=True, window=torch.ones(8)).abs()
torch.linalg.solve(x, y)
torch.linalg.solve_triangular(x, y, upper=False)
torch.linalg.inv(x)
torch.linalg.cholesky(x)
torch.linalg.qr(y).Q
torch.linalg.svd(y, full_matrices=False).S
torch.linalg.eigh(x).eigenvalues
torch.linalg.matrix_exp(x)
torch.linalg.det(x)
torch.linalg.slogdet(x).logabsdet
torch.linalg.lu_factor(x).LU
torch.linalg.lu(x)[2]
torch.linalg.pinv(y)
torch.linalg.matrix_power(x, 3)
torch.linalg.matrix_norm(x, 2)
torch.cholesky_solve(y, x)
torch.triangular_solve(y, x).solution
torch.linalg.householder_product(x, x[..., 0])
torch.segment_reduce(y.flatten(), "sum", lengths=torch.full((4,), y.numel() // 4))
""".strip().splitlines()


@pytest.fixture(scope="module")
def device():
    return DeviceModel(load_device("a100-80gb"), load_software("megatron_2022"), "bfloat16")


def module_of(tmp_path, expression):
    path = tmp_path / "mine.py"
    code = f"""
        import torch
        class Mine(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 6)
            def forward(self, given):
                x, y = self.a(given).float(), self.b(given).float()
                made = {expression}
                return (made.real if made.is_complex() else made).float().mean() + x.mean() + y.mean()
        def build(): return Mine()
        def example_inputs(micro_batch_size): return torch.zeros(micro_batch_size, 8, 8)
    """
    path.write_text(dedent(code), encoding="utf-8")
    return extract_graph(GraphKey(str(path), 2, 1, 1))


@pytest.mark.some(20)
@pytest.mark.parametrize("expression", OPERATORS)
def test_every_operator_is_priced_and_named_where_no_formula_describes_it(
    tmp_path, device, expression
):
    graph = module_of(tmp_path, expression)
    operators = [
        each
        for layer in graph.layers
        for each in (*layer.forward.operators, *layer.backward.operators)
    ]
    seconds = [device.operator_time(each).device_s for each in operators]
    assert all(math.isfinite(each) and each > 0 for each in seconds)
    unknown = {
        work.function for each in operators for work in each.vector if work.function not in KNOWN
    }
    found = priced_by_bytes(
        graph, Recompute.NONE, KNOWN, lambda each: device.price(each).alone.seconds[0]
    )
    assert (
        {each.operator for each in found}
        == {f"aten.{function}" for function in unknown}
        == times_by_bytes(graph, KNOWN).keys()
    )
    assert all(each.times >= 1 and 0 < each.share_of_seconds < 1 for each in found)
    moving = [each for each in operators if any(work.function in unknown for work in each.vector)]
    assert all(each.bytes_read + each.bytes_written > 0 for each in moving)


@pytest.mark.parametrize(
    "made",
    ["torch.fft.rfft({}).abs()", "torch.fft.fft2({}).real", "torch.fft.irfft(torch.fft.rfft({}))"],
)
def test_transforms_run_in_the_precision_that_torch_has_for_them(tmp_path, made):
    """Models are traced in bfloat16, in which torch has no transforms; code written for float32
    casts nothing."""
    narrow, wide = (
        module_of(tmp_path, made.format(given))
        for given in ("self.b(given)", "self.b(given).float()")
    )
    flops = [sum(each.forward.flops for each in graph.layers) for graph in (narrow, wide)]
    assert flops[0] > 0 and narrow.total_parameter_count == wide.total_parameter_count
    names = [
        {
            work.function
            for each in graph.layers
            for op in each.forward.operators
            for work in op.vector
        }
        for graph in (narrow, wide)
    ]
    assert names[0] == names[1]


def node_of(target, *shapes):
    graph = Graph()
    operands = [graph.placeholder(f"given{place}") for place in range(len(shapes))]
    for operand, shape in zip(operands, shapes, strict=True):
        operand.meta["val"] = torch.empty(shape, device="meta")
    node = graph.call_function(target, tuple(operands))
    node.meta["val"] = torch.empty(shapes[-1], device="meta")
    return node


@pytest.mark.parametrize(
    ("target", "name", "shapes", "multiply_adds"),
    [
        (
            torch.ops.aten.linalg_solve_triangular.default,
            "linalg_solve_triangular",
            [(3, 64, 64), (3, 64, 16)],
            3 * 64 * 64 * 16 / 2,
        ),
        (
            _ATEN.triangular_solve.default,
            "triangular_solve",
            [(3, 64, 16), (3, 64, 64)],
            3 * 64 * 64 * 16 / 2,
        ),
        (_ATEN.linalg_cholesky_ex.default, "linalg_cholesky_ex", [(60, 60)], 60**3 / 6),
        (_ATEN.linalg_inv_ex.default, "linalg_inv_ex", [(5, 12, 12)], 5 * 12**3),
        (_ATEN.linalg_lu_factor_ex.default, "linalg_lu_factor_ex", [(30, 30)], 30**3 / 3),
        (_ATEN.linalg_qr.default, "linalg_qr", [(90, 30)], 2 * (90 * 30**2 - 30**3 / 3)),
        (_ATEN._linalg_eigh.default, "_linalg_eigh", [(2, 10, 10)], 2 * 4.5 * 10**3),
    ],
)
def test_work_of_small_linear_algebra(target, name, shapes, multiply_adds):
    work = algebra_work(node_of(target, *shapes), name)
    (vector,) = work.vector
    assert work.kind is OperatorKind.REDUCTION and not work.gemms
    assert vector.elements == pytest.approx(multiply_adds, abs=1)
    assert vector.steps == max(
        min(shape[-2:]) for shape in shapes
    )  # the order of the system, one column after another


def test_a_larger_system_takes_longer_than_its_bytes(tmp_path, device):
    graph = module_of(
        tmp_path,
        "torch.linalg.svd(torch.nn.functional.pad(x, (0, 1016, 0, 1016)), full_matrices=False).S",
    )
    (operator,) = [
        each for layer in graph.layers for each in layer.forward.operators if "svd" in each.name
    ]
    time = device.operator_time(operator)
    assert (
        time.arithmetic_s
        > 10 * (operator.bytes_read + operator.bytes_written) / device.stream_bytes_per_s
    )
    assert np.isfinite(time.device_s)
