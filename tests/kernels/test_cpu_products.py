"""What makes PyTorch fast on a CPU: products, and the advice that tensors lie in huge pages.

Shapes: M rows, K summed over, N columns.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lmkit.kernels import cpu_products as cpu

needs_onednn = pytest.mark.skipif(not cpu.has_onednn(torch.float32), reason="no oneDNN here")


def _offers_huge_pages() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[never]" not in setting.read_text()


@pytest.fixture(params=[False, pytest.param(True, marks=needs_onednn)], ids=["default", "onednn"])
def library(request, monkeypatch):
    monkeypatch.setattr(cpu, "prefers_onednn", lambda: request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 2), (70, 33, 129), (1, 40, 7), (64, 1, 9)])
@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_product_is_that_of_float64_within_rounding(size, a_by_columns, b_by_columns):
    rows, inner, columns = size
    random = torch.Generator().manual_seed(0)
    a_MK = torch.randn(rows, inner, generator=random)
    b_KN = torch.randn(inner, columns, generator=random)
    a_MK = a_MK.T.contiguous().T if a_by_columns else a_MK
    b_KN = b_KN.T.contiguous().T if b_by_columns else b_KN
    bias_N = torch.randn(columns, generator=random)
    exact = a_MK.double() @ b_KN.double()
    bound = 1e-6 * (a_MK.double().norm() * b_KN.double().norm() + bias_N.norm())
    assert (cpu.product(a_MK, b_KN) - exact).abs().max() < bound
    assert (cpu.product(a_MK, b_KN, bias_N) - (exact + bias_N)).abs().max() < bound
    assert cpu.product(a_MK, b_KN).dtype == torch.float32


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("is_dense", [True, False])
def test_linear_is_pytorchs_in_value_and_gradient(is_dense):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, 10, generator=random)
    x = (x.contiguous() if is_dense else x.transpose(0, 1))[..., :9].requires_grad_()
    weight = torch.randn(5, 9, generator=random, requires_grad=True)
    found = []
    for apply in (cpu.linear, torch.nn.functional.linear):
        output = apply(x, weight)
        grads = torch.autograd.grad(output.pow(2).sum(), (x, weight))
        found.append((output.detach(), *grads))
    torch.testing.assert_close(*found)
    assert cpu.linear(x.double(), weight.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert cpu.linear(x, weight).dtype == torch.bfloat16


@pytest.fixture
def given(monkeypatch):
    """The operands that oneDNN gets."""
    monkeypatch.setattr(cpu, "prefers_onednn", lambda: True)
    operands = []

    def product_of(a, b, *rest):
        operands.extend([a, b])
        return a @ b.T

    monkeypatch.setattr(cpu.torch.ops.mkldnn, "_linear_pointwise", product_of)
    return operands


@needs_onednn
def test_the_operand_that_onednn_copies_is_the_smaller(given):
    grad_MV, x_ME = torch.randn(6, 40), torch.randn(6, 3)
    torch.testing.assert_close(cpu.product(grad_MV.T, x_ME), grad_MV.T @ x_ME)
    torch.testing.assert_close(cpu.product(x_ME.T, grad_MV), x_ME.T @ grad_MV)
    assert [tuple(x.shape) for x in given] == [(3, 6), (40, 6)] * 2


@needs_onednn
def test_onednn_is_given_no_matrix_with_gaps(given):
    wide_MK, tall_KN = torch.randn(6, 9)[:, 2:7], torch.randn(15, 4)[::3]
    torch.testing.assert_close(cpu.product(wide_MK, tall_KN), wide_MK @ tall_KN)
    torch.testing.assert_close(cpu.product(tall_KN.T, wide_MK.T), tall_KN.T @ wide_MK.T)
    # given gaps, oneDNN falls back to code that takes some hundred times as long
    assert len(given) == 4
    assert all(x.is_contiguous() or x.T.is_contiguous() for x in given)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_keep_their_product(dtype):
    a_MK, b_KN = torch.ones(2, 3, dtype=dtype), torch.ones(3, 4, dtype=dtype)
    assert torch.equal(cpu.product(a_MK, b_KN), torch.full((2, 4), 3, dtype=dtype))


def test_a_narrow_product_takes_tensors_without_memory():
    """FLOPs are counted on the meta device, of which oneDNN knows nothing."""
    total, rows, matrix = (torch.empty(*s, device="meta") for s in ((2, 3), (2, 4), (4, 3)))
    cpu.NarrowProduct(matrix, 2).add_to(total, rows)


@pytest.mark.skipif(not _offers_huge_pages(), reason="this kernel offers no huge pages")
def test_large_tensors_lie_in_huge_pages():
    code = """
import lmkit.kernels.cpu_products, torch
tensor = torch.ones(2**24)
middle = tensor[2**23].data_ptr()
with open("/proc/self/smaps") as maps:
    for line in maps:
        first, *rest = line.split()
        if "-" in first:
            start, end = (int(address, 16) for address in first.split("-"))
        elif first == "VmFlags:" and start <= middle < end:
            print(*rest)
"""
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert "hg" in done.stdout.split()
