"""The chunked loss against the plain path, value and every gradient, in float64.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

T, B = 7, 3  # 21 contexts


# one row a chunk, chunks that do not divide 21, that do, one chunk, one chunk far larger
@pytest.mark.parametrize("rows", [1, 4, 7, 21, 1000])
def test_float64_equals_the_plain_path(
    mixture_kind, transform_kind, make_head, make_batch, rows, both_losses, relative_error
):
    head = make_head(mixture_kind, transform_kind, rows)
    found, expected = both_losses(head, *make_batch(head, T, B))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert relative_error(value, expected[name]) < 1e-12, name
    assert found["nll"] > 1
    assert found["hidden"].norm() > 0.01


def test_gradcheck(mixture_kind, transform_kind, make_head, make_batch):
    head = make_head(mixture_kind, transform_kind, rows=2)
    hidden_TBD, targets_TB = make_batch(head, 3, 1)
    hidden_TBD.requires_grad_()
    trainable = [p for p in head.parameters() if p.requires_grad]

    def nll(hidden_TBD: Tensor, *_: Tensor) -> Tensor:
        return head.nll(hidden_TBD, targets_TB)

    assert torch.autograd.gradcheck(nll, (hidden_TBD, *trainable), fast_mode=True)


@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 5), (11, 1)])
def test_odd_windows(make_head, make_batch, steps, batch, both_losses, relative_error):
    head = make_head("softmaxes", "gss")
    found, expected = both_losses(head, *make_batch(head, steps, batch))
    assert all(relative_error(found[name], expected[name]) < 1e-12 for name in found)


def test_the_gradient_scales_with_what_comes_from_above(make_head, make_batch, loss_and_grads):
    head = make_head("softmaxes", "plif")
    batch = make_batch(head, T, B)
    once, scaled = loss_and_grads(head, *batch), loss_and_grads(head, *batch, scale=-2.5)
    for name in once:
        factor = 1.0 if name == "nll" else -2.5
        torch.testing.assert_close(scaled[name], factor * once[name])


def test_frozen_inputs_get_no_gradient_and_change_no_other(make_head, make_batch, loss_and_grads):
    head = make_head("softmaxes", "bend")
    batch = make_batch(head, T, B)
    full = loss_and_grads(head, *batch)
    head.decoder_weight.requires_grad_(False)
    head.transform.scale.requires_grad_(False)
    part = loss_and_grads(head, *batch)
    assert full.keys() - part.keys() == {"decoder_weight", "transform.scale"}
    assert all(torch.equal(part[name], full[name]) for name in part)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_deterministic_and_as_on_a_cpu(
    mixture_kind, transform_kind, make_head, make_batch, monkeypatch, loss_and_grads, relative_error
):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    head = make_head(mixture_kind, transform_kind, rows=4)
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = loss_and_grads(head, hidden_TBD, targets_TB)
    head.cuda()
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (
            loss_and_grads(head, hidden_TBD.cuda(), targets_TB.cuda()) for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert relative_error(value.cpu(), expected[name]) < 1e-12, name
