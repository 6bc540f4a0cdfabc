"""Tapes against autograd of the transform's forward."""

from __future__ import annotations

import pytest
import torch

from lmkit.heads.tape import AutogradTape
from lmkit.heads.transforms import PiecewiseLinear, tape_of


@pytest.mark.parametrize("freeze", [False, True])
def test_tape_over_chunks_is_autograd_of_forward(transform_kind, make_transform, freeze):
    torch.manual_seed(3)
    transform = make_transform(transform_kind).double()
    parameters = list(transform.parameters())
    if freeze and parameters:
        parameters[0].requires_grad_(False)
    trainable = [p for p in parameters if p.requires_grad]
    chunks = [2 * torch.randn(n, 6, dtype=torch.float64) for n in (3, 1, 4)]
    grads = [torch.randn_like(chunk) for chunk in chunks]
    inputs = [chunk.clone().requires_grad_() for chunk in chunks]
    outcomes = [transform(z) for z in inputs]
    expected = torch.autograd.grad(outcomes, [*inputs, *trainable], grads, allow_unused=True)

    tape = tape_of(transform)
    for i, (chunk, grad) in enumerate(zip(chunks, grads, strict=True)):
        torch.testing.assert_close(tape.value(chunk.clone()), outcomes[i].detach())
        torch.testing.assert_close(tape.pull(grad.clone()), expected[i])
    found = tape.parameter_grads()
    assert len(found) == len(trainable)
    for a, b in zip(found, expected[len(chunks) :], strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b)


def test_a_transform_from_outside_is_differentiated_by_autograd(make_transform):
    assert isinstance(tape_of(make_transform("bend")), AutogradTape)
    assert not isinstance(tape_of(make_transform("plif")), AutogradTape)


class Steeper(PiecewiseLinear):
    """A user's variation of a built-in transform, whose tape knows nothing of it."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(logits)


class Renamed(PiecewiseLinear):
    """Computes what its base does."""


def test_a_derived_transform_keeps_its_bases_tape_only_with_its_bases_forward():
    assert not isinstance(tape_of(Renamed(5, 1.0, frozen=False)), AutogradTape)
    steeper = Steeper(5, 1.0, frozen=False).double()
    logits = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(tape_of(steeper).value(logits.clone()), steeper(logits).detach())


def test_a_value_may_be_overwritten_before_the_pull(transform_kind, make_transform):
    assert_value_may_be_overwritten(make_transform(transform_kind).double())


@pytest.mark.parametrize("outside", [torch.nn.Tanh(), torch.nn.Identity()])
def test_so_may_one_that_autograd_has_kept_and_one_that_is_the_logits(outside):
    assert_value_may_be_overwritten(outside)


def assert_value_may_be_overwritten(transform: torch.nn.Module) -> None:
    """As the chunked loss does, which turns values into log-probabilities in place."""
    torch.manual_seed(4)
    logits = torch.randn(3, 6, dtype=torch.float64)
    grad = torch.randn_like(logits)
    z = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(transform(z), z, grad)
    tape = tape_of(transform)
    tape.value(logits.clone()).fill_(torch.nan)
    torch.testing.assert_close(tape.pull(grad.clone()), expected)
